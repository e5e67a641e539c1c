"""Backups: one consistent version, taken while the ledger is in use; and ledgers that are made of them, beside
processes that have the ledger of before open."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ledger import Ledger
from ledger.cli.app import run
from ledger.delta_log import damage
from ledger.delta_log.history import RESTORED_LATER_BY
from ledger.errors import (
    InvalidParameterValue,
    LeaseLost,
    LedgerDamaged,
    LedgerDoesNotExist,
    LedgerError,
    LedgerTooNew,
    StorageFailed,
)
from ledger.store.delta import backups
from ledger.store.delta.model.tables import TABLES


@pytest.fixture
def dest(tmp_path):
    return tmp_path / "backup"


@pytest.fixture
def open_at(clock):
    return lambda root: Ledger.open(str(root), clock=clock, owner="tester")


def test_a_restored_ledger_has_what_the_other_one_had(open_ledger, open_at, dest, tmp_path, clock):
    ledger = open_ledger()
    dead = ledger.create_queue("dead")
    queue = ledger.create_queue(
        "work", {"Lanes": 2, "RedrivePolicy": {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1}}, {"team": "a"}
    )
    events = ledger.create_queue("events.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True})
    queue.send([str(n) for n in range(40)], attempt_id="once")
    queue.receive(5).release()
    queue.receive(40)
    clock.advance(10)
    events.send([{"MessageBody": body, "MessageGroupId": "g"} for body in "abc"])
    held = events.receive(1)
    counts = {one.name: one.counts() for one in ledger.list_queues()}
    receipts = ledger.sql("SELECT version, event, receipt_id, messages FROM receipts ORDER BY 1, 2, 3").to_pylist()
    done = ledger.backup(dest)
    assert done.files and done.bytes and set(done.versions) == set(TABLES)
    events.send([{"MessageBody": "later", "MessageGroupId": "g"}])
    assert Ledger.restore_backup(dest, tmp_path / "restored") is None
    restored = open_at(tmp_path / "restored")
    assert {one.name: one.counts() for one in restored.list_queues()} == counts
    assert restored.queue("work").attributes() == queue.attributes() and restored.queue("work").tags() == {"team": "a"}
    found = restored.sql("SELECT version, event, receipt_id, messages FROM receipts ORDER BY 1, 2, 3").to_pylist()
    assert found == receipts
    again = restored.queue("events.fifo")
    # What was sent before is a duplicate still, and the claim that was held is held.
    again.send([{"MessageBody": "a", "MessageGroupId": "g"}])
    assert again.counts().visible + again.counts().in_flight == 3
    claim = again.claim(held.receipt_id)
    assert [one.body for one in claim.messages()] == ["a"]
    claim.delete()
    assert again.receive(2).version > held.version + 100
    restored.fill_receipts()
    restored.upkeep()
    assert restored.queue("work").send([str(n) for n in range(40)], attempt_id="once")
    assert restored.queue("work").counts() == counts["work"]
    for table in TABLES:
        assert (
            DeltaTable(str(tmp_path / "restored" / table)).metadata().id
            != DeltaTable(f"{dest}/tables/{table}").metadata().id
        )


def test_processes_that_have_the_replaced_ledger_open_go_on_with_the_restored_one(open_ledger, root, dest, open_at):
    ledger = open_ledger()
    queue = ledger.create_queue("work", {"Lanes": 1})
    queue.send(["a", "b", "c"])
    first = queue.receive(1)
    ledger.backup(dest)
    later = queue.receive(1)
    queue.send(["d"])
    aside = Ledger.restore_backup(dest, root, replace=True)
    assert open_at(aside).queue("work").counts().in_flight == 2
    assert queue.counts().in_flight == 1 and queue.counts().visible == 2
    with pytest.raises(LedgerError):
        later.extend(60)
    first.delete()
    queue.send(["e"])
    claim = queue.receive(5)
    assert sorted(one.body for one in claim.messages()) == ["b", "c", "e"]
    assert open_at(root).queue("work").counts() == queue.counts()
    assert ledger.fill_receipts() and ledger.upkeep()
    # A second time, of the same backup: another ledger again.
    Ledger.restore_backup(dest, root, replace=True)
    with pytest.raises(LedgerError):
        claim.extend(60)
    assert queue.counts().in_flight == 1 and queue.counts().visible == 2


def test_a_process_that_has_the_replaced_ledger_open_reads_a_few_entries(open_ledger, root, dest, monkeypatch):
    """The versions of the restored log are a million later, and nothing lies between."""
    ledger = open_ledger()
    queue = ledger.create_queue("work")
    queue.send("a")
    ledger.backup(dest)
    Ledger.restore_backup(dest, root, replace=True)
    looked, look = [], damage.flaws_in
    monkeypatch.setattr(
        damage, "flaws_in", lambda stored, versions: looked.append(len(versions)) or look(stored, versions)
    )
    assert queue.counts().visible == 1 and max(looked) <= damage.MOST_BEFORE_CHECKPOINTS


def test_versions_grow_across_each_of_several_restores(open_ledger, root, dest):
    ledger = open_ledger()
    ledger.create_queue("work").send(["a", "b"])
    ledger.backup(dest)
    versions = []
    for _ in range(3):
        versions.append(ledger.queue("work").receive(1).version)
        Ledger.restore_backup(dest, root, replace=True)
    assert versions == sorted(set(versions))


def test_a_backup_is_consistent_beside_verbs_and_upkeep(open_ledger, root, tmp_path, open_at, clock):
    """No message that was acknowledged before a backup began comes back."""
    over = threading.Event()
    failures, acknowledged, before = [], [], []

    def work():
        queue = open_at(root).queue("work")
        try:
            while not over.is_set():
                queue.send([f"{n}" for n in range(5)])
                claim = queue.receive(5)
                found = [one.message_id for one in claim.messages()]
                claim.delete()
                acknowledged.extend(found)
        except Exception as error:
            failures.append(error)

    ledger = open_ledger(keep_deleted_receipts=1)
    ledger.create_queue("work", {"Lanes": 1})
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(4):
            before.append(set(acknowledged))
            ledger.backup(tmp_path / f"b{number}")
            clock.advance(2)
            ledger.upkeep()
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not failures
    for number in range(4):
        Ledger.restore_backup(tmp_path / f"b{number}", tmp_path / f"r{number}")
        restored = open_at(tmp_path / f"r{number}")
        version = restored.sql("SELECT max(version) AS newest FROM receipts").to_pylist()[0]["newest"]
        manifest = json.loads((tmp_path / f"b{number}" / "ledger_backup.json").read_text())
        assert version is None or version <= manifest["versions"]["visibility"]
        restored.queue("work").send("x")
        claim = restored.queue("work").receive(1_000)
        assert before[number].isdisjoint(one.message_id for one in claim.messages())
        claim.delete()
        assert restored.fill_receipts()


def test_what_upkeep_drops_between_the_tables_of_a_backup_does_not_come_back(
    open_ledger, dest, tmp_path, open_at, clock, monkeypatch
):
    """Taken the other way round, `messages` before `visibility`, the acknowledged message would be there, and nothing
    that says it was acknowledged."""
    ledger = open_ledger(keep_deleted_receipts=1, open_segment_seconds=1)
    queue = ledger.create_queue("work", {"Lanes": 1})
    queue.send("done")
    queue.receive(1).delete()
    clock.advance(4_000_000)
    queue.send("open")
    taken, opened = [], backups.opened

    def then_upkeep(location, options):
        table = opened(location, options)
        if not taken:
            ledger.upkeep()
            taken.append(location)
        return table

    monkeypatch.setattr(backups, "opened", then_upkeep)
    ledger.backup(dest)
    assert DeltaTable(f"{dest}/tables/messages").to_pyarrow_table()["body"].to_pylist() == ["open"], "upkeep dropped it"
    Ledger.restore_backup(dest, tmp_path / "restored")
    counts = open_at(tmp_path / "restored").queue("work").counts()
    assert (counts.visible, counts.in_flight) == (1, 0)
    assert open_at(tmp_path / "restored").queue("work").receive(5).messages()[0].body == "open"


#: A process that is killed right behind the first of the two steps that change names below a root's parent.
KILLED_BETWEEN_NAMES = """
import os, signal, sys
from pathlib import Path
from ledger import Ledger
root, rename = Path(sys.argv[1]), Path.rename
def killed(path, target):
    rename(path, target)
    if path == root:
        os.kill(os.getpid(), signal.SIGKILL)
