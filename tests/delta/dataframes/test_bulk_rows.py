"""What a DataFrame's rows may say beside the body: the same that a list's entries may, and it comes back the same."""

import itertools

import pytest
from pyspark.sql import functions as F

from ledger.errors import InvalidParameterValue, LedgerError, MissingParameter
from ledger.rules import message as message_rules
from ledger.rules.message_attributes import Attribute

STRUCT = "message_attributes MAP<STRING, STRUCT<data_type: STRING, string_value: STRING, binary_value: BINARY>>"
ALL = f"body STRING, delay_seconds INT, message_group_id STRING, message_deduplication_id STRING, {STRUCT}"
_numbers = itertools.count()


@pytest.fixture
def ledger(frames_ledger):
    return frames_ledger


@pytest.fixture
def make_queue(ledger):
    return lambda **attributes: ledger.create_queue(f"rows-{next(_numbers)}", {"Lanes": 2, **attributes})


def entry(row):
    """A row as an entry of a list."""
    names = ("MessageBody", "DelaySeconds", "MessageGroupId", "MessageDeduplicationId", "MessageAttributes")
    given = dict(zip(names, row))
    if given["MessageAttributes"] is not None:
        given["MessageAttributes"] = {name: Attribute(*one) for name, one in given["MessageAttributes"].items()}
    return {name: value for name, value in given.items() if value is not None}


def what(claim):
    return sorted(
        (m.body, m.message_group_id, m.message_deduplication_id, sorted(m.message_attributes.items())) for m in claim
    )


GOOD = [
    ("plain", None, None, None, None),
    ("late", 900, None, None, {}),
    ("grouped", 0, "g!~", None, {"a": ("String", "é", None)}),
    ("typed", None, "x" * 128, None, {"n": ("Number.int", "-1.5e3", None), "b.c": ("Binary", "ignored", b"\x00\xff")}),
    ("letters", None, None, None, {"attr.1øßä": ("String", "x", None), "имя": ("String", "\t", None)}),
    ("ten", None, None, None, {f"a{n}": ("String.x", "y", b"ignored") for n in range(10)}),
]


def test_rows_and_entries_of_a_list_come_back_the_same(make_queue, frames_clock, spark):
    frames, lists = make_queue(DelaySeconds=7), make_queue(DelaySeconds=7)
    assert frames.send(spark.createDataFrame(GOOD, ALL)).count == len(GOOD)
    lists.send([entry(row) for row in GOOD])
    for seconds in (0, 7, 893):
        frames_clock.advance(seconds)
        assert frames.counts() == lists.counts()
        seen = [what(queue.receive(None, visibility_timeout=5_000)) for queue in (frames, lists)]
        assert seen[0] == seen[1] and seen[0] != []


def test_a_map_of_texts_is_attributes_too(make_queue, spark):
    queue = make_queue()
    queue.send(
        spark.createDataFrame(
            [("message-1", {"MyAttribute": "foobar"})], "body STRING, message_attributes MAP<STRING, STRING>"
        )
    )
    claim = queue.receive()
    (message,) = claim.messages()
    assert message.md5_of_message_attributes == "adb59cd4678ea5a855436b949cd07ab6"
    (row,) = claim.dataframe.select("message_attributes.MyAttribute.string_value").collect()
    assert row.string_value == "foobar"


BAD = {
    "delay": ("x", 901, None, None, None),
    "delay below 0": ("x", -1, None, None, None),
    "group": ("x", None, "a b", None, None),
    "group with a line end": ("x", None, "a\n", None, None),
    "empty group": ("x", None, "", None, None),
    "deduplication id": ("x", None, None, "d", None),
    "name": ("x", None, None, None, {"a..b": ("String", "x", None)}),
    "reserved name": ("x", None, None, None, {"AWS.x": ("String", "x", None)}),
    "name with a line end": ("x", None, None, None, {"a\n": ("String", "x", None)}),
    "long name": ("x", None, None, None, {"a" * 257: ("String", "x", None)}),
    "no type": ("x", None, None, None, {"a": (None, "x", None)}),
    "type": ("x", None, None, None, {"a": ("Text", "x", None)}),
    "empty text": ("x", None, None, None, {"a": ("String", "", None)}),
    "no text": ("x", None, None, None, {"a": ("String", None, b"x")}),
    "no bytes": ("x", None, None, None, {"a": ("Binary", "x", None)}),
    "name beyond letters": ("x", None, None, None, {"a€": ("String", "x", None)}),
    "character": ("x", None, None, None, {"a": ("String", "x\x00", None)}),
    "number": ("x", None, None, None, {"a": ("Number", "1e", None)}),
    "no attribute": ("x", None, None, None, {"a": None}),
    "eleven": ("x", None, None, None, {f"a{n}": ("String", "x", None) for n in range(11)}),
    "size": ("x" * 1_000, None, None, None, {"a": ("String", "x" * 18, None)}),
}


