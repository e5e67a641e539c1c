"""DataFrames and FIFO queues, dead letters and redrives by a predicate."""

import itertools
from pathlib import Path

import pytest

from ledger import Ledger
from ledger.errors import ClocksDisagree, InvalidParameterValue, MissingParameter
from ledger.rules import fifo
from ledger.store.delta.dataframes import bulk_send

FIFO = {"FifoQueue": "true", "ContentBasedDeduplication": "true", "Lanes": 3}
_numbers = itertools.count()


@pytest.fixture
def ledger(frames_ledger):
    return frames_ledger


@pytest.fixture
def clock(frames_clock):
    return frames_clock


@pytest.fixture
def make_queue(ledger):
    def make(fifo=True, **attributes):
        name = f"ordered-{next(_numbers)}"
        return ledger.create_queue(name + ".fifo" * fifo, {**(FIFO if fifo else {"Lanes": 2}), **attributes})

    return make


def policy(target, count=1):
    return {"deadLetterTargetArn": target.arn, "maxReceiveCount": count}


def by_group(claim):
    found = {}
    for message in claim:
        found.setdefault(message.message_group_id, []).append(message.body)
    return found


def frame_of(spark, numbers, groups=7):
    """Rows that say their number and their group, in the order of the numbers."""
    rows = [(str(n), str(n % groups)) for n in numbers]
    return spark.createDataFrame(rows, "body STRING, message_group_id STRING").coalesce(1)


def test_f2_a_send_that_would_run_into_the_numbers_of_the_next_is_refused(make_queue, spark, monkeypatch):
    queue = make_queue(Lanes=2)
    monkeypatch.setattr(fifo, "ORDINAL_BITS", 4)
    with pytest.raises(InvalidParameterValue, match=r"at most 8 messages of groups.*lane.*Nothing was sent"):
        queue.send(frame_of(spark, range(9), groups=1))
    assert queue.counts().stored == 0
    assert queue.send(frame_of(spark, range(8), groups=1)).count == 8


def test_f2_lists_and_frames_are_one_order_in_every_group(make_queue, spark):
    queue = make_queue()
    queue.send([{"MessageBody": str(n), "MessageGroupId": str(n % 7)} for n in range(20)])
    assert queue.send(frame_of(spark, range(20, 200))).count == 180
    queue.send([{"MessageBody": str(n), "MessageGroupId": str(n % 7)} for n in range(200, 220)])
    queue.send(frame_of(spark, range(220, 300)))
    claim = queue.receive(None)
    assert by_group(claim) == {str(g): [str(n) for n in range(g, 300, 7)] for g in range(7)}
    numbers = {m.sequence_number for m in claim}
    assert len(numbers) == 300
    lanes = {(m.message_group_id, m.receipt_handle.split(".")[2]) for m in claim}
    assert len(lanes) == 7, "a group is in one lane, whoever sent it"
    rows = claim.dataframe.select(
        "message_id", "sequence_number", "message_group_id", "message_deduplication_id"
    ).collect()
    expected = {m.message_id: (m.sequence_number, m.message_group_id, m.message_deduplication_id) for m in claim}
    assert {row.message_id: tuple(row)[1:] for row in rows} == expected


@pytest.mark.soak_variants("of each group, read by Spark")
@pytest.mark.parametrize(
    ("few", "scope"),
    [(bulk_send.FEW, "queue"), (1, "queue"), (1, "messageGroup")],
    ids=["read by the driver", "read by Spark", "of each group, read by Spark"],
)
def test_f1_repeats_within_a_frame_and_of_earlier_sends_are_sent_once(
    make_queue, spark, clock, monkeypatch, few, scope
):
    monkeypatch.setattr(bulk_send, "FEW", few)
    queue = make_queue(DeduplicationScope=scope)
    queue.send([{"MessageBody": body, "MessageGroupId": body} for body in ("1", "2")])
    assert queue.send(frame_of(spark, [0, 1, 2, 3, 3, 4, 0])).count == 3
    assert sorted(message.body for message in queue.receive(None)) == ["0", "1", "2", "3", "4"]
    assert queue.send(frame_of(spark, range(5))).count == 0
    (same,) = queue.send("4", message_group_id="4")
    assert queue.peek(same).body == "4" and queue.counts().in_flight == 5 and queue.counts().visible == 0
    clock.advance(299.999)
    assert queue.send(frame_of(spark, range(5))).count == 0
    clock.advance(0.001)
    assert queue.send(frame_of(spark, range(5))).count == 5


