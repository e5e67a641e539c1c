"""A claim's messages are read many segments at a time, and never many more than it has."""

import random

import pytest

from ledger.store.delta.verbs import reading


@pytest.fixture
def reads(open_ledger, monkeypatch):
    """A ledger, and what is read of `messages` there: the segments named and the rows that came."""
    ledger, found = open_ledger(), []
    read = ledger.store.engine.messages

    def noted(where, *rest):
        rows = read(where, *rest)
        found.append((len(where.segments or ()), rows.num_rows))
        return rows

    monkeypatch.setattr(ledger.store.engine, "messages", noted)
    return ledger, found


def test_messages_of_many_segments_and_two_queues_are_read_in_bounded_batches(reads, clock, monkeypatch):
    (ledger, found), dice = reads, random.Random(1)
    ledger.create_queue("dead", {"Lanes": 2})
    policy = {"deadLetterTargetArn": "dead", "maxReceiveCount": 1}
    jobs = ledger.create_queue("jobs", {"Lanes": 3, "RedrivePolicy": policy})
    dead, bodies = ledger.queue("dead"), []
    for n, queue in enumerate([jobs] * 8 + [dead] * 8):
        sent = [f"{n}.{m}" for m in range(dice.choice([1, 2, 30]))]
        queue.send(sent, attempt_id=str(n))
        bodies += sent
        clock.advance(0.001)
    jobs.receive(None, 0)
    assert not jobs.receive(None, 0)
    claim = dead.receive(None, 60)
    done = {message.body: message.receipt_handle for message in claim if dice.random() < 0.3}
    dead.delete(list(done.values()))
    left = dead.claim(claim.receipt_id)
    found.clear()
    whole = left.messages()
    assert sorted(message.body for message in whole) == sorted(set(bodies) - set(done))
    assert len(found) == 2 and 14 <= sum(segments for segments, _ in found) <= 16
    monkeypatch.setattr(reading, "MOST_SEGMENTS", 3)
    monkeypatch.setattr(reading, "MOST_MESSAGES", 12)
    found.clear()
    assert left.messages() == whole
    assert 6 <= len(found) < 16
    assert all(segments <= 3 and (segments == 1 or rows <= 12) for segments, rows in found)
