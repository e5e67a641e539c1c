"""`ledger send`: whatever it reads, nothing is lost in silence."""

import contextlib
import gzip
import io
import json
import os
import pty
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from ledger.cli.printing import ProgressLine

FIFO = {"FifoQueue": True, "ContentBasedDeduplication": True}


def bodies(queue):
    return [message.body for message in queue.receive(None)]


def entries(queue):
    return [(message.body, message.message_group_id) for message in queue.receive(None)]


def test_stdin_is_a_body_a_line(cli, queue):
    ran = cli("send", "work", "-", given="one\r\n\ntwo ☃\nlast")
    assert (ran.code, ran.out) == (0, "sent 3 messages to work\n")
    assert bodies(queue) == ["one", "two ☃", "last"]


def test_messages_may_stand_on_the_command_line(cli, queue):
    ran = cli("send", "work", "-m", "a", "-m", "b\nc", "--ids")
    assert ran.out.split() == [message.message_id for message in queue.receive(None)]
    assert ran.err == "sent 2 messages to work\n"


@pytest.mark.parametrize("ending", ["jsonl", "ndjson", "json", "jsonl.gz"])
def test_a_line_of_json_is_a_body_with_its_fields_or_a_text(cli, queue, tmp_path, ending):
    lines = [
        json.dumps({"body": "a", "delay_seconds": 0, "message_attributes": {"kind": "express"}, "other": 1}),
        json.dumps("b"),
    ]
    text = "\n".join(lines).encode()
    (tmp_path / f"in.{ending}").write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    assert cli("send", "work", tmp_path / f"in.{ending}").code == 0
    first, second = queue.receive(None).messages()
    assert (first.body, first.message_attributes["kind"].value, second.body) == ("a", "express", "b")


def test_a_line_with_what_its_queue_does_not_take_is_refused(cli, queue, ledger):
    line = json.dumps({"body": "a", "message_group_id": "g", "message_deduplication_id": "d"})
    ran = cli("send", "work", "-", "--format", "json", given=f"{line}\n")
    assert ran.code and "not valid for this queue type" in ran.err and queue.counts().stored == 0
    fifo = ledger.create_queue("lines.fifo", {"FifoQueue": True})
    late = json.dumps({"body": "a", "message_group_id": "g", "message_deduplication_id": "d", "delay_seconds": 9})
    ran = cli("send", "lines.fifo", "-", "--format", "json", given=f"{late}\n")
    assert ran.code and "not valid for this queue type" in ran.err and fifo.counts().stored == 0


@pytest.mark.parametrize(
    "given",
    ['[{"n": 1.10}, {"n": 2}, 3]', '[\n  {"n": 1.10},\n\n  {"n":\n2}, 3\n]\n', '[{"n": 1.10},{"n": 2}\n,3]'],
)
def test_a_file_of_json_may_be_one_array(cli, queue, tmp_path, given):
    (tmp_path / "in.json").write_text(given.replace("3", '{"n": 3}'))
    assert cli("send", "work", tmp_path / "in.json").out == "sent 3 messages to work\n"
    first, *others = bodies(queue)
    assert first == '{"n": 1.10}' and [json.loads(one) for one in others] == [{"n": 2}, {"n": 3}]
    assert cli("send", "work", "-", "--format", "json", given='["a", {"body": "b"}]').code == 0
    assert bodies(queue) == ["a", "b"]
    assert cli("send", "work", "-", "--format", "json", given="[]").out == "sent 0 messages to work\n"


@pytest.mark.parametrize(
    ("given", "line", "why", "before"),
    [
        ('[{"a": 1},\n 5, {"a": 2}]', 2, "neither an object", 2), ('[{"a": 1},\n {"b": }]', 2, "Expecting value", 1),
        ('[{"a": 1}\n\n {"b": 1}]', 3, "comma", 1), ('[\n{"a": 1}]\n{"b": 1}', 3, "behind the array", 1),
        ('[{"a": 1},\n{"a": NaN}]', 2, "NaN", 1), ('["a"\n', 1, "comma", 1), ("[", 1, "Expecting value", 0),
        ('[{"a": 1}]\n{"b": 1}', 1, "neither an object nor a text", 1),
        ('[1]\n"a"\n"b"\n', 1, "neither an object nor a text", 2), ("[" * 100_000, 1, "recursion", 0),
    ],
)  # fmt: skip
def test_what_is_wrong_in_an_array_is_named_with_its_line(cli, queue, given, line, why, before):
    ran = cli("send", "work", "-", "--format", "json", given=given)
    assert (ran.code, queue.counts().stored) == (2, 0)
    assert f"line {line} " in ran.err and why in ran.err
    ran = cli("send", "work", "-", "--format", "json", "--skip-malformed", given=given)
    assert (ran.code, queue.counts().stored) == (3, before)


