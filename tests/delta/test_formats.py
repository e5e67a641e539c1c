"""Formats of tables: no layout changes without its number, and what earlier releases wrote is brought up to date."""

import dataclasses
import hashlib
import json
import shutil
import threading
from pathlib import Path

import pytest
from deltalake import DeltaTable

from ledger import Ledger
from ledger.errors import LedgerTooNew, StorageFailed
from ledger.rules.message_attributes import Attribute
from ledger.store.delta import opening
from ledger.store.delta.model.formats import Layout, is_older, layout_of_new, require_readable
from ledger.store.delta.model.tables import COMMITS, FORMAT, TABLES
from tests.clock import FrozenClock
from tests.delta.formats.write import END, SENDER, TRACE
from tests.delta.test_failures import full_disk

#: Every layout that a release had. When this fails, the layout of a table has changed: give the table its next
#: `format`, add a line here, and write a fixture with the release of before (`tests/delta/formats/write.py`).
FINGERPRINTS = {
    ("queues", 1): "d35ccf7df129a4d3",
    ("messages", 1): "d3a1d3813a007bd9",
    ("messages", 2): "36fe4b12c38c86c5",
    ("visibility", 1): "f004dc2d6caedc14",
    ("visibility", 2): "f3f4ffb6ad93bf57",
    ("receipts", 1): "35f268bdf5ca8fca",
    ("receipts", 2): "ac9372792f7f02cf",
    ("tasks", 1): "70bfad60429d1d5e",
}
ARCHIVES = sorted((Path(__file__).parent / "formats").glob("format_*.tar.gz"))


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
    """The root of a ledger that an earlier release wrote."""
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
    assert 1 <= table.needed <= table.format


def test_the_format_of_ledgers_on_s3_keeps_out_every_earlier_release_and_changes_nothing_else():
    """Earlier ones would commit there through Spark; what they know is the number before."""
    table = TABLES["queues"]
    made = layout_of_new(table, "s3")
    assert table.on_s3 == table.format + 1 and made.description == f"ledger format {table.on_s3}"
    assert made.properties == {**table.properties, FORMAT: str(table.on_s3), COMMITS: "delta-rs"}
    for scheme in ("file", "abfss", "gs", "hdfs"):
        assert layout_of_new(table, scheme) == (table.description, table.properties)
    before = dataclasses.replace(table, on_s3=None)
    with pytest.raises(LedgerTooNew, match=r"format 2.*up to 1"):
        require_readable(before, made)
    require_readable(table, made)
    assert not is_older(table, made)


def test_the_fixture_of_format_1_is_what_that_release_wrote(old):
    for name in TABLES:
        assert of_storage(DeltaTable(f"{old}/{name}")) == FINGERPRINTS[name, 1]


def test_every_earlier_format_has_a_fixture():
    newest = max(table.format for table in TABLES.values())
    assert [archive.name for archive in ARCHIVES] == [f"format_{number}.tar.gz" for number in range(1, newest)]


@pytest.fixture(params=["delta-rs", "spark"])
def opened(request, old, then):
    """A ledger of before, opened through each engine."""
    spark = request.getfixturevalue("spark") if request.param == "spark" else None
    return Ledger.open(old, spark, request.param, clock=then, create=False)


def test_opening_brings_each_older_table_up_to_date_in_one_commit(old, then):
    before = versions(old)
    for _ in range(2):
        Ledger.open(old, clock=then)
        assert versions(old) == {name: before[name] + (TABLES[name].format > 1) for name in TABLES}
    for name, table in TABLES.items():
        stored = DeltaTable(f"{old}/{name}").metadata()
        assert stored.configuration.items() >= {k: v for k, v in table.properties.items() if k != FORMAT}.items()
        assert int(stored.configuration.get(FORMAT, "1")) == table.format
        assert stored.description == table.description, "which releases may use it"


def test_what_an_earlier_release_wrote_is_all_there(opened, then):
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
    assert ours.sort_by("segment").equals(theirs.sort_by("segment"))
    assert not any(ours[name].null_count for name in ours.column_names)


def test_of_many_that_open_an_older_ledger_at_once_one_migrates_it(old, then):
    before, opened, ready = versions(old), [], threading.Barrier(8)

    def open_it():
        ready.wait()
        opened.append(Ledger.open(old, clock=then).queue("work").counts().in_flight)

    threads = [threading.Thread(target=open_it) for _ in range(ready.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened == [10] * ready.parties
    assert versions(old) == {name: before[name] + (TABLES[name].format > 1) for name in TABLES}


def test_a_process_that_has_it_open_works_on(old, then, monkeypatch):
    """As one of an earlier release does, whose tables are migrated under its feet."""
    with monkeypatch.context() as patched:
        patched.setattr(opening, "migrate", lambda *_: None)
        before = Ledger.open(old, clock=then).queue("work")
    before.send("a")
    Ledger.open(old, clock=then)
    before.send("b")
    assert {"a", "b"} <= {message.body for message in before.receive(None)}


def test_what_cannot_be_written_to_is_used_as_it_is(old, then, caplog):
    with full_disk():
        ledger = Ledger.open(old, clock=then)
        assert ledger.queue("work").counts().in_flight == 10
        with pytest.raises(StorageFailed):
            ledger.queue("work").send("a")
    assert "messages stays in the format" in caplog.text
    ledger.queue("work").send("a")
    assert FORMAT not in DeltaTable(f"{old}/messages").metadata().configuration


def test_earlier_releases_do_not_open_what_they_would_misread(root):
    """They would take a set for a run."""
    table = TABLES["visibility"]
    stored = DeltaTable(f"{root}/visibility").metadata()
    with pytest.raises(LedgerTooNew, match=r"visibility has format 2.*up to 1"):
        require_readable(dataclasses.replace(table, format=1), Layout(stored.description, stored.configuration))


def test_a_later_format_is_used_as_it_is_if_it_allows_that_and_refused_if_not(root, clock):
    table = DeltaTable(f"{root}/messages")
    table.alter.set_table_properties({FORMAT: "9"}, raise_if_not_exists=False)
    before = versions(root)
    Ledger.open(root, clock=clock)
    assert versions(root) == before
    table.alter.set_table_description("ledger format 9")
    with pytest.raises(LedgerTooNew, match="messages has format 9"):
        Ledger.open(root, clock=clock)


def test_properties_alone_leave_columns_and_who_may_use_a_table_as_they_are(old, then, monkeypatch):
    """As when upkeep sets how long the past is kept, on a ledger that asks for more than this release does."""
    monkeypatch.setattr(opening, "migrate", lambda *_: None)
    ledger = Ledger.open(old, clock=then)
    stored = DeltaTable(f"{old}/visibility")
    stored.alter.set_table_description("ledger format 2")
    names = [field.name for field in stored.schema().fields]
    ledger.store.engine.configure("visibility", {"delta.logRetentionDuration": "interval 1 days"}, {})
    stored = DeltaTable(f"{old}/visibility")
    assert [field.name for field in stored.schema().fields] == names and "bits" not in names
    assert stored.metadata().description == "ledger format 2" and FORMAT not in stored.metadata().configuration
    assert stored.metadata().configuration["delta.logRetentionDuration"] == "interval 1 days"
