"""The files of a table, followed commit by commit: the same as delta-rs tells, whoever commits and whatever it says."""

import json
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ledger import Ledger
from ledger.delta_log.data_files import FileStatistics
from ledger.delta_log.delta_rs_commits import LISTED_AFTER, LoadedTables
from ledger.delta_log.replay import DeltaRsReplay, LogFollower, read_files
from ledger.delta_log.storage import LocalFiles, log_file, table_files
from ledger.errors import LedgerDamaged
from ledger.store.delta.model.tables import SEGMENT_FILES, TABLES, Where
from tests.delta.commit.test_engines import CHANGED, QUEUE, Decision, recorded


@pytest.fixture
def location(root):
    return f"{root}/visibility"


@pytest.fixture
def now():
    """Seconds that have passed."""
    return [0.0]


@pytest.fixture
def opened():
    """Tables that delta-rs had to load."""
    return []


@pytest.fixture
def followed(location, now, opened):
    stored = table_files(location, None)

    def open_one():
        opened.append(DeltaTable(location))
        return opened[-1]

    loaded = LoadedTables(open_one, stored, lambda: now[0])
    replay = DeltaRsReplay(TABLES["visibility"], loaded, stored)
    return LogFollower(TABLES["visibility"], replay, stored, lambda: now[0])


def told(location):
    """What delta-rs tells."""
    return read_files(DeltaTable(location), TABLES["visibility"])


def test_what_was_told_of_transactions_goes_with_a_listing(followed):
    before = followed.newest()
    assert before.transactions.last("app", before.version, lambda name: (before.version, 5)).committed == 5
    assert followed.newest().transactions.last("app", before.version, lambda name: (before.version, 6)).committed == 5
    listed = followed.newest(listing=True)
    assert listed.transactions.last("app", before.version, lambda name: (before.version, 6)).committed == 6


def test_every_kind_of_commit_is_followed_without_loading_the_table_again(followed, engine_of, location, opened):
    engine = engine_of("delta-rs")
    assert followed.newest() == told(location)
    for lane in (0, 1, 2):
        Decision(engine, lane=lane).commit()
    assert followed.newest() == told(location)
    Decision(engine, CHANGED, lane=1).commit()
    engine.delete("visibility", f"queue = '{QUEUE.id}' AND lane = 2", {})
    DeltaTable(location).optimize.compact(partition_filters=[("queue", "=", QUEUE.id)])
    assert followed.newest() == told(location)
    assert len(opened) == 1


def test_what_spark_commits_is_followed(followed, engine_of, location, opened):
    spark = engine_of("spark")
    followed.newest()
    Decision(spark, lane=0).commit()
    Decision(spark, CHANGED, lane=0).commit()
    assert followed.newest() == told(location)
    assert len(opened) == 1
    assert recorded(engine_of("delta-rs")) == recorded(spark)


@pytest.mark.parametrize(
    "said",
    [
        {"metaData": {"id": "x"}},
        {"add": {"path": "a%20b", "partitionValues": {"queue": "q", "lane": "0"}, "size": 1}},
        {"add": {"path": "a", "partitionValues": {"queue": "q", "lane": "0"}, "size": 1, "deletionVector": {"a": 1}}},
        {"remove": {"path": "nobody/knows/it", "partitionValues": {"queue": "q", "lane": "0"}, "size": 1}},
        {"remove": {"path": "without/partition"}},
        {"add": {}, "remove": {}},
    ],
    ids=lambda said: json.dumps(said)[:60],
)
def test_of_a_commit_that_says_more_delta_rs_is_asked(followed, location, said, monkeypatch):
    known, listed = followed.newest(), []
    monkeypatch.setattr(LogFollower, "_listed", lambda self, before: listed.append(1) or self._seen)
    entry = "\n".join(map(json.dumps, [{"commitInfo": {}}, said])).encode()
    monkeypatch.setattr(LocalFiles, "stamp", lambda self, path: ())
    monkeypatch.setattr(LocalFiles, "read", lambda self, path: None if listed else entry)
    assert followed.newest() == known and len(listed) == 1


@pytest.mark.parametrize(
    "entry", [b"", b"\n", bytes(100), b'{"add": {"pa', b"[]\n", b'{"txn": {"appId": "a", "version": 1}}\n']
)
def test_an_entry_that_is_no_whole_commit_is_damage(followed, location, entry, monkeypatch):
    known = followed.newest()
    monkeypatch.setattr(LocalFiles, "stamp", lambda self, path: ())
    monkeypatch.setattr(LocalFiles, "read", lambda self, path: entry)
    with pytest.raises(LedgerDamaged, match=f"Version {known.version + 1} of the table visibility"):
        followed.newest()


def test_an_entry_whose_bytes_come_a_moment_later_is_followed(followed, location, engine_of, monkeypatch):
    known, read = followed.newest(), LocalFiles.read
    Decision(engine_of("delta-rs"), lane=0).commit()
    empty = iter([b"", b""])
    monkeypatch.setattr(LocalFiles, "read", lambda self, path: next(empty, read(self, path)))
    assert followed.newest().version == known.version + 1


def test_a_table_that_was_altered_is_not_followed_any_more(followed, location, engine_of):
    assert followed.newest() is not None
    DeltaTable(location).alter.add_constraint({"positive": "last_seq > -2"})
    assert followed.newest() is None
    Decision(engine_of("delta-rs"), lane=0).commit()
    assert len(recorded(engine_of("delta-rs"))) == 1


