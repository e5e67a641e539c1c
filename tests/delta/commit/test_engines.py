"""What both engines promise the store, on real tables; and that they promise the same."""

import itertools
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import compute as pc

from ledger.delta_log import by_spark, history
from ledger.delta_log.protocol import Conflict
from ledger.delta_log.storage import LOG, LocalFiles, log_file, table_files
from ledger.errors import LedgerDamaged
from ledger.rules import message_id as ids
from ledger.rules.message import Entry
from ledger.rules.visibility import Record
from ledger.store.delta.model.message_runs import Runs, positions
from ledger.store.delta.model.tables import RECEIPTS, VISIBILITY, Where
from ledger.store.delta.state.lane_records import Lanes
from ledger.store.delta.state.sent_messages import message_rows
from ledger.store.protocol import QueueRecord

QUEUE = QueueRecord("q-00000000", "q", {"Lanes": "4"}, {}, 0, 0)
SEGMENT = ids.segment("a" * 18, 0)
NOW = 1_700_000_000_000
HELD = Record("r" * 32, None, 1, NOW, NOW, NOW + 30_000)
CHANGED = HELD._replace(visible_at=NOW + 60_000)


class Decision:
    """What one writer decided from what it read: that a record lies on the ordinals from `first` to `last`."""

    def __init__(self, engine, record=HELD, first=0, last=9, lane=0, heads=True):
        self.engine, self.where = engine, Where(QUEUE.id, (lane,))
        self.snapshot = engine.load("visibility", self.where)
        lanes = Lanes(QUEUE.id, self.snapshot.rows)
        at = positions(lanes.register(pa.array([SEGMENT] * 2), [lane, lane]), [first, last])
        if record is None:
            edits = lanes.replace_runs(Runs.empty(), NOW)
        else:
            edits = lanes.edits(Runs(at[:1], at[1:], pa.array([lanes.code(record)]).to_numpy()), NOW)
        self.edits = edits if heads else edits.filter(pc.not_equal(edits["segment"], ""))

    def commit(self, metadata=None):
        return self.engine.merge(self.snapshot, "visibility", self.where, self.edits, metadata or {})


def recorded(engine, lane=0):
    """(first, last, deadline) of every run of a lane."""
    rows = engine.load("visibility", Where(QUEUE.id, (lane,))).rows
    runs = rows.filter(pc.not_equal(rows["segment"], "")).sort_by("first_seq").to_pylist()
    return [(run["first_seq"], run["last_seq"], round(run["visible_at"].timestamp() * 1_000)) for run in runs]


def test_a_merge_inserts_updates_and_deletes_in_one_commit(one, other):
    first = Decision(one).commit()
    assert recorded(other) == [(0, 9, HELD.visible_at)]
    assert Decision(one, CHANGED, 5, 9).commit() == first + 1
    assert recorded(other) == [(0, 4, HELD.visible_at), (5, 9, CHANGED.visible_at)]
    Decision(one, HELD, 5, 9).commit()
    assert recorded(one) == recorded(other) == [(0, 9, HELD.visible_at)]
    assert other.load("visibility", Where(QUEUE.id)).rows.schema.equals(VISIBILITY)


def test_a_decision_from_a_stale_snapshot_is_a_conflict(one, other):
    late = Decision(one)
    Decision(other, first=20, last=29).commit()
    with pytest.raises(Conflict):
        late.commit()
    Decision(other, CHANGED, 20, 29).commit()
    late = Decision(one)
    Decision(other, HELD, 20, 29).commit()
    with pytest.raises(Conflict):
        late.commit()
    assert recorded(other) == [(20, 29, HELD.visible_at)]


@pytest.mark.soak_variants("spark")
def test_reading_again_does_not_make_a_stale_decision_fresh(one, other):
    late = Decision(one)
    Decision(other).commit()
    one.load("visibility", Where(QUEUE.id))
    with pytest.raises(Conflict):
        late.commit()
    assert recorded(other) == [(0, 9, HELD.visible_at)]


