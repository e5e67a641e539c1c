"""Bulk sends whose tasks write their files: the same messages, files and errors as through Spark's writer."""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ledger import Ledger
from ledger.errors import InvalidMessageContents, InvalidParameterValue, LedgerError, MissingParameter
from ledger.rules import message as message_rules
from ledger.store.delta.dataframes import staging, task_files
from ledger.store.delta.dataframes.staging import TaskStaging
from ledger.store.delta.verbs.staged_sends import open_staged_folders

MOST = 1_024
#: Bodies at the bounds of what SQS takes, as expressions of SQL.
TAKEN = {
    "line ends": r"'a\tb\nc\rd'",
    "the smallest": "' '",
    "delete and C1 controls": "'x' || chr(127) || decode(X'C280C29F', 'UTF-8')",
    "below the surrogates": "decode(X'ED9FBF', 'UTF-8')",
    "above the surrogates": "decode(X'EE8080', 'UTF-8')",
    "the replacement character": "decode(X'EFBFBD', 'UTF-8')",
    "full width": "decode(X'EFBC81EFBFA5', 'UTF-8')",
    "beyond 16 bits": "decode(X'F0908080F09FBFBEF48FBFBF', 'UTF-8')",
    "the longest": f"repeat('x', {MOST})",
    "the longest of several bytes": f"repeat(decode(X'E282AC', 'UTF-8'), {MOST // 3})",
}
REFUSED = {
    "null": "CAST(NULL AS STRING)",
    "empty": "''",
    "a control": r"'tab\t and ' || chr(11) || chr(1)",
    "the last control": "chr(31)",
    "U+FFFE": "'x|y' || decode(X'EFBFBE', 'UTF-8')",
    "U+FFFF": "decode(X'EFBFBF', 'UTF-8')",
    "half a character": "CAST(X'61EDA08062' AS STRING)",
    "a cut character": "CAST(X'E28261' AS STRING)",
    "no UTF-8": "CAST(X'C080FF' AS STRING)",
    "too long": f"repeat('xy', {MOST // 2 + 1})",
    "too long and wrong": f"repeat(chr(1), {MOST + 1})",
}


@pytest.fixture
def by_spark(monkeypatch):
    """Makes Spark's writer write files from now on."""
    return lambda: monkeypatch.setattr(TaskStaging, "is_able", lambda self, frame: False)


def each_path(by_spark, monkeypatch):
    """Yields the names of the paths, each of which sends take in its turn; the first one has to be what is taken."""
    taken, right = [], TaskStaging.stage
    monkeypatch.setattr(TaskStaging, "stage", lambda self, *given: taken.append(given) or right(self, *given))
    yield "tasks"
    assert taken
    by_spark()
    del taken[:]
    yield "Spark's writer"
    assert not taken


def files_of(ledger, queue):
    """What the log tells of a queue's files, and the rows in each, in the order of their segments and ordinals."""
    root = ledger.store.engine.place("messages")
    record = ledger.store.queue(queue.name)
    version = DeltaTable(root).version()
    actions = [json.loads(line) for line in Path(root, f"_delta_log/{version:020d}.json").read_text().splitlines()]
    added = [one["add"] for one in actions if "add" in one and one["add"]["partitionValues"]["queue"] == record.id]
    added.sort(key=lambda one: (one["partitionValues"]["segment"], json.loads(one["stats"])["minValues"]["seq"]))
    found, first_lane = [], int(added[0]["partitionValues"]["lane"])
    for one in added:
        rows = pq.ParquetFile(Path(root, one["path"])).read()
        rows = rows.drop_columns([name for name in ("ordinal",) if name in rows.column_names])
        for place, name in enumerate(rows.column_names):
            if name.endswith("_at"):
                # Spark's writer has no zone with instants, and stores nanoseconds.
                rows = rows.set_column(place, name, rows[name].cast(pa.timestamp("us", "UTC")))
        lane = (int(one["partitionValues"]["lane"]) - first_lane) % int(record.attributes["Lanes"])
        partition = lane, one["partitionValues"]["segment"][-4:]
        found.append((partition, json.loads(one["stats"]), rows.to_pylist()))
    return found