Path.rename = killed
Ledger.restore_backup(sys.argv[2], root, replace=True)
"""


def test_a_ledger_is_at_the_root_in_each_moment_of_a_restore_that_replaces_it(open_ledger, open_at, root, dest):
    """Else whoever opens it in that moment, or after a crash in it, makes an empty one."""
    open_ledger().create_queue("work").send("a")
    open_ledger().backup(dest)
    open_ledger().queue("work").receive(1).delete()
    over, looks = threading.Event(), []

    def look():
        while not over.is_set():
            looks.append(os.access(f"{root}/queues/_delta_log", os.R_OK))

    looking = threading.Thread(target=look)
    looking.start()
    for _ in range(5):
        aside = Ledger.restore_backup(dest, root, replace=True)
    over.set()
    looking.join()
    assert all(looks) and open_ledger().queue("work").counts().visible == 1
    assert open_at(aside).queue("work").counts().visible == 1, "the one that the last restore replaced"
    ran = subprocess.run([sys.executable, "-c", KILLED_BETWEEN_NAMES, root, str(dest)])
    assert ran.returncode == 0 and open_ledger().queue("work").counts().visible == 1
    assert len([*Path(root).parent.glob("*.replaced-*")]) == 6 and not [*Path(root).parent.glob("*.restoring-*")]


#: A process that is killed in the middle of a backup.
KILLED = """
import os, signal, sys
from ledger import Ledger
from ledger.store.delta import backups
backups._forget_later_receipts = lambda *of: os.kill(os.getpid(), signal.SIGKILL)
Ledger.open(sys.argv[1]).backup(sys.argv[2])
"""


def test_a_backup_that_did_not_end_is_none(open_ledger, root, dest, tmp_path):
    open_ledger().create_queue("work").send("a")
    assert subprocess.run([sys.executable, "-c", KILLED, str(root), str(dest)]).returncode == -signal.SIGKILL
    with pytest.raises(InvalidParameterValue, match="never finished"):
        Ledger.restore_backup(dest, tmp_path / "restored")
    for place in (dest, dest / "tables"):
        with pytest.raises(LedgerDoesNotExist, match="never finished"):
            Ledger.open(str(place))
    assert not (tmp_path / "restored").exists()


def test_a_manifest_that_cannot_be_read_is_not_a_missing_backup(open_ledger, dest, tmp_path, capsys):
    open_ledger().backup(dest)
    manifest = dest / "ledger_backup.json"
    manifest.unlink()
    with pytest.raises(InvalidParameterValue, match="There is no backup"):
        Ledger.restore_backup(dest, tmp_path / "restored")
    manifest.write_bytes(b"")
    with pytest.raises(InvalidParameterValue, match="There is no backup"):
        Ledger.restore_backup(manifest, tmp_path / "restored")
    manifest.unlink()
    manifest.mkdir()
    with pytest.raises(InvalidParameterValue, match=r"ledger_backup\.json cannot be read: Is a directory") as caught:
        Ledger.restore_backup(dest, tmp_path / "restored")
    assert "no backup" not in str(caught.value) and not (tmp_path / "restored").exists()
    assert run(["doctor", str(dest)]) == 1 and "cannot be read: Is a directory" in capsys.readouterr().out


def test_a_whole_backup_is_no_ledger(open_ledger, dest):
    open_ledger().backup(dest)
    known = sorted(dest.rglob("*"))
    for place in (dest, dest / "tables"):
        with pytest.raises(LedgerDoesNotExist, match="restore-backup"):
            Ledger.open(str(place))
    assert sorted(dest.rglob("*")) == known


def test_the_doctor_and_a_repair_say_of_a_backup_that_it_is_one(open_ledger, dest, capsys):
    open_ledger().backup(dest)
    known = sorted(dest.rglob("*"))
    for place, code in ((dest, 0), (dest / "tables", 1)):
        assert run(["doctor", str(place)]) == code, "a backup that is whole is well, and no ledger"
        told = capsys.readouterr().out
        assert "it is a backup of 20" in told and "which are all there" in told and "mistyped" not in told
        assert f"`ledger restore-backup {dest} ROOT` makes a ledger of it" in told
        assert run(["repair", str(place), "--yes"]) == 1
        told = capsys.readouterr().err
        assert f"`ledger restore-backup {dest} ROOT`" in told and "mistyped" not in told
    assert sorted(dest.rglob("*")) == known
    file = next(path for path in dest.rglob("*.parquet"))
    file.write_bytes(b"")
    assert run(["doctor", str(dest)]) == 1
    told = capsys.readouterr().out
    assert f"The backup is damaged: {file.relative_to(dest)} is missing" in told and "`ledger backup`" in told
    (dest / "ledger_backup.json").write_bytes(b"")
    assert run(["doctor", str(dest)]) == 1 and "ledger_backup.json cannot be read" in capsys.readouterr().out
    assert run(["restore-backup", str(dest), f"{dest}-again"]) == 2
    assert "ledger_backup.json cannot be read" in capsys.readouterr().err
    (dest / "ledger_backup.json").rename(dest / "ledger_backup.unfinished")
    assert run(["doctor", str(dest)]) == 1
    assert f"was never finished -> Remove {dest}" in capsys.readouterr().out


def test_what_is_refused(open_ledger, root, dest, tmp_path):
    ledger = open_ledger()
    ledger.create_queue("work").send("a")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    for place, why in ((tmp_path / "full", "empty"), (f"{root}/backup", "lie in"), ("s3://bucket/b", "path on this")):
        with pytest.raises(InvalidParameterValue, match=why):
            ledger.backup(place)
    ledger.backup(dest)
    for place in (root, tmp_path / "full"):
        with pytest.raises(InvalidParameterValue, match="something already"):
            Ledger.restore_backup(dest, place)
    with pytest.raises(InvalidParameterValue, match="lie in the backup"):
        Ledger.restore_backup(dest, dest / "inside")
    with pytest.raises(InvalidParameterValue, match="no backup"):
        Ledger.restore_backup(tmp_path / "full", tmp_path / "restored")
    damaged = shutil.copytree(dest, tmp_path / "damaged")
    next(path for path in Path(damaged).rglob("*.parquet")).unlink()
    with pytest.raises(InvalidParameterValue, match="is damaged"):
        Ledger.restore_backup(damaged, tmp_path / "restored")
    manifest = json.loads((dest / "ledger_backup.json").read_text())
    (dest / "ledger_backup.json").write_text(json.dumps({**manifest, "format": 2}))
    with pytest.raises(LedgerTooNew, match="format 2"):
        Ledger.restore_backup(dest, tmp_path / "restored")
    assert not (tmp_path / "restored").exists() and not list(tmp_path.glob("*restoring*"))


def test_the_commands(open_ledger, root, dest, tmp_path, capsys):
    open_ledger().create_queue("work").send("a")
    assert run(["--root", root, "backup", str(dest)]) == 0
    assert "files" in capsys.readouterr().out
    assert run(["restore-backup", str(dest), root]) == 2
    assert run(["restore-backup", str(dest), root, "--replace", "--json"]) == 0
    assert Path(json.loads(capsys.readouterr().out)["moved_aside"]).is_dir()
    assert open_ledger().queue("work").counts().visible == 1


@pytest.fixture
def nearer_versions(monkeypatch):
    """A restored log begins at the next 100,001 and not at the next million. Delta's history on Spark looks for each
    version in between, which takes 20 seconds for a million."""
    monkeypatch.setattr(backups, "VERSIONS", RESTORED_LATER_BY + 1)


@pytest.mark.usefixtures("nearer_versions")
def test_spark_reads_and_commits_to_a_restored_ledger(open_ledger, root, dest, spark):
    ledger = open_ledger()
    queue = ledger.create_queue("work", {"Lanes": 1})
    queue.send(["a", "b"])
    queue.receive(1).delete()
    ledger.backup(dest)
    Ledger.restore_backup(dest, root, replace=True)
    by_spark = open_ledger("spark")
    claim = by_spark.queue("work").receive(2)
    assert [row.body for row in claim.dataframe.collect()] == ["b"]
    claim.delete()
    queue.send(spark.range(10).selectExpr("CAST(id AS STRING) AS body").toArrow())
    assert by_spark.queue("work").counts() == queue.counts()


@pytest.mark.soak
def test_an_upkeep_by_spark_finds_its_way_in_a_restored_ledger(open_ledger, root, dest, spark):
    ledger = open_ledger()
    queue = ledger.create_queue("work", {"Lanes": 1})
    queue.send(["a", "b"])
    queue.receive(1).delete()
    ledger.backup(dest)
    Ledger.restore_backup(dest, root, replace=True)
    before = queue.counts()
    open_ledger("spark").upkeep()
    assert queue.counts() == before and [one.body for one in queue.receive(2)] == ["b"]


@pytest.mark.usefixtures("nearer_versions")
def test_a_send_through_spark_in_whose_midst_the_ledger_is_replaced_is_in_the_new_one(open_ledger, root, dest, spark):
    """Spark's commit lies below the new log's first version: the answer was a send of no message."""
    ledger = open_ledger("spark")
    queue = ledger.create_queue("work", {"Lanes": 1})
    queue.send(["a", "b"])
    ledger.backup(dest)
    done = Path(f"{dest}.done")

    def replacing(batches):
        for batch in batches:
            if not done.exists():
                done.touch()
                Ledger.restore_backup(dest, root, replace=True)
            yield batch

    rows = spark.range(0, 10, 1, 1).selectExpr("CAST(id AS STRING) AS body").mapInPandas(replacing, "body string")
    assert queue.send(rows).count == 10
    assert open_ledger().queue("work").receive(None).count == 12


@pytest.mark.parametrize("is_there", [True, False])
def test_a_backup_that_fails_leaves_nothing(open_ledger, root, dest, is_there):
    """The next try finds the folder as it was, and the error names the ledger, whose file is missing."""
    ledger = open_ledger()
    ledger.create_queue("work").send(["one", "two"])
    if is_there:
        dest.mkdir()
    for path in Path(root, "messages").rglob("*.parquet"):
        if "_delta_log" not in path.parts:
            path.unlink()
    with pytest.raises(LedgerDamaged, match=r"messages.*missing"):
        ledger.backup(dest)
    assert list(dest.iterdir()) == [] if is_there else not dest.exists()


def test_a_backup_of_a_log_that_was_cut_names_the_damage(open_ledger, root, dest):
    """delta-rs cannot open the table: before, the error named the storage alone."""
    ledger = open_ledger()
    ledger.create_queue("work").send(["one"])
    ledger.queue("work").send(["two"])
    Path(root, "messages", "_delta_log", f"{0:020}.json").unlink()
    with pytest.raises(LedgerDamaged, match="messages"):
        ledger.backup(dest)
    assert not dest.exists()


def test_a_backup_of_a_ledger_that_is_gone_names_the_ledger(open_ledger, root, dest):
    ledger = open_ledger()
    ledger.create_queue("work").send("one")
    shutil.move(root, f"{root}.moved")
    with pytest.raises(LedgerError, match=str(root)):
        ledger.backup(dest / "deep" / "deeper")
    assert not dest.exists()


@pytest.mark.parametrize("stage", ["begun", "written"])
@pytest.mark.parametrize("anew", [False, True])
def test_a_write_in_whose_midst_the_ledger_is_replaced_is_not_answered(tmp_path, monkeypatch, stage, anew):
    root, out = tmp_path / "ledger", tmp_path / "out"
    ledger = Ledger.open(str(root))
    queue = ledger.create_queue("work")
    queue.send(["a", "b"])
    ledger.backup(tmp_path / "backup")
    claim = queue.receive(2)
    rows = pa.table({"message_id": [message.message_id for message in claim.messages()]})

    def replace(name):
        if name == stage and anew:
            root.rename(tmp_path / "moved")
            Ledger.open(str(root)).create_queue("work")
        elif name == stage:
            Ledger.restore_backup(tmp_path / "backup", root, replace=True)

    monkeypatch.setattr(ledger.store.outputs, "step", replace)
    with pytest.raises(LeaseLost, match="none of its 2 messages was acknowledged"):
        claim.write(rows, out, messages="message_id")
    counts = ledger.queue("work").counts()
    assert (counts.visible, counts.deleted) == (0 if anew else 2, 0)


def test_a_backup_that_fails_leaves_the_finished_backups_beside_it(open_ledger, tmp_path):
    """Both backups made the folders above theirs; before, the one that failed removed these with all in them."""
    ledger = open_ledger()
    ledger.create_queue("work").send("a")
    above = tmp_path / "backups" / "2026"

    def report(step):
        if "receipts" in step:
            ledger.backup(above / "other")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ledger.backup(above / "mine", report)
    assert [path.name for path in above.iterdir()] == ["other"]
    Ledger.restore_backup(above / "other", tmp_path / "restored")

    with pytest.raises(InvalidParameterValue, match="empty"):
        ledger.backup(tmp_path / "same", lambda step: ledger.backup(tmp_path / "same"))
    assert not (tmp_path / "same").exists()


def test_of_backups_into_one_new_folder_at_once_one_succeeds_and_stays(open_ledger, tmp_path):
    ledger = open_ledger()
    ledger.create_queue("work").send(["a"] * 20)
    for number in range(6):
        dest, ended = tmp_path / f"new {number}" / "backup", []

        def back_up(dest=dest, ended=ended):
            try:
                ended.append(ledger.backup(dest).files)
            except InvalidParameterValue as error:
                ended.append(error.bound)

        threads = [threading.Thread(target=back_up) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(isinstance(one, int) for one in ended) == [False, True], ended
        Ledger.restore_backup(dest, tmp_path / f"restored {number}")


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(5, "Input/output error")])
@pytest.mark.parametrize("is_taken", [False, True])
def test_a_restore_that_fails_between_two_renames_puts_the_ledger_back(open_ledger, root, dest, failure, is_taken):
    """So it is where no two names can be exchanged in one step, such as on NFS."""
    open_ledger().create_queue("work").send("a")
    open_ledger().backup(dest)
    open_ledger().queue("work").send("b")
    place, rename = Path(root), Path.rename

    def fails(path, target):
        if path.name.startswith(f"{place.name}.restoring") and target == place:
            if is_taken:
                (place / "made meanwhile").mkdir(parents=True)
            raise failure
        return rename(path, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backups, "_exchange", lambda first, second: False)
        patch.setattr(Path, "rename", fails)
        with pytest.raises(LedgerError if is_taken else (KeyboardInterrupt, StorageFailed)) as caught:
            Ledger.restore_backup(dest, root, replace=True)
    asides = [*place.parent.glob("*.replaced-*")]
    if is_taken:
        assert f"`mv {asides[0]} {place}`" in str(caught.value) and "changed nothing" not in str(caught.value)
        shutil.rmtree(place)
        asides.pop().rename(place)
    assert not asides and not [*place.parent.glob("*.restoring-*")]
    assert open_ledger().queue("work").counts().visible == 2


def test_a_mount_is_refused_as_the_place_of_a_restored_ledger(open_ledger, root, dest, tmp_path, monkeypatch):
    open_ledger().backup(dest)
    steps = []
    with pytest.raises(InvalidParameterValue, match=r"Is a mount.*Name a folder in it, such as /proc/ledger"):
        Ledger.restore_backup(dest, "/proc", replace=True, report=steps.append)
    assert not steps, "before anything is copied"
    # A mount of a folder of the same disk shows itself by the error alone.
    rename = Path.rename

    def refuse(path, target):
        if path == Path(root):
            raise OSError(errno.EBUSY, "Device or resource busy")
        return rename(path, target)

    monkeypatch.setattr(backups, "_exchange", lambda first, second: False)
    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(InvalidParameterValue, match="Is a mount"):
        Ledger.restore_backup(dest, root, replace=True)
    assert [path.name for path in Path(root).parent.glob(f"{Path(root).name}*")] == [Path(root).name]


#: Backs up to a read-only mount, and restores to a mount of a folder of the same disk.
IN_MOUNTS = """
import sys
from ledger import Ledger
from ledger.errors import LedgerError
root, folder, mounted, backup = sys.argv[1:]
for name, step in (
    ("backup", lambda: Ledger.open(root).backup(f"{folder}/new/backup")),
    ("restore", lambda: Ledger.restore_backup(backup, mounted, replace=True)),
):
    try:
        step()
    except LedgerError as error:
        print(name, type(error).__name__, error)
"""


def test_a_read_only_mount_and_a_mount_of_the_same_disk_are_named(open_ledger, root, dest, tmp_path):
    """The clean-up of a failed backup does not hide why it failed, and no restore can replace a mount."""
    open_ledger().backup(dest)
    (closed := tmp_path / "closed").mkdir()
    (mounted := tmp_path / "mounted").mkdir()
    mounts = f"mount -t tmpfs -o ro none {closed} && mount --bind {mounted} {mounted}"
    if subprocess.run(["unshare", "-m", "sh", "-c", mounts], capture_output=True, check=False).returncode:
        pytest.skip("only root mounts")
    command = ["unshare", "-m", "sh", "-c", f'{mounts} && exec "$@"', "sh", sys.executable, "-c", IN_MOUNTS]
    ran = subprocess.run(
        [*command, root, str(closed), str(mounted), str(dest)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    backup, restore = ran.stdout.splitlines()
    assert backup.startswith("backup StorageFailed") and "Read-only file system" in backup
    assert restore.startswith("restore InvalidParameterValue") and "Is a mount" in restore