def test_who_stood_still_sees_what_is_newer_than_the_next_version_that_upkeep_removed(
    followed, now, location, engine_of
):
    known = followed.newest()
    for lane in range(3):
        Decision(engine_of("delta-rs"), lane=lane).commit()
    DeltaTable(location).create_checkpoint()
    Path(location, log_file(known.version + 1)).unlink()
    assert followed.newest() == known, "by its name there is no next one"
    now[0] += LISTED_AFTER + 1
    assert followed.newest() == told(location)


def test_what_is_known_is_not_listed_for_nothing(followed, now, opened):
    known = followed.newest()
    now[0] += LISTED_AFTER + 1
    assert followed.newest() == known and len(opened) == 2
    now[0] += LISTED_AFTER / 2
    assert followed.newest() == known and len(opened) == 2


def test_a_snapshot_stays_what_it_is_while_others_commit(engine_of):
    engine = engine_of("delta-rs")
    Decision(engine, lane=0).commit()
    snapshot = engine.load("visibility", Where(QUEUE.id))
    before = snapshot.rows.to_pylist()
    Decision(engine, CHANGED, lane=0).commit()
    assert snapshot.rows.to_pylist() == before


def test_threads_that_follow_one_log_agree(followed, engine_of, location):
    engine, found = engine_of("delta-rs"), []

    def look():
        for _ in range(50):
            found.append(followed.newest().version)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for last in range(10, 20):
        Decision(engine, CHANGED, last=last).commit() if last == 10 else Decision(
            engine, first=2 * last, last=2 * last
        ).commit()
    for thread in threads:
        thread.join()
    assert followed.newest() == told(location)
    assert max(found) <= followed.newest().version


def told_of_messages(engine, location):
    """The files of `messages`, as the engine follows them, and as delta-rs lists them, in one order."""
    order = [(name, "ascending") for name in ("queue", "lane", "segment", "first_seq", "last_seq")]
    listed = FileStatistics.listed(
        pa.table(DeltaTable(location).get_add_actions(flatten=True)), TABLES["messages"]
    ).table
    return engine.files()[1].sort_by(order).to_pylist(), listed.sort_by(order).to_pylist()


def test_what_the_log_tells_of_each_file_is_followed_too_whoever_commits(spark, root, engine_of, monkeypatch):
    queue, location = Ledger.open(root, engine="delta-rs", owner="a").create_queue("work"), f"{root}/messages"
    others = Ledger.open(root, spark, engine="spark", owner="b").queue("work")
    engine, loads = engine_of("delta-rs"), []
    queue.send("first")
    engine.files()
    # Opens the table, which is followed from then on.
    others.send("second")
    monkeypatch.setattr(LogFollower, "_listed", lambda self, before: loads.append(self))
    for number in range(FileStatistics.MOST_PIECES + 1):
        queue.send(f"{number}", delay_seconds=number)
    others.send(["one", "two"])
    DeltaTable(location).optimize.compact()
    followed, listed = told_of_messages(engine, location)
    assert followed == listed and not loads
    assert sum(one["messages"] for one in followed) == FileStatistics.MOST_PIECES + 5
    assert max(one["last_available_at"] - one["last_sent_at"] for one in followed) > 0


def test_a_file_that_a_commit_tells_of_once_more_is_one_file(root, engine_of):
    """As ANALYZE TABLE does, which gives files new statistics: told of twice, its messages would be there twice."""
    Ledger.open(root, engine="delta-rs", owner="a").create_queue("work").send(["one", "two"])
    engine, location = engine_of("delta-rs"), f"{root}/messages"
    before, version = told_of_messages(engine, location)[0], DeltaTable(location).version()
    known = Path(location, log_file(version)).read_text().splitlines()
    again = [line for line in known if "add" in json.loads(line)]
    Path(location, log_file(version + 1)).write_text("\n".join(['{"commitInfo": {}}', *again]))
    assert told_of_messages(engine, location) == (before, before)
    assert engine.version("messages") == version + 1


def test_a_file_without_statistics_may_hold_anything():
    add = {"path": "a.parquet", "partitionValues": {"queue": "q", "lane": "3", "segment": "s"}, "size": 1}
    empty = FileStatistics.listed(pa.table({"path": []}), TABLES["messages"])
    for stats in (None, "{}", '{"numRecords": null, "minValues": null}'):
        told = empty.after([{**add, "stats": stats}], []).table.to_pylist()[0]
        assert told == dict.fromkeys(SEGMENT_FILES.names) | {"queue": "q", "lane": 3, "segment": "s", "bytes": 1}


@pytest.mark.parametrize(
    "stats",
    [
        "{",
        "[1]",
        '{"minValues": {"sent_at": "yesterday"}}',
        '{"maxValues": {"seq": "x"}}',
        '{"maxValues": {"seq": 9223372036854775808}}',
        '{"numRecords": []}',
    ],
)
def test_statistics_that_cannot_be_read_are_delta_rs_to_judge(stats):
    values = {"queue": "q", "lane": "0", "segment": "s"}
    with pytest.raises((AttributeError, KeyError, TypeError, ValueError)):
        FileStatistics.listed(pa.table({"path": []}), TABLES["messages"]).after(
            [{"path": "a", "partitionValues": values, "size": 1, "stats": stats}], []
        )


@pytest.mark.parametrize(
    "shown", ["2026-01-01T00:00:00.001Z", "2026-01-01T00:00:00.001999+00:00", "2026-01-01T00:00:00.001"]
)
def test_an_instant_of_a_log_is_read_down_to_the_millisecond(shown):
    values = {"queue": "q", "lane": "0", "segment": "s"}
    stats = json.dumps({"minValues": {"sent_at": shown}})
    known = FileStatistics.listed(pa.table({"path": []}), TABLES["messages"])
    told = known.after([{"path": "a", "partitionValues": values, "size": 1, "stats": stats}], []).table
    assert told["first_sent_at"].to_pylist() == [1_767_225_600_001]
