"""Where a log ends is told without what is in it, by whoever commits to another table."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from ledger.delta_log import by_delta_rs
from ledger.delta_log.storage import LOG, find_latest_version, log_file
from ledger.errors import StorageFailed
from ledger.store.delta.by_delta_rs import DeltaRsEngine
from tests.delta.commit.test_engines import rows


class Log:
    """The files of a log, and how often one is asked for."""

    def __init__(self, *versions):
        self.there, self.asked = {log_file(version) for version in versions}, 0

    def has(self, path):
        self.asked += 1
        return path in self.there


@pytest.mark.parametrize("ahead", [*range(20), 1_000, 1_023, 1_024, 1_025])
def test_the_end_is_found_from_any_version_that_is_there(ahead):
    log = Log(*range(7, 8 + ahead))
    assert find_latest_version(log, 7) == 7 + ahead
    assert log.asked <= (2 + ahead.bit_length()) ** 2, "not one file after the other"


def test_from_a_version_that_was_cut_away_nothing_is_found():
    assert find_latest_version(Log(8, 9), 7) is None


def test_versions_are_the_newest_whoever_commits_and_whatever_is_cut_away(every_engine, engine_of):
    one, other = engine_of(every_engine), engine_of(every_engine)
    first = one.newest_versions(["messages", "queues"])
    assert first == {name: one.version(name) for name in ("messages", "queues")}
    for number in range(4):
        other.append("messages", rows(number, ["a"]), {})
    assert one.newest_versions(["messages"]) == {"messages": first["messages"] + 4}
    assert other.newest_versions(["queues", "messages"]) == {**first, "messages": first["messages"] + 4}


def test_a_log_that_was_cut_behind_what_is_known_is_listed(open_ledger, root, engine):
    known, other = open_ledger(engine), open_ledger()
    before = known.store.engine.newest_versions(["messages"])["messages"]
    queue = other.create_queue("jobs", {"Lanes": 1})
    for number in range(3):
        queue.send([str(number)])
    newest = other.store.engine.version("messages")
    DeltaTable(f"{root}/messages").create_checkpoint()
    for version in range(before, newest):
        (Path(root, "messages") / log_file(version)).unlink()
    assert known.store.engine.newest_versions(["messages"]) == {"messages": newest}


def test_no_table_is_loaded_for_it(open_ledger, monkeypatch):
    engine = open_ledger().store.engine
    monkeypatch.setattr(by_delta_rs, "opened", None)
    monkeypatch.setattr(DeltaRsEngine, "version", None)
    assert set(engine.newest_versions(["messages", "queues"])) == {"messages", "queues"}


def test_a_verb_that_need_not_read_a_table_does_without_where_that_cannot_be_read(
    open_ledger, root, monkeypatch, caplog
):
    """An acknowledgement is not refused for a note."""
    ledger = open_ledger()
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    queue.send(["a", "b"])
    claim = queue.receive(2, 600)

    def broken(engine, tables):
        raise StorageFailed(f"{root}/{LOG}", "no answer")

    monkeypatch.setattr(DeltaRsEngine, "newest_versions", broken)
    claim.delete()
    version = ledger.store.engine.version("visibility")
    assert "does not note the newest versions of messages, queues" in caplog.text
    bodies = ledger.sql("SELECT body, status FROM messages", version=version).to_pylist()
    assert {row["status"] for row in bodies} <= {"deleted"} and queue.counts().in_flight == 0
