"""A full disk, a read-only one, files that are gone, and another user's: the doctor names the cause and the command."""

import errno
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ledger import Ledger
from ledger.errors import StorageFailed
from ledger.runtime.storage import explain
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
    assert "(enough are 1.0 GB, and 2 days at that rate)" in found["disk"]["found"]
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
os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})
print()
code = main(["doctor", sys.argv[1], "--json"])
print()
print(code)
"""


def findings_of_nobody(root, warm):
    """The doctor's exit code and its findings, for another user than root. It first looks at the ledger `warm`, as
    root: nobody may not even read the interpreter, where that is root's."""
    Ledger.open(str(warm)).create_queue("work").send(["a"])
    with tempfile.TemporaryDirectory() as cache:
        os.chown(cache, NOBODY, NOBODY)
        ran = subprocess.run(
            [sys.executable, "-c", AS_NOBODY.format(nobody=NOBODY), str(root), str(warm)],
            env={**os.environ, "PYTHONPATH": str(CHECKOUT), "LEDGER_CACHE": cache},
            capture_output=True,
            text=True,
        )
    assert ran.returncode == 0, ran.stderr
    *_, report, _, code = ran.stdout.splitlines()
    found = json.loads(report)["findings"]
    assert TESTS not in str([one for one in found if one["outcome"] == "FAIL"])
    return int(code), found


@pytest.fixture
def theirs():
    """A ledger of root's, where all others may look: pytest's own folders are closed to them."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "ledger"
        Ledger.open(str(root)).create_queue("work").send(["a"])
        for one in (Path(folder), root, *root.rglob("*")):
            one.chmod(0o755 if one.is_dir() else 0o644)
        yield root


def not_ok(found):
    """What a doctor found, but for the jars that a new cache lacks."""
    shown = [(one["outcome"], one["subject"]) for one in found if one["outcome"] != "OK"]
    return [one for one in shown if one[1] != "delta jars"]


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")
#: Paths below a ledger, and modes that keep others out.
KEPT_OUT = {
    "a folder": ("messages/**/*.parquet/..", 0o755),
    "a closed folder": ("messages/**/*.parquet/..", 0o700),
    "a file": ("messages/**/*.parquet", 0o600),
    "a log": ("messages/_delta_log", 0o755),
    "a closed log": ("messages/_delta_log", 0o700),
    "an entry of a log": ("messages/_delta_log/*1.json", 0o600),
}


@AS_ROOT
@pytest.mark.parametrize("what", KEPT_OUT)
def test_a_file_of_another_user_is_named_once_with_its_owner(theirs, tmp_path, what):
    for one in (theirs, *theirs.rglob("*")):
        os.chown(one, NOBODY, NOBODY)
    pattern, mode = KEPT_OUT[what]
    path = next(theirs.glob(pattern.removesuffix("/..")))
    path = path.parent if pattern.endswith("/..") else path
    os.chown(path, 0, 0)
    path.chmod(mode)
    code, found = findings_of_nobody(theirs, tmp_path / "warm")
    (files,) = [one for one in found if one["subject"] == "files"]
    assert f"such as {path} of root" in files["found"] and "1 below" in files["found"]
    assert "`sudo chown -R" in files["advice"] and "as root" in files["advice"]
    assert code == 1 and not_ok(found) == [("FAIL", "files")], "one cause is one finding"


@AS_ROOT
@pytest.mark.parametrize("is_shared", [False, True])
def test_a_user_who_may_only_read_is_no_fault_of_the_ledger(theirs, tmp_path, is_shared):
    if is_shared:
        Ledger.share(str(theirs), group="4321", everyone=True)
    code, found = findings_of_nobody(theirs, tmp_path / "warm")
    assert not_ok(found) == [("WARN", "files")] and code == 0
    (files,) = [one for one in found if one["subject"] == "files"]
    assert "may read all of them, and write none" in files["found"] and "`ledger share" in files["advice"]
    (storage,) = [one for one in found if one["subject"] == "storage"]
    assert "may not write there" in storage["found"]


@AS_ROOT
def test_a_reader_who_may_not_read_a_file_is_told_of_that_file_alone(theirs, tmp_path):
    path = next(theirs.glob("messages/**/*.parquet"))
    path.chmod(0o600)
    code, found = findings_of_nobody(theirs, tmp_path / "warm")
    (files,) = [one for one in found if one["subject"] == "files"]
    assert code == 1 and not_ok(found) == [("FAIL", "files")]
    assert files["found"].startswith("1 below") and str(path) in files["found"]


@AS_ROOT
@pytest.mark.parametrize("group", [NOBODY, 4321], ids=["a member", "a reader who is none"])
def test_a_file_of_a_shared_ledger_that_its_users_cannot_read_is_told_once(theirs, tmp_path, group):
    Ledger.share(str(theirs), group=str(group), everyone=group != NOBODY)
    path = next(theirs.glob("messages/_delta_log/*1.json"))
    path.chmod(0o600)
    code, found = findings_of_nobody(theirs, tmp_path / "warm")
    assert code == 1 and not_ok(found) == [("FAIL", "permissions")]
    (permissions,) = [one for one in found if one["subject"] == "permissions"]
    assert str(path) in permissions["found"] and "`ledger share" in permissions["advice"]


@AS_ROOT
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


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.ESTALE])
def test_the_command_that_helps_takes_a_place_with_a_space_in_its_name(number, tmp_path):
    place = tmp_path / "my ledger"
    place.mkdir()
    _, advice = explain(OSError(number, os.strerror(number)), place)
    commands = [shlex.split(command) for command in advice.split("`")[1::2] if "/" in command]
    assert commands and all(str(place) in command for command in commands), advice
