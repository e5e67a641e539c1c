"""Each rule's rendering for Spark against the rule itself, on generated rows; Spark runs once per rule."""

import itertools
import random
from dataclasses import dataclass, field

import pytest
from pyspark.sql import functions as F

from ledger.errors import ReceiptHandleIsInvalid
from ledger.rules import message_id as ids
from ledger.rules.receipt_handle import ReceiptHandle, decode, encode, new_receipt_id
from ledger.rules.visibility import Record, Retention, Status, expires_at, status
from ledger.store.delta.dataframes import columns

ROWS = 300
QUEUE, FOREIGN = "orders-1_a-0123abcd", "orders-1_a-0123abce"
SEQS = (0, 1, 255, 256, 65_535, 2**31 - 1, 2**31, ids.SEQ_BOUND - 1)


@dataclass
class Generator:
    """Seeded random rows; the edges of the ordinals come up often."""

    dice: random.Random = field(default_factory=lambda: random.Random(20_240_501))

    def seq(self) -> int:
        return self.dice.choice(SEQS) if self.dice.random() < 0.4 else self.dice.randrange(ids.SEQ_BOUND)

    def segment(self) -> str:
        ordinal = self.dice.choice((0, 1, ids.ORDINAL_BOUND - 1, self.dice.randrange(ids.ORDINAL_BOUND)))
        return ids.segment(f"{self.dice.getrandbits(72):018x}", ordinal, is_open=self.dice.random() < 0.5)

    def handle(self, queue: str = QUEUE) -> ReceiptHandle:
        return ReceiptHandle(queue, self.dice.randrange(256), self.segment(), self.seq(), new_receipt_id())


def answers(spark, rows, schema, column):
    """What Spark computes for each row, in order."""
    numbered = [(number, *row) for number, row in enumerate(rows)]
    frame = spark.createDataFrame(numbered, f"number INT, {schema}")
    return [row.answer for row in frame.select("number", column.alias("answer")).orderBy("number").collect()]


def is_valid(handle) -> bool:
    try:
        decode(handle, QUEUE)
    except ReceiptHandleIsInvalid:
        return False
    return True


@pytest.fixture
def generate():
    return Generator()


def test_a_message_id_is_the_same_in_spark(spark, generate):
    rows = [(generate.segment(), generate.seq()) for _ in range(ROWS)]
    found = answers(spark, rows, "segment STRING, seq BIGINT", columns.message_id(F.col("segment"), F.col("seq")))
    assert found == [ids.message_id(*row) for row in rows]


def test_a_segment_of_a_send_has_the_same_name_in_spark(spark, generate):
    ordinals = [0, 1, ids.ORDINAL_BOUND - 1, *(generate.dice.randrange(ids.ORDINAL_BOUND) for _ in range(ROWS))]
    keys = ["0" * 18, "f" * 18, *(f"{generate.dice.getrandbits(72):018x}" for _ in range(6))]
    named = F.array(*(columns.segment_of_send(key, F.col("ordinal")) for key in keys))
    found = answers(spark, [(ordinal,) for ordinal in ordinals], "ordinal BIGINT", named)
    assert found == [[ids.segment(key, ordinal) for key in keys] for ordinal in ordinals]


def test_a_receipt_handle_is_the_same_in_spark(spark, generate):
    rows = [generate.handle(generate.dice.choice((QUEUE, FOREIGN))) for _ in range(ROWS)]
    parts = map(F.col, ReceiptHandle._fields)
    schema = "queue STRING, lane INT, segment STRING, seq BIGINT, receipt_id STRING"
    assert answers(spark, rows, schema, columns.receipt_handle(*parts)) == [encode(row) for row in rows]


def test_the_parts_of_a_handle_are_the_same_in_spark(spark, generate):
    rows = [generate.handle() for _ in range(ROWS)]
    parts = columns.handle_parts(columns.split_handle(F.col("handle")))
    found = answers(spark, [(encode(row),) for row in rows], "handle STRING", F.struct(*parts.values()))
    assert [tuple(parts) for parts in found] == [tuple(row[1:]) for row in rows]