@pytest.mark.parametrize("given", ['{"a": 1}', '[{"a": 1}, {"a": 2}]', "PAR1\0\0", '{"a": 1}\n{"a": 2}\n'])
def test_what_is_no_csv_is_refused_and_a_header_alone_is_said(cli, queue, given):
    ran = cli("send", "work", "-", "--format", "csv", given=given)
    assert ran.code == 2 and ("no CSV" in ran.err or "--format json" in ran.err)
    ran = cli("send", "work", "-", "--format", "csv", given="id,name\n")
    assert ran.code == 0 and "there is no row in it, read as csv" in ran.err
    assert queue.counts().stored == 0


def test_an_ending_that_says_nothing_has_an_advice(cli, queue, tmp_path):
    for name, why in (("x.tsv", "write it as CSV"), ("x.dat", "--format text, json, csv, parquet or delta")):
        (tmp_path / name).write_text("a\tb\n")
        ran = cli("send", "work", tmp_path / name)
        assert ran.code == 2 and why in ran.err


def test_a_parquet_file_that_is_no_json_is_advised_in_words_of_the_command_line(cli, queue, tmp_path):
    pq.write_table(pa.table({"at": pa.array([0], pa.timestamp("us")), "note": ["a"]}), tmp_path / "d.parquet")
    ran = cli("send", "work", tmp_path / "d.parquet")
    assert ran.code == 2 and "spark=spark" not in ran.err
    assert "--body COLUMN" in ran.err and "ledger submit send ROOT QUEUE INPUT" in ran.err
    assert cli("send", "work", tmp_path / "d.parquet", "--body", "note").code == 0 and bodies(queue) == ["a"]


def test_without_a_body_a_line_of_json_is_sent_as_it_stands(cli, queue):
    line = '{"amount": 1.10, "id": 12345678901234567890, "none": null}'
    assert cli("send", "work", "-", "--format", "json", given=f" {line} \n").code == 0
    assert bodies(queue) == [line]


def test_csv_is_text_throughout(cli, queue, tmp_path):
    (tmp_path / "in.csv").write_bytes(b'\xef\xbb\xbfid,name\r\n007,"a ""b"",\nc"\r\n')
    assert cli("send", "work", tmp_path / "in.csv").code == 0
    assert bodies(queue) == ['{"id":"007","name":"a \\"b\\",\\nc"}']


def test_one_column_of_csv_may_have_any_name_once_it_is_named(cli, queue):
    assert cli("send", "work", "-", "--format", "csv", "--body", "a;b", given="a;b\n1;2\n").code == 0
    assert bodies(queue) == ["1;2"]


def test_columns_of_csv_mean_what_those_of_a_table_do(cli, queue, tmp_path):
    (tmp_path / "in.csv").write_text(
        'text,delay_seconds,message_attributes\na,,"{""kind"": ""x""}"\nb,900,\n',
    )
    assert cli("send", "work", tmp_path / "in.csv", "--body", "text").code == 0
    (message,) = queue.receive(None).messages()
    assert (message.body, message.message_attributes["kind"].value) == ("a", "x")
    assert queue.counts().delayed == 1


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_tables_are_read_with_their_own_types(cli, ledger, queue, tmp_path, kind):
    ordered = ledger.create_queue("events.fifo", FIFO)
    table = pa.table({"n": [1, 2], "message_group_id": ["g", "h"]})
    place = tmp_path / f"in.{kind}"
    pq.write_table(table, place) if kind == "parquet" else write_deltalake(place, table)
    assert cli("send", "work", place).code == cli("send", "events.fifo", place).code == 0
    assert bodies(queue) == ['{"n":1,"message_group_id":"g"}', '{"n":2,"message_group_id":"h"}']
    assert sorted(entries(ordered)) == [
        ('{"n":1,"message_group_id":"g"}', "g"),
        ('{"n":2,"message_group_id":"h"}', "h"),
    ]


