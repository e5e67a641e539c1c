"""Who may read a backup, and who may use a restored ledger. Users are processes that root started."""

import os
import stat
import struct

import pytest

from ledger import Ledger
from ledger.errors import InvalidParameterValue
from ledger.store.delta.permissions import look_over, share_ledger
from tests.cli.running import run
from tests.delta.users import ALICE, BOB, GROUP, MAKE, READER, USE, as_root, become, folder_of_alice

READ = 'assert Ledger.open(root, read_only=True).sql("SELECT * FROM messages").num_rows'


@pytest.fixture
def place():
    with folder_of_alice() as folder:
        yield folder


def modes_in(folder):
    """The owners, groups and modes of a folder and all in it, except the locks, which a restore does not bring."""
    return {
        (one.lstat().st_uid, one.lstat().st_gid, oct(stat.S_IMODE(one.lstat().st_mode)), one.is_dir())
        for one in (folder, *folder.rglob("*"))
        if one.parent.name != "_locks"
    }


@as_root
@pytest.mark.parametrize("user", [ALICE, 0])
def test_a_restore_in_the_place_of_a_shared_ledger_is_shared_with_the_same_users(place, user):
    root, backup = place / "ledger", place / "backup"
    become(ALICE, root, f"{MAKE}; Ledger.open(root).backup({str(backup)!r})")
    shared = share_ledger(str(root), str(GROUP))
    assert become(READER, root, f"Ledger.open(root).queue('work').send('no'); {READ}", groups=())[0] != "done"
    restore = f"Ledger.restore_backup({str(backup)!r}, root, replace=True)"
    if user == ALICE:
        assert become(ALICE, root, restore) == ["done"]
    else:
        Ledger.restore_backup(backup, root, replace=True)
    assert {(uid, gid) for uid, gid, _, _ in modes_in(root)} == {(ALICE, GROUP)}
    assert look_over(str(root)).is_shared and look_over(str(root)).faults == ()
    assert set(become(BOB, root, USE, umask=0o077 if shared.is_inherited else 0o002)) == {"done"}
    assert set(become(ALICE, root, USE)) == {"done"}
    (refused,) = become(READER, root, READ, groups=())
    assert "--everyone" in refused, "what is the group's stays closed to others"


@as_root
def test_a_restore_keeps_the_owner_and_a_ledger_that_only_its_owner_may_read(place):
    root, backup = place / "ledger", place / "backup"
    become(ALICE, root, f"{MAKE}; Ledger.open(root).backup({str(backup)!r})", umask=0o077)
    before = modes_in(root)
    Ledger.restore_backup(backup, root, replace=True)
    assert modes_in(root) == before
    assert set(become(ALICE, root, USE)) == {"done"}


@as_root
def test_a_restore_keeps_what_an_empty_folder_at_its_place_had_and_a_new_folder_is_as_the_umask_says(place):
    backup, made = place / "backup", place / "made"
    become(ALICE, place / "ledger", f"{MAKE}; Ledger.open(root).backup({str(backup)!r})")
    made.mkdir(mode=0o750)
    os.chown(made, BOB, GROUP)
    Ledger.restore_backup(backup, made)
    assert modes_in(made) == {(BOB, GROUP, "0o750", True), (BOB, GROUP, "0o640", False)}
    Ledger.restore_backup(backup, place / "new")
    assert modes_in(place / "new") == {(0, 0, "0o755", True), (0, 0, "0o644", False)}


def set_acl(path, kind, *entries):
    """Set an ACL: each entry has a tag (1 owner, 2 user, 4 group, 16 mask, 32 others), bits, and a user's number."""
    packed = b"".join(struct.pack("<HHI", *(*entry, 2**32 - 1)[:3]) for entry in entries)
    try:
        os.setxattr(path, f"system.posix_acl_{kind}", struct.pack("<I", 2) + packed)
    except OSError:
        pytest.skip("a file system without ACLs")


@as_root
def test_a_restore_keeps_the_acls_of_single_users(place):
    root, backup = place / "ledger", place / "backup"
    Ledger.open(root).create_queue("work").send("a")
    Ledger.open(root).backup(backup)
    for folder in (one for one in (root, *root.rglob("*")) if one.is_dir()):
        for kind in ("default", "access"):
            set_acl(folder, kind, (1, 7), (2, 5, READER), (4, 0), (16, 5), (32, 0))
    Ledger.restore_backup(backup, root, replace=True)
    refused, done = (become(user, root, READ, groups=())[0] for user in (BOB, READER))
    assert refused != "done" and done == "done"