FRAMES = {
    "bodies alone": ["'body ' || id AS body"],
    "whole rows": ["id", "'x' AS text"],
    "all columns": [
        "'body ' || id AS body",
        "IF(id % 3 = 0, NULL, id % 5) AS delay_seconds",
        # Longer than what statistics have of a text.
        "IF(id % 7 = 0, NULL, repeat('g', 30 + int(id % 5))) AS message_group_id",
        "CAST(NULL AS STRING) AS message_deduplication_id",
        "IF(id % 4 = 0, NULL, map('kind', named_struct('data_type', IF(id % 2 = 0, 'Binary', 'String'), "
        "'string_value', 'é' || id, 'binary_value', X'00FF'))) AS message_attributes",
        "IF(id % 2 = 0, NULL, 'Root=' || id) AS aws_trace_header",
    ],
    "columns that say nothing": ["'x' AS body", "CAST(NULL AS INT) AS delay_seconds", "NULL AS message_group_id"],
}


@pytest.mark.soak_variants("whole rows", "columns that say nothing")
@pytest.mark.parametrize("name", FRAMES)
def test_both_paths_make_the_same_files_statistics_and_messages(frames_ledger, spark, by_spark, monkeypatch, name):
    columns = [one.replace("NULL AS m", "CAST(NULL AS STRING) AS m") for one in FRAMES[name]]
    # More rows than a segment has, in two tasks; no task fills its last file.
    frame = spark.range(0, 200, 1, 2).selectExpr(*columns)
    files, messages = [], []
    for number, _ in enumerate(each_path(by_spark, monkeypatch)):
        queue = frames_ledger.create_queue(f"{name.replace(' ', '-')}-{number}", {"Lanes": 3, "DelaySeconds": 2})
        sent = queue.send(frame)
        assert sent.count == 200 and len(sent.segments) == 4
        files.append(files_of(frames_ledger, queue))
        counts = queue.counts()
        received = queue.receive(None).messages()
        messages.append((counts, sorted((m.body, m.message_group_id, str(m.message_attributes)) for m in received)))
    assert len(files[0]) == 8
    assert files[0] == files[1]
    assert messages[0] == messages[1]


def test_bodies_at_the_bounds_are_taken_by_both_paths(frames_ledger, spark, by_spark, monkeypatch):
    union = " UNION ALL ".join(f"SELECT {body} AS body" for body in TAKEN.values())
    found = []
    for number, _ in enumerate(each_path(by_spark, monkeypatch)):
        queue = frames_ledger.create_queue(f"taken-{number}", {"MaximumMessageSize": MOST})
        assert queue.send(spark.sql(union)).count == len(TAKEN)
        found.append(sorted(message.body for message in queue.receive(None)))
    assert found[0] == found[1] and len(set(found[0])) == len(TAKEN)


@pytest.mark.soak_variants("a control", "the last control", "U+FFFF", "too long and wrong", "empty", "half a character")
@pytest.mark.parametrize("what", REFUSED)
def test_both_paths_refuse_a_body_in_the_same_words_and_leave_no_file(
    frames_ledger, spark, by_spark, monkeypatch, what
):
    queue = frames_ledger.create_queue(f"refused-{re.sub(r'[^a-zA-Z]', '-', what)}", {"MaximumMessageSize": MOST})
    folders, said = open_staged_folders(frames_ledger.store), []
    before = folders.names()
    # Behind rows that fill a file of the same task.
    frame = spark.range(0, 50, 1, 1).selectExpr(f"IF(id = 40, {REFUSED[what]}, 'good') AS body")
    for _ in each_path(by_spark, monkeypatch):
        with pytest.raises(LedgerError) as raised:
            queue.send(frame)
        said.append((type(raised.value), str(raised.value)))
        assert queue.counts().stored == 0 and folders.names() == before
    assert said[0] == said[1]


