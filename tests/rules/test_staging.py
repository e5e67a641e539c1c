"""The folders in which bulk sends stage their files: what they are called, and from when one is taken for dead."""

import pytest

from ledger.rules import staging

NOW = 1_700_000_000_000
TWO_DAYS = 172_800_000


def test_every_try_of_a_send_has_a_folder_of_its_own():
    names = {staging.new_folder(NOW) for _ in range(1_000)}
    assert len(names) == 1_000
    # Folders lie in the storage: another version must read when they were made.
    assert all(name.startswith("018bcfe56800-") and len(name) == 29 for name in names)


def test_a_folder_is_abandoned_once_it_is_older_than_two_days():
    for made in (0, 7, NOW):
        folder = staging.new_folder(made)
        assert not staging.is_abandoned(folder, made) and not staging.is_abandoned(folder, made + TWO_DAYS)
        assert staging.is_abandoned(folder, made + TWO_DAYS + 1)


@pytest.mark.parametrize(
    "folder",
    ["", "_delta_log", "018bcfe56800", "018bcfe56800-0123", "x018bcfe56800-0123456789abcdef",
     "018bcfe56800-0123456789abcdef-1", "018BCFE56800-0123456789ABCDEF"],
)  # fmt: skip
def test_a_folder_of_another_name_is_never_abandoned(folder):
    assert not staging.is_abandoned(folder, NOW + 10 * TWO_DAYS)


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("sent/0001-ab/part-0.parquet", "0001-ab"),
        ("sent/0001-ab/ordinal=3/part-0.parquet", "0001-ab"),
        ("queue=sent/lane=0/part-0.parquet", None),
        ("sent", None),
        ("part-0.parquet", None),
    ],
)
def test_a_path_tells_the_folder_that_it_is_in(path, folder):
    assert staging.folder_of(path) == folder
