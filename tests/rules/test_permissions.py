"""Who may use a ledger's files: permissions as numbers, without a file system."""

import stat
import struct

import pytest

from ledger.rules.permissions import LocalEntry, can_enter, default_acl, find_missing_right, is_shared, shared_mode

FOLDER, FILE = stat.S_IFDIR, stat.S_IFREG
ROOT = LocalEntry("/l", FOLDER | 0o2770, 1, 7)


@pytest.mark.parametrize(
    ("mode", "everyone", "is_lock", "shared"),
    [
        (FOLDER | 0o700, False, False, 0o2770),
        (FOLDER | 0o755, False, False, 0o2775),
        (FOLDER | 0o700, True, False, 0o2775),
        (FILE | 0o600, False, False, 0o660),
        (FILE | 0o400, False, False, 0o440),
        (FILE | 0o400, False, True, 0o460),
        (FILE | 0o644, True, False, 0o664),
        (FILE | 0o600, True, True, 0o664),
    ],
)
def test_the_group_gets_what_the_owner_has_and_nobody_loses_any(mode, everyone, is_lock, shared):
    assert shared_mode(mode, everyone=everyone, is_lock=is_lock) == shared
    assert shared_mode(stat.S_IFMT(mode) | shared, everyone=everyone, is_lock=is_lock) == shared, (
        "again changes nothing"
    )


@pytest.mark.parametrize(("everyone", "others"), [(False, 0), (True, 5)])
def test_a_default_acl_is_as_the_kernel_reads_it(everyone, others):
    packed = default_acl(everyone=everyone)
    assert struct.unpack("<I", packed[:4]) == (2,)
    entries = list(struct.iter_unpack("<HHI", packed[4:]))
    assert entries == [(1, 7, 0xFFFFFFFF), (4, 7, 0xFFFFFFFF), (0x20, others, 0xFFFFFFFF)]


@pytest.mark.parametrize(
    ("mode", "group", "is_lock", "why"),
    [
        (FOLDER | 0o2770, 7, False, None),
        (FOLDER | 0o770, 7, False, None),
        (FOLDER | 0o2755, 7, False, "is not writable for the group"),
        (FOLDER | 0o2730, 7, False, "is not readable for the group"),
        (FOLDER | 0o2760, 7, False, "is not enterable for the group"),
        (FOLDER | 0o2700, 7, False, "is not readable or writable or enterable for the group"),
        (FOLDER | 0o2770, 8, False, "is of another group"),
        (FILE | 0o640, 7, False, None),
        (FILE | 0o600, 7, False, "is not readable for the group"),
        (FILE | 0o620, 7, True, "is not readable for the group"),
        (FILE | 0o600, 7, True, "is not readable or writable for the group"),
        (FILE | 0o640, 7, True, "is not writable for the group"),
        (FILE | 0o660, 7, True, None),
    ],
)
def test_what_a_shared_ledger_lacks_is_told(mode, group, is_lock, why):
    assert find_missing_right(ROOT, LocalEntry("/l/x", mode, 2, group, is_lock=is_lock)) == why


@pytest.mark.parametrize(("mode", "shared"), [(0o2770, True), (0o770, False), (0o2755, False), (0o755, False)])
def test_a_ledger_is_shared_by_its_folder(mode, shared):
    assert is_shared(ROOT._replace(mode=FOLDER | mode)) is shared


def acl(*entries):
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


OWNER, OTHERS_IN, OTHERS_OUT = (0x01, 7, 2**32 - 1), (0x20, 1, 2**32 - 1), (0x20, 0, 2**32 - 1)


@pytest.mark.parametrize(
    ("mode", "entries", "group", "enters"),
    [
        (0o710, None, 7, True),
        (0o701, None, 7, False),
        (0o701, None, 8, True),
        # The mask is 5, and the mode has it as the group's bits: the group's own entry lets nobody in.
        (0o750, [OWNER, (0x04, 0, 2**32 - 1), (0x08, 5, 42), (0x10, 5, 2**32 - 1), OTHERS_OUT], 7, False),
        (0o750, [OWNER, (0x04, 0, 2**32 - 1), (0x08, 5, 42), (0x10, 5, 2**32 - 1), OTHERS_OUT], 42, True),
        (0o740, [OWNER, (0x04, 0, 2**32 - 1), (0x08, 5, 42), (0x10, 4, 2**32 - 1), OTHERS_OUT], 42, False),
        # One entry of a group that lets it in suffices.
        (0o710, [OWNER, (0x04, 0, 2**32 - 1), (0x08, 1, 7), (0x10, 1, 2**32 - 1), OTHERS_OUT], 7, True),
        (0o710, [OWNER, (0x04, 1, 2**32 - 1), (0x08, 0, 7), (0x10, 1, 2**32 - 1), OTHERS_OUT], 7, True),
        # What others may does not count for a group that has an entry.
        (0o711, [OWNER, (0x04, 0, 2**32 - 1), (0x08, 0, 42), (0x10, 1, 2**32 - 1), OTHERS_IN], 42, False),
        (0o711, [OWNER, (0x04, 0, 2**32 - 1), (0x08, 0, 42), (0x10, 1, 2**32 - 1), OTHERS_IN], 8, True),
    ],
)
def test_a_group_may_enter_a_folder_by_its_acl_or_its_mode(mode, entries, group, enters):
    folder = LocalEntry("/above", FOLDER | mode, 1, 7)
    assert can_enter(folder, None if entries is None else acl(*entries), group) is enters