@pytest.mark.parametrize(("name", "by_delta"), [("a b+c", False), ("a{b}*", True)])
def test_f1_earlier_sends_are_found_in_the_files_that_the_log_names(
    spark, tmp_path, monkeypatch, name, by_delta, clock
):
    """Spark reads them by their paths, in which it would take some characters for a pattern."""
    monkeypatch.setattr(bulk_send, "FEW", 0)
    read, find = [], bulk_send.BulkSender.find_files_since
    monkeypatch.setattr(
        bulk_send.BulkSender, "find_files_since", lambda self, *since: read.append(find(self, *since)) or read[-1]
    )
    queue = Ledger.open(str(tmp_path / name), spark, clock=clock).create_queue("q.fifo", FIFO)
    assert queue.send(frame_of(spark, range(4))).count == 4
    clock.advance(200)
    assert queue.send(frame_of(spark, range(2, 6))).count == 2
    clock.advance(200)
    assert queue.send(frame_of(spark, range(8))).count == 6
    assert [files is None for files in read] == [by_delta] * len(read) and len(read) == 2


def test_f1_the_scope_of_deduplication_may_be_the_group(make_queue, spark):
    queue = make_queue(DeduplicationScope="messageGroup")
    frame = spark.sql("SELECT 'x' AS body, g AS message_group_id FROM VALUES ('a'), ('b'), ('a') AS t(g)")
    assert queue.send(frame).count == 2
    assert by_group(queue.receive(None)) == {"a": ["x"], "b": ["x"]}


class Shuffled:
    """How many rows Spark shuffles from now on. Of a long session it forgets the first stages."""

    def __init__(self, spark):
        self._context, gateway = spark.sparkContext._jsc.sc(), spark.sparkContext._gateway
        self._all = None, False, False, gateway.new_array(gateway.jvm.double, 0), gateway.jvm.java.util.ArrayList()
        self._before = set(self._stages())

    def _stages(self):
        self._context.listenerBus().waitUntilEmpty()
        stages = self._context.statusStore().stageList(*self._all)
        every = (stages.apply(n) for n in range(stages.size()))
        return {(one.stageId(), one.attemptId()): one.shuffleWriteRecords() for one in every}

    def rows(self):
        return sum(rows for stage, rows in self._stages().items() if stage not in self._before)


@pytest.mark.parametrize(("scope", "times"), [("messageGroup", 1), ("queue", 2)])
def test_rows_are_shuffled_once_where_duplicates_are_of_one_group(make_queue, spark, scope, times):
    queue, shuffled = make_queue(DeduplicationScope=scope), Shuffled(spark)
    rows = spark.range(0, 1_000, 1, 2).selectExpr("'' || id AS body", "'' || id % 7 AS message_group_id")
    assert queue.send(rows).count == 1_000
    assert shuffled.rows() in range(1_000 * times, 1_000 * times + 100), "Delta's own jobs shuffle a few"


def test_a_frame_has_no_delay_of_its_own_for_a_fifo_queue(make_queue, spark):
    queue = make_queue(DelaySeconds=5)
    row = "SELECT '{}' AS body, 'g' AS message_group_id, {} AS delay_seconds"
    with pytest.raises(InvalidParameterValue, match=r"DelaySeconds.*not valid for this queue type.*Nothing was sent"):
        queue.send(spark.sql(row.format("x", 1)))
    assert queue.send(spark.sql(f"{row.format(1, 0)} UNION ALL {row.format(2, 'NULL')}")).count == 2
    as_json = spark.sql("SELECT 1 AS n, 'g' AS message_group_id, 9 AS delay_seconds")
    assert queue.send(as_json).count == 1 and queue.counts().delayed == 3