@pytest.mark.soak_variants(
    "*", but=("delay", "deduplication id", "reserved name", "type", "no attribute", "eleven", "size")
)
@pytest.mark.parametrize("wrong", BAD)
def test_what_a_list_refuses_a_dataframe_refuses_and_nothing_is_sent(make_queue, spark, wrong):
    queue = make_queue(MaximumMessageSize=1_024)
    row = BAD[wrong]
    if wrong != "no attribute":
        with pytest.raises(InvalidParameterValue):
            message_rules.parse_entry(entry(row), queue.access.record().attributes, {})
    with pytest.raises(InvalidParameterValue, match="Nothing was sent"):
        queue.send(spark.createDataFrame([("good", None, None, None, None), row], ALL))
    assert queue.counts().stored == 0


#: What a row has in its columns, and how the refusal names it.
NAMED = {
    "null body": ({"body": "CAST(NULL AS STRING)"}, "MessageBody.*In a row the column body is null"),
    "empty body": ({"body": "''"}, "MessageBody.*the column body is ''"),
    "long body": ({"body": "repeat('xy', 1000)"}, rf"MaximumMessageSize.*the column body is '{'xy' * 40}\.\.\.'\."),
    "character": ({"body": "'a|b' || chr(1)"}, r"#x1.*the column body is 'a\|b\\x01'\."),
    "no UTF-8": ({"body": "CAST(X'61FF' AS STRING)"}, r"no UTF-8.*the column body is 'a\\\\xff'\."),
    "no UTF-8 in JSON": ({"text": "CAST(X'61FF' AS STRING)"}, "no UTF-8.*A row has it in the column text"),
    "long JSON": ({"text": "repeat('x', 2000)"}, r"MaximumMessageSize.*its JSON is '\{\"text\":\"x*\.\.\.'"),
    "delay": ({"body": "'x'", "delay_seconds": "901"}, "Value 901 for parameter DelaySeconds.*column delay_seconds is"),
    "group": (
        {"body": "'x'", "message_group_id": "'a b'"},
        "Value a b for.*column message_group_id is 'a b'",
    ),
    "deduplication id": (
        {"body": "'x'", "message_deduplication_id": "'d'"},
        "Value d .*_deduplication_id is 'd'",
    ),
    "attributes": ({"body": "'x'", "message_attributes": "map('a..b', '1')"}, "MessageAttributes.*is '.*a\\.\\.b.*1"),
    "large attributes": (
        {"body": "'x'", "message_attributes": "map('a', repeat('x', 2000))"},
        r"message_attributes \(its size counts with the body's\)",
    ),
    "trace header": ({"body": "'x'", "aws_trace_header": "'t' || chr(1)"}, r"column aws_trace_header is 't\\x01'"),
}


@pytest.mark.soak_variants("*-counted", but=("null body-counted", "attributes-counted"))
@pytest.mark.parametrize("attempt", [None, "a"], ids=["written", "counted"])
@pytest.mark.parametrize("what", NAMED)
def test_the_column_and_the_value_of_a_refused_row_are_named(make_queue, spark, what, attempt):
    queue = make_queue(MaximumMessageSize=1_024)
    columns, said = NAMED[what]
    frame = spark.range(1).selectExpr(*(f"{value} AS {name}" for name, value in columns.items()))
    with pytest.raises(LedgerError, match=rf"{said}.*Nothing was sent") as raised:
        queue.send(frame, attempt_id=attempt)
    assert len(str(raised.value)) < 800 and queue.counts().stored == 0


