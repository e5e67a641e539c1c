"""A ledger after a power cut is cut back to its last whole version, and what was lost is told."""

import errno
import os
import re
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from ledger import Ledger
from ledger.cli import main
from ledger.delta_log.history import find_lost_entries
from ledger.delta_log.storage import LocalFiles
from ledger.errors import InvalidParameterValue, LedgerDamaged, LedgerDoesNotExist, LedgerError, StorageFailed
from ledger.rules.location import recorded
from ledger.settings import Settings
from ledger.store.delta.commit import locks
from ledger.store.delta.commit.locks import TableLock
from ledger.store.delta.verbs import repair as repairing

pytestmark = pytest.mark.usefixtures("short_pauses")


@pytest.fixture
def queue(open_ledger):
    queue = open_ledger().create_queue("jobs", {"Lanes": 1})
    for body in ("one", "two", "three"):
        queue.send(body)
    return queue


def empty(root, table, newest=1):
    """Empties some of the newest entries; returns their versions."""
    files = sorted(Path(root, table, "_delta_log").glob("*.json"))[-newest:]
    for file in files:
        file.write_bytes(b"")
    return [int(file.stem) for file in files]


@pytest.mark.parametrize("newest", [1, 2])
def test_lost_sends_are_told_and_the_rest_is_received(open_ledger, root, queue, newest):
    versions = empty(root, "messages", newest)
    (seen,) = Ledger.repair(root, dry_run=True).tables
    with pytest.raises(LedgerDamaged):
        open_ledger().queue("jobs").counts()
    (done,) = (found := Ledger.repair(root)).tables
    assert done == seen and [one.version for one in done.commits] == versions
    assert all(one.flaw == "has no bytes" for one in done.commits)
    assert sorted(file.stat().st_size for file in Path(found.lost).rglob("*.json")) == [0] * newest
    jobs = open_ledger().queue("jobs")
    assert len(jobs.receive(None).messages()) == 3 - newest
    jobs.send("four")
    assert [one.body for one in jobs.receive(None).messages()] == ["four"]
    assert not Ledger.repair(root)


def test_a_whole_commit_behind_a_damaged_one_is_lost_and_told(open_ledger, root, queue):
    files = sorted(Path(root, "messages", "_delta_log").glob("*.json"))
    files[-2].write_bytes(b"")
    (done,) = Ledger.repair(root).tables
    assert [(one.flaw, one.messages) for one in done.commits] == [("has no bytes", None), ("", 1)]
    assert open_ledger().queue("jobs").counts().visible == 1


def test_a_lost_receive_gives_its_messages_back_and_history_goes_on(open_ledger, root, queue):
    queue.receive(2, visibility_timeout=600).delete()
    empty(root, "visibility")
    Ledger.repair(root)
    ledger = open_ledger()
    assert ledger.queue("jobs").counts().in_flight == 2
    assert ledger.fill_receipts() == 1
    assert ledger.queue("jobs").receive(None).count == 1
    assert [row["event"] for row in ledger.sql("SELECT event FROM receipts").to_pylist()] == ["granted"] * 2
    ledger.upkeep()


def test_a_repair_that_is_stopped_is_carried_on(open_ledger, root, queue, monkeypatch):
    files = sorted(Path(root, "messages", "_delta_log").glob("*.json"))
    files[-3].write_bytes(b"")
    replace, steps = repairing._replace, iter([1, 1])

    def stopping(*arguments):
        if next(steps, None) is None:
            raise KeyboardInterrupt
        replace(*arguments)

    monkeypatch.setattr(repairing, "_replace", stopping)
    with pytest.raises(KeyboardInterrupt):
        Ledger.repair(root)
    with pytest.raises(LedgerDamaged):
        open_ledger().queue("jobs").counts()
    monkeypatch.setattr(repairing, "_replace", replace)
    assert len(Ledger.repair(root).tables[0].commits) == 3
    assert open_ledger().queue("jobs").counts().visible == 0


