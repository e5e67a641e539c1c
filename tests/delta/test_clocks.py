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


def test_a_clock_further_behind_is_an_error_that_changes_nothing(queue, behind):
    ids = queue.send(["a", "b"])
    claim = queue.receive(1, visibility_timeout=60)
    (message,) = claim.messages()
    slow, before = behind(30.001), queue.counts()
    for verb in (
        slow.receive, slow.purge, lambda: slow.lock(ids[0], 60), lambda: slow.restore(claim.receipt_id),
        lambda: slow.delete(message.receipt_handle), lambda: slow.change_visibility(message.receipt_handle, 60),
        slow.redrive, slow.counts,
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