@pytest.mark.parametrize(
    ("column", "kind", "said"),
    [
        ("message_group_id", MissingParameter, "MessageGroupId.*the column message_group_id is null"),
        (
            "message_deduplication_id",
            InvalidParameterValue,
            "ContentBased.*message_deduplication_id is null",
        ),
    ],
)
def test_a_null_that_a_fifo_queue_cannot_have_is_named(ledger, spark, column, kind, said):
    queue = ledger.create_queue(f"rows-{next(_numbers)}.fifo", {"FifoQueue": True})
    ids = {"message_group_id": "'g'", "message_deduplication_id": "'d' || id"}
    ids[column] = f"IF(id = 1, NULL, {ids[column]})"
    frame = spark.range(3).selectExpr("'x' AS body", *(f"{value} AS {name}" for name, value in ids.items()))
    with pytest.raises(kind, match=f"{said}.*Nothing was sent"):
        queue.send(frame)
    assert queue.counts().stored == 0
    assert queue.send(frame.where("id <> 1")).count == 2


def raising(number):
    if number == 1:
        raise ValueError("bad row one")
    return str(number)


@pytest.mark.soak_variants("spark-written", "delta-rs-counted")
@pytest.mark.parametrize("attempt", [None, "a"], ids=["written", "counted"])
@pytest.mark.parametrize("engine", ["delta-rs", "spark"])
def test_rows_that_spark_cannot_compute_are_an_error_of_the_product(open_ledger, spark, engine, attempt):
    queue = open_ledger(engine, frames=True).create_queue("jobs")
    numbers, raises = spark.range(3), F.udf(raising, "string")
    for frame, said in {
        numbers.select(raises("id").alias("text")): r"ValueError: bad row one \(test_bulk_rows.py:",
        numbers.selectExpr("'' || CAST(IF(id = 1, 'x', '1') AS INT) AS text"): r"CAST_INVALID_INPUT\] The value 'x'",
        numbers.selectExpr("'a' AS text", "'b' AS TEXT"): "AMBIGUOUS",
    }.items():
        with pytest.raises(InvalidParameterValue, match=rf"not compute its rows.*{said}.*Nothing was sent") as raised:
            queue.send(frame, body="text", attempt_id=attempt)
        assert "Py4J" not in str(raised.value) and "\n" not in str(raised.value)
    assert queue.counts().stored == 0


@pytest.mark.parametrize("column", ["a`b", "a.b", "a b"])
def test_the_column_of_bodies_may_have_any_name(make_queue, spark, column):
    queue = make_queue()
    assert queue.send(spark.createDataFrame([("x",)], [column]), body=column).count == 1
    assert [message.body for message in queue.receive(1)] == ["x"]


def test_what_fits_exactly_is_sent(make_queue, spark):
    queue = make_queue(MaximumMessageSize=1_024)
    queue.send(spark.createDataFrame([("x" * 1_000, None, None, None, {"a": ("String", "x" * 17, None)})], ALL))
    assert queue.counts().visible == 1


def test_columns_of_the_wrong_type_are_refused_and_those_of_json_rows_mean_nothing(make_queue, spark):
    queue = make_queue()
    for columns in (
        "'x' AS body, '5' AS delay_seconds",
        "'x' AS body, 7 AS message_group_id",
        "'x' AS body, 'y' AS message_attributes",
    ):
        with pytest.raises(InvalidParameterValue, match=r"must be.*Cast it"):
            queue.send(spark.sql(f"SELECT {columns}"))
    queue.send(spark.sql("SELECT 1 AS n, '5' AS delay_seconds"))
    assert queue.receive().messages()[0].body == '{"n":1,"delay_seconds":"5"}'
    for given in ({"delay_seconds": 5}, {"message_group_id": "g"}, {"message_attributes": {"a": "b"}}):
        with pytest.raises(InvalidParameterValue, match=r"column.*Add the column"):
            queue.send(spark.sql("SELECT 'x' AS body"), **given)


def test_json_of_a_row_has_all_digits_of_its_instants(make_queue, spark):
    """Spark's own way cuts them to milliseconds."""
    queue = make_queue()
    queue.send(spark.sql("SELECT timestamp_micros(1234567) AS t, timestamp_ntz'2020-01-01 00:00:00.123456' AS n"))
    (message,) = queue.receive(None)
    assert message.body == '{"t":"1970-01-01T00:00:01.234567Z","n":"2020-01-01T00:00:00.123456"}'
