"""Several real users on one ledger: what `ledger share` gives to a group, and what is said where nothing was given.

Each user is a process that was started by root, and became that user once it had imported all that it needs.
"""

import grp
import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ledger import Ledger
from ledger.errors import InvalidParameterValue, LedgerDoesNotExist
from ledger.store.delta.permissions import look_over, share_ledger
from tests.cli.running import run
from tests.sources import CHECKOUT

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root becomes two other users")
#: Numbers that no user and no group of a machine has.
ALICE, BOB, READER, GROUP = 64_101, 64_102, 64_103, 64_100

BECOME = """
import importlib, json, os, pkgutil, sys
import ledger
for one in pkgutil.walk_packages(ledger.__path__, "ledger."):
    left_out = ("airflow", "endpoint", "spark", "runtime", "bootstrap", "__main__", "dataframes", "serve")
    if not any(part in one.name for part in left_out):
        importlib.import_module(one.name)
import concurrent.futures.thread, deltalake, encodings, importlib.readers, importlib.resources, pyarrow.parquet
for package in (encodings, importlib):
    for one in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if "mbcs" not in one.name and "oem" not in one.name:
            importlib.import_module(one.name)
from ledger import Ledger
user, groups, umask, root, code = int(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]
os.setgroups(groups)
os.setresgid(user, user, user)
os.setresuid(user, user, user)
os.umask(umask)
said = []
for line in code.split(";"):
    try:
        exec(line.strip())
        said.append("done")
    except Exception as error:
        said.append(f"{type(error).__name__}: {error}")
print(json.dumps(said))
"""


def become(user, root, code, umask=0o022, groups=(GROUP,)):
    """What each statement of some code comes to for a user: "done", or its error."""
    command = [sys.executable, "-c", BECOME, str(user), json.dumps(groups), str(umask), str(root), code]
    ran = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.fixture
def place():
    """A folder that every user reaches, and in which Alice may make one."""
    folder = Path(tempfile.mkdtemp(prefix="ledger-users-"))
    folder.chmod(0o755)
    os.chown(folder, ALICE, ALICE)
    yield folder
    shutil.rmtree(folder)


MAKE = 'queue = Ledger.open(root).create_queue("work"); queue.send(["a"] * 20); queue.receive(5, 0)'
USE = (
    'ledger = Ledger.open(root, create=False); queue = ledger.queue("work"); queue.send(["b"] * 5); '
    "claim = queue.receive(8, 600); claim.settle(delete=[m.receipt_handle for m in claim.messages()[:4]]); "
    'ledger.upkeep(); ledger.create_queue("more").send("c"); queue.copy_to(ledger.queue("more")); '
    'assert ledger.sql("SELECT * FROM messages").num_rows'
)


@pytest.mark.soak_variants("18")
@as_root
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_users_of_a_group_do_all_on_a_ledger_that_was_shared_whatever_their_umask(place, umask):
    root = place / "ledger"
    assert set(become(ALICE, root, MAKE, umask)) == {"done"}
    (shared,) = become(ALICE, root, f"Ledger.share(root, group={str(GROUP)!r})", umask)
    assert shared == "done"
    if not share_ledger(str(root), str(GROUP)).is_inherited:
        umask = 0o002
    for user in (BOB, ALICE, BOB):
        assert set(become(user, root, USE, umask)) == {"done"}
    assert look_over(str(root)).faults == ()
    made = [path for path in root.rglob("*") if path.lstat().st_uid == BOB]
    assert made and all(path.lstat().st_gid == GROUP for path in made)


@as_root
def test_what_another_user_may_not_write_is_named_with_its_owner_and_the_command(place):
    root = place / "ledger"
    become(ALICE, root, MAKE)
    refused, *_ = become(BOB, root, "Ledger.open(root)")
    assert refused.startswith("StorageFailed: ") and f"({ALICE}:" not in refused
    for word in (f"user {ALICE}", f"user {BOB} may not write there", f"ledger share {root} --group", "read_only=True"):
        assert word in refused
    looked = become(
        READER,
        root,
        'queue = Ledger.open(root, read_only=True).queue("work"); assert queue.counts().visible == 20; '
        'assert Ledger.open(root, read_only=True).sql("SELECT * FROM queue_depth").num_rows == 1; '
        'queue.send("b"); queue.receive(); queue.purge()',
        groups=(),
    )
    assert looked[:3] == ["done"] * 3
    assert all(one.startswith("LedgerIsReadOnly") and "Nothing was changed" in one for one in looked[3:])


@as_root
def test_a_user_who_owns_a_part_of_it_alone_cannot_share_it_and_may_call_again(place):
    root = place / "ledger"
    become(ALICE, root, MAKE)
    os.chown(root / "visibility", BOB, BOB)
    (refused,) = become(ALICE, root, f"Ledger.share(root, group={str(GROUP)!r})")
    assert f"Call it again as user {BOB} or as root" in refused and "visibility" in refused
    share_ledger(str(root), str(GROUP))
    assert set(become(BOB, root, USE)) == {"done"}


