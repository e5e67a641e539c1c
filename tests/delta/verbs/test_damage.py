"""What a power cut or a short copy leaves of a table is named as damage, with the table, its version and the remedy."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from ledger import Ledger
from ledger.cli import main
from ledger.delta_log.storage import log_file
from ledger.errors import InvalidParameterValue, LedgerDamaged, OutputNotWritten, OutputUnreadable

pytestmark = pytest.mark.usefixtures("short_pauses")

#: What may become of the newest entry.
HARMS = {"empty": lambda whole: b"", "torn": lambda whole: whole[: len(whole) // 2], "zeros": lambda whole: bytes(4096)}


@pytest.fixture
def queue(open_ledger):
    queue = open_ledger().create_queue("jobs", {"Lanes": 1})
    queue.send("one")
    queue.send("two")
    queue.receive(1, visibility_timeout=600)
    return queue


def newest(root, table):
    return max(Path(root, table, "_delta_log").glob("*.json"))


def harm(file, how):
    file.write_bytes(HARMS[how](file.read_bytes()))


def looked_at(ledger):
    return ledger.queue("jobs").counts()


def received(ledger):
    return ledger.queue("jobs").receive(1)


def sent(ledger):
    ledger.queue("jobs").send("three")
    return ledger.queue("jobs").counts()


@pytest.mark.soak_variants(
    "spark*", but=("spark-received-messages-empty", "spark-sent-visibility-torn", "spark-looked_at-queues-zeros")
)
@pytest.mark.parametrize("how", HARMS)
@pytest.mark.parametrize("table", ["messages", "visibility", "queues"])
@pytest.mark.parametrize("verb", [looked_at, received, sent])
def test_an_entry_that_is_no_whole_commit_is_named_by_every_verb(open_ledger, root, queue, engine, table, how, verb):
    file = newest(root, table)
    harm(file, how)
    with pytest.raises(LedgerDamaged, match=f"Version {int(file.stem)} of the table {table} is damaged") as raised:
        verb(open_ledger(engine))
    assert "ledger repair" in raised.value.advice and file.name in raised.value.message


@pytest.mark.soak_variants("torn", "zeros")
@pytest.mark.parametrize("how", HARMS)
def test_an_open_ledger_that_follows_the_log_names_it_too(open_ledger, root, queue, how):
    ledger = open_ledger()
    assert looked_at(ledger).visible == 1
    open_ledger().queue("jobs").send("three")
    harm(newest(root, "messages"), how)
    for verb in (looked_at, sent):
        with pytest.raises(LedgerDamaged, match="of the table messages is damaged"):
            verb(ledger)


def test_an_entry_without_what_it_says_of_itself_is_damage(open_ledger, root, queue):
    file = newest(root, "visibility")
    lines = [line for line in file.read_text().splitlines(keepends=True) if '"commitInfo"' not in line]
    file.write_text("".join(lines))
    with pytest.raises(LedgerDamaged, match="has no commitInfo"):
        looked_at(open_ledger())


@pytest.mark.parametrize("how", HARMS)
def test_history_views_and_upkeep_name_it(open_ledger, root, queue, how):
    harm(newest(root, "visibility"), how)
    for verb in (
        lambda ledger: ledger.fill_receipts(),
        lambda ledger: ledger.upkeep(),
        lambda ledger: ledger.sql("SELECT * FROM receipts"),
        lambda ledger: ledger.sql("SELECT * FROM messages"),
        lambda ledger: ledger.sql("SELECT * FROM in_flight", timestamp="2023-11-14T22:13:20+00:00"),
        lambda ledger: ledger.health(),
    ):
        with pytest.raises(LedgerDamaged, match="of the table visibility is damaged"):
            verb(open_ledger())


def test_an_entry_that_a_checkpoint_covers_is_not_needed(open_ledger, root, queue):
    whole = Path(root, "messages", log_file(1)).read_bytes()
    Path(root, "messages", log_file(1)).write_bytes(b"")
    with pytest.raises(LedgerDamaged):
        looked_at(open_ledger())
    Path(root, "messages", log_file(1)).write_bytes(whole)
    DeltaTable(f"{root}/messages").create_checkpoint()
    Path(root, "messages", log_file(1)).write_bytes(b"")
    assert looked_at(open_ledger()).visible == 1


@pytest.mark.soak_variants("spark-0-*", "spark-500-visibility")
@pytest.mark.parametrize("table", ["messages", "visibility"])
@pytest.mark.parametrize("left", [0, 500])
def test_a_data_file_that_is_empty_short_or_gone_is_named(open_ledger, root, queue, engine, table, left):
    file = max(Path(root, table).glob("**/*.parquet"), key=lambda one: one.stat().st_mtime_ns)
    os.truncate(file, left)
    with pytest.raises(LedgerDamaged, match=file.name):
        ledger = open_ledger(engine)
        ledger.queue("jobs").receive(None).messages()


def test_a_data_file_that_is_gone_is_named(open_ledger, root, queue, engine):
    file = max(Path(root, "messages").glob("**/*.parquet"), key=lambda one: one.stat().st_mtime_ns)
    file.unlink()
    with pytest.raises(LedgerDamaged, match=f"{file.name} is missing"):
        open_ledger(engine).queue("jobs").receive(None).messages()


@pytest.fixture
def checkpointed(root, queue):
    """The path of a checkpoint of `visibility`, with a commit behind it."""
    DeltaTable(f"{root}/visibility").create_checkpoint()
    queue.receive(1, visibility_timeout=600)
    return max(Path(root, "visibility", "_delta_log").glob("*.checkpoint.parquet"))


@pytest.mark.soak_variants("spark-0", "spark-None")
@pytest.mark.parametrize("left", [0, 100, None])
def test_a_checkpoint_that_cannot_be_read_stops_nobody(open_ledger, root, checkpointed, engine, left):
    checkpointed.unlink() if left is None else os.truncate(checkpointed, left)
    assert looked_at(open_ledger(engine)).in_flight == 2
    assert looked_at(open_ledger()).in_flight == 2
    if engine == "delta-rs" and left is not None:
        assert not checkpointed.exists()
        assert list(Path(root, "_ledger_lost").glob(f"**/{checkpointed.name}")), "it is moved, and not removed"


@pytest.mark.soak_variants("spark*", but=('spark-{"version"*',))
@pytest.mark.parametrize("content", [b"", b'{"version": 1', b"\0" * 100])
def test_a_hint_at_the_last_checkpoint_that_cannot_be_read_stops_nobody(
    open_ledger, root, checkpointed, engine, content
):
    (checkpointed.parent / "_last_checkpoint").write_bytes(content)
    assert looked_at(open_ledger(engine)).in_flight == 2


def test_who_may_only_read_gets_past_an_empty_checkpoint(root, clock, checkpointed):
    os.truncate(checkpointed, 0)
    assert looked_at(Ledger.open(root, read_only=True, clock=clock)).in_flight == 2
    assert checkpointed.exists()


def test_a_checkpoint_is_damage_where_its_entries_are_gone(open_ledger, root, checkpointed):
    Path(root, "visibility", log_file(0)).unlink()
    os.truncate(checkpointed, 0)
    with pytest.raises(LedgerDamaged, match="checkpoint that cannot be read") as raised:
        looked_at(open_ledger())
    assert "restore a backup" in raised.value.advice and "tell the same" not in raised.value.advice


def test_who_may_only_read_is_told_what_takes_a_torn_checkpoint_out(root, clock, checkpointed, capsys):
    os.truncate(checkpointed, 100)
    with pytest.raises(LedgerDamaged, match="checkpoint that cannot be read") as raised:
        looked_at(Ledger.open(root, read_only=True, clock=clock))
    assert "`ledger repair ROOT`" in raised.value.advice and "`ledger upkeep`" in raised.value.advice
    assert main(["upkeep", "--root", root]) == 0 and not checkpointed.exists()
    assert looked_at(Ledger.open(root, read_only=True, clock=clock)).in_flight == 2


def test_what_the_doctor_says_of_a_checkpoint_mends_it(root, checkpointed, capsys):
    """Also where an opening passes by it: the hint at the last checkpoint is gone."""
    os.truncate(checkpointed, 0)
    (checkpointed.parent / "_last_checkpoint").unlink()
    assert main(["doctor", root]) == 0
    assert "`ledger repair` takes these out" in capsys.readouterr().out
    assert main(["repair", root, "--yes"]) == 0 and not checkpointed.exists()
    capsys.readouterr()
    assert main(["doctor", root]) == 0
    assert "checkpoint.parquet" not in capsys.readouterr().out


@pytest.mark.parametrize("how", HARMS)
def test_an_output_table_whose_log_is_damaged_is_named_with_its_version(open_ledger, root, queue, tmp_path, how):
    table, ledger = str(tmp_path / "out"), open_ledger()
    ledger.queue("jobs").receive(1).write(pa.table({"answer": [1]}), table)
    file = max(Path(table, "_delta_log").glob("*.json"))
    harm(file, how)
    ledger.queue("jobs").send("three")
    claim = ledger.queue("jobs").receive(1)
    with pytest.raises((OutputNotWritten, OutputUnreadable), match=f"version {int(file.stem)} of its log is damaged"):
        claim.write(pa.table({"answer": [2]}), table)
    assert claim.extend(60).messages == 1, "the claim is held as before"


def damaged_files(root, **options):
    return [
        one for table in Ledger.open(root, read_only=True).health(**options).tables.values() for one in table.damaged
    ]


@pytest.mark.parametrize(("left", "what"), [(0, "is empty"), (100, "has 100 bytes"), (None, "is missing")])
def test_health_and_the_doctor_find_a_data_file_that_is_not_as_written(root, queue, left, what, capsys):
    file = max(Path(root, "messages").glob("**/*.parquet"))
    assert damaged_files(root) == []
    file.unlink() if left is None else os.truncate(file, left)
    (said,) = damaged_files(root)
    assert file.name in said and what in said
    assert main(["doctor", root]) == 1
    assert what in capsys.readouterr().out


def test_a_deep_look_reads_and_counts_rows(root, queue):
    file = max(Path(root, "messages").glob("**/*.parquet"))
    whole = file.read_bytes()
    file.write_bytes(whole[:-4] + b"????")
    assert damaged_files(root) == []
    assert "cannot be read as Parquet" in damaged_files(root, deep=True)[0]
    size = len(whole)
    rows = pq.read_table(file.parent / file.name) if file.write_bytes(whole) else None
    pq.write_table(rows.slice(0, 0), file)
    with file.open("r+b") as padded:
        content = padded.read()
        padded.seek(0)
        padded.write(b"PAR1" + bytes(max(0, size - len(content))) + content[4:])
    assert file.stat().st_size >= size
    assert damaged_files(root, deep=True)


def test_bytes_that_are_damaged_inside_a_file_are_named_and_what_was_received_is_given_back(root, capsys):
    queue = Ledger.open(root).create_queue("now", {"Lanes": 1})
    queue.send([f"{'x' * 500} {n}" for n in range(200)])
    file = max(Path(root, "messages").glob("**/*.parquet"), key=lambda one: one.stat().st_size)
    with file.open("r+b") as inside:
        inside.seek(4)
        inside.write(b"\xff" * 40)
    assert damaged_files(root) == []
    assert any(file.name in said and "cannot be read" in said for said in damaged_files(root, deep=True))
    with pytest.raises(LedgerDamaged, match=file.name):
        Ledger.open(root).sql("SELECT max(body) FROM messages")
    with pytest.raises(InvalidParameterValue, match="query"):
        Ledger.open(root).sql("SELECT arrow FROM messages")
    before = Ledger.open(root).queue(queue.name).counts()
    assert main(["receive", queue.name, "--all", "--root", root]) == 1
    said = capsys.readouterr().err
    assert file.name in said and "Its messages were given back" in said
    after = Ledger.open(root).queue(queue.name).counts()
    assert (after.visible, after.in_flight) == (before.visible, before.in_flight)
    assert Ledger.repair(root, dry_run=True).tables


@pytest.mark.parametrize("how", HARMS)
def test_the_doctor_names_a_damaged_log(root, queue, how, capsys):
    file = newest(root, "visibility")
    harm(file, how)
    assert main(["doctor", root]) == 1
    said = capsys.readouterr().out
    assert f"Version {int(file.stem)} of the table visibility is damaged" in said and "ledger repair" in said
    assert "tests/run.py" not in said.partition("tables:")[2]
