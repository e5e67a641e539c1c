"""DataFrames in and out: sending them, and a claim's messages as one."""

import itertools
import json
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from ledger import Ledger
from ledger.errors import InvalidMessageContents, InvalidParameterValue, LedgerError, MissingParameter, SparkIsNeeded
from ledger.rules import message
from ledger.rules.text import find_forbidden_character
from ledger.store.delta.dataframes import frames
from tests.frames import assert_rows

CLAIM_COLUMNS = [
    ("message_id", "string"),
    ("body", "string"),
    ("message_attributes", "map<string,struct<data_type:string,string_value:string,binary_value:binary>>"),
    ("message_group_id", "string"),
    ("message_deduplication_id", "string"),
    ("aws_trace_header", "string"),
    ("sequence_number", "bigint"),
    ("sent_at", "timestamp"),
    ("sender_id", "string"),
    ("first_received_at", "timestamp"),
    ("receive_count", "int"),
    ("receipt_handle", "string"),
]
_numbers = itertools.count()


@pytest.fixture
def ledger(frames_ledger):
    return frames_ledger


@pytest.fixture
def clock(frames_clock):
    return frames_clock


@pytest.fixture
def queue(ledger):
    return ledger.create_queue(f"frames-{next(_numbers)}", {"Lanes": 1, "MaximumMessageSize": 1_024})


@pytest.fixture
def commits(ledger):
    """The commits of sends since the test began."""
    engine = ledger.store.engine
    since = engine.version("messages")
    return lambda: engine.history("messages", since)


def bodies(claim):
    return sorted(message.body for message in claim)


def test_the_body_column_is_sent_and_the_others_are_not(queue, spark):
    sent = queue.send(spark.createDataFrame([(1, "a"), (2, "ü"), (3, "a")], "n INT, body STRING"))
    assert (sent.count, bodies(queue.receive(None))) == (3, ["a", "a", "ü"])


def test_another_column_is_sent_when_it_is_named(queue, spark):
    queue.send(spark.createDataFrame([("a", "x"), ("b", "y")], "`the text` STRING, body STRING"), body="the text")
    assert bodies(queue.receive(None)) == ["a", "b"]


def test_without_a_body_column_whole_rows_are_sent_as_json(queue, spark):
    queue.send(spark.createDataFrame([(7, 'say "ü"', [1, 2])], "n INT, text STRING, list ARRAY<INT>"))
    assert json.loads(queue.receive().messages()[0].body) == {"n": 7, "text": 'say "ü"', "list": [1, 2]}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.sql.legacy.timeParserPolicy", "LEGACY"),
        ("spark.sql.session.timeZone", "America/New_York"),
        ("spark.sql.jsonGenerator.ignoreNullFields", "false"),
    ],
)
def test_whole_rows_are_the_same_json_whatever_the_session_says(queue, spark, name, value):
    """A retry from another session must send the same. Under LEGACY the optional parts had their brackets."""
    rows = """SELECT 1 AS n, CAST(NULL AS STRING) AS nothing, timestamp_micros(1700000000123456) AS at,
        array(timestamp_micros(-5000000000000000)) AS old, TIMESTAMP_NTZ'2023-11-14 22:13:20' AS ntz,
        DATE'2023-11-14' AS day"""
    sent = queue.send(spark.sql(rows), attempt_id=name)
    spark.conf.set(name, value)
    try:
        again = queue.send(spark.sql(rows), attempt_id=name)
        assert (sent.count, again.count) == (1, 1)
        naive = queue.send(pa.table({"at": pa.array([1_577_923_200], pa.timestamp("s"))}))
        assert naive.ids()["body"].to_pylist() == ['{"at":"2020-01-02T00:00:00.000000Z"}']
    finally:
        spark.conf.unset(name)
    (body,) = [one for one in bodies(queue.receive(None)) if '"n"' in one]
    assert json.loads(body) == {
        "n": 1, "at": "2023-11-14T22:13:20.123456Z", "old": ["1811-07-23T15:06:40.000000Z"],
        "ntz": "2023-11-14T22:13:20.000000", "day": "2023-11-14",
    }  # fmt: skip


def test_a_session_that_makes_its_own_writes_idempotent_sends_and_receives_as_others_do(tmp_path, spark):
    """Delta took each commit but the first for a repetition: a send lost to nobody sixty times."""
    settings = {"spark.databricks.delta.write.txnAppId": "nightly", "spark.databricks.delta.write.txnVersion": "1"}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        queue = Ledger.open(str(tmp_path / "ledger"), spark, engine="spark").create_queue("idempotent")
        for part in ("a", "b"):
            assert queue.send(spark.range(3).selectExpr(f"'{part}' || id AS body")).count == 3
        assert queue.receive(None).delete().messages == 6
    finally:
        for name in settings:
            spark.conf.unset(name)


