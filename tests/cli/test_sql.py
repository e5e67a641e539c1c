"""`ledger sql`, and `ledger redrive --where`, which asks it: without a JVM."""

import time
from pathlib import Path

import pytest


def test_a_query_is_answered_as_a_table_as_json_and_as_csv(cli, queue):
    queue.send(["a", "b"])
    queue.receive()
    query = "SELECT status, count(*) AS messages FROM messages GROUP BY status ORDER BY status"
    assert cli("sql", query).out.splitlines()[2:] == ["in flight         1", "visible           1"]
    assert cli("sql", "-", "--json", given=query).documents == [
        {"status": "in flight", "messages": 1},
        {"status": "visible", "messages": 1},
    ]
    assert cli("sql", query, "--csv").out == "status,messages\nin flight,1\nvisible,1\n"
    assert cli("sql", "SELECT queue FROM messages WHERE false").out == "no rows (queue)\n"


def test_values_of_every_type_are_printed(cli, queue):
    query = "SELECT 1 AS n, x'00' AS b, NULL AS nothing, [1, 2] AS list, to_timestamp(0) AS at, 'NaN'::double AS nan"
    (row,) = cli("sql", query, "--json").documents
    assert row == {"n": 1, "b": "AA==", "nothing": None, "list": [1, 2], "at": row["at"], "nan": None}
    assert row["at"].startswith("1970-01-01")
    assert cli("sql", query).code == 0
    header, line = cli("sql", query, "--csv").out.splitlines()
    assert (header, line) == ("n,b,nothing,list,at,nan", '1,AA==,,"[1, 2]",1970-01-01T00:00:00,nan')
    assert cli("sql", "SELECT now() AS now").out.splitlines()[2][:2] == "20"


def test_a_timestamp_without_a_time_zone_is_printed_as_it_is(cli, queue, monkeypatch):
    """It was taken for local time, and printed as UTC."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        query = (
            "SELECT TIMESTAMP '2026-01-01 00:00:00' AS local, arrow_cast(0, 'Timestamp(Second, Some(\"UTC\"))') AS utc"
        )
        (row,) = cli("sql", query, "--json").documents
        assert row == {"local": "2026-01-01T00:00:00", "utc": "1970-01-01T00:00:00Z"}
        assert cli("sql", query, "--csv").out.splitlines()[1] == "2026-01-01T00:00:00,1970-01-01T00:00:00Z"
        assert cli("sql", query).out.splitlines()[2].split("  ") == ["2026-01-01 00:00:00", "1970-01-01 00:00:00Z"]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_what_python_has_no_value_for_is_printed_as_text(cli, queue):
    far = "make_date(12026, 1, 1)"
    most = "9223372036854775807"
    kinds = ["Timestamp(Second, None)", 'Timestamp(Second, Some("UTC"))', "Duration(Second)"]
    casts = [f"arrow_cast({most}, '{kind}') AS a{number}" for number, kind in enumerate(kinds)]
    query = f"SELECT {far} AS day, [{far}] AS days, named_struct('day', {far}) AS inside, 7 AS n, {', '.join(casts)}"
    out_of_range = f"<value out of range: {most}>"
    (row,) = cli("sql", query, "--json").documents
    assert list(row.values()) == [
        "12026-01-01", ["12026-01-01"], {"day": "12026-01-01"}, 7, out_of_range, out_of_range, f"{most} s"
    ]  # fmt: skip
    assert "12026-01-01" in cli("sql", query).out and out_of_range in cli("sql", query, "--csv").out


def test_the_past_is_named_by_a_version(cli, queue):
    queue.send("a")
    claim = queue.receive()
    claim.delete()
    query = "SELECT status FROM messages"
    assert cli("sql", query, "--json").documents == [{"status": "deleted"}]
    assert cli("sql", query, "--json", "--version", str(claim.version)).documents == [{"status": "in flight"}]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("SELECT",), "QUERY"),
        (("SELECT * FROM nothing",), "nothing"),
        (("SELECT nothing FROM messages",), "nothing"),
        (("DROP TABLE messages",), "reads"),
        (("SELECT 1", "--version", "99"), "versions from"),
        (("SELECT 1", "--timestamp", "yesterday"), "timestamp"),
        (("SELECT 1", "--csv", "--json"), "--csv or --json"),
    ],
)
def test_what_is_no_query_says_why(cli, queue, arguments, says):
    ran = cli("sql", *arguments)
    assert ran.code == 2 and says in ran.err and "Traceback" not in ran.err


@pytest.mark.parametrize("explained", ["EXPLAIN", "EXPLAIN ANALYZE", "DESCRIBE ANALYZE VERBOSE"])
@pytest.mark.parametrize(
    "writes",
    [
        "INSERT INTO stored_messages SELECT * FROM stored_messages -- messages",
        "WITH one AS (SELECT 1) INSERT INTO stored_messages SELECT * FROM stored_messages -- messages",
        "DELETE FROM stored_messages -- messages",
        "UPDATE stored_messages SET body = 'duplicate' -- messages",
        "MERGE INTO stored_messages USING (SELECT 1) ON true WHEN MATCHED THEN DELETE -- messages",
        "CREATE TABLE more AS SELECT 1",
    ],
)
def test_what_writes_is_refused_before_it_reaches_a_table_also_to_be_explained(cli, queue, explained, writes):
    ran = cli("sql", f"{explained} {writes}")
    assert ran.code == 2 and ("not implemented yet" in ran.err or "SQL error" in ran.err)


def test_two_columns_of_a_query_may_have_one_name(cli, queue):
    queue.send("a")
    query = "SELECT a.queue, b.queue FROM messages a JOIN messages b ON a.message_id = b.message_id"
    assert cli("sql", query).code == cli("sql", f"EXPLAIN {query}").code == 0


@pytest.mark.parametrize("table", ["messages", "visibility"])
@pytest.mark.parametrize("harm", [Path.unlink, lambda file: file.write_bytes(b"torn")], ids=["gone", "torn"])
def test_a_file_that_cannot_be_read_is_damage_and_no_fault_of_the_query(cli, root, queue, table, harm):
    queue.send("a")
    queue.receive()
    for file in (Path(root) / table).rglob("*.parquet"):
        harm(file)
    ran = cli("sql", "SELECT * FROM messages")
    assert ran.code == 1 and f"of the table {table} is damaged" in ran.err and "QUERY" not in ran.err


def test_dead_letters_go_back_by_a_predicate(cli, ledger, queue):
    dead = ledger.create_queue("dead")
    queue.set_attributes({"RedrivePolicy": {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1}})
    queue.send(["a", "late b", "late c"])
    queue.receive(3, 0)
    assert not queue.receive(3) and dead.counts().visible == 3
    assert cli("redrive", "dead", "--where", "body LIKE 'late%' -- those").out == "moved 2 messages out of dead\n"
    assert cli("redrive", "dead", "--where", "body LIKE 'late%'").out == "moved 0 messages out of dead\n"
    assert dead.counts().visible == 1
    for wrong, says in ((("--where", "nope > 1"), "nope"), (("--where", "true", "id"), "not both")):
        ran = cli("redrive", "dead", *wrong)
        assert ran.code == 2 and says in ran.err
    assert dead.counts().visible == 1
