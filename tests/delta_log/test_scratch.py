"""What is made beside a log for a while: where that takes no file it is named, and what a kill left is removed."""

import errno
import os
import tempfile
import time
from pathlib import Path

import pytest

from ledger import Ledger
from ledger.delta_log import local_commits
from ledger.delta_log.local_commits import ABANDONED, PREFIX, scratch_folder
from ledger.errors import StorageFailed


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder for temporary files, of a process that has used none yet."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setattr(local_commits, "_swept", set())
    return place


def test_a_folder_for_temporary_files_that_takes_none_is_named_and_nothing_is_changed(tmp_path, temporary):
    """The error named the table of the ledger as the storage that fails."""
    queue = Ledger.open(tmp_path / "ledger", merge="statement").create_queue("jobs")
    queue.send(["a", "b"])
    temporary.rmdir()
    with pytest.raises(
        StorageFailed, match=rf"temporary files {temporary} \(TMPDIR\) takes no file: No such file"
    ) as said:
        queue.receive(1)
    assert not said.value.unknown
    temporary.mkdir()
    assert queue.receive(None).count == 2


def test_an_error_of_another_storage_stays_as_it_is(temporary):
    with pytest.raises(OSError, match="of a table") as said, scratch_folder():
        raise OSError(errno.ENOSPC, "of a table")
    assert said.value.errno == errno.ENOSPC and not list(temporary.iterdir())


def test_what_killed_processes_left_is_removed_once_it_is_a_day_old(temporary, monkeypatch):
    left = {age: temporary / f"{PREFIX}{age}" for age in (ABANDONED - 60, ABANDONED + 60)}
    others = temporary / "ledger-of-somebody"
    for folder in (*left.values(), others):
        (folder / "_delta_log").mkdir(parents=True)
    for age, folder in ((ABANDONED + 60, others), *left.items()):
        os.utime(folder, (time.time() - age,) * 2)
    with scratch_folder() as folder:
        assert Path(folder).parent == temporary
    assert sorted(temporary.iterdir()) == sorted([left[ABANDONED - 60], others])