def test_control_characters_of_rows_that_are_sent_as_json_are_escaped_wherever_they_stand(queue, spark):
    every = "".join(map(chr, range(32)))
    row = {"text": every, "map": {every: 1}, f"name {every}": {"inner": [every]}}
    kind = f"text STRING, map MAP<STRING, INT>, `name {every}` STRUCT<inner: ARRAY<STRING>>"
    frame = spark.createDataFrame([tuple(row.values())], kind)
    frame = frame.withColumn("variant", F.parse_json(F.to_json(F.struct("text"))))
    queue.send(frame)
    body = queue.receive().messages()[0].body
    assert json.loads(body) == row | {"variant": {"text": every}} and find_forbidden_character(body) is None


@pytest.mark.parametrize("text", ["\ufffe", "\uffff"])
def test_what_json_does_not_escape_is_refused(queue, spark, text):
    with pytest.raises(InvalidMessageContents, match=f"#x{ord(text):X}"):
        queue.send(spark.createDataFrame([(text,)], "text STRING"))


@pytest.mark.soak_variants("array('*", "named_struct*", "struct*")
@pytest.mark.parametrize(
    "column",
    [
        "{} AS text",
        "array('ü', {}) AS list",
        "named_struct('inner', map({}, 1)) AS keys",
        "array(map('k', named_struct('a b', {}))) AS deep",
        "struct(1 AS n, {} AS `a.b`) AS `s``t`",
    ],
)
def test_m1_rows_sent_as_json_with_bytes_that_are_no_utf_8_are_refused_at_any_depth(queue, spark, commits, column):
    frame = spark.range(3).selectExpr("id", column.format("IF(id = 1, CAST(X'61FF' AS STRING), 'ü')"))
    with pytest.raises(InvalidMessageContents, match=r"'no UTF-8'.*Nothing was sent"):
        queue.send(frame)
    assert queue.counts().stored == len(commits()) == 0
    assert queue.send(frame.where("id <> 1")).count == 2
    assert all("ü" in body for body in bodies(queue.receive(2)))


@pytest.mark.soak_variants("float*", "double('Infinity')", "array*")
@pytest.mark.parametrize(
    "column",
    [
        "double('NaN')", "float('-Infinity')", "double('Infinity')", "array(1D, double('NaN'))",
        "named_struct('b', map('k', float('NaN')))",
    ],
)  # fmt: skip
def test_rows_sent_as_json_with_numbers_that_json_does_not_have_are_refused_alike(queue, spark, clock, column):
    frame = spark.range(1).selectExpr("id", f"{column} AS price")
    said = r"a number that JSON has no way to write \(NaN or infinite\).*in the column price.*Nothing was sent"
    for messages in (frame, frame.toArrow()):
        with pytest.raises(InvalidParameterValue, match=said):
            queue.send(messages)
    with pytest.raises(InvalidParameterValue, match=said):
        other = Ledger.in_memory().create_queue("q")
        other.send(frame.selectExpr("id", "double('NaN') AS price").toArrow())
    assert queue.counts().stored == 0
    queue.send(spark.range(1).selectExpr("id", "CAST(NULL AS DOUBLE) AS price", "1.5D AS n"))
    assert bodies(queue.receive(9)) == ['{"id":0,"n":1.5}']


def test_rows_sent_as_json_may_have_nulls_and_bytes_and_names_that_differ_in_their_capitals(queue, spark):
    columns = "CAST(NULL AS STRING) AS text", "X'ff' AS bytes", "array(NULL, 'a') AS list", "'b' AS x", "'c' AS X"
    assert queue.send(spark.range(1).selectExpr(*columns)).count == 1
    assert json.loads(*bodies(queue.receive())) == {"bytes": "/w==", "list": [None, "a"], "x": "b", "X": "c"}


def test_every_row_of_many_partitions_is_sent_once_and_answered_with_its_own_id(queue, spark, commits):
    rows = [str(n) for n in range(300)]
    frame = spark.createDataFrame([(row,) for row in rows], "body STRING").repartitionByRange(7, "body")
    sent = queue.send(frame.unionAll(frame.limit(0)))
    assert (sent.count, len(commits())) == (300, 1)
    assert len(sent.segments) >= 5, "no segment holds more than 64"
    received = [(message.message_id, message.body) for message in queue.receive(None)]
    assert sorted(body for _, body in received) == sorted(rows)
    assert_rows(sent.ids().select("message_id", "body"), "message_id string, body string", received)