def test_spark_takes_exactly_the_handles_that_the_rule_takes(spark, generate):
    good = [encode(generate.handle()) for _ in range(100)]
    foreign = [encode(generate.handle(FOREIGN)) for _ in range(20)]
    cut_off = [handle[: generate.dice.randrange(len(handle))] for handle in good]
    cut_in_front = [handle[generate.dice.randrange(1, len(handle)) :] for handle in good]
    forged = [changed_in_one_place(handle, generate.dice) for handle in good for _ in range(3)]
    beyond = [encode(generate.handle()._replace(seq=seq)) for seq in (ids.SEQ_BOUND, 9_999_999_999, 10**10)]
    odd = [None, "", ".", "x", "." * 6, f"{QUEUE}.", *(good[0] + end for end in (" ", "\n", ".", "é", "0")), "ö" * 99]
    handles = [*good, *foreign, *cut_off, *cut_in_front, *forged, *beyond, *odd]
    handle = F.col("handle")
    is_handle = columns.is_valid_handle(handle, columns.split_handle(handle), QUEUE)
    found = answers(spark, [(h,) for h in handles], "handle STRING", is_handle)
    expected = [is_valid(handle) for handle in handles]
    assert [h for h, f, e in zip(handles, found, expected) if f != e] == []
    assert sum(expected) >= len(good)


def changed_in_one_place(handle: str, dice: random.Random) -> str:
    at = dice.randrange(len(handle))
    return handle[:at] + dice.choice("0123456789abcdefABC.-_ \n") + handle[at + 1 :]


def test_the_status_of_a_message_is_the_same_in_spark(spark):
    around = (999, 1_000, 1_001)
    records = [
        Record(
            receipt_id=receipt, receive_count=count, visible_at=visible, released_at=released, deleted_at=deleted,
            moved_to=moved,
        )
        for receipt, count, visible, released, deleted, moved in itertools.product(
            (None, "r"), (0, 2), (None, *around), (None, 998), (None, 999, 1_001), (None, "dead-00000000")
        )
    ]  # fmt: skip
    cases = list(itertools.product(records, around, (1_000,), (None, *around)))
    rows = [
        (record.receipt_id, record.moved_to, record.visible_at, record.deleted_at, available, now, expires)
        for record, available, now, expires in cases
    ]
    names = ("visible_at", "deleted_at", "available_at", "now", "expires_at")
    schema = "receipt_id STRING, moved_to STRING, " + ", ".join(f"{name} BIGINT" for name in names)
    frame = spark.createDataFrame(rows, schema).withColumns({n: F.expr(f"timestamp_millis({n})") for n in names})
    found = [row.answer for row in frame.select(columns.status("now").alias("answer")).collect()]
    assert found == [status(record, available, now, expires).value for record, available, now, expires in cases]
    assert set(found) == {state.value for state in Status}, "every state comes up"


def test_when_a_message_expires_is_the_same_in_spark(spark):
    periods, noted = (60, 61), (None, 59_999, 60_000, 60_001, 200_000)
    records = [Record(enqueued_at=moved) for moved in (None, 0, 60_000, 90_000)]
    cases = list(itertools.product(records, (0, 60_000, 60_001), periods, noted))
    rows = [
        (sent, record.enqueued_at, {"MessageRetentionPeriod": str(period)} | ({"ExpiredBefore": str(n)} if n else {}))
        for record, sent, period, n in cases
    ]
    schema = "sent_at BIGINT, enqueued_at BIGINT, attributes MAP<STRING, STRING>"
    frame = spark.createDataFrame(rows, schema).withColumn("queues", F.struct("attributes"))
    frame = frame.withColumns({name: F.expr(f"timestamp_millis({name})") for name in ("sent_at", "enqueued_at")})
    found = [row.answer for row in frame.select(F.expr(f"unix_millis({columns.EXPIRES_AT})").alias("answer")).collect()]
    assert found == [expires_at(r, sent, Retention(1_000 * period, n or -1)) for r, sent, period, n in cases]
