"""Upkeep and what counts elsewhere: dead letters outlive their queue, and deduplication its messages."""

import pytest

from ledger.errors import MessageDoesNotExist
from ledger.store.delta.model.tables import Where

KEPT = OPEN = 60
FIFO = {"FifoQueue": "true", "Lanes": 1}


@pytest.fixture
def ledger(open_ledger):
    return open_ledger(keep_deleted_receipts=KEPT, open_segment_seconds=OPEN)


@pytest.fixture
def dead(ledger):
    return ledger.create_queue("dead", {"Lanes": 2})


@pytest.fixture
def queue(ledger, dead):
    policy = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1}
    return ledger.create_queue("jobs", {"Lanes": 3, "RedrivePolicy": policy})


def die(queue, *bodies):
    ids = queue.send(list(bodies), attempt_id=f"attempt of {bodies[0]}")
    for _ in range(2):
        queue.receive(None, visibility_timeout=0)
    return ids


def bodies(claim):
    return sorted(message.body for message in claim)


@pytest.mark.parametrize("source_is_deleted", [False, True])
def test_d1_dead_letters_stay_as_long_as_they_count_and_are_dropped_afterwards(
    ledger, queue, dead, clock, source_is_deleted
):
    ids = die(queue, "a", "b")
    if source_is_deleted:
        ledger.delete_queue(queue.name)
    clock.advance(100_000)
    report = ledger.upkeep()
    assert (report.segments_dropped, report.queues_removed) == (0, 0)
    assert [dead.peek(message_id).body for message_id in ids] == ["a", "b"]
    claim = dead.receive(None)
    assert bodies(claim) == ["a", "b"] and {m.dead_letter_source for m in claim} == {"jobs"}
    assert ledger.upkeep().segments_dropped == 0
    claim.delete()
    assert ledger.upkeep().segments_dropped == 0, "what was deleted lately may be restored"
    assert dead.restore(claim.receipt_id) == 2
    assert dead.receive(None).delete().messages == 2
    clock.advance(KEPT + 0.001)
    removed = [ledger.upkeep().queues_removed for _ in range(3)]
    assert sum(removed) == int(source_is_deleted)
    assert ledger.store.engine.files()[1].num_rows == 0
    with pytest.raises(MessageDoesNotExist):
        dead.peek(ids[0])
    rows = ledger.store.engine.load("visibility", Where()).rows.to_pylist()
    assert [row for row in rows if row["segment"]] == []


def test_d1_a_segment_of_which_a_part_died_stays_whole_for_both_queues(ledger, queue, dead, clock):
    ids = queue.send(["a", "b", "c"], attempt_id="one")
    handles = {message.body: message.receipt_handle for message in queue.receive(None)}
    queue.settle(delete=[handles["a"]], release=[handles["b"]], extend=[handles["c"]], visibility_timeout=40_000)
    assert not queue.receive()
    clock.advance(30_000)
    ledger.upkeep()
    assert [dead.peek(ids[1]).body, queue.peek(ids[2]).body] == ["b", "c"]
    assert queue.delete([handles["c"]])[0].outcome == "deleted"
    clock.advance(30_000)
    ledger.upkeep()
    assert bodies(dead.receive(None)) == ["b"]


def test_d2_redriven_messages_survive_the_upkeep_of_both_queues(ledger, queue, dead, clock):
    ids = die(queue, "a", "b")
    ledger.upkeep()
    assert dead.redrive(ids[:1]) == 1
    clock.advance(100_000)
    ledger.upkeep()
    assert bodies(queue.receive(None)) == ["a"] and bodies(dead.receive(None)) == ["b"]
    ledger.delete_queue("dead")
    clock.advance(10_000)
    ledger.upkeep()
    assert queue.peek(ids[0]).body == "a"


def test_q7_expired_messages_are_dropped(ledger, clock):
    queue = ledger.create_queue("short", {"Lanes": 1, "MessageRetentionPeriod": 600})
    old = queue.send(["a", "b"], attempt_id="old")
    clock.advance(300)
    young = queue.send(["c"], attempt_id="young")
    clock.advance(299)
    assert ledger.upkeep().segments_dropped == 0
    clock.advance(30)
    assert ledger.upkeep().segments_dropped == 0, "by another driver's clock it may not have expired yet"
    clock.advance(1)
    assert ledger.upkeep().segments_dropped == 1
    with pytest.raises(MessageDoesNotExist):
        queue.peek(old[0])
    assert queue.peek(young[0]).body == "c" and (queue.counts().expired, queue.counts().visible) == (0, 1)


def test_f1_what_was_dropped_is_not_forgotten_within_the_five_minutes(open_ledger, clock):
    """Two sends share a segment; the later one is still known although the first is long gone."""
    ledger = open_ledger(keep_deleted_receipts=1, open_segment_seconds=200)
    queue = ledger.create_queue("jobs.fifo", FIFO)

    def send(number):
        return queue.send(f"x{number}", message_group_id="g", message_deduplication_id=number)

    first = send("1")
    clock.advance(199)
    second = send("2")
    queue.receive(None).delete()
    clock.advance(299)
    ledger.upkeep()
    assert send("2") == second and not queue.receive()
    clock.advance(2)
    assert ledger.upkeep().segments_dropped == 0, "by another driver's clock the five minutes may not be over"
    clock.advance(30)
    assert ledger.upkeep().segments_dropped == 1
    assert send("1") != first and send("2") != second
    assert bodies(queue.receive(None)) == ["x1", "x2"]


def test_the_receipts_tell_of_both_sides_of_a_move(ledger, queue, dead):
    die(queue, "a", "b")
    dead.redrive()
    ledger.fill_receipts()
    rows = ledger.store.engine.load("receipts", Where()).rows.to_pylist()
    found = sorted((row["version"], row["event"], row["queue"], row["messages"]) for row in rows)
    home, there = queue.id, dead.id
    assert [row[1:] for row in found] == [
        ("granted", home, 2), ("arrived", there, 2), ("expired", home, 2), ("moved", home, 2),
        ("arrived", home, 2), ("moved", there, 2),
    ]  # fmt: skip
