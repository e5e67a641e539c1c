"""Formats of tables: no layout changes without its number, and a ledger that 0.1.0 wrote has all that was in it."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from ledger import Ledger
from ledger.delta_log.protocol import Layout
from ledger.errors import LedgerTooNew
from ledger.rules.message_attributes import Attribute
from ledger.store.delta.model.tables import COMMITS, FORMAT, TABLES, require_readable
from tests.clock import FrozenClock
from tests.delta.formats.write import END, SENDER, TRACE

#: Every layout that a release had. When this fails, the layout of a table has changed: give the table its next
#: `format`, add a line here, and write a fixture with the release of before (`tests/delta/formats/write.py`).
FINGERPRINTS = {
    ("queues", 1): "d35ccf7df129a4d3",
    ("messages", 1): "36fe4b12c38c86c5",
    ("visibility", 1): "f3f4ffb6ad93bf57",
    ("receipts", 1): "ac9372792f7f02cf",
    ("tasks", 1): "70bfad60429d1d5e",
}
ARCHIVES = sorted((Path(__file__).parents[1] / "formats").glob("format_*.tar.gz"))


def fingerprint(columns, partitions, properties):
    """Of columns by name: their order is nobody's concern."""
    known = {name: value for name, value in properties.items() if name != FORMAT}
    return hashlib.sha256(repr((sorted(columns), list(partitions), sorted(known.items()))).encode()).hexdigest()[:16]


def of_release(table):
    columns = [(field.name, str(field.type)) for field in table.schema]
    return fingerprint(columns, table.partitions, table.properties)


def of_storage(table):
    known = table.metadata()
    columns = [(field.name, str(field.type)) for field in table.to_pyarrow_dataset().schema]
    return fingerprint(columns, known.partition_columns, known.configuration)


def versions(root):
    return {name: DeltaTable(f"{root}/{name}").version() for name in TABLES}


@pytest.fixture(params=ARCHIVES, ids=lambda archive: archive.name.split(".")[0])
def old(request, tmp_path):
    """The root of a ledger that a release wrote."""
    shutil.unpack_archive(request.param, tmp_path)
    return str(tmp_path / "ledger")


@pytest.fixture
def then():
    """The clock, when the fixture's last verb was over."""
    return FrozenClock(END)


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_a_layout_does_not_change_without_its_number(table):
    assert of_release(table) == FINGERPRINTS[table.name, table.format]
    assert {number for name, number in FINGERPRINTS if name == table.name} == set(range(1, table.format + 1))


def test_a_ledger_on_s3_records_that_only_delta_rs_commits_to_it():
    for table in TABLES.values():
        for scheme in ("file", "abfss", "gs", "hdfs"):
            assert table.layout(scheme) == (table.description, table.properties)
    recorded = {COMMITS: "delta-rs"}
    assert TABLES["queues"].layout("s3") == (TABLES["queues"].description, {**TABLES["queues"].properties, **recorded})
    assert TABLES["messages"].layout("s3") == TABLES["messages"].layout("file")


def test_every_format_has_a_fixture_which_is_what_that_release_wrote(tmp_path):
    newest = max(table.format for table in TABLES.values())
    assert [archive.name for archive in ARCHIVES] == [f"format_{number}.tar.gz" for number in range(1, newest + 1)]
    for number, archive in enumerate(ARCHIVES, 1):
        shutil.unpack_archive(archive, tmp_path / f"{number}")
        for name in TABLES:
            stored = DeltaTable(tmp_path / f"{number}" / "ledger" / name)
            assert of_storage(stored) == FINGERPRINTS[name, number]
            assert stored.metadata().configuration[FORMAT] == str(number)
            assert stored.metadata().description == f"ledger format {number}", "which releases may use it"


def test_a_release_that_knows_an_earlier_format_alone_does_not_open_a_table():
    for table in TABLES.values():
        with pytest.raises(LedgerTooNew, match=rf"{table.name} needs .* format 2,.*up to 1"):
            require_readable(table, Layout("ledger format 2", {}))


def test_opening_changes_nothing(old, then):
    before = versions(old)
    for _ in range(2):
        Ledger.open(old, clock=then)
        assert versions(old) == before


