"""Several real users on one ledger: what `ledger share` gives to a group, and what is said where nothing was given.

Each user is a process that was started by root, and became that user once it had imported all that it needs.
"""

import grp
import os
import pwd
import stat
import struct

import pytest

from ledger import Ledger
from ledger.errors import InvalidParameterValue, LedgerDoesNotExist
from ledger.store.delta.permissions import look_over, share_ledger
from tests.cli.running import run
from tests.delta.users import ALICE, BOB, GROUP, MAKE, READER, USE, as_root, become, folder_of_alice


@pytest.fixture
def place():
    with folder_of_alice() as folder:
        yield folder


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
def test_users_who_each_own_a_part_are_both_sent_to_root_who_alone_can_share_it(place):
    root = place / "ledger"
    become(ALICE, root, MAKE)
    os.chown(root / "visibility", BOB, BOB)
    for user, other in ((ALICE, BOB), (BOB, ALICE)):
        (refused,) = become(user, root, f"Ledger.share(root, group={str(GROUP)!r})")
        assert "may not share it" in refused and f"(user {other}:" in refused
        assert f"Call it again as root: user {ALICE} and user {BOB} each own a part" in refused
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
    assert "Call it again as root." in refused and str(folder) in refused
    share_ledger(str(root), str(GROUP))
    assert set(become(BOB, root, USE)) == {"done"}


@as_root
def test_an_owner_outside_the_group_is_told_to_join_it(place):
    root = place / "ledger"
    become(ALICE, root, MAKE)
    (refused,) = become(ALICE, root, f"Ledger.share(root, group={str(GROUP)!r})", groups=())
    assert f"user {ALICE} is not a member of the group {GROUP}" in refused
    assert f"sudo usermod -aG {GROUP} user {ALICE}" in refused and "Call it again as" not in refused


@as_root
def test_a_user_who_owns_nothing_is_told_who_may_share_it(place):
    root = place / "ledger"
    become(ALICE, root, MAKE)
    (refused,) = become(BOB, root, f"Ledger.share(root, group={str(GROUP)!r})")
    assert f"Call it again as root, or as user {ALICE} if a member of the group {GROUP}" in refused


@as_root
def test_a_reader_of_a_file_that_is_the_groups_is_told_the_command_for_everyone(place):
    root = place / "ledger"
    become(ALICE, root, MAKE)
    look = 'assert Ledger.open(root, read_only=True).sql("SELECT * FROM messages").num_rows'
    assert become(READER, root, look, groups=()) == ["done"]
    share_ledger(str(root), str(GROUP))
    become(BOB, root, USE)
    (refused,) = become(READER, root, look, groups=())
    assert f"`ledger share {root} --group {GROUP} --everyone`, as root" in refused
    doctor = (
        "from ledger.runtime.checks import examine; found = [str(one) for one in examine(root)]; "
        "assert any('FAIL' in one and '--everyone' in one for one in found), found"
    )
    assert set(become(READER, root, doctor, groups=())) == {"done"}
    share_ledger(str(root), str(GROUP), everyone=True)
    assert become(READER, root, look, groups=()) == ["done"]


@as_root
def test_an_outsider_of_a_closed_ledger_is_told_the_command_for_everyone(place):
    root = place / "ledger"
    become(ALICE, root, MAKE, 0o077)
    refused = become(READER, root, "Ledger.open(root, read_only=True); Ledger.open(root)", groups=())
    for one in refused:
        assert one.startswith("StorageFailed") and f"user {READER} may not enter this folder" in one
        assert f"`ledger share {root} --group GROUP --everyone`, as root" in one


@as_root
def test_a_closed_folder_with_a_space_is_named_for_the_shell_and_nothing_else_is_advised(place):
    root = place / "my home" / "ledger"
    become(ALICE, root, MAKE)
    root.parent.chmod(0o700)
    for look in ("Ledger.open(root, create=False)", "Ledger.destroy(root)", "Ledger.restore_backup(root, '/none/x')"):
        (refused,) = become(READER, root, look, groups=())
        assert f"`chmod o+x '{root.parent}'`, as" in refused and "free space" not in refused, refused
    assert share_ledger(str(root), str(GROUP)).to_open == (f"chmod o+x '{root.parent}'",)


@as_root
@pytest.mark.parametrize(("group", "command"), [(ALICE, "chmod o+x"), (GROUP, "chmod g+x")])
def test_a_closed_folder_above_the_ledger_is_named_with_the_command_that_opens_it(place, group, command):
    root = place / "home" / "ledger"
    become(ALICE, place / "home" / "ledger", MAKE)
    share_ledger(str(root), str(GROUP))
    os.chown(root.parent, ALICE, group)
    root.parent.chmod(0o700)
    opening = f"{command} {root.parent}"
    assert share_ledger(str(root), str(GROUP)).to_open == (opening,)
    shared = run("share", root, "--group", GROUP)
    assert shared.code == 0 and f"`{opening}`" in shared.err
    everyone = share_ledger(str(root), str(GROUP), everyone=True).to_open
    assert everyone == (f"chmod {'g' if group == GROUP else ''}o+x {root.parent}",)
    said = run("doctor", root)
    assert f"WARN  permissions: users that this ledger is shared with may not enter {root.parent}" in said.out
    refused = become(
        BOB, root, "Ledger.open(root); Ledger.open(root, read_only=True); Ledger.destroy(root); Ledger.repair(root)"
    )
    for one in refused:
        assert one.startswith("StorageFailed") and f"user {BOB} may not enter this folder" in one
        assert f"`{opening}`, as user {ALICE} or root" in one
    doctor = (
        "from ledger.cli.diagnosis import diagnose; import io, contextlib; printed = io.StringIO(); "
        "exec('with contextlib.redirect_stdout(printed): code = diagnose(root)'); "
        f"failed = [line for line in printed.getvalue().splitlines() if {opening!r} in line]; "
        "assert code == 1 and len(failed) == 1 and failed[0].startswith('FAIL  storage'), printed.getvalue()"
    )
    assert set(become(BOB, root, doctor)) == {"done"}
    root.parent.chmod(0o711 if group == ALICE else 0o710)
    assert set(become(BOB, root, USE)) == {"done"}
    assert share_ledger(str(root), str(GROUP)).to_open == ()


@as_root
def test_a_folder_above_that_an_acl_opens_to_the_group_is_not_named(place):
    root = place / "home" / "ledger"
    Ledger.open(root)
    root.parent.chmod(0o700)
    entries = ((0x01, 7, 2**32 - 1), (0x04, 0, 2**32 - 1), (0x08, 1, GROUP), (0x10, 1, 2**32 - 1), (0x20, 0, 2**32 - 1))
    try:
        acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
        os.setxattr(root.parent, "system.posix_acl_access", acl)
    except OSError:
        pytest.skip("a file system without ACLs")
    assert share_ledger(str(root), str(GROUP)).to_open == ()
    assert share_ledger(str(root), str(BOB)).to_open == (f"chmod o+x {root.parent}",)
    # The folder's own group has the mask in the mode, and no right to enter.
    own = root.parent.stat().st_gid
    name = grp.getgrgid(own).gr_name
    assert share_ledger(str(root), str(own)).to_open == (f"setfacl -m g:{name}:x {root.parent}",)
    both = share_ledger(str(root), str(own), everyone=True).to_open
    assert both == (f"setfacl -m g:{name}:x,o::x {root.parent}",)


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