def job(**values):
    given = dict.fromkeys(task_files.SendJob._fields)
    return task_files.SendJob(**{**given, "token": "token:", "most_bytes": 20, "most_shown": 81, **values})


def files_job(folder, **values):
    """The job of tasks that write sequence numbers and bodies to a folder: one task, and bounds that few rows reach."""
    known = {
        **{"schema": pa.schema([("seq", pa.int64()), ("body", pa.string())]), "statistics": (), "tasks": 1},
        **{"most_segments": 9, "rows_per_segment": 9, "rows_per_file": 9, "row_group_bytes": 99, "long": 9},
        **{"sent_at": 1, "delay": 0},
    }
    return job(place=task_files.Folder(str(folder)), **{**known, **values})


def rule_of(body):
    """What the rules say of a body: nothing, or what a task says."""
    try:
        message_rules.body(body, 20)
    except MissingParameter:
        return task_files.MISSING
    except InvalidMessageContents as error:
        return task_files.CHARACTER, error.character
    except InvalidParameterValue:
        return task_files.TOO_LONG
    return None


#: Texts of characters that are near a bound, and of any others.
CHARACTERS = st.sampled_from(
    "\x00\x08\t\n\x0b\x0c\r\x0e\x1f \x7f\x80\ud7ff\ue000\ufffd\ufffe\uffff\U00010000\U0010ffff"
)
BODIES = st.none() | st.text(CHARACTERS | st.characters(exclude_categories=["Cs"]), max_size=8)


@given(st.lists(BODIES, min_size=1, max_size=6), st.integers(0, 3), st.booleans())
@settings(deadline=None, max_examples=300)
def test_a_task_refuses_what_the_rules_refuse_and_names_the_first(bodies, cut, is_large):
    rules = [rule_of(body) for body in bodies[cut:]]
    array = pa.array(bodies, pa.large_string() if is_large else pa.string()).slice(cut)
    expected = next((rule for rule in rules if rule is not None), None)
    if expected is None:
        task_files.require_sendable(job(), array)
        return
    with pytest.raises(task_files.Stop) as raised:
        task_files.require_sendable(job(), array)
    kind, *values = str(raised.value).removeprefix("token:").split("|")
    found = values[0] if values[0] != task_files.CHARACTER else (values[0], values[1])
    if isinstance(expected, tuple) or found == task_files.CHARACTER or isinstance(found, tuple):
        # A text that is too long and wrong is refused for either, by each of the two.
        assert (isinstance(found, tuple) and found == expected) or found == task_files.TOO_LONG
    else:
        assert found == expected
    assert kind == task_files.REFUSES


@given(st.binary(min_size=1, max_size=12))
@settings(deadline=None, max_examples=300)
def test_bytes_that_are_no_utf_8_are_refused_and_others_are_not(body):
    array = pa.array(["good", "x", "last"]).cast(pa.binary())
    array = pa.array([*array.to_pylist()[:1], body, b"last"], pa.binary()).view(pa.string())
    try:
        expected = rule_of(body.decode())
    except UnicodeDecodeError:
        expected = task_files.CHARACTER, task_files.NO_UTF_8
    if expected is None:
        task_files.require_sendable(job(), array)
        return
    with pytest.raises(task_files.Stop) as raised:
        task_files.require_sendable(job(), array)
    assert "|".join((task_files.REFUSES, *expected)) in str(raised.value)


