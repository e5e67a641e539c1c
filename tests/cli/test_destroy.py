"""`ledger destroy`: all that is the ledger's, for good, and nothing else."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ledger import Ledger
from ledger.errors import LedgerDoesNotExist, LedgerError
from ledger.store.delta import destruction
from ledger.store.delta.commit import locks
from ledger.store.delta.commit.locks import TableLock
from ledger.store.delta.model.tables import TABLES
from tests.delta.users import ALICE, MAKE, as_root, become, folder_of_alice


@pytest.fixture
def used(ledger, queue):
    queue.send(["a", "b", "c"])
    queue.receive(1)
    return queue


def test_it_shows_what_is_there_and_needs_yes(cli, root, used):
    shown = cli("destroy", root, "--dry-run")
    assert shown.code == 0 and "with 1 queue and 3 messages, 1 of them in flight" in shown.out
    refused = cli("destroy", root)
    assert refused.code == 2 and "--yes" in refused.err and used.counts().visible == 2
    assert cli("destroy", root, "--yes").code == 0
    assert not Path(root).exists()
    again = cli("destroy", root, "--yes")
    assert again.code == 1 and "There is no ledger at" in again.err


def test_it_says_for_programs_what_was_removed(cli, root, used):
    (said,) = cli("destroy", root, "--yes", "--json").documents
    assert said["destroyed"] and (said["queues"], said["messages"], said["in_flight"]) == (1, 3, 1)
    assert said["root"] == root and said["files"] > 10 and said["stays"] == []


def test_what_is_not_the_ledgers_stays(cli, root, used):
    Path(root, "notes.txt").write_text("mine")
    Path(root, "results").mkdir()
    done = cli("destroy", root, "--yes")
    assert "notes.txt, results: not the ledger's; they stay" in done.out
    assert sorted(path.name for path in Path(root).iterdir()) == ["notes.txt", "results"]


def test_the_root_that_the_command_names_is_the_one(cli, root, used, tmp_path, monkeypatch):
    """Not the one of the environment. Two different ones on a line are a mistake, and nothing is removed."""
    named, other = str(tmp_path / "other"), Ledger.open(str(tmp_path / "other"))
    other.create_queue("safe")
    for line in (
        ("--root", named, "destroy", root, "--yes"),
        ("destroy", root, "--root", named, "--yes"),
        ("upkeep", root, "--root", named),
        ("doctor", root, "--root", named),
        ("repair", root, "--root", named),
    ):
        refused = cli(*line)
        assert refused.code == 2 and f"Which ledger, {root} or {named}?" in refused.err
    assert used.counts().visible == 2
    monkeypatch.setenv("LEDGER_ROOT", named)
    assert cli("destroy", root, "--root", f"{root}/", "--yes").code == 0
    assert not Path(root).exists() and other.queue("safe").counts().stored == 0


def test_a_link_to_it_is_removed_with_it_but_not_where_something_stays(cli, root, used, tmp_path):
    (tmp_path / "moved").mkdir()
    link, folder = Path(root), tmp_path / "moved" / "ledger"
    link.rename(folder)
    link.symlink_to(folder)
    assert cli("destroy", root, "--dry-run").code == 0 and link.is_symlink()
    Path(folder, "notes.txt").write_text("mine")
    assert cli("destroy", root, "--yes").code == 0
    assert link.is_symlink() and [path.name for path in folder.iterdir()] == ["notes.txt"]
    Path(folder, "notes.txt").unlink()
    Ledger.open(root)
    assert cli("destroy", root, "--yes").code == 0
    assert not link.is_symlink() and not folder.exists()


def test_a_damaged_ledger_is_removed_too(cli, root, used):
    newest = max(Path(root, "visibility", "_delta_log").glob("*.json"))
    newest.write_bytes(b"")
    done = cli("destroy", root, "--yes")
    assert done.code == 0 and "an unknown number of messages" in done.out and not Path(root).exists()


def test_who_has_it_open_makes_no_ledger_again(root, used):
    opened = Ledger.open(root).queue("work")
    claim = opened.receive(1)
    Ledger.destroy(root)
    for verb in (lambda: opened.send("d"), lambda: opened.receive(1), claim.delete, opened.counts):
        with pytest.raises(LedgerError):
            verb()
    assert not Path(root).exists()
    with pytest.raises(LedgerDoesNotExist):
        Ledger.open(root, create=False)


def test_while_another_process_commits_nothing_is_removed(root, used, monkeypatch):
    monkeypatch.setattr(locks, "ALL_PATIENCE", 0.0)
    with TableLock(Path(root, "_locks"), "messages").shared(), pytest.raises(LedgerError, match="is in use"):
        Ledger.destroy(root)
    assert used.counts().stored == 2


@pytest.mark.parametrize("renames", [1, 3, len(TABLES)])
def test_one_that_is_stopped_is_carried_on(root, used, monkeypatch, renames):
    """With the tables moved aside, or some of them."""
    rename, left = Path.rename, iter([True] * renames)

    def stopping(self, target):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return rename(self, target)

    def stopped(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", stopping)
    monkeypatch.setattr(destruction.shutil, "rmtree", stopped)
    with pytest.raises(KeyboardInterrupt):
        Ledger.destroy(root)
    monkeypatch.undo()
    with pytest.raises(LedgerDoesNotExist):
        Ledger.open(root, create=False)
    assert Ledger.destroy(root).files and not Path(root).exists()


def test_a_backup_or_another_folder_is_none(cli, root, used, tmp_path):
    Ledger.open(root).backup(str(tmp_path / "monday"))
    for place in (tmp_path / "monday", tmp_path / "monday" / "tables", tmp_path):
        with pytest.raises(LedgerDoesNotExist):
            Ledger.destroy(str(place))
    assert Ledger.restore_backup(tmp_path / "monday", tmp_path / "again") is None


def test_tables_of_somebody_else_are_no_ledger(tmp_path):
    """Whatever their names are, and beside what a call that was stopped has left."""
    for name in TABLES:
        write_deltalake(str(tmp_path / name), pa.table({"x": [1]}))
    with pytest.raises(LedgerError, match=r"Nothing shows that .*queues is a table of a ledger"):
        Ledger.destroy(str(tmp_path))
    (tmp_path / "_ledger_destroyed-mine").mkdir()
    with pytest.raises(LedgerError):
        Ledger.destroy(str(tmp_path))
    for name in TABLES:
        shutil.rmtree(tmp_path / name)
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.txt").write_text("x")
    (tmp_path / "_ledger_destroyed-00000000" / "queues").mkdir(parents=True)
    (tmp_path / "_ledger_destroyed-00000001").write_text("a file")
    others = ("_ledger_destroyed-00000001", "_ledger_destroyed-mine")
    assert Ledger.destroy(str(tmp_path)).stays == (*others, *sorted(TABLES))
    assert all((tmp_path / name / "mine.txt").exists() for name in TABLES)


def test_one_table_of_somebody_else_in_a_ledgers_place_stops_all(root, used):
    shutil.rmtree(Path(root, "tasks"))
    write_deltalake(str(Path(root, "tasks")), pa.table({"x": [1]}))
    with pytest.raises(LedgerError, match=r"Nothing shows that .*tasks"):
        Ledger.destroy(root)
    assert Path(root, "messages", "_delta_log").exists()


def test_a_table_that_is_a_link_is_left_to_the_user(root, used, tmp_path):
    Path(root, "tasks").rename(tmp_path / "elsewhere")
    Path(root, "tasks").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LedgerError, match="is a link"):
        Ledger.destroy(root)
    assert Path(root, "messages", "_delta_log").exists()


def test_a_restored_ledger_whose_log_begins_with_a_checkpoint_is_one(root, used, tmp_path):
    Ledger.open(root).backup(str(tmp_path / "monday"))
    Ledger.restore_backup(str(tmp_path / "monday"), str(tmp_path / "again"))
    assert Ledger.destroy(str(tmp_path / "again")).files and not (tmp_path / "again").exists()


def test_each_link_of_a_chain_goes_with_the_ledger(cli, root, used, tmp_path):
    folder, first, second = tmp_path / "folder", tmp_path / "first", Path(root)
    second.rename(folder)
    first.symlink_to(folder)
    second.symlink_to("first")
    assert cli("destroy", root, "--yes").code == 0
    assert not any(path.is_symlink() or path.exists() for path in (folder, first, second))


@as_root
def test_a_link_in_a_folder_of_another_user_stays_and_the_ledger_is_gone_all_the_same():
    with folder_of_alice() as place:
        ledger, link = place / "ledger", place / "closed" / "link"
        become(ALICE, ledger, MAKE)
        link.parent.mkdir()
        link.symlink_to(ledger)
        said = become(ALICE, link, "left = Ledger.destroy(root).links; assert left == (root,), left")
        assert said == ["done", "done"] and not ledger.exists() and link.is_symlink()