@pytest.mark.soak_variants(".")
@as_root
@pytest.mark.parametrize(
    "closed",
    [
        *(".", "visibility/*"),
        *(pytest.param(one, marks=pytest.mark.soak) for one in ("visibility", "visibility/_delta_log", "_locks")),
    ],
)
def test_a_folder_that_its_user_may_not_open_is_named_and_never_passed_by(place, closed):
    root = place / "ledger"
    become(ALICE, root, MAKE)
    folder = root if closed == "." else next(path for path in root.glob(closed) if path.is_dir())
    os.chown(folder, BOB, BOB)
    folder.chmod(0o700)
    (refused,) = become(ALICE, root, f"Ledger.share(root, group={str(GROUP)!r})")
    assert f"Call it again as user {BOB} or as root" in refused and str(folder) in refused
    share_ledger(str(root), str(GROUP))
    assert set(become(BOB, root, USE)) == {"done"}


@as_root
def test_the_doctor_names_what_a_shared_ledgers_group_cannot_use(place):
    root = place / "ledger"
    become(ALICE, root, MAKE)
    share_ledger(str(root), str(GROUP))
    assert run("doctor", root, "--json").documents[0]["healthy"]
    lane = next((root / "visibility").glob("queue=*/lane=*"))
    lane.chmod(0o755)
    lock = next((root / "_locks").glob("*.turn"))
    lock.chmod(0o644)
    said = run("doctor", root)
    assert said.code == 1 and f"{lane} (user {ALICE}:{GROUP}, drwxr-xr-x) is not writable for the group" in said.out
    assert f"{lock} " in said.out and f"`ledger share {root} --group {GROUP}`" in said.out
    assert run("share", root, "--group", GROUP).code == 0
    assert run("doctor", root, "--json").documents[0]["healthy"]


@as_root
@pytest.mark.parametrize("closed", ["messages", "messages/_delta_log"])
def test_a_user_is_told_of_a_folder_of_a_shared_ledger_that_is_closed_to_him(place, closed):
    root = place / "ledger"
    become(ALICE, root, MAKE)
    share_ledger(str(root), str(GROUP))
    (root / closed).chmod(0o700)
    look = (
        "from ledger.store.delta.permissions import look_over; found = look_over(root).faults; "
        f"assert len(found) == 1 and {str(root / closed)!r} in found[0], found"
    )
    assert set(become(BOB, root, look)) == {"done"}


def test_a_ledger_is_shared_with_a_group_of_ones_own_and_again(tmp_path):
    root, group = tmp_path / "ledger", grp.getgrgid(os.getgid()).gr_name
    Ledger.open(str(root)).create_queue("work").send("a")
    notes = root / "notes.txt"
    notes.write_text("mine")
    notes.chmod(0o600)
    done = run("share", root, "--group", group, "--json", "--everyone")
    assert done.code == 0 and (done.documents[0]["group"], done.documents[0]["everyone"]) == (group, True)
    assert run("share", root, "--group", group, "--json", "--everyone").documents == done.documents
    for path in [root, *root.rglob("*")]:
        mode = path.lstat().st_mode
        if path == notes:
            assert stat.S_IMODE(mode) == 0o600, "what is not the ledger's stays"
        elif stat.S_ISDIR(mode):
            assert mode & 0o2775 == 0o2775
        else:
            assert mode & 0o664 == 0o664
    assert look_over(str(root)).faults == () and look_over(str(root)).is_shared
    Ledger.open(str(root)).queue("work").receive(1).delete()


def test_what_cannot_be_shared_is_refused(tmp_path):
    with pytest.raises(LedgerDoesNotExist):
        Ledger.share(str(tmp_path), group=str(os.getgid()))
    with pytest.raises(InvalidParameterValue, match="local path"):
        Ledger.share("s3://bucket/ledger", group=str(os.getgid()))
    root = tmp_path / "ledger"
    Ledger.open(str(root))
    with pytest.raises(InvalidParameterValue, match="no such group"):
        Ledger.share(str(root), group="no such group")
    (tmp_path / "link").symlink_to(root)
    with pytest.raises(InvalidParameterValue, match="link"):
        Ledger.share(str(tmp_path / "link"), group=str(os.getgid()))
    assert look_over("s3://bucket/ledger") is None and look_over(str(tmp_path / "none")) is None
    assert pwd.getpwuid(os.getuid()) and look_over(str(root)).faults == ()


def test_a_file_of_others_is_given_to_nobody_also_where_a_link_takes_a_place_meanwhile(tmp_path, monkeypatch):
    """Who may write below a ledger could have root give any file away."""
    root, outside = tmp_path / "ledger", tmp_path / "secret"
    Ledger.open(root).create_queue("work").send("a")
    outside.write_text("secret")
    outside.chmod(0o600)
    (root / "messages" / "link.parquet").symlink_to(outside)
    swapped, unhindered = root / "messages" / "swapped.parquet", os.open
    swapped.write_text("rows")

    def swapping(path, flags, *arguments, **options):
        if path == "swapped.parquet":
            swapped.unlink()
            swapped.symlink_to(outside)
        return unhindered(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", swapping)
    share_ledger(str(root), str(os.getgid()), everyone=True)
    assert swapped.is_symlink() and stat.S_IMODE(outside.stat().st_mode) == 0o600