def test_row_groups_are_bounded_in_bytes_and_one_row_may_have_more(tmp_path):
    schema = pa.schema([("seq", pa.int64()), ("body", pa.string()), ("sent_at", pa.timestamp("us", "UTC"))])
    known = files_job(
        tmp_path,
        schema=pa.schema([*schema, pa.field("available_at", pa.timestamp("us", "UTC"))]),
        statistics=("seq",),
        tasks=3,
        rows_per_segment=8,
        rows_per_file=4,
        row_group_bytes=1_000,
        long=100,
    )
    files = task_files.TaskFiles(known, 2)
    lengths = [10, 10, 900, 10, 5_000, 10, 10, 10, 300, 300, 300, 300, 10]
    files.add(pa.record_batch({"body": ["x" * length for length in lengths]}))
    answers = files.finish()
    assert [(one.ordinal, json.loads(one.statistics)["minValues"]["seq"]) for one in answers] == [
        (2, 0),
        (2, 4),
        (5, 0),
        (5, 4),
    ]
    groups = [pq.ParquetFile(tmp_path / one.name).metadata for one in answers]
    assert [[one.row_group(n).num_rows for n in range(one.num_row_groups)] for one in groups] == [
        [4],
        [1, 3],
        [2, 2],
        [1],
    ]
    assert [one.size for one in answers] == [(tmp_path / one.name).stat().st_size for one in answers]
    files.remove()
    assert list(tmp_path.iterdir()) == []


@given(st.lists(st.text(st.sampled_from("a\x7f\U0010ffffé"), min_size=1, max_size=40), min_size=1, max_size=5))
@settings(max_examples=100, deadline=None)
@example(["\U0010ffff" * 40])
@example(["g" * 31 + "\U0010ffff" * 3])
@example(["g" * 32 + "\x7f\x7f"])
def test_the_bounds_of_long_texts_leave_out_none_of_them(texts):
    with tempfile.TemporaryDirectory() as folder:
        files = task_files.TaskFiles(files_job(folder, statistics=("body",)), 0)
        files.add(pa.record_batch({"body": texts}))
        (one,) = files.finish()
    bounds = json.loads(one.statistics)
    assert bounds["minValues"]["body"] <= min(texts) and bounds["maxValues"]["body"] >= max(texts)


def test_more_segments_than_names_can_number_end_the_task(tmp_path):
    known = files_job(tmp_path, tasks=2, most_segments=4, rows_per_segment=1, rows_per_file=1)
    with pytest.raises(task_files.Stop, match=task_files.MANY_SEGMENTS):
        task_files.TaskFiles(known, 1).add(pa.record_batch({"body": ["x"] * 3}))


def test_executors_without_pyarrow_have_spark_write_the_files_and_it_is_remembered(
    frames_ledger, spark, tmp_path, monkeypatch, caplog
):
    (tmp_path / "pyarrow.py").write_text("raise ImportError('there is no pyarrow here')")
    monkeypatch.setattr(staging, "unable_applications", set())
    # A worker of Python's gets this environment, and is none that is there already.
    monkeypatch.setitem(spark.sparkContext.environment, "PYTHONPATH", str(tmp_path))
    queue, frame = frames_ledger.create_queue("without"), spark.range(9).selectExpr("'' || id AS body")
    assert [queue.send(frame).count for _ in range(2)] == [9, 9]
    assert sorted(message.body for message in queue.receive(None)) == sorted(2 * [str(n) for n in range(9)])
    warned = [one for one in caplog.records if "Spark's slower writer" in one.getMessage()]
    assert len(warned) == 1
    assert staging.unable_applications == {spark.sparkContext.applicationId}


RETRIED = """
import sys
from ledger import Ledger
from ledger.runtime.session import spark_session
from ledger.settings import Settings
spark = spark_session("retried", small=True, conf={"spark.master": "local[2,3]"})

def failing(batches):
    # Behind rows that fill two files, in the first attempt of each task.
    from pyspark import TaskContext
    for number, batch in enumerate(batches):
        if number == 7 and TaskContext.get().attemptNumber() == 0:
            raise ValueError("an executor is lost")
        yield batch

ledger = Ledger.open(sys.argv[1], spark, settings=Settings(messages_per_segment=20, messages_per_file=20))
spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "8")
rows = spark.range(0, 160, 1, 2).selectExpr("'' || id AS body").mapInArrow(failing, "body string")
queue = ledger.create_queue("jobs")
print("sent", queue.send(rows).count)
"""


