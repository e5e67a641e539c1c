"""The log "ledger" says what happens that nobody asked for, and of a body it says nothing."""

import logging
import threading

import pyarrow as pa
import pytest

from ledger import Ledger, LedgerError, Settings, StorageFailed
from ledger.heartbeat import Beat, Heartbeat
from ledger.store.delta.commit.transactions import Attempts
from tests.clock import FrozenClock

SECRET = "Zq7-secret"


@pytest.fixture
def clock():
    return FrozenClock()


@pytest.fixture
def ledger(tmp_path, clock):
    return Ledger.open(str(tmp_path / "ledger"), clock=clock, settings=Settings(keep_deleted_receipts=1))


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.DEBUG, "ledger")
    return lambda name, level=logging.DEBUG: [
        record.getMessage() for record in caplog.records if record.name == name and record.levelno >= level
    ]


def a_rich_run(ledger, clock, tmp_path):
    """All verbs, with what goes wrong in them, on messages with SECRET in every place that is their own."""
    dead = ledger.create_queue("dead")
    policy = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 2}
    queue = ledger.create_queue("work", {"RedrivePolicy": policy, "MaximumMessageSize": 1_024})
    ordered = ledger.create_queue("events.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True})
    good = {"MessageBody": f"{SECRET} {{}}", "MessageAttributes": {"k": SECRET}}
    queue.send([good, f"{SECRET}\x01", "", f"{SECRET}" * 200, {"MessageBody": [SECRET]}, {"Nothing": SECRET}, SECRET])
    queue.send(pa.table({"body": [SECRET] * 3, "n": [1, 2, 3]}))
    for wrong in (pa.table({"body": [f"{SECRET}\x01"]}), [f"{SECRET}" * 200]):
        with pytest.raises(LedgerError):
            queue.send(wrong, **({} if isinstance(wrong, pa.Table) else {"all_or_nothing": True}))
    ordered.send([{"MessageBody": SECRET, "MessageGroupId": "g"}] * 2)
    ordered.receive(2).release()
    first = queue.receive(2, 10)
    queue.peek(first.messages()[0].message_id)
    with first.heartbeat():
        first.extend(20)
    clock.advance(30)
    with pytest.raises(LedgerError):
        queue.receive(5, 10).delete() and first.delete()
    queue.send([f"{SECRET} again"] * 4)
    claim = queue.receive(4, 100)
    handles = [message.receipt_handle for message in claim]
    queue.settle(delete=handles[:1], release=handles[1:2], extend=[*handles[2:3], "forged"])
    claim.write(
        pa.table({"message_id": [claim.messages()[3].message_id], "text": [SECRET]}),
        tmp_path / "out",
        messages="message_id",
    )
    for _ in range(4):
        queue.receive(None, 0)
    dead.redrive(max_messages=1)
    dead.start_message_move_task()
    queue.receive(1, 50).delete()
    queue.restore(claim.receipt_id)
    clock.advance(5_000)
    ledger.upkeep()
    ordered.purge()
    ledger.delete_queue("events.fifo")
    ledger.upkeep()


def test_no_record_of_a_rich_run_has_anything_of_a_body(ledger, clock, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    a_rich_run(ledger, clock, tmp_path)
    ours = [record for record in caplog.records if record.name.split(".")[0] == "ledger"]
    assert {record.name for record in ours} >= {
        f"ledger.{name}" for name in ("send", "verbs", "events", "claims", "upkeep", "queues")
    }
    for record in caplog.records:
        assert SECRET not in f"{record.getMessage()} {record.args} {record.exc_text} {record.exc_info}", record.name


def test_a_lease_that_ran_out_and_a_dead_letter_are_said(ledger, clock, said):
    dead = ledger.create_queue("dead")
    queue = ledger.create_queue("work", {"RedrivePolicy": {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1}})
    queue.send("a")
    queue.receive(1, 10)
    clock.advance(11)
    assert not queue.receive()
    expired, moved = said("ledger.events", logging.INFO)
    assert "expired 1 messages" in expired and "moved 1 messages" in moved
    receipt = dead.receive(1, 10).receipt_id
    clock.advance(11)
    assert dead.receive()
    assert any("expired 1 messages" in line and receipt in line for line in said("ledger.events", logging.INFO))


def test_a_lost_race_says_how_often_and_the_end_of_all_tries_is_a_warning(said):
    attempts = Attempts("receive", 3, 0.0, 0.0)
    assert list(attempts) == [0, 1, 2]
    assert str(attempts.give_up())
    assert [line.split(",")[-1] for line in said("ledger.retries")[:2]] == [" attempt 2", " attempt 3"]
    assert "given up" in said("ledger.retries", logging.WARNING)[0]


def beating(*answers):
    """A heartbeat whose extensions end so, one after the other; when the last one is over."""
    left, over = list(answers), threading.Event()

    def extend(timeout):
        answer = left.pop(0)
        if not left:
            over.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    with Heartbeat("receipt-1", extend, 10, 0.001) as heart:
        # Whoever ends it waits for the beat that runs.
        assert over.wait(60)
    return heart


def test_a_heartbeat_that_fails_comes_back_and_ends_is_said(said):
    beating(StorageFailed("place", "gone"), Beat(0, False), Beat(2, True))
    lines = said("ledger.heartbeat")
    assert [("receipt-1" in line) for line in lines] == [True] * 4
    assert "not extended" in lines[0] and "again" in lines[1] and "2 messages" in lines[2] and "ceiling" in lines[3]