@as_root
def test_a_group_that_the_user_cannot_give_is_named_and_its_rights_go_to_nobody_else(place):
    root, backup = place / "ledger", place / "backup"
    become(ALICE, root, f"{MAKE}; Ledger.open(root).backup({str(backup)!r})", umask=0o077)
    share_ledger(str(root), str(GROUP))
    told = (
        f"lines = []; Ledger.restore_backup({str(backup)!r}, root, replace=True, report=lines.append); "
        f"assert 'run `ledger share {root} --group {GROUP}` as root' in lines[-1], lines"
    )
    assert set(become(ALICE, root, told, groups=())) == {"done"}
    assert modes_in(root) == {(ALICE, ALICE, "0o700", True), (ALICE, ALICE, "0o600", False)}
    assert run("share", root, "--group", GROUP).code == 0
    assert set(become(BOB, root, USE)) == {"done"}


def open_to(folder):
    """The bits that a group and others have on a folder's files and folders."""
    return {stat.S_IMODE(one.lstat().st_mode) & 0o077 for one in (folder, *folder.rglob("*"))}


@as_root
def test_a_backup_is_as_private_as_its_ledger(place):
    root = place / "ledger"
    ledger = Ledger.open(root)
    ledger.create_queue("work").send("secret")
    for number, name in enumerate(("", "messages")):
        (root / name).chmod(0o700)
        ledger.backup(place / f"closed {number}")
        assert open_to(place / f"closed {number}") == {0}, "the ledger, or a table of it, is the owner's alone"
        (root / name).chmod(0o755)
    (there := place / "there").mkdir(mode=0o755)
    root.chmod(0o750)
    ledger.backup(there)
    assert {path.stat().st_mode & 0o007 for path in there.rglob("*")} == {0}
    assert {path.stat().st_mode & 0o050 for path in there.rglob("*") if path.is_dir()} == {0o050}
    Ledger.restore_backup(there, place / "restored")
    assert Ledger.open(place / "restored").queue("work").receive(1).count == 1


@as_root
def test_a_backup_of_an_open_ledger_is_as_the_umask_says_and_below_a_closed_folder_it_is_closed(place):
    home = place / "home"
    home.mkdir()
    Ledger.open(home / "ledger").create_queue("work").send("body")
    Ledger.open(home / "ledger").backup(place / "open")
    assert open_to(place / "open") == {0o055, 0o044}
    home.chmod(0o700)
    Ledger.open(home / "ledger").backup(place / "closed")
    assert open_to(place / "closed") == {0}
    os.chown(home, 0, GROUP)
    home.chmod(0o750)
    Ledger.open(home / "ledger").backup(place / "also closed")
    assert open_to(place / "also closed") == {0}, "the ledger's own group may not enter the folder above it"


@as_root
def test_a_backup_of_a_shared_ledger_is_closed_to_those_who_cannot_read_the_ledger(place):
    root, backup = place / "ledger", place / "backup"
    become(ALICE, root, MAKE)
    share_ledger(str(root), str(GROUP))
    assert become(ALICE, root, f"Ledger.open(root).backup({str(backup)!r})") == ["done"]
    assert open_to(backup) == {0}, "the backup's group is not the ledger's"
    (refused,) = become(READER, place / "stolen", f"Ledger.restore_backup({str(backup)!r}, root)", groups=())
    assert refused != "done" and not (place / "stolen").exists()


def test_a_restore_goes_on_where_the_file_system_refuses_modes_and_says_so_if_others_may_read(tmp_path, monkeypatch):
    """vfat and CIFS refuse each change of a mode: before, no restore ended there."""
    root, lines = tmp_path / "ledger", []
    Ledger.open(root).create_queue("work").send("a")
    Ledger.open(root).backup(tmp_path / "backup")

    def refuse(*of):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", refuse)
    aside = Ledger.restore_backup(tmp_path / "backup", root, replace=True, report=lines.append)
    assert aside.is_dir() and Ledger.open(root).queue("work").receive(1).count == 1
    made, lines[:] = tmp_path / "made", []
    made.mkdir(mode=0o700)
    Ledger.restore_backup(tmp_path / "backup", made, report=lines.append)
    assert f"the file system of {made} keeps no modes: others may read or write" in lines[-1]


