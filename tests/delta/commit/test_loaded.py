"""Loaded tables are shared between threads: none moves another's snapshot, none is kept for a thread that is gone."""

import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from deltalake import DeltaTable

from ledger.delta_log.delta_rs_commits import KEPT, LISTED_AFTER, MOST_FOLLOWED, LoadedTables
from ledger.delta_log.storage import table_files
from ledger.store.delta.model.tables import Where
from tests.delta.commit.test_engines import QUEUE, Decision, rows


@pytest.fixture
def location(root):
    return f"{root}/messages"


@pytest.fixture
def now():
    """Seconds that have passed."""
    return [0.0]


@pytest.fixture
def opened(location):
    """Counts the tables that were opened; `loaded` opens them."""
    return []


@pytest.fixture
def loaded(location, opened, now):
    def open_one():
        opened.append(DeltaTable(location))
        return opened[-1]

    return LoadedTables(open_one, table_files(location, None), lambda: now[0])


def test_threads_that_come_and_go_open_one_table(loaded, opened):
    def look():
        with loaded.using() as table:
            table.version()

    for _ in range(100):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert len(opened) == 1


def test_tables_in_use_at_the_same_time_are_several_and_few_are_kept(loaded, opened):
    with ExitStack() as used:
        tables = [used.enter_context(loaded.using()) for _ in range(2 * KEPT)]
        assert len({id(table) for table in tables}) == len(opened) == 2 * KEPT
    with ExitStack() as used:
        for _ in range(KEPT):
            used.enter_context(loaded.using())
        assert len(opened) == 2 * KEPT, "what is waiting is used again"
        used.enter_context(loaded.using())
        assert len(opened) == 2 * KEPT + 1


def test_after_an_error_a_table_is_not_used_again(loaded, opened):
    with pytest.raises(ZeroDivisionError), loaded.using():
        _ = 1 / 0
    with loaded.using():
        assert len(opened) == 2


def test_a_table_that_followed_many_commits_is_opened_anew(loaded, opened, engine_of):
    engine = engine_of("delta-rs")
    for number in range(MOST_FOLLOWED + 1):
        with loaded.using():
            assert len(opened) == 1
        engine.append("messages", rows(number, ["a"]), {})
    with loaded.using() as table:
        assert (len(opened), table.version()) == (2, MOST_FOLLOWED + 1)


def test_it_is_opened_anew_though_upkeep_has_removed_what_tells_how_far_behind_it_is(
    loaded, opened, now, location, engine_of
):
    engine = engine_of("delta-rs")
    with loaded.using() as table:
        version = table.version()
    for number in range(MOST_FOLLOWED + 2):
        engine.append("messages", rows(number, ["a"]), {})
    DeltaTable(location).create_checkpoint()
    for removed in range(version + MOST_FOLLOWED + 2):
        Path(location, "_delta_log", f"{removed:020d}.json").unlink(missing_ok=True)
    now[0] += LISTED_AFTER + 1
    with loaded.using() as table:
        assert (len(opened), table.version()) == (2, version + MOST_FOLLOWED + 2)


def test_a_snapshot_of_one_thread_commits_though_others_read_later_versions(engine_of):
    """Of different lanes: what happened in between is no conflict, and the commit sees that it is not."""
    engine = engine_of("delta-rs")
    late = Decision(engine, lane=1)

    def commit_and_read():
        Decision(engine, lane=0).commit()
        engine.load("visibility", Where(QUEUE.id))

    thread = threading.Thread(target=commit_and_read)
    thread.start()
    thread.join()
    assert late.commit() == engine.version("visibility") == 2


def test_a_process_that_stood_still_sees_what_is_newer_than_the_next_version_that_upkeep_removed(
    loaded, opened, now, location, engine_of
):
    with loaded.using() as table:
        version = table.version()
    for number in range(3):
        engine_of("delta-rs").append("messages", rows(number, ["a"]), {})
    DeltaTable(location).create_checkpoint()
    Path(location, "_delta_log", f"{version + 1:020d}.json").unlink()
    now[0] += LISTED_AFTER + 1
    with loaded.using() as table:
        assert table.version() == version + 3


def test_a_log_is_listed_when_there_is_something_new_and_not_for_nothing(loaded, location, engine_of, monkeypatch):
    listed, follow = [], DeltaTable.update_incremental
    monkeypatch.setattr(DeltaTable, "update_incremental", lambda table: listed.append(1) or follow(table))
    for _ in range(3):
        with loaded.using():
            assert not listed
    engine_of("delta-rs").append("messages", rows(0, ["a"]), {})
    listed.clear()
    with loaded.using():
        assert len(listed) == 1