def test_properties_leave_columns_and_who_may_use_a_table_as_they_are(old, then):
    """As when upkeep sets how long the past is kept."""
    ledger, stored = Ledger.open(old, clock=then), DeltaTable(f"{old}/visibility")
    names, before = [field.name for field in stored.schema().fields], stored.metadata()
    ledger.store.engine.configure("visibility", {"delta.logRetentionDuration": "interval 1 days"}, {})
    stored = DeltaTable(f"{old}/visibility")
    assert [field.name for field in stored.schema().fields] == names
    changed = {**before.configuration, "delta.logRetentionDuration": "interval 1 days"}
    assert stored.metadata().description == before.description and stored.metadata().configuration == changed


@pytest.fixture(params=["delta-rs", "spark"])
def opened(request, old, then):
    """Such a ledger, opened through each engine."""
    spark = request.getfixturevalue("spark") if request.param == "spark" else None
    return Ledger.open(old, spark, request.param, clock=then, create=False)


@pytest.mark.soak_variants("spark*")
def test_what_a_release_wrote_is_all_there(opened, then):
    """Through either engine: what was in flight still is, what was deleted stays so, and what is sent now is stored."""
    counts = {queue.name: queue.counts() for queue in opened.list_queues()}
    assert {name: (c.visible, c.delayed, c.in_flight, c.deleted, c.moved) for name, c in counts.items()} == {
        "dead": (1, 0, 0, 0, 1),
        "events.fifo": (5, 0, 1, 1, 0),
        "poison": (1, 0, 0, 0, 1),
        "work": (31, 1, 10, 1, 0),
    }
    work, fifo = opened.queue("work"), opened.queue("events.fifo")
    assert work.tags() == {"team": "blue"}
    (traced,) = (message for message in work.receive(None, attempt_id="all").messages() if message.body == "traced")
    assert (traced.aws_trace_header, traced.sender_id) == (TRACE, SENDER)
    assert traced.message_attributes["key"] == Attribute("Binary", None, b"\0\1")
    again = work.receive(10, attempt_id="task 1")
    assert again.count == 10 and again.delete().messages == 10
    (known,) = fifo.send([{"MessageBody": "other", "MessageGroupId": "0", "MessageDeduplicationId": "twice"}])
    assert fifo.counts().stored == 5, "a duplicate"
    then.advance(601)
    assert known.message_id in {message.message_id for message in fifo.receive(None)}
    assert work.counts().visible == 31
    work.send([{"MessageBody": "new", "AWSTraceHeader": "Root=2"}])
    assert [m.aws_trace_header for m in work.receive(None) if m.body == "new"] == ["Root=2"]
    assert opened.upkeep(vacuum=False)


def statistics(root, since):
    """The columns that each data file of `messages` committed after a version has statistics of."""
    logs = sorted(Path(root, "messages", "_delta_log").glob("*.json"))
    actions = [json.loads(line) for log in logs if int(log.stem) > since for line in log.read_text().splitlines()]
    stats = [json.loads(action["add"]["stats"]) for action in actions if "add" in action]
    return [(set(one["minValues"]), set(one["nullCount"])) for one in stats]


def test_new_files_have_statistics_of_the_named_columns_and_both_engines_list_them(old, then, spark):
    ledgers = [Ledger.open(old, spark, engine, clock=then) for engine in ("delta-rs", "spark")]
    work, since = ledgers[0].queue("work"), versions(old)["messages"]
    work.send(["a", "b"])
    ledgers[1].queue("work").send(["c"])
    work.send(spark.sql("SELECT 'd' AS body, 'Root=3' AS aws_trace_header"))
    named = set(TABLES["messages"].statistics)
    known = named - {"message_group_id", "sequence_number"}
    # A bulk send writes no columns that say nothing.
    assert statistics(old, since) == [(known, named), (known, named), (known, known)]
    (_, ours), (_, theirs) = (ledger.store.engine.files() for ledger in ledgers)
    order = [("segment", "ascending"), ("first_seq", "ascending")]
    assert ours.sort_by(order).equals(theirs.sort_by(order))
    # Only a FIFO queue has sequence numbers.
    assert {name for name in ours.column_names if ours[name].null_count} == {"last_number"}


def test_a_later_format_is_used_as_it_is_if_it_allows_that_and_refused_if_not(root, clock):
    table = DeltaTable(f"{root}/messages")
    table.alter.set_table_properties({FORMAT: "9"}, raise_if_not_exists=False)
    before = versions(root)
    Ledger.open(root, clock=clock)
    assert versions(root) == before
    table.alter.set_table_description("ledger format 9")
    with pytest.raises(LedgerTooNew, match="messages needs a release that knows format 9"):
        Ledger.open(root, clock=clock)
