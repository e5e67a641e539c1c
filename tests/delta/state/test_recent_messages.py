"""What a process sent a moment ago it reads from memory: the same as the table has, and only while the table has it."""

from __future__ import annotations

from itertools import count

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ledger.errors import LedgerDamaged
from ledger.rules.message import Entry
from ledger.store.delta.state import sent_messages
from ledger.store.delta.state.sent_messages import Append, RecentMessages
from tests.delta.commit.interrupting import Interrupter

ATTRIBUTES = {
    "name": {"DataType": "String", "StringValue": "é"},
    "bytes": {"DataType": "Binary", "BinaryValue": b"\0\1"},
    "count": {"DataType": "Number.int", "StringValue": "7"},
}


@pytest.fixture
def reads(open_ledger, monkeypatch):
    """Open a ledger; return it, and a list of the reads that it makes of the table `messages`."""
    ledger, found = open_ledger(), []
    read = ledger.store.engine.messages

    def noted(where, *rest, **more):
        found.append(where)
        return read(where, *rest, **more)

    monkeypatch.setattr(ledger.store.engine, "messages", noted)
    return ledger, found


def test_recent_messages_are_what_another_process_reads_in_the_table(reads, open_ledger, clock):
    (ledger, found), other = reads, open_ledger()
    queue = ledger.create_queue("jobs", {"Lanes": 3})
    for n in range(4):
        queue.send([{"MessageBody": f"{n}.{m}", "MessageAttributes": ATTRIBUTES} for m in range(3)])
        queue.send({"MessageBody": "later", "DelaySeconds": n, "AWSTraceHeader": "Root=1"})
        clock.advance(1)
    clock.advance(10)
    claims = [queue.receive(5), queue.receive(7), queue.receive(None)]
    messages = [claim.messages() for claim in claims]
    assert not found
    assert sum(map(len, messages)) == 16
    assert messages == [other.queue("jobs").claim(claim.receipt_id).messages() for claim in claims]


def test_recent_messages_of_a_fifo_queue_come_in_their_order(reads, open_ledger):
    (ledger, found), other = reads, open_ledger()
    queue = ledger.create_queue("jobs.fifo", {"FifoQueue": "true", "Lanes": 3, "ContentBasedDeduplication": "true"})
    for n in range(4):
        queue.send([{"MessageBody": f"{n}.{m}", "MessageGroupId": "abc"[m]} for m in range(3)])
    claim = queue.receive(10)
    # The receive itself reads the groups.
    found.clear()
    messages = claim.messages()
    assert not found
    in_groups = {group: [m.body for m in messages if m.message_group_id == group] for group in "abc"}
    assert all(bodies == sorted(bodies) for bodies in in_groups.values())
    assert sorted(messages, key=str) == sorted(other.queue("jobs.fifo").claim(claim.receipt_id).messages(), key=str)


def test_recent_messages_that_moved_to_a_dead_letter_queue_are_read_there(reads, open_ledger):
    (ledger, found), other = reads, open_ledger()
    dead = ledger.create_queue("dead", {"Lanes": 2})
    policy = {"deadLetterTargetArn": "dead", "maxReceiveCount": 1}
    jobs = ledger.create_queue("jobs", {"Lanes": 3, "RedrivePolicy": policy})
    jobs.send(["a", "b", "c"])
    jobs.receive(None, 0)
    assert not jobs.receive(None, 0)
    claim = dead.receive(None)
    messages = claim.messages()
    assert not found
    assert [message.dead_letter_source for message in messages] == ["jobs"] * 3
    assert messages == other.queue("dead").claim(claim.receipt_id).messages()


def test_messages_that_are_not_recent_any_more_are_read_in_the_table(reads, monkeypatch):
    ledger, found = reads
    monkeypatch.setattr(ledger.store.recent, "most_bytes", 2_000)
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    bodies = [f"{n} {'.' * 500}" for n in range(10)]
    for body in bodies:
        queue.send(body)
    claim = queue.receive(10)
    assert [message.body for message in claim.messages()] == bodies
    assert found
    found.clear()
    queue.send("last")
    (message,) = queue.receive(1).messages()
    assert message.body == "last" and not found


def test_an_append_too_large_to_be_kept_is_read_in_the_table(reads, monkeypatch):
    ledger, found = reads
    monkeypatch.setattr(sent_messages, "MOST_BYTES_OF_AN_APPEND", 100)
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    queue.send(["a" * 200])
    assert [message.body for message in queue.receive(10)] == ["a" * 200]
    assert found


def test_recent_messages_that_somebody_took_out_of_the_table_are_damage(reads, root):
    ledger, _ = reads
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    queue.send(["a", "b", "c"])
    claim = queue.receive(10)
    DeltaTable(f"{root}/messages").delete("body = 'b'")
    with pytest.raises(LedgerDamaged):
        claim.messages()


def test_messages_of_others_and_of_this_process_make_one_claim(reads, open_ledger):
    (ledger, _), other = reads, open_ledger()
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    queue.send(["a", "b"])
    other.queue("jobs").send(pa.table({"body": ["c", "d"]}))
    assert sorted(message.body for message in queue.receive(None)) == ["a", "b", "c", "d"]


def test_what_is_kept_fits_together_wherever_an_interrupt_comes():
    """Else a later send, which has committed, would fail as it makes room."""
    for number in count(1):
        recent = RecentMessages(None, most_bytes=20)
        for seq in range(2):
            recent.add(Append(0, "s", seq, [Entry("a")], 0, None, 10))
        _, kept = Interrupter(number).run(
            lambda recent=recent: recent.add(Append(0, "t", 0, [Entry("a")], 0, None, 10))
        )
        for seq in range(1, 6):
            recent.add(Append(0, "t", seq, [Entry("a")], 0, None, 10))
        if kept is None:
            break
    assert number > 3
