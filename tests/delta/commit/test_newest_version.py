"""The newest version is loaded beside others who commit all the time, whose log no listing shows without a gap."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from ledger.delta_log.delta_rs_commits import catch_up, opened
from ledger.delta_log.history import is_gap
from ledger.delta_log.storage import LOG, log_file, table_files
from tests.delta.commit.test_engines import rows

#: Commits as fast as files are made, for some seconds.
COMMITS = """
import sys, time
from pathlib import Path
log, first, until = Path(sys.argv[1]), int(sys.argv[2]), time.monotonic() + float(sys.argv[3])
while time.monotonic() < until:
    (log / f"{first:020d}.json").write_text('{"commitInfo": {"timestamp": 0}}\\n')
    first += 1
print(first - 1)
"""


@pytest.fixture
def location(root, engine_of):
    """A table of three versions more than it was made with."""
    engine, location = engine_of("delta-rs"), f"{root}/messages"
    for number in range(3):
        engine.append("messages", rows(number, ["a"]), {})
    return location


@pytest.fixture
def newest(location):
    return DeltaTable(location).version()


def listings_with_gaps(monkeypatch, location, newest):
    """Whatever delta-rs lists without being told a version lacks the last but one; counts how often."""
    met, update, made = [], DeltaTable.update_incremental, DeltaTable.__init__
    hidden = Path(location, log_file(newest - 1))

    def without(call):
        met.append(1)
        away = hidden.rename(hidden.with_suffix(".away"))
        try:
            call()
        finally:
            away.rename(hidden)

    def make(table, place, version=None, **options):
        if version is None:
            without(lambda: made(table, place, **options))
        else:
            made(table, place, version, **options)

    monkeypatch.setattr(DeltaTable, "update_incremental", lambda table: without(lambda: update(table)))
    monkeypatch.setattr(DeltaTable, "__init__", make)
    return met


def test_a_table_is_opened_where_each_listing_has_a_gap(location, newest, monkeypatch):
    met = listings_with_gaps(monkeypatch, location, newest)
    assert opened(location, None).version() == newest and len(met) == 1


def test_a_loaded_table_catches_up_where_each_listing_has_a_gap(location, newest, monkeypatch):
    loaded = DeltaTable(location, newest - 2)
    met = listings_with_gaps(monkeypatch, location, newest)
    catch_up(loaded, table_files(location, None))
    assert loaded.version() == newest and len(met) == 1


def test_a_log_that_has_lost_a_version_stays_a_damaged_one(location, newest):
    loaded = DeltaTable(location, newest - 2)
    Path(location, log_file(newest - 1)).unlink()
    with pytest.raises(DeltaError) as raised:
        opened(location, None)
    assert is_gap(raised.value)
    with pytest.raises(DeltaError):
        catch_up(loaded, table_files(location, None))


def test_the_paths_of_a_log_are_those_of_its_files(location):
    files = table_files(location, None)
    assert sorted(files.log_paths()) == sorted(file.path for file in files.log_files())


def test_what_no_version_needs_is_removed_without_a_commit(location, newest, engine_of):
    engine = engine_of("delta-rs")
    DeltaTable(location).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    before = set(DeltaTable(location).file_uris())
    DeltaTable(location).optimize.compact()
    (kept,), version = DeltaTable(location).file_uris(), DeltaTable(location).version()
    engine.vacuum("messages")
    assert [path for path in before if Path(path).exists()] == [] and Path(kept).exists()
    assert DeltaTable(location).version() == version


@pytest.mark.soak
def test_a_table_is_opened_all_the_time_beside_a_process_that_commits_all_the_time(location, newest):
    args = [sys.executable, "-c", COMMITS, str(Path(location, LOG)), str(newest + 1), "10"]
    loaded, looks = DeltaTable(location), 0
    with subprocess.Popen(args, stdout=subprocess.PIPE, text=True) as committing:
        while committing.poll() is None:
            before, began = loaded.version(), time.monotonic()
            catch_up(loaded, table_files(location, None))
            assert loaded.version() >= before and opened(location, None).version() >= before
            looks += time.monotonic() - began < 5
        assert opened(location, None).version() == int(committing.stdout.read()) and looks > 3