MALFORMED = {
    "text": (b"a\n\xff\nb\n", 2, "UTF-8"),
    "json": (b'"a"\n\n{"body": "b",}\n"c"\n', 3, "not JSON"),
    "json, one value of a number": (b'"a"\n5\n', 2, "neither an object nor a text"),
    "json, a name twice": (b'{"body": "a", "body": "b"}\n"c"\n', 1, "twice"),
    "json, no number": (b'"a"\n{"n": NaN}\n', 2, "NaN"),
    "csv, a field missing": (b"id,body\n1,a\n2\n3,c\n", 3, "1 fields"),
    "csv behind lines of one record": (b'id,body\n1,"a\n\nb"\n2\n', 5, "1 fields"),
    "csv, a quotation that nobody closes": (b'id,body\n1,a\n2,"b\n3,c\n', 3, "no CSV"),
    "csv, not UTF-8": (b"body\na\n\xff\n", 3, "UTF-8"),
    "csv, attributes": (b"body,message_attributes\na,{\n", 2, "message_attributes"),
    "csv, an attribute twice": (b'body,message_attributes\na,"{""a"":1,""a"":2}"\n', 2, "twice"),
    "csv, an attribute that is NaN": (b'body,message_attributes\na,"{""a"":NaN}"\n', 2, "NaN is no JSON"),
    "csv, attributes without end": (b"body,message_attributes\na," + b"[" * 100_000 + b"\n", 2, "message_attributes"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_line_refuses_the_whole_file_with_its_number_unless_it_may_be_skipped(cli, queue, case):
    given, line, why = MALFORMED[case]
    kind = case.split(",")[0].split()[0]
    ran = cli("send", "work", "-", "--format", kind, given=given)
    assert ran.code == 2 and ran.out == ""
    assert f"line {line} " in ran.err and why in ran.err and "Nothing was sent" in ran.err
    assert queue.counts().stored == 0
    ran = cli("send", "work", "-", "--format", kind, "--skip-malformed", "--json", given=given)
    (said,) = ran.documents
    assert ran.code == 3
    assert [one["line"] for one in said["malformed"]] == [line]
    assert said["sent"] == queue.counts().stored


def test_rows_that_the_queue_refuses_are_named_by_their_lines_and_the_others_are_sent(cli, queue):
    given = '{"body": "a"}\n\n{"body": ""}\n{"other": 1}\n{"body": "\\u0001"}\n{"body": 5}\n{"body": "b"}\n'
    ran = cli("send", "work", "-", "--format", "json", "--json", given=given)
    (said,) = ran.documents
    assert (ran.code, said["sent"], [one["line"] for one in said["refused"]]) == (3, 2, [3, 4, 5, 6])
    assert bodies(queue) == ["a", "b"]
    ran = cli("send", "work", "-", "--format", "json", given=given)
    assert ran.code == 3 and [f"line {line} was refused" in ran.err for line in (1, 3, 4, 5, 6)] == [False] + 4 * [True]
    assert ran.out == "sent 2 messages to work; refused: 4 rows\n"


def test_all_or_nothing_sends_nothing_and_names_the_line(cli, queue):
    ran = cli("send", "work", "-", "--format", "json", "--all-or-nothing", given='"a"\n\n{"body": ""}\n')
    assert ran.code == 2 and "line 3" in ran.err.lower() and queue.counts().stored == 0


def test_a_fifo_queue_needs_a_group_for_every_row(cli, ledger):
    queue = ledger.create_queue("events.fifo", FIFO)
    lines = '{"body": "a", "message_group_id": "g"}\n{"body": "b"}\n'
    ran = cli("send", "events.fifo", "-", "--format", "json", given=lines)
    assert ran.code == 2 and "line 2" in ran.err.lower() and queue.counts().stored == 0
    assert cli("send", "events.fifo", "-", "--format", "json", "--group", "h", given=lines).code == 0
    assert sorted(entries(queue)) == [("a", "g"), ("b", "h")]


def test_under_an_attempt_id_nothing_is_sent_twice(cli, queue):
    for _ in range(2):
        ran = cli("send", "work", "-", "--attempt-id", "run 1", given="a\nb\n")
        assert (ran.code, ran.out) == (0, "sent 2 messages to work\n")
    assert queue.counts().stored == 2
    other = cli("send", "work", "-", "--attempt-id", "run 1", given="c\n")
    assert other.code == 2 and queue.counts().stored == 2


@pytest.mark.parametrize(
    ("arguments", "given", "says"),
    [
        ((), "", "Give INPUT"),
        (("-", "-m", "a"), "", "Give INPUT"),
        (("-m", "a", "--body", "b"), "", "are about INPUT"),
        (("none.csv",), "", "none.csv"),
        (("none.parquet",), "", "none.parquet"),
        (("none.delta",), "", "none.delta"),
        (("none",), "", "--format"),
        (("-", "--format", "parquet"), "", "stdin"),
        (("-", "--body", "b"), "a\n", "lines of text have none"),
        (("-", "--format", "csv", "--body", "b"), "a,c\n1,2\n", "there are a, c"),
        (("-", "--format", "json", "--body", "b"), '{"a": 1}\n', "No row has a column 'b'"),
        (("-", "--format", "csv"), "a,a\n1,2\n", "two columns 'a'"),
        (("-", "--format", "csv"), "a;b\n1;2\n", "separated by ';'"),
        (("-", "--format", "csv"), "a\tb\n1\t2\n", r"separated by '\t'"),
        (("-", "--format", "csv"), "id;name,note;x\n1;2,3;4\n", "';' in several columns, 'id;name' and 'note;x'"),
        (("-", "--format", "csv"), "id, body\n1,2\n", "' body', with spaces"),
        (("-", "--format", "csv"), "MessageBody\n1\n", "MessageBody"),
        (("-", "--format", "json"), '{"MessageBody": "a"}\n', "MessageBody"),
        (("-m", "a", "--delay", "901"), "", "DelaySeconds"),
        (("-m", "a", "--group", "two words"), "", "MessageGroupId"),
    ],
)
def test_what_cannot_be_sent_says_why_and_sends_nothing(cli, queue, tmp_path, monkeypatch, arguments, given, says):
    monkeypatch.chdir(tmp_path)
    ran = cli("send", "work", *arguments, given=given)
    assert ran.code == 2 and says in ran.err and ran.out == ""
    assert queue.counts().stored == 0


def test_a_file_that_is_cut_off_in_the_middle_sends_nothing(cli, queue, tmp_path):
    (tmp_path / "in.txt.gz").write_bytes(gzip.compress(b"a\n" * 10_000)[:-9])
    ran = cli("send", "work", tmp_path / "in.txt.gz")
    assert ran.code == 2 and "in.txt.gz" in ran.err and queue.counts().stored == 0


def test_a_terminal_is_told_how_far_it_is_and_nobody_else():
    mine, its = pty.openpty()
    with os.fdopen(its, "w") as terminal, contextlib.redirect_stderr(terminal):
        progress = ProgressLine(every=0)
        progress("read 5 rows")
        progress.done()
        terminal.flush()
        # As long as somebody has its other end open; it comes in parts.
        shown = ""
        while not shown.endswith("...\r\x1b[K"):
            shown += os.read(mine, 1_000).decode()
    os.close(mine)
    assert shown == "\r\x1b[Kread 5 rows ...\r\x1b[K"
    with contextlib.redirect_stderr(io.StringIO()) as nobody:
        progress = ProgressLine(every=0)
        progress("read 5 rows")
        progress.done()
    assert nobody.getvalue() == ""


def test_only_the_first_of_many_lines_are_named(cli, queue):
    ran = cli("send", "work", "-", "--format", "json", given="{\n" * 30)
    assert ran.code == 2 and ran.err.count("is not JSON") == 20 and "and 10 more lines" in ran.err


def test_json_names_every_line_that_cannot_be_read_also_if_nothing_is_sent(cli, queue):
    ran = cli("send", "work", "-", "--format", "json", "--json", given='"a"\n' + "{\n" * 30)
    document = json.loads(ran.out)
    assert ran.code == 2 and "30 lines of - cannot be read. Nothing was sent" in ran.err
    assert "is not JSON" not in ran.err and "--json" not in ran.err
    assert (document["queue"], document["sent"], document["refused"]) == ("work", 0, [])
    assert [bad["line"] for bad in document["malformed"]] == list(range(2, 32))
    assert all("is not JSON" in bad["why"] for bad in document["malformed"]) and queue.counts().stored == 0


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_what_is_made_of_rows_without_a_body_and_what_is_left_out_is_said(cli, queue, tmp_path, kind):
    file = tmp_path / f"rows.{kind}"
    rows = [{"prompt": "a", "user": "b"}, {"prompt": "c", "user": "d"}]
    if kind == "csv":
        file.write_text("prompt,user\na,b\nc,d\n")
    elif kind == "json":
        file.write_text("\n".join(map(json.dumps, rows)))
    else:
        pq.write_table(pa.Table.from_pylist(rows), file)
    whole = cli("send", "work", str(file))
    assert whole.code == 0 and "no column body: each row is sent whole, as JSON" in whole.err and "--body" in whole.err
    assert sorted(map(json.loads, (m.body for m in queue.receive(None))), key=str) == rows
    named = cli("send", "work", str(file), "--body", "prompt")
    assert "sent is the column prompt; left out: user" in named.err
    assert sorted(message.body for message in queue.receive(None)) == ["a", "c"]
    assert "left out: user" in json.loads(cli("send", "work", str(file), "--body", "prompt", "--json").out)["bodies"]


def test_of_bodies_alone_nothing_is_said(cli, queue, tmp_path):
    (tmp_path / "rows.csv").write_text("body,delay_seconds\na,5\n")
    for given in (("-m", "a"), (str(tmp_path / "rows.csv"),)):
        assert cli("send", "work", *given).err == ""


def test_a_folder_of_parquet_has_the_columns_of_all_its_files_and_folders(cli, queue, tmp_path):
    folder = tmp_path / "rows"
    pq.write_to_dataset(pa.table({"x": [1, 2], "day": ["a", "b"]}), folder, partition_cols=["day"])
    pq.write_table(pa.table({"x": [3], "y": [4.5]}), folder / "day=b" / "later.parquet")
    assert cli("send", "work", str(folder), "--format", "parquet").code == 0
    bodies = sorted(message.body for message in queue.receive(None))
    assert bodies == ['{"x":1,"day":"a"}', '{"x":2,"day":"b"}', '{"x":3,"day":"b","y":4.5}']


@pytest.mark.parametrize(("days", "expected"), [(["7", "12"], ["12", "7"]), (["007", "12"], ['"007"', '"12"'])])
def test_the_value_of_a_folder_is_the_one_in_its_name(cli, queue, tmp_path, days, expected):
    for day in days:
        Path(tmp_path, "rows", f"day={day}").mkdir(parents=True)
        pq.write_table(pa.table({"x": [1]}), tmp_path / "rows" / f"day={day}" / "rows.parquet")
    assert cli("send", "work", str(tmp_path / "rows"), "--format", "parquet").code == 0
    assert sorted(message.body for message in queue.receive(None)) == [f'{{"x":1,"day":{day}}}' for day in expected]


def test_a_table_with_mapped_columns_is_sent_with_its_values(cli, queue, tmp_path):
    """Its files have other names: pyarrow's reader finds nothing under the table's."""
    table = str(tmp_path / "mapped.delta")
    write_deltalake(table, pa.table({"col-1": [1, 2]}))
    entry = Path(table, "_delta_log", f"{0:020d}.json")
    lines = [json.loads(line) for line in entry.read_text().splitlines()]
    for line in lines:
        if "protocol" in line:
            line["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
        if "metaData" in line:
            schema = json.loads(line["metaData"]["schemaString"])
            name = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
            schema["fields"][0] |= {"name": "order id", "metadata": name}
            line["metaData"]["schemaString"] = json.dumps(schema)
            line["metaData"]["configuration"] = {
                "delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"
            }  # fmt: skip
    entry.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert cli("send", "work", table).code == 0
    assert sorted(message.body for message in queue.receive(None)) == ['{"order id":1}', '{"order id":2}']


def test_a_bad_element_of_an_array_is_named_by_its_number(cli, queue):
    ran = cli("send", "work", "-", "--format", "json", given='[{"body": "a"}, {"body": "b"}, 7]')
    assert ran.code != 0 and "line 1 (element 3 of the array) is neither an object nor a text" in ran.err


def test_a_column_that_is_nearly_one_that_means_something_is_shown_with_it(cli, queue):
    ran = cli("send", "work", "-", "--format", "csv", given="bdy,n\na,1\n")
    assert "each row is sent whole, as JSON; bdy (is body meant?)." in ran.err
    ran = cli("send", "work", "-", "--format", "csv", given="body,delay_second\na,1\n")
    assert "left out: delay_second (is delay_seconds meant?)" in ran.err


@pytest.mark.parametrize("text", ["{row}\n", "[{row}]"])
def test_digits_of_attributes_stay_as_they_are_in_lines_and_in_arrays(cli, queue, tmp_path, text):
    row = '{"body": "x", "message_attributes": {"p": 0.12345678901234567890, "q": 1.10}}'
    (tmp_path / "rows.json").write_text(text.replace("{row}", row))
    assert cli("send", "work", str(tmp_path / "rows.json")).code == 0
    (message,) = queue.receive(1)
    attributes = {name: one.value for name, one in message.message_attributes.items()}
    assert attributes == {"p": "0.12345678901234567890", "q": "1.10"}