def test_a_row_that_is_not_as_an_edit_supposes_is_a_conflict_even_without_the_head_row(one, other):
    inserts = Decision(one, heads=False)
    Decision(other).commit()
    with pytest.raises(Conflict):
        inserts.commit()
    updates, deletes = Decision(one, CHANGED, heads=False), Decision(one, None, heads=False)
    assert updates.edits["operation"].to_pylist() == ["update"]
    assert deletes.edits["operation"].to_pylist() == ["delete"]
    Decision(other, None).commit()
    for late in (updates, deletes):
        with pytest.raises(Conflict):
            late.commit()
    assert recorded(other) == []


def test_many_edits_are_merged_and_refused_as_few_are(engine_of, monkeypatch):
    monkeypatch.setattr(by_spark, "MOST_EDITS_OF_SMALL", 0)
    one, other = engine_of("spark"), engine_of("delta-rs")
    first = Decision(one).commit()
    late = Decision(one, HELD, 20, 29)
    assert Decision(one, CHANGED, 5, 9).commit() == first + 1
    with pytest.raises(Conflict):
        late.commit()
    assert recorded(other) == [(0, 4, HELD.visible_at), (5, 9, CHANGED.visible_at)]


def test_decisions_about_different_lanes_do_not_conflict(one, other):
    late = Decision(one, lane=1)
    version = Decision(other, lane=0).commit()
    assert late.commit() == version + 1
    assert recorded(other, 0) == recorded(other, 1) == [(0, 9, HELD.visible_at)]


def test_a_merge_says_what_it_did_in_the_history_of_every_engine(one, other):
    before = one.version("visibility")
    events = [{"messages": 3, "text": "'\"\\ü"}]
    said = {"operation": "0f", "verb": "receive", "queue": "jobs-1", "at": 7, "owner": "me", "events": events}
    version = Decision(one).commit(said)
    Decision(other, CHANGED).commit({"operation": "10"})
    for engine in (one, other):
        commits = engine.history("visibility", before)
        assert [commit.version for commit in commits] == [version, version + 1]
        assert [commit.metadata for commit in commits] == [said, {"operation": "10"}]
        assert commits[0].timestamp <= commits[1].timestamp
        assert engine.history("visibility", version + 1) == []
    assert [commit.version for commit in one.history("visibility", -1)] == list(range(version + 2))


def rows(first, bodies, lane=0, segment=SEGMENT, now=NOW, delays=()):
    delays = [*delays, *[0] * (len(bodies) - len(delays))]
    return message_rows(QUEUE, lane, segment, first, [Entry(*given) for given in zip(bodies, delays)], now)


def test_an_append_under_a_transaction_is_committed_once(one, other):
    name = "send/q/run-1"
    assert one.transaction_version("messages", name) is None
    version = one.append("messages", rows(0, ["a", "b"]), {"operation": "0f", "verb": "send"}, [(name, 1)])
    assert version == one.version("messages") == other.version("messages")
    for engine in (one, other):
        assert engine.transaction_version("messages", name) == 1
        with pytest.raises(Conflict):
            engine.append("messages", rows(0, ["a", "b"]), {}, [(name, 1)])
    assert other.messages(Where(QUEUE.id), ["body"])["body"].to_pylist() == ["a", "b"]
    assert [commit.metadata for commit in one.history("messages", version - 1)] == [{"operation": "0f", "verb": "send"}]


def test_messages_are_read_by_partition_and_ordinal(one, other):
    other.append("messages", rows(0, list("abcdef")), {})
    other.append("messages", rows(0, ["x"], lane=1, segment=ids.segment("b" * 18, 0)), {})
    read = one.messages(Where(QUEUE.id, (0,), (SEGMENT,)), ["seq", "body"], 1, 3).sort_by("seq")
    assert read.to_pydict() == {"seq": [1, 2, 3], "body": ["b", "c", "d"]}
    assert one.messages(Where("another-00000000"), ["body"]).num_rows == 0
    assert sorted(one.messages(Where(QUEUE.id, (0, 1)), ["body"])["body"].to_pylist()) == list("abcdefx")


