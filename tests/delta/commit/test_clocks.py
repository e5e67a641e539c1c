"""Drivers whose clocks disagree: a little is taken for now, much is an error that changes nothing."""

import pytest

from ledger import Ledger
from ledger.errors import ClocksDisagree
from tests.clock import FrozenClock


@pytest.fixture
def queue(open_ledger):
    return open_ledger().create_queue("jobs", {"Lanes": 1})


@pytest.fixture
def behind(root, clock):
    """The same queue, or another, opened by a driver whose clock is so many seconds behind."""

    def open_behind(seconds, name="jobs"):
        slow = FrozenClock(clock())
        slow.advance(-seconds)
        return Ledger.open(root, engine="delta-rs", clock=slow).queue(name)

    return open_behind


def test_a_clock_that_is_a_little_behind_takes_nothing_over_early_and_gives_no_lease_that_is_over(queue, behind, clock):
    queue.send(["a", "b"])
    claim = queue.receive(1, visibility_timeout=60)
    slow = behind(30)
    other = slow.receive(None, visibility_timeout=20)
    assert other.count == 1, "never what the first one holds"
    assert other.deadline.timestamp() * 1_000 == clock() + 20_000, "by the time of the last commit"
    assert claim.delete().messages == 1


def test_a_clock_further_behind_is_an_error_that_changes_nothing(queue, behind, open_ledger):
    open_ledger().create_queue("other")
    ids = queue.send(["a", "b"])
    claim = queue.receive(1, visibility_timeout=60)
    (message,) = claim.messages()
    slow, before = behind(30.001), queue.counts()
    for verb in (
        slow.receive, slow.purge, lambda: slow.lock(ids[0], 60), lambda: slow.restore(claim.receipt_id),
        lambda: slow.delete(message.receipt_handle), lambda: slow.change_visibility(message.receipt_handle, 60),
        lambda: slow.redrive(destination="other"), slow.counts,
    ):  # fmt: skip
        with pytest.raises(ClocksDisagree, match="maximum_clock_skew"):
            verb()
    assert queue.counts() == before


def test_a_fifo_queue_takes_no_send_from_before_the_last_one(open_ledger, behind):
    queue = open_ledger().create_queue("jobs.fifo", {"FifoQueue": "true", "ContentBasedDeduplication": "true"})
    ids = queue.send("a1", message_group_id="a")
    ids += behind(29, "jobs.fifo").send("a2", message_group_id="a")
    assert queue.peek(ids[1]).sent_at == queue.peek(ids[0]).sent_at
    with pytest.raises(ClocksDisagree):
        behind(31, "jobs.fifo").send("a3", message_group_id="a")
    assert [message.body for message in queue.receive(None)] == ["a1", "a2"]


def test_how_far_clocks_may_be_apart_is_a_setting(open_ledger, root, clock):
    queue = open_ledger().create_queue("jobs")
    queue.send("a")
    queue.receive(1, visibility_timeout=0)
    clock.advance(-2)
    strict, lax = open_ledger(maximum_clock_skew=1.0), open_ledger(maximum_clock_skew=2.0)
    with pytest.raises(ClocksDisagree):
        strict.queue("jobs").receive()
    assert lax.queue("jobs").receive()


@pytest.fixture
def waiting(open_ledger, clock, monkeypatch):
    """The queue, through a ledger whose every verb waits 9 seconds for its turn."""
    ledger = open_ledger()
    monkeypatch.setattr(ledger.store.transactions, "before_turn", lambda: clock.advance(9))
    return ledger.queue("jobs")


def test_a_lease_counts_from_the_decision_and_not_from_before_the_wait(queue, waiting, clock):
    queue.send(["a", "b"])

    def left(claim):
        return claim.deadline.timestamp() - clock() / 1_000

    claim = waiting.receive(1, visibility_timeout=10)
    assert left(claim) == 10
    claim.extend(20)
    (message,) = claim.messages()
    assert queue.peek(message.message_id).visible_at.timestamp() == clock() / 1_000 + 20
    claim.release()
    again = waiting.receive(1, visibility_timeout=10, attempt_id="job")
    assert left(waiting.receive(1, visibility_timeout=10, attempt_id="job")) == 10 and again
    (locked,) = {m.message_id for m in queue.receive(None, 0)} - {m.message_id for m in again}
    waiting.lock(locked, 10)
    assert queue.peek(locked).visible_at.timestamp() == clock() / 1_000 + 10


def test_what_was_sent_after_a_wait_is_delayed_from_then_on(queue, waiting, clock):
    waiting.send("a", delay_seconds=5)
    assert not queue.receive()
    clock.advance(5)
    assert queue.receive()


def test_a_long_wait_is_no_disagreement_of_clocks(queue, open_ledger, clock):
    """It lost to another who committed 32 seconds later, by the same clock."""
    queue.send(["a", "b"])
    slow, taken = open_ledger(), []

    def another_is_first(step):
        if step == "chosen" and not taken:
            clock.advance(32)
            taken.append(queue.receive(1, visibility_timeout=60))

    slow.store.transactions.on_step = another_is_first
    claim = slow.queue("jobs").receive(1, visibility_timeout=10)
    assert claim.count == 1 and claim.deadline.timestamp() == clock() / 1_000 + 10


def test_an_upkeep_that_takes_long_is_no_disagreement_of_clocks(open_ledger, clock):
    """Receivers went on while it worked, by the same clock, and their last commits are later than its beginning."""
    queue = open_ledger().create_queue("jobs")
    queue.send([str(n) for n in range(100)])
    queue.receive(1).delete()
    slow = open_ledger()

    def meanwhile():
        clock.advance(40)
        queue.receive(1, visibility_timeout=0)

    slow.store.transactions.before_turn = meanwhile
    slow.upkeep(vacuum=False)
    assert queue.counts().stored == 99


def test_a_fifo_send_that_stood_still_before_it_read_the_last_one_agrees_with_its_clock(
    open_ledger, clock, monkeypatch
):
    """A process that is stopped between its clock and its read sees sends of a minute later: no clock is wrong."""
    ledger = open_ledger()
    queue = ledger.create_queue("jobs.fifo", {"FifoQueue": "true", "ContentBasedDeduplication": "true"})
    queue.send("a1", message_group_id="a")
    other, engine = open_ledger().queue("jobs.fifo"), ledger.store.engine
    read = engine.messages

    def stands_still_first(*arguments, **keywords):
        monkeypatch.undo()
        clock.advance(60)
        other.send("a2", message_group_id="a")
        return read(*arguments, **keywords)

    monkeypatch.setattr(engine, "messages", stands_still_first)
    assert all(queue.send(["a3"], message_group_id="a"))
    assert [message.body for message in queue.receive(None)] == ["a1", "a2", "a3"]
