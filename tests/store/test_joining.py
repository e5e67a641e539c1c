"""Which files are made one: neighbours that are small, as much as memory takes, and what lies across each other."""

import pytest

from ledger.delta_log.join import BYTES, LARGE_SHARE, LARGE_SHARE_WHILE_GROWING, ROWS, File, group_for_joining

MEGABYTE = 1 << 20


def file(first, messages=1, size=1_000, last=None):
    return File(f"{first}", size, messages, first, first + messages - 1 if last is None else last)


def joined(files, large=LARGE_SHARE):
    return [[int(one.path) for one in some] for some in group_for_joining(files, large)]


@pytest.mark.parametrize(
    ("files", "groups"),
    [
        ([], []),
        ([file(0)], []),
        ([file(2), file(0), file(1)], [[0, 1, 2]]),
        ([file(0), file(1, size=BYTES // 2 + 1), file(2), file(3)], [[2, 3]]),
        ([file(0), file(1, messages=ROWS // 2 + 1), file(200_000), file(200_001)], [[200_000, 200_001]]),
        ([file(n, size=4 * MEGABYTE) for n in range(9)], [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ([file(0, size=BYTES // 2), file(1, size=BYTES // 2), file(2)], [[0, 1]]),
    ],
)
def test_neighbours_that_are_small_are_made_one_up_to_a_whole_file(files, groups):
    assert joined(files) == groups


def test_where_it_is_done_again_and_again_only_the_smallest_are():
    files = [file(0, size=2 * MEGABYTE), *(file(n) for n in range(1, 5))]
    assert joined(files, LARGE_SHARE_WHILE_GROWING) == [[1, 2, 3, 4]]
    assert joined(files) == [[0, 1, 2, 3, 4]]


def test_what_lies_across_each_other_is_made_one_whatever_its_size():
    large = file(0, messages=40, size=BYTES)
    assert joined([large, file(10, messages=5)]) == [[0, 10]]
    assert joined([large, file(10, messages=5), file(20), file(39, messages=5), file(44)]) == [[0, 10, 20, 39]]
    assert joined([large, file(40), file(41)]) == [[40, 41]], "beside each other is not across"
    assert joined([file(0, messages=40, size=16 * BYTES), file(10)]) == [], "more than goes through memory"


def test_a_file_with_more_messages_than_ordinals_is_made_anew():
    """As OPTIMIZE leaves it of files that had the same messages."""
    assert joined([file(0, messages=8, last=3)]) == [[0]]
    assert joined([file(0), file(1, size=BYTES, messages=8, last=5), file(6, size=BYTES)]) == [[1]]