@pytest.mark.parametrize("attempt", [None, "a"])
def test_a_streaming_dataframe_is_refused_and_its_batches_are_sent(queue, spark, tmp_path, attempt):
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "1.txt").write_text("a\nb\n")
    stream = spark.readStream.text(str(tmp_path / "rows")).withColumnRenamed("value", "body")
    with pytest.raises(
        InvalidParameterValue, match=r"streaming.*parameter messages.*foreachBatch.*queue\.send\(batch\)"
    ):
        queue.send(stream, attempt_id=attempt)
    sent = []
    writer = stream.writeStream.foreachBatch(lambda batch, number: sent.append(queue.send(batch).count))
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert sent == [2] and bodies(queue.receive(None)) == ["a", "b"]


def test_an_empty_dataframe_sends_nothing(queue, spark):
    sent = queue.send(spark.createDataFrame([], "body STRING"))
    assert (sent.count, sent.segments, sent.ids().count()) == (0, (), 0)
    assert queue.counts().stored == 0
    assert not queue.receive()


@pytest.mark.soak_variants("?x0b", "b?x1f", "c?uffff")
@pytest.mark.parametrize("bad", [None, "", "é" * 513, "a\x00", "\x0b", "b\x1f", "\ufffe", "c\uffff"])
def test_m1_a_bad_body_refuses_the_whole_send_in_the_words_of_a_list(queue, spark, bad, commits):
    with pytest.raises(LedgerError) as of_list:
        message.body(bad, 1_024)
    frame = spark.createDataFrame([("good",), ("é" * 512,), (bad,)], "body STRING")
    with pytest.raises(type(of_list.value), match="Nothing was sent") as raised:
        queue.send(frame)
    assert raised.value.message == of_list.value.message
    assert queue.counts().stored == len(commits()) == 0


def test_m1_bytes_that_are_no_utf_8_are_refused(queue, spark, commits):
    with pytest.raises(InvalidMessageContents, match="Nothing was sent"):
        queue.send(spark.sql("SELECT CAST(X'61FF' AS STRING) AS body"))
    assert queue.counts().stored == len(commits()) == 0


def test_m1_the_edges_of_the_services_characters_are_taken_of_dataframes(queue, spark):
    taken = "\t\n\r \x7f\ud7ff\ue000\ufffd\U00010000\U0010ffff"
    queue.send(spark.createDataFrame([(taken,)], "body STRING"))
    assert bodies(queue.receive()) == [taken]


def test_a_column_that_is_missing_or_no_text_is_refused_with_the_fix(queue, spark):
    frame = spark.createDataFrame([(1, b"x")], "n INT, body BINARY")
    for call, said in {
        lambda: queue.send(frame): "'body'.*binary and must be string.*Cast it",
        lambda: queue.send(frame, body="n"): "'n'.*int and must be string.*Cast it",
        lambda: queue.send(frame, body="text"): "'text'.*no such column; it has n, body",
        lambda: queue.send(frame.select()): "no columns",
    }.items():
        with pytest.raises(InvalidParameterValue, match=said):
            call()


def test_a_send_tried_again_under_its_attempt_id_is_not_sent_again_and_another_one_is_refused(queue, ledger, spark):
    def send(*rows, to=queue):
        frame = spark.createDataFrame(
            [(body, {"n": n}) for body, n in rows], "body STRING, message_attributes MAP<STRING, STRING>"
        )
        return to.send(frame, attempt_id=f"run of {queue.name}")

    first = send(("a", "1"), ("a", "1"), ("b", "2"))
    again = send(("b", "2"), ("a", "1"), ("a", "1"))
    assert (again.count, again.segments) == (3, first.segments)
    with pytest.raises(InvalidParameterValue, match=r"attempt_id.*Another send"):
        send(("a", "1"), ("a", "2"), ("b", "1"))
    with pytest.raises(InvalidParameterValue, match="its queue differ"):
        send(("a", "1"), ("a", "1"), ("b", "2"), to=ledger.create_queue(f"{queue.name}-other"))
    with pytest.raises(MissingParameter, match=r"MessageBody.*Nothing was sent"):
        send(("", "1"))
    assert bodies(queue.receive(None)) == ["a", "a", "b"]


def test_a_claim_as_a_dataframe_has_the_columns_and_the_rows_of_its_messages(queue, spark, clock):
    queue.send(spark.range(100).selectExpr("'bulk ' || id AS body"))
    queue.receive(10, visibility_timeout=1)
    clock.advance(2)
    queue.send(["small 1", "small 2", "small 3"])
    queue.receive(1, visibility_timeout=100)
    claim = queue.receive(101)
    frame = claim.dataframe
    assert frame.dtypes == CLAIM_COLUMNS
    names = [name for name, _ in CLAIM_COLUMNS if name != "message_attributes"]
    found = frame.select(names).toArrow().to_pylist()
    expected = [{name: getattr(message, name) for name in names} for message in claim]
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert {row["receive_count"] for row in found} == {1, 2}
    assert len(found) == claim.count == 101