def test_a_delete_removes_whole_partitions_and_spares_the_others(one, other):
    other.append("messages", rows(0, ["a"]), {})
    other.append("messages", rows(0, ["b"], lane=1, segment=ids.segment("b" * 18, 0)), {})
    one.delete("messages", Where(QUEUE.id, (0,), (SEGMENT,)).sql(), {"operation": "", "verb": "upkeep"})
    assert other.messages(Where(QUEUE.id), ["body"])["body"].to_pylist() == ["b"]
    assert other.history("messages", -1)[-1].metadata == {"operation": "", "verb": "upkeep"}


@pytest.mark.soak_variants("spark")
def test_the_greatest_value_of_a_column_is_known(one, other):
    assert one.greatest("receipts", "version") is None
    for version in (7, 41, 9):
        entry = {"queue": QUEUE.id, "day": NOW // 86_400_000, "version": version}
        columns = [pa.array([entry.get(field.name)]).cast(field.type) for field in day_as_days(RECEIPTS)]
        other.append("receipts", pa.table(columns, schema=day_as_days(RECEIPTS)).cast(RECEIPTS), {})
    assert one.greatest("receipts", "version") == 41


def day_as_days(schema):
    return pa.schema([pa.field(f.name, pa.int32() if f.name == "day" else f.type) for f in schema])


def by_place(table):
    return table.sort_by([("segment", "ascending"), ("first_seq", "ascending")]).to_pylist()


def test_the_engines_tell_the_same_about_the_files_of_messages(engine_of):
    spark, delta_rs = engine_of("spark"), engine_of("delta-rs")
    assert by_place(spark.files()[1]) == by_place(delta_rs.files()[1]) == []
    for number, writer in enumerate((spark, delta_rs, spark, delta_rs)):
        writer.append("messages", rows(3 * number, ["a", "b", "c"], now=NOW + 1_001 * number), {})
    version, found = spark.files()
    assert (version, by_place(found)) == (delta_rs.version("messages"), by_place(delta_rs.files()[1]))
    assert found["messages"].to_pylist() == [3] * 4
    for name in ("first_sent_at", "last_sent_at", "first_available_at", "last_available_at"):
        assert sorted(found[name].to_pylist()) == [NOW + 1_001 * number for number in range(4)], name


@pytest.mark.parametrize("compactor", ["delta-rs", "spark"])
def test_the_engines_tell_the_same_about_a_file_of_several_sends(engine_of, compactor):
    """Told apart from the other test: only a compacted file has messages of different instants."""
    spark, delta_rs = engine_of("spark"), engine_of("delta-rs")
    for number in range(3):
        delta_rs.append("messages", rows(number, ["a"], now=NOW + 1_001 * number, delays=[10 * number]), {})
    engine_of(compactor).compact(Where(QUEUE.id, (0,)))
    assert by_place(spark.files()[1]) == by_place(delta_rs.files()[1])
    (file,) = spark.files()[1].to_pylist()
    assert (file["messages"], file["first_seq"], file["last_seq"]) == (3, 0, 2)
    assert (file["first_sent_at"], file["last_sent_at"]) == (NOW, NOW + 2_002)
    assert (file["first_available_at"], file["last_available_at"]) == (NOW, NOW + 22_002)


def test_compaction_changes_no_row(one, other):
    for number in range(4):
        other.append("messages", rows(number, [f"body {number}"]), {})
    before = other.messages(Where(QUEUE.id), ["seq", "body", "sent_at"]).sort_by("seq")
    one.compact(Where(QUEUE.id, (0,)))
    assert other.messages(Where(QUEUE.id), ["seq", "body", "sent_at"]).sort_by("seq").equals(before)
    assert other.files()[1].num_rows == 1


def test_vacuum_within_the_retention_removes_nothing_that_an_older_version_needs(one, other):
    for number in range(3):
        other.append("messages", rows(number, ["a"]), {})
    files = set(other.files()[1]["first_seq"].to_pylist())
    one.compact(Where(QUEUE.id, (0,)))
    one.vacuum("messages")
    assert files == {0, 1, 2}
    assert other.messages(Where(QUEUE.id), ["seq"]).num_rows == 3


def test_verbs_of_both_engines_alternate_on_one_ledger(open_ledger, clock):
    ledgers = [open_ledger("delta-rs"), open_ledger("spark")]
    ledgers[1].create_queue("jobs", {"Lanes": 1})
    one, two = (ledger.queue("jobs") for ledger in ledgers)
    one.send([f"message {number}" for number in range(8)])
    claims = [queue.receive(2, visibility_timeout=60) for queue in (one, two, one, two)]
    assert [claim.count for claim in claims] == [2] * 4
    assert len({message.message_id for claim in claims for message in claim}) == 8
    assert [claim.version for claim in claims] == sorted({claim.version for claim in claims})
    assert two.claim(claims[0].receipt_id).delete().messages == 2
    assert one.claim(claims[1].receipt_id).release().messages == 2
    clock.advance(61)
    assert one.receive(None).count == two.counts().in_flight == 6
    assert one.counts() == two.counts()


@pytest.mark.parametrize("few", [0, 3, 1_000])
def test_each_commit_has_its_own_version_beside_others_who_commit(engine_of, few, monkeypatch):
    """delta-rs's own history has it too low by as many commits as were made since the table was loaded."""
    one, other = engine_of("delta-rs"), engine_of("delta-rs")
    monkeypatch.setattr(history, "MOST_BY_NAME", few)
    read, numbers = LocalFiles.read, iter(range(1, 9))
    first = one.mark("messages", {"operation": "", "number": 0}, ("app", 1))

    def beside(self, path):
        number = next(numbers, None) if path.startswith(LOG) and "messages" in str(self._place) else None
        if number is not None:
            with monkeypatch.context() as patch:
                patch.setattr(LocalFiles, "read", read)
                other.mark("messages", {"operation": "", "number": number}, ("app", 1 + number))
        return read(self, path)

    monkeypatch.setattr(LocalFiles, "read", beside)
    commits = one.history("messages", first - 1)
    assert [commit.version - first for commit in commits] == [commit.metadata["number"] for commit in commits]
    assert [commit.metadata["number"] for commit in commits] == list(range(len(commits))) and len(commits) > 1


def test_a_commit_that_a_listing_leaves_out_is_in_the_history(engine_of, monkeypatch):
    """A folder is listed while others commit: it may show the second of two commits, and not the first."""
    one, other = engine_of("delta-rs"), engine_of("delta-rs")
    last = one.version("messages")
    listed = LocalFiles.log_paths

    def without_the_first(self):
        for number in (1, 2):
            other.mark("messages", {"operation": "", "number": number}, ("app", number))
        return [path for path in listed(self) if path != log_file(last + 1)]

    monkeypatch.setattr(LocalFiles, "log_paths", without_the_first)
    assert [commit.metadata["number"] for commit in one.history("messages", last)] == [1, 2]


def test_commits_that_were_removed_with_old_ones_are_not_in_the_history(engine_of, root):
    engine = engine_of("delta-rs")
    for number in range(5):
        engine.mark("messages", {"operation": "", "number": number}, ("app", 1 + number))
    last = engine.version("messages")
    for version in range(last - 1):
        Path(root, "messages", log_file(version)).unlink()
    assert [commit.version for commit in engine.history("messages", 0)] == [last - 1, last]
    assert engine.history("messages", last) == []


def test_the_log_is_listed_beside_others_whose_commits_are_files_for_a_moment(tmp_path):
    (tmp_path / LOG).mkdir()
    for number in range(100, 1_000):
        (tmp_path / log_file(number)).touch()
    stored, over = table_files(str(tmp_path), None), threading.Event()

    def commit():
        for number in itertools.cycle(range(50)):
            if over.is_set():
                return
            stored.put_new(log_file(number), b"{}")
            stored.remove(log_file(number))

    threads = [threading.Thread(target=commit) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(100):
            assert all(file.at > 0 for file in stored.log_files())
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_an_entry_of_the_log_that_cannot_be_read_is_named(engine_of, root):
    engine = engine_of("delta-rs")
    version = engine.mark("messages", {"operation": "", "number": 1}, ("app", 1))
    Path(root, "messages", log_file(version)).write_text('{"commitInfo": {"timest')
    with pytest.raises(LedgerDamaged, match=log_file(version)):
        engine.history("messages", version - 1)