def test_f1_a_frame_needs_groups_and_ids_and_takes_no_attempt(make_queue, spark):
    queue, by_id = make_queue(), make_queue(ContentBasedDeduplication="false")
    for call, said in {
        lambda: queue.send(spark.sql("SELECT 'x' AS body")): "message_group_id.*FIFO queue needs it",
        lambda: queue.send(
            spark.sql("SELECT 'x' AS body, CAST(NULL AS STRING) AS message_group_id")
        ): "MessageGroupId.*column message_group_id is null",
        lambda: by_id.send(frame_of(spark, [1])): "message_deduplication_id.*ContentBasedDeduplication",
        lambda: queue.send(frame_of(spark, [1]), attempt_id="run-1"): "attempt_id.*deduplication id",
    }.items():
        with pytest.raises((InvalidParameterValue, MissingParameter), match=said):
            call()
    assert queue.counts().stored == by_id.counts().stored == 0
    given = spark.sql("SELECT 'x' AS body, 'g' AS message_group_id, 'd' AS message_deduplication_id")
    assert by_id.send(given).count == 1
    assert by_id.receive().messages()[0].message_deduplication_id == "d"


def test_d1_dead_letters_are_a_dataframe_like_any_others(make_queue, spark):
    dead = make_queue(fifo=False)
    queue = make_queue(fifo=False, RedrivePolicy=policy(dead))
    queue.send(spark.range(150).selectExpr("'bulk ' || id AS body"))
    queue.receive(None, visibility_timeout=0)
    assert not queue.receive()
    dead.send(["own"])
    claim = dead.receive(None)
    rows = claim.dataframe.select("message_id", "body", "receive_count", "receipt_handle").collect()
    assert sorted(map(tuple, rows)) == sorted((m.message_id, m.body, m.receive_count, m.receipt_handle) for m in claim)
    assert len(rows) == claim.count == 151 and {row.receive_count for row in rows} == {1, 2}
    outcomes = dead.delete(claim.dataframe.where("body <> 'own'")).groupBy("outcome").count().collect()
    assert [tuple(row) for row in outcomes] == [("deleted", 150)]
    assert dead.counts().in_flight == 1


def test_d2_a_predicate_chooses_which_dead_letters_go_back(make_queue, spark):
    dead = make_queue(fifo=False)
    queue = make_queue(fifo=False, RedrivePolicy=policy(dead))
    queue.send(spark.range(100).selectExpr("'job ' || id AS body"))
    queue.receive(None, visibility_timeout=0)
    assert not queue.receive()
    assert dead.redrive("body LIKE '%7' AND receive_count = 1") == 10
    assert dead.redrive("body LIKE '%7'") == 0
    assert sorted(m.body for m in queue.receive(None)) == sorted(f"job {n}7".replace(" 07", " 7") for n in range(10))
    assert dead.redrive("status = 'visible'", max_messages=5) == 5
    assert (dead.counts().visible, queue.counts().visible) == (85, 5)
    other = make_queue(fifo=False)
    assert dead.redrive(f"dead_letter_source = '{queue.name}'", destination=other.name) == 85
    queue.send("no number", attempt_id="x")
    queue.receive(None, visibility_timeout=0)
    assert not queue.receive()
    for where, why in (
        ("no_such_column = 1", "UNRESOLVED_COLUMN"), ("bad SQL )", "PARSE_SYNTAX_ERROR"), ("", "PARSE_EMPTY"),
        ("body", "not a boolean"), ("body = 1", "CAST_INVALID_INPUT"), ("1 / receive_count / 0 > 1", "DIVIDE_BY_ZERO"),
    ):  # fmt: skip
        with pytest.raises(
            InvalidParameterValue, match=f"{why}.*columns of the view messages: queue.*moved"
        ) as refused:
            dead.redrive(where)
        assert refused.value.field == "where" and "\n" not in str(refused.value)
    assert dead.counts().visible > 0


def test_a_frame_is_sent_behind_a_repair_of_a_clock_that_was_ahead(ledger, make_queue, clock, spark):
    queue, days = make_queue(), 2 * 86_400_000
    ahead = Ledger.open(
        str(Path(ledger.store.engine.place("queues")).parent), engine="delta-rs", clock=lambda: clock() + days
    )
    ahead.queue(queue.name).send(["0"], message_group_id="0")
    with pytest.raises(ClocksDisagree, match="repair --clock"):
        queue.send(frame_of(spark, range(3)))
    assert [one.queue for one in ledger.repair_clock() if one.refused_sends] == [queue.name]
    clock.advance(1)
    assert queue.send(frame_of(spark, range(3))).count == 3, "0 is sent again: nobody knows when it was sent before"
    assert queue.send(frame_of(spark, range(4))).count == 1
    counts = queue.counts()
    assert (counts.visible, counts.delayed) == (4, 1)