@as_root
@pytest.mark.parametrize("name", ["queues", "messages"])
def test_a_backup_of_a_ledger_whose_table_is_a_link_is_as_private_as_the_place_of_the_table(place, name):
    """Before, a link in place of `queues` made each backup fail, and other links were not followed."""
    root, away = place / "ledger", place / "away"
    Ledger.open(root).create_queue("work").send("a")
    away.mkdir(mode=0o755)
    (root / name).rename(away / name)
    (root / name).symlink_to(away / name)
    Ledger.open(root).backup(place / "open")
    assert open_to(place / "open") == {0o055, 0o044}
    with pytest.raises(InvalidParameterValue, match="Must not lie in the ledger"):
        Ledger.open(root).backup(away / name / "inside")
    away.chmod(0o700)
    Ledger.open(root).backup(place / "closed")
    assert open_to(place / "closed") == {0}
    Ledger.restore_backup(place / "closed", place / "restored")
    assert Ledger.open(place / "restored").queue("work").receive(1).count == 1


def bodies_in(folder):
    """The bits that a group and others have on the files of messages, and on the folders of these files."""
    files = [one for one in folder.rglob("*.parquet") if "messages" in one.parts and "_delta_log" not in one.parts]
    assert files
    return {stat.S_IMODE(one.stat().st_mode) & 0o077 for file in files for one in (file, file.parent)}


@as_root
def test_bodies_that_only_their_writer_may_read_stay_so_in_a_backup_and_in_a_restored_ledger(place):
    """The ledger was made by hand with the umask 022, and a service with the umask 077 sends. cron has 022."""
    root, backup = place / "ledger", place / "backup"
    become(ALICE, root, 'Ledger.open(root).create_queue("work")')
    become(ALICE, root, 'Ledger.open(root).queue("work").send(["a"] * 20)', umask=0o077)
    assert bodies_in(root) == {0} and stat.S_IMODE((root / "messages").stat().st_mode) == 0o755
    assert become(ALICE, root, f"Ledger.open(root).backup({str(backup)!r})") == ["done"]
    assert open_to(backup) == {0}
    for number, user in enumerate((ALICE, 0)):
        become(user, root, f"Ledger.restore_backup({str(backup)!r}, root, replace=True)", umask=0o022)
        assert bodies_in(root) == {0} and stat.S_IMODE((root / "messages").stat().st_mode) == 0o755
        assert len([*place.glob("*.replaced-*")]) == number + 1
        assert set(become(ALICE, root, USE)) == {"done"}


@as_root
@pytest.mark.parametrize("kind", ["access", "default"])
def test_the_mask_of_an_acl_gives_the_group_nothing_in_a_backup(place, kind):
    root = place / "ledger"
    become(ALICE, root, f"{MAKE}; Ledger.open(root).backup({str(place / 'open')!r})")
    assert open_to(place / "open") == {0o055, 0o044}
    for one in (root, *root.rglob("*")):
        if one.is_dir() or kind == "access":
            set_acl(one, kind, (1, 7), (2, 5, READER), (4, 0), (16, 5), (32, 0))
    assert become(ALICE, root, f"Ledger.open(root).backup({str(place / 'closed')!r})") == ["done"]
    assert open_to(place / "closed") == {0}
    become(ALICE, root, f"Ledger.restore_backup({str(place / 'closed')!r}, root, replace=True)")
    assert become(BOB, root, READ, groups=(ALICE,))[0] != "done", "a member of the group"


@as_root
def test_a_user_whom_an_acl_shuts_out_of_a_ledger_does_not_read_its_backup(place):
    root, backup = place / "ledger", place / "backup"
    become(ALICE, root, MAKE)
    set_acl(root, "access", (1, 7), (2, 0, READER), (4, 5), (16, 5), (32, 5))
    assert become(ALICE, root, f"Ledger.open(root).backup({str(backup)!r})") == ["done"]
    assert open_to(backup) == {0}


@as_root
def test_messages_that_are_sent_after_a_restore_without_the_group_stay_closed_to_others(place):
    """Before, the umask decided, as the folders had no default ACL any more."""
    root, backup = place / "ledger", place / "backup"
    become(ALICE, root, f"{MAKE}; Ledger.open(root).backup({str(backup)!r})")
    if not share_ledger(str(root), str(GROUP)).is_inherited:
        pytest.skip("a file system without ACLs")
    restore = f"Ledger.restore_backup({str(backup)!r}, root, replace=True)"
    assert become(ALICE, root, restore, groups=()) == ["done"]
    assert become(ALICE, root, "Ledger.open(root).queue('work').send(['later'] * 5)", groups=()) == ["done"]
    files = [one for one in (root / "messages").rglob("*") if one.is_file()]
    assert len(files) >= 6 and {one.stat().st_mode & 0o077 for one in files} == {0}