def test_a_repair_on_a_full_disk_leaves_no_file_of_its_own(root, queue, monkeypatch):
    empty(root, "messages")
    before = sorted(Path(root).glob("*/_delta_log/*"))
    write = LocalFiles.write_synced

    def full(files, opened, content):
        opened.write(content[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(LocalFiles, "write_synced", full)
    with pytest.raises(StorageFailed, match="No space left"):
        Ledger.repair(root)
    assert sorted(Path(root).glob("*/_delta_log/*")) == before
    monkeypatch.setattr(LocalFiles, "write_synced", write)
    assert len(Ledger.repair(root).tables) == 1 and not Ledger.repair(root)


@pytest.mark.parametrize("left", [None, 0, 200])
def test_messages_whose_file_is_lost_are_told_and_the_rest_is_received(open_ledger, root, queue, left):
    file = max(Path(root, "messages").rglob("*.parquet"))
    file.unlink() if left is None else os.truncate(file, left)
    (done,) = Ledger.repair(root).tables
    assert done.messages == 1 and len(done.files) == 1 and not done.commits
    assert len(open_ledger().queue("jobs").receive(None).messages()) == 2
    assert not Ledger.repair(root)


def test_a_lost_file_of_state_cuts_to_the_version_before_it(open_ledger, root, queue):
    queue.receive(1, visibility_timeout=600)
    queue.receive(1, visibility_timeout=600)
    max(Path(root, "visibility").rglob("*.parquet"), key=lambda one: one.stat().st_mtime_ns).write_bytes(b"")
    (done,) = Ledger.repair(root).tables
    assert [one.messages for one in done.commits] == [1]
    assert open_ledger().queue("jobs").counts().in_flight == 1


def test_a_bad_checkpoint_costs_nothing(open_ledger, root, queue):
    DeltaTable(f"{root}/messages").create_checkpoint()
    os.truncate(max(Path(root, "messages", "_delta_log").glob("*.parquet")), 50)
    found = Ledger.repair(root)
    assert len(found.checkpoints) == 1 and not found.tables
    assert open_ledger().queue("jobs").counts().visible == 3


def test_what_cannot_be_repaired_is_left_as_it_is(root, queue, tmp_path):
    file = Path(root, "queues", "_delta_log", f"{0:020d}.json")
    file.write_bytes(b"")
    empty(root, "messages")
    with pytest.raises(LedgerDamaged, match="queues cannot be repaired"):
        Ledger.repair(root)
    assert file.read_bytes() == b"" and not Path(root, "_ledger_lost").exists()
    with pytest.raises(LedgerDoesNotExist):
        Ledger.repair(str(tmp_path / "none"))
    with pytest.raises(InvalidParameterValue, match="local path"):
        Ledger.repair("s3://bucket/ledger")


def test_a_repair_waits_for_nobody_who_uses_the_ledger(root, queue, monkeypatch):
    empty(root, "messages")
    monkeypatch.setattr(locks, "ALL_PATIENCE", 0.0)
    with TableLock(Path(root, "_locks"), "visibility").shared(), pytest.raises(LedgerError, match="is in use"):
        Ledger.repair(root)


def test_the_command_shows_what_is_lost_and_needs_yes(open_ledger, root, queue, capsys):
    assert main(["repair", root]) == 0 and "Nothing is damaged" in capsys.readouterr().out
    (version,) = empty(root, "messages")
    assert main(["repair", root]) == 2
    assert f"version {version}: not known (has no bytes)" in capsys.readouterr().out
    assert main(["repair", root, "--json"]) == 2
    asked = capsys.readouterr()
    assert f"version {version}: not known (has no bytes)" in asked.err and not asked.out
    assert "Make these repairs" in asked.err
    assert main(["repair", root, "--dry-run"]) == 0
    assert main(["repair", root, "--yes"]) == 0
    assert "_ledger_lost" in capsys.readouterr().out
    assert main(["doctor", root]) == 0


def commands(root):
    """What reads a ledger's past, by name: each returns the exit code of a command."""
    return {
        "doctor": lambda: main(["doctor", root]),
        "upkeep": lambda: main(["upkeep", "--root", root]),
        "sql": lambda: main(["sql", "--root", root, "SELECT count(*) FROM receipts"]),
        "backup": lambda: main(["backup", "--root", root, f"{root}-{os.urandom(4).hex()}"]),
        "receive": lambda: main(["receive", "jobs", "--root", root]),
    }


def summed_up(root, table, before):
    """Empties the entry so many versions before the newest one, at which there is a checkpoint; returns its version."""
    DeltaTable(f"{root}/{table}").create_checkpoint()
    file = sorted(Path(root, table, "_delta_log").glob("*.json"))[-1 - before]
    file.write_bytes(b"")
    return int(file.stem)


@pytest.mark.soak_variants("messages-0", "visibility-1", "queues-0", "receipts-1", "tasks-0")
@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("table", ["messages", "visibility", "queues", "receipts", "tasks"])
def test_an_empty_entry_that_a_checkpoint_sums_up_is_damage_of_each_table_and_repaired(root, table, before, capsys):
    ledger = Ledger.open(root)
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    queue.send(["one", "two", "three"])
    queue.receive(1, visibility_timeout=600)
    ledger.upkeep()
    queue.receive(1, visibility_timeout=600)
    version = summed_up(root, table, before if table in ("messages", "visibility", "queues") else 0)
    assert main(["doctor", root]) == 1
    assert f"Version {version} of the table {table} is damaged" in capsys.readouterr().out
    (seen,) = Ledger.repair(root, dry_run=True).tables
    assert main(["repair", root, "--yes"]) == 0
    shown = capsys.readouterr().out
    assert f"version {version} has no bytes" in shown and "no message is lost" in shown
    assert dict(seen.past) == {version: "has no bytes"} and not seen.commits and not seen.files
    assert not Ledger.repair(root)
    assert {name: run() for name, run in commands(root).items()} == dict.fromkeys(commands(root), 0)
    info = Path(root, table, "_delta_log", f"{version:020d}.json").read_text()
    assert "has no bytes" in info and '\\"verb\\": \\"repair\\"' in info, "the log says what it lost"


def test_receipts_survive_a_repair_of_the_past_and_no_wrong_past_is_read(open_ledger, root, queue, clock):
    """What others were granted before and behind the lost entry was not filled yet."""
    ledger = open_ledger()
    for n in range(3):
        clock.advance(1)
        queue.receive(1, attempt_id=f"run {n}", visibility_timeout=600)
    first = ledger.store.engine.version("visibility") - 2
    DeltaTable(f"{root}/visibility").create_checkpoint()
    clock.advance(1)
    queue.send("four")
    queue.receive(1, attempt_id="run 3", visibility_timeout=600)
    Path(root, "visibility", "_delta_log", f"{first + 1:020d}.json").write_bytes(b"")
    Ledger.repair(root)
    ledger = open_ledger()
    assert ledger.queue("jobs").counts().in_flight == 4
    granted = ledger.sql("SELECT attempt_id FROM receipts WHERE event = 'granted' ORDER BY version")["attempt_id"]
    assert granted.to_pylist() == ["run 0", "run 2", "run 3"]
    for version in (first, first + 1):
        with pytest.raises(InvalidParameterValue, match=f"visibility begins at version {first + 2}"):
            ledger.sql("SELECT * FROM in_flight", version)
        with pytest.raises(DeltaError):
            DeltaTable(f"{root}/visibility", version=version)
    assert ledger.sql("SELECT * FROM in_flight", first + 2).num_rows == 3


def test_a_repair_of_the_past_that_is_stopped_is_carried_on(open_ledger, root, queue, monkeypatch):
    version = summed_up(root, "messages", 1)

    def stopping(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(repairing, "_replace", stopping)
    with pytest.raises(KeyboardInterrupt):
        Ledger.repair(root)
    monkeypatch.undo()
    assert dict(Ledger.repair(root).tables[0].past) == {version: "has no bytes"}
    assert not Ledger.repair(root) and open_ledger().queue("jobs").counts().visible == 3


def gone(root, table, version):
    """Removes an entry."""
    Path(root, table, "_delta_log", f"{version:020d}.json").unlink()


@pytest.mark.soak_variants("messages-False", "visibility-True")
@pytest.mark.parametrize("has_checkpoint", [False, True])
@pytest.mark.parametrize("table", ["messages", "visibility"])
def test_an_entry_that_is_missing_is_named_and_what_is_behind_it_is_cut(
    open_ledger, root, queue, table, has_checkpoint, capsys
):
    """In the midst of a log, and right behind a checkpoint."""
    for _ in range(2):
        queue.receive(1, visibility_timeout=600)
    newest = DeltaTable(f"{root}/{table}").version()
    if has_checkpoint:
        DeltaTable(f"{root}/{table}", newest - 2).create_checkpoint()
    gone(root, table, newest - 1)
    named = f"Version {newest - 1} of the table {table} is damaged: .*json is missing"
    with pytest.raises(LedgerDamaged, match=named):
        open_ledger().queue("jobs").counts()
    with pytest.raises(LedgerDamaged, match=named):
        Ledger.open(root, read_only=True).health()
    assert main(["doctor", root]) == 1
    assert f"{newest - 1:020d}.json is missing" in capsys.readouterr().out
    (seen,) = Ledger.repair(root, dry_run=True).tables
    assert (seen.table, seen.version) == (table, newest - 2)
    assert [one.flaw for one in seen.commits] == ["is missing", ""]
    assert Ledger.repair(root).tables == (seen,) and not Ledger.repair(root)
    counts = open_ledger().queue("jobs").counts()
    assert counts.visible + counts.in_flight == (1 if table == "messages" else 3)


@pytest.mark.parametrize("is_filled", [False, True])
@pytest.mark.parametrize("entries", [1, 2, 3])
def test_a_hole_that_a_checkpoint_sums_up_is_damage_of_the_past(open_ledger, root, queue, capsys, entries, is_filled):
    """However long it is, and also where receipts were filled up to the version before it."""
    if is_filled:
        open_ledger().fill_receipts()
    for _ in range(5):
        queue.receive(1, visibility_timeout=0)
    for _ in range(3):
        queue.receive(1, visibility_timeout=600)
    newest = DeltaTable(f"{root}/visibility").version()
    DeltaTable(f"{root}/visibility").create_checkpoint()
    for version in range(newest - entries, newest):
        gone(root, "visibility", version)
    ledger = open_ledger()
    assert ledger.queue("jobs").counts().in_flight == 3
    for ask in (ledger.fill_receipts, ledger.upkeep, lambda: ledger.sql("SELECT * FROM in_flight", newest - 1)):
        with pytest.raises(LedgerDamaged, match=f"{newest - entries:020d}.json is missing"):
            ask()
    assert main(["doctor", root]) == 1
    assert f"{newest - entries:020d}.json is missing" in capsys.readouterr().out
    (done,) = Ledger.repair(root).tables
    assert dict(done.past) == dict.fromkeys(range(newest - entries, newest), "is missing")
    assert done.readable_from == newest and not done.commits
    assert not Ledger.repair(root)
    ledger = open_ledger()
    assert ledger.fill_receipts() and ledger.sql("SELECT * FROM in_flight", newest).num_rows == 3
    with pytest.raises(InvalidParameterValue, match=f"visibility begins at version {newest}"):
        ledger.sql("SELECT * FROM in_flight", newest - 2)
    assert main(["doctor", root]) == 0


@pytest.mark.parametrize(("table", "verb"), [("visibility", "receive"), ("messages", "send")])
@pytest.mark.parametrize("is_open", [True, False])
def test_a_newest_entry_that_a_checkpoint_alone_has_is_named_at_once_and_repaired(
    open_ledger, root, queue, table, verb, is_open
):
    """Before, each verb lost to other writers sixty times: there was none."""
    queue.receive(1).release()
    log = DeltaTable(f"{root}/{table}")
    log.create_checkpoint()
    Path(root, table, "_delta_log", f"{log.version():020}.json").unlink()
    used = queue if is_open else open_ledger().queue("jobs")
    with pytest.raises(
        LedgerDamaged, match=rf"Version {log.version()} of the table {table} .* is missing.*ledger repair"
    ):
        used.receive(None) if verb == "receive" else used.send("four")
    Ledger.repair(root)
    jobs = open_ledger().queue("jobs")
    jobs.send("four")
    assert sorted(one.body for one in jobs.receive(None).messages()) == ["four", "one", "three", "two"]


@pytest.mark.parametrize("sums_up", ["nothing", "a part"])
def test_an_empty_entry_before_a_checkpoint_that_is_none_is_named_and_cut(open_ledger, root, queue, sums_up):
    """It was taken for a commit: an answered send was gone, and no verb said so. A repair left a table without rows."""
    log = Path(root, "messages", "_delta_log")
    newest = DeltaTable(f"{root}/messages").version()
    DeltaTable(f"{root}/messages").create_checkpoint()
    (log / "_last_checkpoint").unlink()
    whole = log / f"{newest:020}.checkpoint.parquet"
    part = whole.with_name(f"{newest:020}.checkpoint.0000000001.0000000003.parquet")
    if sums_up == "nothing":
        whole.write_bytes(b"")
    else:
        whole.rename(part)
    (log / f"{newest - 1:020}.json").write_bytes(b"")
    with pytest.raises(LedgerDamaged, match=f"Version {newest - 1} of the table messages .*has no bytes"):
        open_ledger().queue("jobs").receive(None)
    (done,) = Ledger.repair(root).tables
    assert (done.table, [one.version for one in done.commits]) == ("messages", [newest - 1, newest])
    assert [one.body for one in open_ledger().queue("jobs").receive(None).messages()] == ["one"]
    assert part.exists() == (sums_up == "a part"), "whoever wrote it may still write"


def test_checksums_of_what_a_repair_takes_out_go_with_it(open_ledger, root, queue):
    """Spark held the new entry against the checksum of the old one, and took columns from that of the version."""
    (newest,) = empty(root, "messages")
    log = Path(root, "messages", "_delta_log")
    beside = [f".{newest:020}.json.crc", f"{newest:020}.crc", f".{newest:020}.crc.crc"]
    kept = [f".{newest - 1:020}.json.crc", f"{newest - 1:020}.crc"]
    for name in (*beside, *kept):
        (log / name).write_bytes(b"of before")
    found = Ledger.repair(root)
    assert not any((log / name).exists() for name in beside) and all((log / name).exists() for name in kept)
    assert (Path(found.lost) / "messages" / "_delta_log" / f"{newest:020}.crc").read_bytes() == b"of before"


def test_an_entry_of_the_past_that_is_damaged_in_its_midst_is_named(open_ledger, root, queue, capsys):
    queue.receive(1, visibility_timeout=600)
    DeltaTable(f"{root}/visibility").create_checkpoint()
    file = sorted(Path(root, "visibility", "_delta_log").glob("*.json"))[-2]
    content = file.read_bytes()
    middle = content.index(b'"commitInfo"') + 60
    file.write_bytes(content[:middle] + bytes(40) + content[middle + 40 :])
    assert main(["doctor", root]) == 1
    assert f"{file.name} is torn" in capsys.readouterr().out
    assert len(Ledger.repair(root).tables[0].past) == 1 and not Ledger.repair(root)


@pytest.mark.parametrize("log_retention", [None, 7_200])
def test_old_entries_that_a_stopped_removal_left_are_no_damage(open_ledger, root, queue, log_retention, capsys):
    """Entries are removed in no order, once they are older than the table keeps its log."""
    if log_retention is not None:
        kept = Settings(log_retention=log_retention, deleted_file_retention=3_600, keep_deleted_receipts=60)
        Ledger.open(root, settings=kept).upkeep()
    for _ in range(8):
        queue.receive(1, visibility_timeout=0)
    DeltaTable(f"{root}/visibility").create_checkpoint()
    before = time.time() - (31 * 86_400 if log_retention is None else log_retention + 60)
    newest = DeltaTable(f"{root}/visibility").version()
    for version in range(newest - 1):
        os.utime(Path(root, "visibility", "_delta_log", f"{version:020d}.json"), (before, before))
    for version in (1, newest - 3):
        gone(root, "visibility", version)
    open_ledger().health()
    assert main(["doctor", root]) == 0, capsys.readouterr().out
    assert not Ledger.repair(root)
    # One that is missing between younger ones is damage all the same.
    os.utime(Path(root, "visibility", "_delta_log", f"{newest - 4:020d}.json"))
    assert main(["doctor", root]) == 1


def test_an_entry_that_others_left_below_a_restored_log_is_none_of_its_versions(open_ledger, root, queue, tmp_path):
    """A commit that was on its way while a backup took the ledger's place."""
    open_ledger().backup(str(tmp_path / "backup"))
    queue.receive(1, visibility_timeout=600)
    stray = max(Path(root, "visibility", "_delta_log").glob("*.json"))
    content = stray.read_bytes()
    Ledger.restore_backup(str(tmp_path / "backup"), root, replace=True)
    stray.write_bytes(content)
    ledger = open_ledger()
    ledger.queue("jobs").receive(1, visibility_timeout=600)
    ledger.health()
    newest = ledger.store.engine.version("visibility")
    assert ledger.sql("SELECT * FROM in_flight", newest).num_rows == 1
    assert ledger.fill_receipts() and not Ledger.repair(root)


def test_views_behind_a_cut_off_past_name_where_it_begins_also_where_the_first_entry_was_lost(open_ledger, root, queue):
    queue.receive(1, visibility_timeout=600)
    DeltaTable(f"{root}/visibility").create_checkpoint()
    newest = DeltaTable(f"{root}/visibility").version()
    Path(root, "visibility", "_delta_log", f"{0:020d}.json").write_bytes(b"")
    Ledger.repair(root)
    with pytest.raises(InvalidParameterValue, match=f"visibility begins at version {newest}"):
        open_ledger().sql("SELECT * FROM in_flight", newest - 1)


@pytest.fixture
def summed(root, queue):
    """The newest checkpoint of `visibility`, which `_last_checkpoint` names, with a commit behind it."""
    queue.receive(1, visibility_timeout=600)
    DeltaTable(f"{root}/visibility").create_checkpoint()
    queue.receive(1, visibility_timeout=600)
    return max(Path(root, "visibility", "_delta_log").glob("*.checkpoint.parquet"))


def sum_up_twice(root, queue):
    """Let each of two commits to `visibility` have a checkpoint. Return the log's folder, and the newest version."""
    for _ in range(2):
        queue.receive(1, visibility_timeout=600)
        DeltaTable(f"{root}/visibility").create_checkpoint()
    return Path(root, "visibility", "_delta_log"), DeltaTable(f"{root}/visibility").version()


def spoil_pages(parquet):
    """Leave a file's footer, and make zeros of its pages."""
    content = parquet.read_bytes()
    end = int.from_bytes(content[-8:-4], "little") + 8
    parquet.write_bytes(content[:4] + bytes(len(content) - end - 4) + content[-end:])


@pytest.mark.parametrize("read_only", [True, False])
def test_nobody_takes_out_a_checkpoint_with_a_whole_end_if_its_entries_are_gone(root, summed, read_only):
    """Its footer can be read, its pages cannot, and nothing else has the rows."""
    for entry in summed.parent.glob("*.json"):
        if int(entry.stem) <= int(summed.name.partition(".")[0]):
            entry.unlink()
    spoil_pages(summed)
    with pytest.raises(LedgerDamaged, match=summed.name) as raised:
        Ledger.open(root, read_only=read_only).queue("jobs").counts()
    assert "restore a backup" in raised.value.advice and "tell the same" not in raised.value.advice
    assert summed.exists()


@pytest.mark.parametrize("by_repair", [False, True])
@pytest.mark.parametrize("how", ["garbage", "gone"])
def test_a_checkpoint_with_a_whole_end_or_none_at_all_is_named_and_taken_out(
    open_ledger, root, summed, how, by_repair, capsys
):
    """The entries tell the same: nothing is lost."""
    if how == "garbage":
        spoil_pages(summed)
        with pytest.raises(LedgerDamaged, match=summed.name):
            Ledger.open(root, read_only=True)
    else:
        summed.unlink()
        health = Ledger.open(root, read_only=True).health()
        assert summed.name in str(health.tables["visibility"].unreadable_checkpoints)
    found = Ledger.repair(root, dry_run=True)
    assert found.checkpoints == (f"visibility/_delta_log/{summed.name}",) and not found.tables
    assert main(["repair", root, "--dry-run"]) == 0
    assert summed.name in capsys.readouterr().out
    if by_repair:
        assert Ledger.repair(root).checkpoints == found.checkpoints
    assert open_ledger().queue("jobs").counts().in_flight == 2 and not Ledger.repair(root)
    assert not summed.exists()


def test_an_old_checkpoint_that_is_damaged_is_named_by_views_of_the_past_and_taken_out(
    open_ledger, root, queue, capsys
):
    log, newest = sum_up_twice(root, queue)
    old = log / f"{newest - 1:020d}.checkpoint.parquet"
    os.truncate(old, 100)
    ledger = open_ledger()
    with pytest.raises(LedgerDamaged, match=f"checkpoint that cannot be read: _delta_log/{old.name}"):
        ledger.sql("SELECT * FROM in_flight", newest - 1)
    assert main(["doctor", root, "--deep"]) == 0 and old.name in capsys.readouterr().out
    assert Ledger.repair(root).checkpoints == (f"visibility/_delta_log/{old.name}",)
    assert not old.exists() and not Ledger.repair(root)
    assert open_ledger().sql("SELECT * FROM in_flight", newest - 1).num_rows == 1


def test_an_old_checkpoint_whose_entries_are_gone_takes_only_its_versions_with_it(open_ledger, root, queue):
    log, newest = sum_up_twice(root, queue)
    for version in range(newest):
        (log / f"{version:020d}.json").unlink()
    spoil_pages(log / f"{newest - 1:020d}.checkpoint.parquet")
    ledger = open_ledger()
    with pytest.raises(LedgerDamaged, match=f"of version {newest - 1}") as raised:
        ledger.sql("SELECT * FROM in_flight", newest - 1)
    assert "The newest version is whole" in raised.value.advice and "have all that" not in raised.value.advice
    assert ledger.sql("SELECT * FROM in_flight").num_rows == 2


def test_a_damaged_checkpoint_behind_a_missing_entry_is_taken_out_with_what_is_cut(open_ledger, root, queue):
    """It has nothing of what is lost, and keeps no older checkpoint from telling what is left."""
    log, newest = sum_up_twice(root, queue)
    gone(root, "visibility", newest)
    queue.send("four")
    checkpoint = log / f"{newest:020d}.checkpoint.parquet"
    spoil_pages(checkpoint)
    (log / f"{newest + 1:020d}.json").write_bytes((log / f"{newest - 1:020d}.json").read_bytes())
    (seen,) = Ledger.repair(root, dry_run=True).tables
    assert seen.version == newest - 1 and not seen.past and len(seen.commits) == 2
    assert Ledger.repair(root).tables == (seen,) and not checkpoint.exists()
    assert not Ledger.repair(root) and open_ledger().queue("jobs").counts().in_flight == 1


@pytest.mark.parametrize("is_past", [False, True])
def test_an_entry_that_is_cut_between_two_lines_is_damage(open_ledger, root, queue, is_past, capsys):
    """It would be a commit of nothing: a send without its messages."""
    if is_past:
        DeltaTable(f"{root}/messages").create_checkpoint()
    file = sorted(Path(root, "messages", "_delta_log").glob("*.json"))[-1]
    whole = file.read_bytes().splitlines(keepends=True)
    assert len(whole) == 2
    file.write_bytes(whole[0])
    assert main(["doctor", root]) == 1
    assert f"{file.name} is torn: it has 1 of 2 lines" in capsys.readouterr().out
    assert [one.table for one in Ledger.repair(root).tables] == ["messages"]
    assert not Ledger.repair(root) and open_ledger().queue("jobs").counts().visible == (3 if is_past else 2)


def test_an_entry_of_the_past_with_one_wrong_bit_is_found_by_who_reads_all(open_ledger, root, queue, capsys):
    """A look at its lines shows nothing; doctor --deep, views of the past and a repair agree."""
    for _ in range(2):
        queue.receive(1, visibility_timeout=600)
    DeltaTable(f"{root}/visibility").create_checkpoint()
    file = sorted(Path(root, "visibility", "_delta_log").glob("*.json"))[-2]
    file.write_bytes(file.read_bytes().replace(b'"size"', b'"size#', 1))
    ledger = open_ledger()
    with pytest.raises(LedgerDamaged, match=f"{file.name} is torn"):
        ledger.sql("SELECT * FROM in_flight", int(file.stem))
    assert main(["doctor", root, "--deep"]) == 1 and f"{file.name} is torn" in capsys.readouterr().out
    assert len(Ledger.repair(root).tables[0].past) == 1 and not Ledger.repair(root)
    open_ledger().upkeep()
    assert main(["doctor", root, "--deep"]) == 0


@pytest.mark.parametrize("by_repair", [False, True])
def test_a_checkpoint_with_a_text_that_is_none_is_named_and_taken_out(open_ledger, root, summed, by_repair, capsys):
    """Arrow takes any bytes for a text; delta-rs does not."""
    content = summed.read_bytes()
    place = content.index(b"part-0")
    summed.write_bytes(content[:place] + b"\xff" + content[place + 1 :])
    assert main(["doctor", root, "--deep"]) == 1
    assert summed.name in capsys.readouterr().out
    if by_repair:
        assert [path.endswith(summed.name) for path in Ledger.repair(root).checkpoints] == [True]
        assert not Ledger.repair(root)
    counts = open_ledger().queue("jobs").counts()
    assert (counts.in_flight, counts.visible) == (2, 1)


def test_a_data_file_with_a_text_that_is_none_is_damage(open_ledger, root, queue):
    queue.receive(1, visibility_timeout=600)
    queue.receive(1, visibility_timeout=600)
    for path in Path(root, "visibility").rglob("*.parquet"):
        if "_delta_log" not in path.parts:
            content = path.read_bytes()
            receipt = re.search(rb"[0-9a-f]{32}", content)
            if receipt is not None:
                path.write_bytes(content[: receipt.start()] + b"\xff" + content[receipt.start() + 1 :])
    with pytest.raises(LedgerDamaged, match="cannot be read as Parquet"):
        open_ledger().queue("jobs").counts()
    (done,) = Ledger.repair(root).tables
    assert done.table == "visibility" and done.commits
    assert open_ledger().queue("jobs").receive(None).count >= 1


def test_a_hole_is_found_behind_a_long_gap_of_old_entries(tmp_path):
    """However many entries a removal has left out."""
    files = LocalFiles(recorded(str(tmp_path)), sync=False)
    (tmp_path / "_delta_log").mkdir()
    for version in [0, *range(2_000, 2_010)]:
        path = tmp_path / "_delta_log" / f"{version:020d}.json"
        path.write_text("{}")
        if version == 0:
            os.utime(path, (1, 1))
    versions = [0, *range(2_000, 2_010)]
    assert find_lost_entries(files, versions, 0, 2_009, lambda: 3_600.0) == []
    (tmp_path / "_delta_log" / f"{2_005:020d}.json").unlink()
    versions.remove(2_005)
    assert find_lost_entries(files, versions, 0, 2_009, lambda: 3_600.0) == [2_005]