def scanned(frame):
    """How many rows a DataFrame has, and how many files and rows of files were read for them."""
    rows, files, read = frame.toArrow().num_rows, 0, 0
    plans = [frame._jdf.queryExecution().executedPlan()]
    while plans:
        plan = plans.pop()
        kind = plan.getClass().getSimpleName()
        if kind == "AdaptiveSparkPlanExec":
            plans.append(plan.executedPlan())
        elif kind.endswith("QueryStageExec"):
            plans.append(plan.plan())
        elif kind == "FileSourceScanExec":
            files += plan.metrics().apply("numFiles").value()
            read += plan.metrics().apply("numOutputRows").value()
        plans += [plan.children().apply(n) for n in range(plan.children().size())]
    return rows, files, read


def test_of_the_files_of_a_segment_those_alone_are_read_that_have_messages_of_the_claim(queue, spark, clock):
    sent = queue.send(spark.range(64).selectExpr("'bulk ' || id AS body").coalesce(1))
    assert len(sent.segments) == 1
    claim = queue.receive(10)
    assert scanned(claim.dataframe) == (10, 1, 32)
    assert scanned(queue.receive(None).dataframe) == (54, 2, 64)
    claim.release()
    assert scanned(queue.receive(5).dataframe) == (5, 1, 32)


def test_a_claim_of_more_segments_than_one_read_names_is_read_in_parts(queue, spark, clock, monkeypatch):
    monkeypatch.setattr(frames, "SEGMENTS_BY_NAME", 2)
    for n in range(5):
        queue.send([f"{n}"])
        clock.advance(3_601)
    queue.send(spark.range(64).selectExpr("'bulk ' || id AS body").coalesce(1))
    assert scanned(queue.receive(15).dataframe) == (15, 6, 37)
    monkeypatch.setattr(frames, "MOST_READS", 1)
    clock.advance(601)
    assert scanned(queue.receive(15).dataframe)[0] == 15


def test_an_empty_claim_is_a_dataframe_of_the_same_columns_without_rows(queue):
    frame = queue.receive().dataframe
    assert frame.dtypes == CLAIM_COLUMNS
    assert frame.count() == 0


def test_dataframes_without_spark_say_how_to_get_it(queue, clock, spark):
    root = queue.access.store.engine.place("queues").removesuffix("/queues")
    bare, frame = Ledger.open(root, clock=clock).queue(queue.name), spark.sql("SELECT 'a' AS receipt_handle")
    bare.send("a")
    claim = bare.receive()
    for call in (
        lambda: bare.send(frame, body="receipt_handle"),
        lambda: bare.delete(frame),
        lambda: bare.change_visibility(frame, 60),
        lambda: claim.dataframe,
    ):
        with pytest.raises(SparkIsNeeded, match=r"Ledger\.open\(root, spark=spark\)"):
            call()
    with pytest.raises(SparkIsNeeded, match=r"claim\.messages\(\) is a list, and needs none"):
        claim.dataframe  # noqa: B018


def test_unsigned_integers_of_arrow_are_sent_as_json_with_spark_as_without(spark, tmp_path):
    table = pa.table(
        {
            "of_8": pa.array([255, None], pa.uint8()),
            "of_32": pa.array([2**32 - 1, 0], pa.uint32()),
            "of_64": pa.array([[2**64 - 1], [None]], pa.list_(pa.uint64())),
        }
    )
    found = []
    for number, session in enumerate((spark, None)):
        queue = Ledger.open(str(tmp_path / str(number)), spark=session).create_queue("work")
        queue.send(table)
        found.append(sorted(bodies(queue.receive(None))))
    assert found[0] == found[1] and json.loads(found[0][1]) == {"of_8": 255, "of_32": 2**32 - 1, "of_64": [2**64 - 1]}


@pytest.mark.parametrize("column", ["nanoseconds", "long"])
def test_a_column_of_arrow_that_spark_does_not_have_is_refused_by_name(spark, tmp_path, column):
    columns = {
        "nanoseconds": pa.array([1], pa.duration("ns")),
        "long": pa.array([Decimal("1" * 50)], pa.decimal256(50, 0)),
    }
    queue = Ledger.open(str(tmp_path / "ledger"), spark=spark).create_queue("work")
    with pytest.raises(InvalidParameterValue, match=rf"'{column}' for parameter column.*It is .*Cast it"):
        queue.send(pa.table({"plain": [1], column: columns[column]}))
    assert queue.counts().stored == 0
