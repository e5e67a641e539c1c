"""Messages on the way to a queue that is deleted meanwhile are in one queue all the time: they stay where they were."""

import pytest

from ledger.errors import QueueDoesNotExist
from tests.simulation.engine import RULES
from tests.simulation.log import Storage
from tests.simulation.worlds import open_ledger as open_simulated

POLICY = {"deadLetterTargetArn": "dead", "maxReceiveCount": 1}


@pytest.fixture
def one(open_ledger):
    return open_ledger(keep_deleted_receipts=1, open_segment_seconds=1)


@pytest.fixture
def other(open_ledger):
    return open_ledger(keep_deleted_receipts=1, open_segment_seconds=1)


def before_the_lanes_are_read(ledger, monkeypatch, deed):
    """Does `deed` once, when the next decision has looked up its queues and is about to read its lanes."""
    engine, left = ledger.store.engine, [deed]
    load = engine.load

    def first_the_deed(table, where):
        # A decision that moves messages reads the lanes of two queues at once.
        if table == "visibility" and where.also is not None and left:
            left.pop()()
        return load(table, where)

    monkeypatch.setattr(engine, "load", first_the_deed)
    return left


def visible(ledger, name):
    return ledger.queue(name).counts().visible


def dead_letter_to_be(ledger, clock):
    """A queue with a message that was received as often as it may be."""
    ledger.create_queue("dead", {"Lanes": 1})
    queue = ledger.create_queue("jobs", {"Lanes": 1, "RedrivePolicy": POLICY})
    queue.send("tried")
    queue.receive(1, 10)
    clock.advance(10)
    return queue


def test_a_message_is_not_buried_in_a_queue_deleted_since_it_was_looked_up(one, other, clock, monkeypatch):
    queue = dead_letter_to_be(one, clock)

    def deed():
        other.delete_queue("dead")
        other.upkeep()

    left = before_the_lanes_are_read(one, monkeypatch, deed)
    assert [message.body for message in queue.receive(1, 10)] == ["tried"] and not left
    clock.advance(10)
    other.upkeep()
    assert visible(other, "jobs") == 1


def test_a_message_is_buried_in_the_queue_that_has_the_name_once_its_lanes_are_read(one, other, clock, monkeypatch):
    queue = dead_letter_to_be(one, clock)

    def deed():
        other.delete_queue("dead")
        other.create_queue("dead", {"Lanes": 1})
        other.upkeep()

    left = before_the_lanes_are_read(one, monkeypatch, deed)
    assert queue.receive(1, 10).count == 0 and not left
    assert (visible(other, "jobs"), visible(other, "dead")) == (0, 1)


@pytest.mark.parametrize("destination", ["beside", None])
def test_a_redrive_moves_nothing_to_a_queue_deleted_since_it_was_looked_up(one, other, clock, monkeypatch, destination):
    queue = dead_letter_to_be(one, clock)
    one.create_queue("beside", {"Lanes": 1})
    assert queue.receive(1, 10).count == 0

    def deed():
        other.delete_queue(destination or "jobs")
        other.upkeep()

    left, dead = before_the_lanes_are_read(one, monkeypatch, deed), one.queue("dead")
    if destination is None:
        # The other origin is still there, and so is what came from there.
        assert dead.redrive() == 0
    else:
        with pytest.raises(QueueDoesNotExist):
            dead.redrive(destination=destination)
    assert not left
    other.upkeep()
    assert visible(other, "dead") == 1


