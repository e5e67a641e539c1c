"""A full disk, a read-only one, files that are gone, and another user's: the doctor names the cause and the command."""

import errno
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ledger import Ledger
from ledger.errors import StorageFailed
from ledger.runtime.causes import explain
from tests.cli.running import run
from tests.mounts import mount, unmount
from tests.sources import CHECKOUT

NOBODY = 65_534
TESTS = "tests/run.py"


@pytest.fixture
def disk(tmp_path):
    """A disk of four megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not mount("-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)):
        pytest.skip("only root can make a disk, where mounts are allowed")
    yield folder
    unmount(folder)


def findings(root):
    ran = run("doctor", str(root), "--json")
    assert TESTS not in ran.out
    return ran.code, {one["subject"]: one for one in ran.documents[0]["findings"]}


def test_a_full_disk_is_named_with_the_command_that_helps(disk):
    queue = Ledger.open(str(disk / "ledger")).create_queue("work")
    queue.send(["a"])
    code, found = findings(disk / "ledger")
    assert (code, found["disk"]["outcome"]) == (1, "FAIL"), "32 MiB are the least"
    assert "free space on this disk, then run `ledger upkeep`" in found["disk"]["advice"]
    with pytest.raises(OSError, match="No space left"), (disk / "ballast").open("wb") as ballast:
        while True:
            ballast.write(bytes(65_536))
    with pytest.raises(StorageFailed, match="No space left"):
        queue.send(["x" * 100_000])
    code, found = findings(disk / "ledger")
    assert code == 1 and "; 0 B free" in found["disk"]["found"]
    wrong = [one for one in found.values() if one["outcome"] == "FAIL"]
    assert found["storage"]["outcome"] == "FAIL" and "is full" in found["storage"]["found"]
    assert all("df -h" in one["advice"] or "upkeep" in one["advice"] for one in wrong), wrong
    (disk / "ballast").unlink()
    assert queue.send(["x"]), "it takes verbs again"


def test_a_disk_that_is_read_only_is_named(disk):
    Ledger.open(str(disk / "ledger")).create_queue("work")
    assert mount("-o", "remount,ro", str(disk))
    code, found = findings(disk / "ledger")
    assert code == 1 and "is read-only" in found["storage"]["found"] and "dmesg" in found["storage"]["advice"]


def test_files_that_are_gone_are_named_with_what_brings_them_back(tmp_path):
    queue = Ledger.open(str(tmp_path / "ledger")).create_queue("work")
    queue.send(["a"])
    next((tmp_path / "ledger" / "messages").rglob("*.parquet")).unlink()
    code, found = findings(tmp_path / "ledger")
    assert code == 1 and "is missing" in found["data files"]["found"]
    assert "restore-backup" in found["data files"]["advice"]


AS_NOBODY = """
import os, sys
from ledger.cli import main

main(["doctor", sys.argv[2], "--json"])
os.setgid({nobody}); os.setuid({nobody})
print()
main(["doctor", sys.argv[1], "--json"])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")
@pytest.mark.parametrize("what", ["a folder", "a file"])
def test_files_of_another_user_are_named_with_their_owner(tmp_path, what):
    Ledger.open(str(tmp_path / "warm")).create_queue("work").send(["a"])
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "ledger"
        Ledger.open(str(root)).create_queue("work").send(["a"])
        Path(folder).chmod(0o755)
        for one in (root, *root.rglob("*")):
            os.chown(one, NOBODY, NOBODY)
        theirs = next((root / "messages").rglob("*.parquet"))
        theirs = theirs.parent if what == "a folder" else theirs
        os.chown(theirs, 0, 0)
        theirs.chmod(0o755 if what == "a folder" else 0o600)
        ran = subprocess.run(
            [sys.executable, "-c", AS_NOBODY.format(nobody=NOBODY), str(root), str(tmp_path / "warm")],
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
            capture_output=True,
            text=True,
        )
    assert ran.returncode == 0, ran.stderr
    found = {one["subject"]: one for one in json.loads(ran.stdout.splitlines()[-1])["findings"]}
    assert found["files"]["outcome"] == "FAIL", found
    assert f"such as {theirs} of root" in found["files"]["found"] and "1 below" in found["files"]["found"]
    assert "`sudo chown -R" in found["files"]["advice"] and "as root" in found["files"]["advice"]
    assert TESTS not in str([one for one in found.values() if one["outcome"] == "FAIL"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")
@pytest.mark.parametrize("owner", [0, NOBODY])
def test_only_the_owner_of_a_ledger_is_told_to_take_the_files_of_others(monkeypatch, tmp_path, owner):
    os.chown(tmp_path, owner, owner)
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    _, fix = explain(PermissionError(errno.EACCES, "x", "/"), tmp_path)
    assert "as root (`sudo -u root ledger doctor" in fix
    assert ("chown" in fix, f"`ledger share {tmp_path} --group GROUP`" in fix) == (owner == NOBODY, owner == 0)


@pytest.mark.parametrize(
    ("error", "cause", "advice"),
    [
        (OSError(errno.ENOSPC, "x"), "is full", "df -h"),
        (PermissionError(errno.EACCES, "x", "/"), "/ belongs to root", "root"),
        (OSError(errno.EROFS, "x"), "read-only", "dmesg"),
        (FileNotFoundError(errno.ENOENT, "x", "/gone"), "/gone is gone", "findmnt"),
        (OSError(errno.EIO, "x"), "Input/output error", "dmesg"),
        (StorageFailed("/x", "Generic error: No space left on device (os error 28)"), "is full", "upkeep"),
        (StorageFailed("/x", "Cannot open file: [errno 13] Permission denied"), "belongs to", "sudo "),
    ],
)
def test_an_error_of_the_system_is_told_by_its_number_in_whatever_words(error, cause, advice):
    found, fix = explain(error, Path("/"))
    assert cause in found and advice in fix
    assert explain(ValueError("28"), Path("/")) is None