def test_executors_without_this_package_write_files_all_the_same(frames_ledger, spark, tmp_path, monkeypatch):
    (tmp_path / "ledger.py").write_text("raise ImportError('there is no ledger here')")
    monkeypatch.setitem(spark.sparkContext.environment, "PYTHONPATH", str(tmp_path))
    staged, right = [], TaskStaging.stage
    monkeypatch.setattr(TaskStaging, "stage", lambda *given: staged.append(right(*given)) or staged[-1])
    queue = frames_ledger.create_queue("elsewhere")
    assert queue.send(spark.range(9).selectExpr("'' || id AS body")).count == 9
    assert len(staged) == 1 and staged[0] is not None


@pytest.mark.soak
def test_files_of_attempts_that_failed_are_not_published_and_are_gone(root):
    ran = subprocess.run(
        [sys.executable, "-c", RETRIED, root], check=False, timeout=300, capture_output=True, text=True
    )
    assert "sent 160" in ran.stdout, ran.stderr[-2_000:]
    ledger = Ledger.open(root)
    queue = ledger.queue("jobs")
    assert sorted(int(message.body) for message in queue.receive(None, visibility_timeout=0)) == list(range(160))
    published = DeltaTable(ledger.store.engine.place("messages")).file_uris()
    there = [str(path) for path in Path(root, "messages", "sent").rglob("*.parquet")]
    assert len(there) == 8 and sorted(there) == sorted(published)


def test_a_function_of_the_user_cannot_speak_for_a_task(frames_ledger, spark):
    from pyspark.sql import functions as F

    @F.udf("string")
    def lying(number):
        raise ValueError("ledger 0123456789abcdef0123456789abcdef:refuses|missing|MessageBody|null|")

    queue = frames_ledger.create_queue("lying")
    with pytest.raises(InvalidParameterValue, match=r"not compute its rows.*ValueError: ledger 0123"):
        queue.send(spark.range(1).select(lying("id").alias("body")))


@pytest.mark.soak_variants("repeat*")
@pytest.mark.parametrize("body", ["CAST(NULL AS STRING)", f"repeat('x', {MOST + 1})"])
def test_a_body_that_is_refused_by_itself_is_refused_for_that_and_not_for_its_attributes(
    frames_ledger, spark, by_spark, monkeypatch, body
):
    queue = frames_ledger.create_queue(f"beside-{'null' if 'NULL' in body else 'long'}", {"MaximumMessageSize": MOST})
    attributes = (
        "map('kind', named_struct('data_type', 'String', 'string_value', 'a', 'binary_value', CAST(NULL AS BINARY)))"
    )
    frame, said = spark.range(1).selectExpr(f"{body} AS body", f"{attributes} AS message_attributes"), []
    for _ in each_path(by_spark, monkeypatch):
        with pytest.raises(LedgerError) as raised:
            queue.send(frame)
        said.append((type(raised.value), str(raised.value)))
    assert said[0] == said[1]


def test_a_row_that_fails_in_the_words_of_an_executor_does_not_count_against_the_executors(
    frames_ledger, spark, monkeypatch, caplog
):
    monkeypatch.setattr(staging, "unable_applications", set())
    queue = frames_ledger.create_queue("words")
    failing = spark.range(1).selectExpr("raise_error('boo ImportError') AS body")
    with pytest.raises(InvalidParameterValue, match="boo ImportError"):
        queue.send(failing.selectExpr("CAST(body AS STRING) AS body"))
    assert staging.unable_applications == set()
    assert not [one for one in caplog.records if "slower writer" in one.getMessage()]
    assert queue.counts().stored == 0