def once_decided(ledger, deed):
    """Does `deed` once, when the next decision is made and about to be committed."""
    left = [deed]
    ledger.store.transactions.on_step = lambda step: left.pop()() if step == "chosen" and left else None
    return left


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("used", [False, True], ids=["whose lanes were never used", "that has messages"])
def test_a_message_is_not_buried_in_a_queue_deleted_before_the_commit(clock, rules, used):
    """A lane that was never used has no head row that the commit could trip over, and gets one. On simulated tables, as
    two processes that commit through Spark alone take no turns only where there are no file locks."""
    storage = Storage(clock)
    one, other = (open_simulated(storage, rules, clock) for _ in range(2))
    queue = dead_letter_to_be(one, clock)
    if used:
        other.queue("dead").send("before")
        assert other.queue("dead").receive(1, 5).count == 1
    left = once_decided(one, lambda: other.delete_queue("dead"))
    assert [message.body for message in queue.receive(1, 10)] == ["tried"] and not left
    clock.advance(10)
    other.upkeep()
    assert visible(other, "jobs") == 1


@pytest.mark.parametrize("destination", ["beside", None])
def test_a_redrive_moves_nothing_to_a_queue_deleted_before_the_commit(one, other, clock, destination):
    queue = dead_letter_to_be(one, clock)
    one.create_queue("beside", {"Lanes": 1})
    assert queue.receive(1, 10).count == 0
    left, dead = once_decided(one, lambda: other.delete_queue(destination or "jobs")), one.queue("dead")
    if destination is None:
        assert dead.redrive() == 0
    else:
        with pytest.raises(QueueDoesNotExist):
            dead.redrive(destination=destination)
    assert not left
    other.upkeep()
    assert visible(other, "dead") == 1


def test_a_move_task_moves_nothing_to_a_queue_deleted_before_the_commit(one, other, clock):
    queue = dead_letter_to_be(one, clock)
    one.create_queue("beside", {"Lanes": 1})
    assert queue.receive(1, 10).count == 0
    dead = one.queue("dead")
    moved_to = one.store.queue("beside")
    task_stored = one.store.put_task
    left = []

    def stored(task):
        left.append(once_decided(one, lambda: other.delete_queue("beside"))) if not left else None
        return task_stored(task)

    one.store.put_task = stored
    dead.start_message_move_task("beside")
    other.upkeep()
    assert visible(other, "dead") == 1 and moved_to.id not in {queue.id for queue in other.store.queues()}


def test_upkeep_closes_a_deleted_queue_whose_process_ended_in_between(one, other, clock, monkeypatch):
    """Of which anything is recorded: of any other one upkeep does not know, and what comes there is deleted with it."""
    queue = dead_letter_to_be(one, clock)
    other.queue("dead").send("before")
    other.queue("dead").receive(1, 5)
    run, ran, deleted = other.store.transactions.run, [], []

    def ends_behind_its_row(verb, table, *others):
        ran.append(table)
        if ran == ["visibility", "queues", "visibility"]:
            raise KeyboardInterrupt
        return run(verb, table, *others)

    def deed():
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(other.store.transactions, "run", ends_behind_its_row)
            other.delete_queue("dead")
        deleted.append(True)
        other.upkeep()

    once_decided(one, deed)
    assert [message.body for message in queue.receive(1, 10)] == ["tried"] and deleted


class Killed(BaseException):
    """The process ended here."""


@pytest.mark.parametrize("commits", [1, 2, 3])
def test_a_deletion_that_dies_between_its_commits_loses_no_message_that_was_on_its_way(one, other, clock, commits):
    queue = dead_letter_to_be(one, clock)
    left, seen = [commits], []

    def dies(step):
        left[0] -= step == "committed"
        if not left[0]:
            raise Killed

    def meanwhile(step):
        if step == "chosen" and not seen:
            seen.append(step)
            other.store.transactions.on_step = dies
            with pytest.raises(Killed):
                other.delete_queue("dead")
            other.store.transactions.on_step = lambda step: None
            other.upkeep()
            if commits > 1:
                other.create_queue("dead", {"Lanes": 1})

    one.store.transactions.on_step = meanwhile
    queue.receive(1, 10)
    assert visible(one, "jobs") + visible(one, "dead") + one.queue("jobs").counts().in_flight == 1
