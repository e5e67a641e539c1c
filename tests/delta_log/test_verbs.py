"""A real ledger after 200 verbs and an upkeep: its tables are valid, and every reader reads the same cells."""

import contextlib
import random

import pytest

from ledger import Ledger
from ledger.errors import LeaseLost
from ledger.settings import Settings
from ledger.store.delta.model.tables import TABLES
from tests.clock import FrozenClock
from tests.delta_log import by_hand as hand
from tests.delta_log.readers import require_same, spark_reader

VERBS = 200


def verbs(ledger, clock):
    """Makes verbs, and yields after each."""
    dice = random.Random(7)
    dead = ledger.create_queue("dead")
    policy = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 3}
    queue = ledger.create_queue("jobs", {"Lanes": 2, "VisibilityTimeout": 60, "RedrivePolicy": policy})
    fifo = ledger.create_queue("events.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True})
    claims = []

    def receive():
        claims.append(queue.receive(dice.choice([1, 3, 40]), 30))

    def send():
        attributes = {"kind": "ü", "blob": b"\0\xff", "priority": 7}
        queue.send(
            [f"körper {dice.random()} \\ '" for _ in range(dice.choice([1, 5, 60]))], message_attributes=attributes
        )

    def settle():
        claim = claims.pop(dice.randrange(len(claims))) if claims else queue.receive(2)
        handles = [message.receipt_handle for message in claim.messages()]
        half = len(handles) // 2
        claim.settle(delete=handles[:half], release=handles[half:], reason="no 'number' ü")

    def extend():
        if claims:
            dice.choice(claims).extend(45)

    def delete():
        if claims:
            claims.pop().delete()

    def fifo_verbs():
        fifo.send(f"e {dice.random()}", message_group_id=dice.choice("ab"))
        fifo.receive(2, 20).delete()

    def redrive():
        dead.redrive()

    known = (receive, send, settle, extend, delete, fifo_verbs, redrive, lambda: queue.receive(1, 0).count)
    while True:
        # What ran out meanwhile is nobody's any more.
        with contextlib.suppress(LeaseLost):
            dice.choice((*known, receive, settle, send))()
        clock.advance(dice.choice([0, 1, 25]))
        yield


def test_after_200_verbs_and_an_upkeep_every_reader_reads_the_same(tmp_path, spark):
    clock, root = FrozenClock(), f"{tmp_path}/ledger"
    ledger = Ledger.open(root, engine="delta-rs", settings=Settings(mark_seconds=0), clock=clock)
    for _, _ in zip(range(VERBS), verbs(ledger, clock)):
        pass
    commits = sum(len(hand.versions_of(f"{root}/{name}")) for name in TABLES)
    before = {name: require_same(f"{root}/{name}") for name in TABLES}
    assert commits > VERBS and min(len(before[name]) for name in ("queues", "messages", "visibility")) > 2
    ledger.upkeep()
    after = {name: require_same(f"{root}/{name}", spark_reader(spark)) for name in TABLES}
    assert len(after["receipts"]) > len(before["receipts"])
    again = Ledger.open(root, engine="delta-rs", settings=Settings(mark_seconds=0), clock=clock)
    assert again.queue("jobs").counts() == ledger.queue("jobs").counts()


@pytest.mark.soak
def test_after_1000_verbs_with_upkeeps_every_reader_reads_the_same(tmp_path, spark):
    clock, root = FrozenClock(), f"{tmp_path}/ledger"
    ledger = Ledger.open(root, engine="delta-rs", settings=Settings(mark_seconds=0), clock=clock)
    for number, _ in zip(range(5 * VERBS), verbs(ledger, clock)):
        if number % 100 == 99:
            ledger.upkeep()
            for name in TABLES:
                require_same(f"{root}/{name}", spark_reader(spark))
