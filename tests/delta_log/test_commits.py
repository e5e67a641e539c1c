"""Each kind of commit that the client makes says what an entry written by hand says, and all readers read the same."""

import json
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from ledger.delta_log import log
from ledger.delta_log.history import list_checkpoints
from ledger.delta_log.local_commits import write_checkpoint
from ledger.delta_log.protocol import Conflict, StagedFile
from ledger.delta_log.rewrite import ENOUGH
from ledger.delta_log.storage import LocalFiles, log_file
from ledger.errors import StorageFailed
from ledger.rules.location import recorded
from tests.delta_log import by_hand as hand
from tests.delta_log.readers import require_same, told_of
from tests.delta_log.tables import (
    LOT,
    NOON,
    PLACE,
    THINGS,
    VALUES,
    Places,
    copied,
    edits_of,
    merge,
    opened,
    rows_of,
    spec_of,
    thing,
)

A, B = {"lot": 1, "place": "a"}, {"lot": 2, "place": "b b/ü"}
#: Their values as the log has them.
OF_A, OF_B = {"lot": "1", "place": "a"}, {"lot": "2", "place": "b b/ü"}
IN_A, IN_B = Places(THINGS.partitions, ((1, "a"),)), Places(THINGS.partitions, ((2, "b b/ü"),))
BOTH = Places(THINGS.partitions, (*IN_A.named, *IN_B.named))
ROWS = [*({**A, **thing(number)} for number in range(10)), *({**B, **thing(number)} for number in range(5))]
#: The columns that a file has.
IN_FILES = pa.schema([("id", pa.int64()), *VALUES])


class Written:
    """A copy of a table, to which commits are written by hand."""

    def __init__(self, location):
        self.location = copied(location, "by_hand")
        self.version = hand.versions_of(self.location)[-1]

    def file(self, name, partition, rows, *, bounds=None, is_change=True):
        """Writes a file, and returns its `add`."""
        path = Path(self.location, name)
        pq.write_table(pa.Table.from_pylist(rows, IN_FILES), path)
        stats = {"numRecords": len(rows), **(bounds or {})}
        said = {"path": name, "partitionValues": partition, "size": path.stat().st_size, "modificationTime": 1}
        return {"add": {**said, "dataChange": is_change, "stats": json.dumps(stats)}}

    def commit(self, operation, *actions):
        self.version += 1
        said = {"commitInfo": {"timestamp": 1, "operation": operation}}
        hand.write_entry(self.location, self.version, [said, *actions])


def removed(added, *, is_change=True):
    """The `remove` of a live file."""
    said = {name: added[name] for name in ("path", "partitionValues", "size")}
    return {"remove": {**said, "deletionTimestamp": 1, "dataChange": is_change, "extendedFileMetadata": True}}


def shape(location, version):
    """What an entry says, without what may differ: names of new files, times, and what it says of itself."""
    state, lines = hand.replay(location, version), []
    for action in hand.entry(location, version):
        ((kind, said),) = action.items()
        said = {name: value for name, value in said.items() if name not in ("modificationTime", "deletionTimestamp")}
        if kind == "commitInfo":
            said = {"operation": said["operation"]}
        if kind == "add":
            rows = hand.rows_of_file(location, state, said)
            said = {
                **said,
                "path": "",
                "size": 0,
                "rows": told_of(rows.to_pylist()),
                "stats": json.loads(said["stats"]),
            }
        if kind == "txn":
            said = {name: said[name] for name in ("appId", "version")}
        present = {name: value for name, value in said.items() if value is not None}
        lines.append(json.dumps({kind: present}, sort_keys=True, default=repr))
    return sorted(lines)


def require_as_by_hand(location, written, *readers):
    """The newest entries say the same, and so do all readers of both tables; no statement of an engine made it."""
    assert hand.versions_of(location)[-1] == written.version
    assert shape(location, written.version) == shape(written.location, written.version)
    rows = require_same(location, *readers)
    assert rows == require_same(written.location, *readers)
    return rows


def bounds_of(rows):
    """The statistics of THINGS, in plain Python."""
    told = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    for name in THINGS.statistics:
        values = [row[name] for row in rows if row[name] is not None]
        shown = {"at": lambda one: f"{one:%Y-%m-%dT%H:%M:%S}.{one.microsecond // 1_000:03}Z", "day": str}
        for bound, pick in (("minValues", min), ("maxValues", max)):
            told[bound][name] = shown.get(name, lambda one: one)(pick(values))
        told["nullCount"][name] = len(rows) - len(values)
    return told


def by_path(location):
    return sorted(hand.replay(location).files.values(), key=lambda one: one["path"])


@pytest.fixture
def filled(tables):
    """With ROWS."""
    tables.add_rows("things", rows_of(THINGS, ROWS), {})
    return tables


def test_an_append_adds_a_file_to_each_partition_with_its_statistics_and_its_transaction(tables, location):
    written = Written(location)
    tables.add_rows("things", rows_of(THINGS, ROWS), {"verb": "send"}, [("app", 7)])
    written.commit(
        "WRITE",
        {"txn": {"appId": "app", "version": 7}},
        *(
            written.file(name, partition, rows, bounds=bounds_of(rows))
            for name, partition, rows in (("one", OF_A, ROWS[:10]), ("other", OF_B, ROWS[10:]))
        ),
    )
    assert require_as_by_hand(location, written) == told_of(ROWS)
    assert opened(Path(location).parent, THINGS).transaction_version("things", "app") == 7


def test_an_edit_puts_one_file_in_the_place_of_the_small_ones_of_its_partition(filled, location):
    filled.add_rows("things", rows_of(THINGS, [{**A, **thing(100)}]), {})
    written, before = Written(location), [one for one in by_path(location) if one["partitionValues"] == OF_A]
    new, gone = {**A, **thing(3, revision=2)}, ROWS[4]
    merge(filled, THINGS, IN_A, [("update", new), ("delete", gone), ("insert", {**A, **thing(200)})])
    after = [row for row in ROWS[:10] if row["id"] not in (3, 4)] + [new, {**A, **thing(100)}, {**A, **thing(200)}]
    assert len(before) == 2
    written.commit("MERGE", *map(removed, before), written.file("new", OF_A, after))
    assert require_as_by_hand(location, written) == told_of([*after, *ROWS[10:]])


def test_an_edit_of_the_last_row_leaves_a_partition_without_files(filled, location):
    written = Written(location)
    (of_b,) = (one for one in by_path(location) if one["partitionValues"] == OF_B)
    merge(filled, THINGS, IN_B, [("delete", row) for row in ROWS[10:]])
    written.commit("MERGE", removed(of_b))
    assert require_as_by_hand(location, written) == told_of(ROWS[:10])
    assert filled.load("things", IN_B).rows.num_rows == 0


def test_rows_that_have_ended_are_put_apart_once_they_are_enough_and_left_alone_then(tables, location):
    open_rows = [{**A, **thing(number)} for number in range(10)]
    ended = [{**A, **thing(1_000 + number, ended=NOON)} for number in range(ENOUGH)]
    tables.add_rows("things", rows_of(THINGS, [*open_rows, *ended]), {})
    written, before = Written(location), by_path(location)
    new = {**A, **thing(3, revision=2)}
    merge(tables, THINGS, IN_A, [("update", new)])
    after = [*(row for row in open_rows if row["id"] != 3), new]
    written.commit(
        "MERGE",
        *map(removed, before),
        written.file("open", OF_A, after),
        written.file("ended", OF_A, ended),
    )
    require_as_by_hand(location, written)
    (small,) = (one for one in by_path(location) if json.loads(one["stats"])["numRecords"] == 10)
    (small_by_hand,) = (one for one in by_path(written.location) if one["path"] == "open")
    newer = {**A, **thing(3, revision=3)}
    merge(tables, THINGS, IN_A, [("update", newer)])
    written.commit("MERGE", removed(small_by_hand), written.file("open_2", OF_A, [*after[:-1], newer]))
    assert small["path"] not in hand.replay(location).files
    assert {one["partitionValues"]["lot"] for one in by_path(location)} == {"1"} and len(by_path(location)) == 2
    assert require_same(location) == require_same(written.location) == told_of([*after[:-1], newer, *ended])


def test_a_join_puts_one_file_in_the_place_of_many_and_changes_no_row(filled, location):
    for number in (20, 21):
        filled.add_rows("things", rows_of(THINGS, [{**A, **thing(number)}]), {})
    written, before = Written(location), [one for one in by_path(location) if one["partitionValues"] == OF_A]
    assert filled.join_files("things", BOTH)
    joined = [*ROWS[:10], *({**A, **thing(number)} for number in (20, 21))]
    written.commit(
        "OPTIMIZE",
        *(removed(one, is_change=False) for one in before),
        written.file("joined", OF_A, joined, bounds=bounds_of(joined), is_change=False),
    )
    assert len(before) == 3 and require_as_by_hand(location, written) == told_of([*joined, *ROWS[10:]])
    assert not filled.join_files("things", BOTH)


def test_a_join_that_finds_a_row_twice_says_that_rows_change_and_keeps_each_once(filled, location):
    twice, other = ROWS[3], {**A, **thing(4, revision=9), "at": NOON + timedelta(days=1)}
    filled.add_rows("things", rows_of(THINGS, [twice, other]), {})
    assert filled.join_files("things", BOTH)
    moved = {**other, "place": "a-beside", "id": 0}
    assert require_same(location) == told_of([*ROWS, moved])
    said = [one for action in hand.entry(location, hand.versions_of(location)[-1]) for one in action.values()]
    assert {one["dataChange"] for one in said if "dataChange" in one} == {True}


def test_further_properties_are_one_metadata_action_that_leaves_all_else(filled, location):
    written, known = Written(location), hand.replay(location).metadata
    properties = {**known["configuration"], "delta.logRetentionDuration": "interval 3 days"}
    filled.configure("things", {"delta.logRetentionDuration": "interval 3 days"}, {})
    written.commit("SET TBLPROPERTIES", {"metaData": {**known, "configuration": properties}})
    (said,) = (one["metaData"] for one in hand.entry(location, written.version) if "metaData" in one)
    assert {**dict.fromkeys(known), **said} == {**known, "configuration": properties}
    assert require_same(location) == require_same(written.location) == told_of(ROWS)
    assert filled.layout("things").properties == properties


def test_a_mark_commits_transactions_and_no_rows(filled, location):
    written = Written(location)
    filled.mark("things", {}, ("app", 1), ("other", 5))
    written.commit("WRITE", *({"txn": {"appId": name, "version": one}} for name, one in (("app", 1), ("other", 5))))
    assert require_as_by_hand(location, written) == told_of(ROWS)
    assert hand.replay(location).transactions == {"app": 1, "other": 5}
    with pytest.raises(Conflict):
        filled.mark("things", {}, ("app", 1))


def test_a_delete_of_a_partition_removes_its_files_and_one_of_rows_writes_the_others_anew(filled, location):
    written = Written(location)
    of_a, of_b = by_path(location)
    filled.delete("things", "lot = 2", {})
    written.commit("DELETE", removed(of_b))
    assert require_as_by_hand(location, written) == told_of(ROWS[:10])
    filled.delete("things", "lot = 1 AND id < 4", {})
    written.commit("DELETE", removed(of_a), written.file("left", OF_A, ROWS[4:10]))
    assert require_same(location) == require_same(written.location) == told_of(ROWS[4:10])


def test_files_that_lie_below_a_table_are_published_with_what_is_said_of_them(filled, location):
    written, more = Written(location), [{**A, **thing(number)} for number in range(50, 55)]
    said = written.file("staged", OF_A, more, bounds=bounds_of(more))
    written.commit("WRITE", {"txn": {"appId": "staged", "version": 1}}, said)
    Path(location, "staged").write_bytes(Path(written.location, "staged").read_bytes())
    file = StagedFile("staged", said["add"]["size"], OF_A, 1, said["add"]["stats"])
    filled.publish("things", [file], {}, ("staged", 1))
    assert require_as_by_hand(location, written) == told_of([*ROWS, *more])


def test_a_checkpoint_says_what_the_entries_say(filled, location):
    filled.configure("things", {"delta.checkpointInterval": "4"}, {})
    filled.mark("things", {}, ("app", 3))
    merge(filled, THINGS, IN_A, [("update", {**A, **thing(3, revision=2)})])
    filled.delete("things", "lot = 2", {})
    merge(filled, THINGS, IN_B, [("insert", {**B, **thing(7)})])
    (version,) = hand.checkpoints_of(location)
    expected = require_same(location)
    for old in range(version):
        hand.entry_path(location, old).unlink()
    assert told_of(hand.rows_of(location).to_pylist()) == expected
    again = opened(Path(location).parent, THINGS)
    assert told_of(again.load("things", BOTH).rows.to_pylist()) == expected
    assert again.transaction_version("things", "app") == 3


def test_vacuum_removes_what_no_version_needs_and_no_row(filled, location):
    merge(filled, THINGS, IN_A, [("update", {**A, **thing(3, revision=2)})])
    filled.configure("things", {"delta.deletedFileRetentionDuration": "interval 0 hours"}, {})
    expected = require_same(location)
    before = {*Path(location).rglob("*.parquet")}
    filled.vacuum("things")
    gone = before - {*Path(location).rglob("*.parquet")}
    assert len(gone) == 1 and require_same(location) == expected


SHAPES = {
    "no partitions": (spec_of(), [{}]),
    "a text": (spec_of([PLACE]), [{"place": "%41 %2F+=&?#.."}, {"place": "__HIVE_DEFAULT_PARTITION__x"}]),
    "a bool": (spec_of([pa.field("is_new", pa.bool_())]), [{"is_new": True}, {"is_new": False}]),
    "a date": (spec_of([pa.field("on", pa.date32())]), [{"on": NOON.date()}]),
    "numbers": (spec_of([pa.field("n", pa.int64()), LOT]), [{"n": -(2**63), "lot": -1}, {"n": 0, "lot": 0}]),
    "a long text": (spec_of([PLACE]), [{"place": "ü" * 3_000}]),
}


@pytest.mark.parametrize("name", SHAPES)
def test_partitions_of_every_type_are_written_as_readers_read_them_and_found_again(tmp_path, name):
    spec, partitions = SHAPES[name]
    tables = opened(tmp_path, spec)
    rows = [{**one, **thing(number)} for number in range(4) for one in partitions]
    where = Places(spec.partitions, tuple(tuple(one.values()) for one in partitions))
    tables.add_rows("things", rows_of(spec, rows), {})
    changed = [{**row, "revision": 2, "text": "changed"} for row in rows[: len(partitions)]]
    merge(tables, spec, where, [("update", row) for row in changed])
    assert require_same(f"{tmp_path}/things") == told_of([*changed, *rows[len(partitions) :]])
    for again in (tables, opened(tmp_path, spec)):
        assert told_of(again.load("things", where).rows.to_pylist()) == told_of([*changed, *rows[len(partitions) :]])


@pytest.mark.parametrize("value", [None, ""])
def test_a_row_without_a_partition_is_refused_and_nothing_is_committed(filled, location, value):
    odd, version = {**A, **thing(77), "place": value}, hand.versions_of(location)[-1]
    with pytest.raises(ValueError, match="in place, which the table is partitioned by"):
        filled.add_rows("things", rows_of(THINGS, [odd]), {})
    with pytest.raises(ValueError, match="in place, which the table is partitioned by"):
        merge(filled, THINGS, Places(THINGS.partitions), [("insert", odd)])
    assert hand.versions_of(location)[-1] == version


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"partitions": ("share",)}, "cannot be partitioned by share, which is double"),
        ({"partitions": ("amount",)}, "cannot be partitioned by amount"),
        ({"partitions": ("at",)}, "cannot be partitioned by at"),
        ({"statistics": ("amount",)}, "cannot be asked for statistics of amount"),
        ({"statistics": ("blob",)}, "cannot be asked for statistics of blob"),
        ({"partitions": ("lot",)}, "must be a text"),
    ],
)
def test_columns_that_the_log_has_no_certain_text_for_are_refused(columns, message):
    with pytest.raises(ValueError, match=message):
        replace(THINGS, **columns)


def test_the_greatest_instant_is_not_cut_so_that_no_reader_passes_its_file_by(tables, location):
    at = NOON + timedelta(microseconds=1_234_567)
    tables.add_rows("things", rows_of(THINGS, [{**A, **thing(1, at=at)}]), {})
    (added,) = by_path(location)
    assert json.loads(added["stats"])["maxValues"]["at"] == "2026-01-02T12:00:01.234567Z"
    assert Path(location, log_file(1)).exists() and require_same(location)


@pytest.mark.parametrize("small", [1 << 20, 0], ids=["in memory", "through delta-rs"])
def test_bounds_of_instants_are_milliseconds_both_of_them_included(tables, monkeypatch, small):
    monkeypatch.setattr(log, "SMALL", small)
    for number in range(4):
        rows = [{**A, **thing(number, at=NOON + timedelta(milliseconds=number))}]
        tables.add_rows("things", rows_of(THINGS, rows), {})
    noon = round(NOON.timestamp() * 1_000)

    def found(**bounds):
        rows = tables.rows("things", Places(THINGS.partitions), ["id"], **bounds)
        return sorted(rows["id"].to_pylist())

    assert found(between={"at": (noon + 1, noon + 2)}) == [1, 2]
    assert found(between={"at": (noon + 1, noon + 3), "id": (0, 2)}, above={"at": noon + 1}) == [2]


@pytest.mark.parametrize("path", ["Zürich.parquet", "a*b.parquet"])
def test_a_statement_that_would_leave_the_files_that_it_removes_is_refused(filled, location, path):
    """See docs/explanation/delta-rs-faults.md: the path is one that delta-rs encodes in another way."""
    (of_a, _), written = by_path(location), Written(location)
    state, newest = hand.replay(location), hand.versions_of(location)[-1]
    rows = hand.rows_of_file(location, state, of_a).select(IN_FILES.names).to_pylist()
    added = written.file("moved", OF_A, rows)
    Path(written.location, "moved").rename(Path(location, unquote(path)))
    added["add"]["path"] = path
    hand.write_entry(location, newest + 1, [{"commitInfo": {"timestamp": 1}}, removed(of_a), added])
    assert require_same(location) == told_of(ROWS)
    with pytest.raises(StorageFailed, match="which delta-rs cannot remove"):
        filled.delete("things", "lot = 1", {})
    with pytest.raises(StorageFailed, match="which delta-rs cannot remove"):
        merge(filled, THINGS, IN_A, [("delete", ROWS[0])])
    assert hand.versions_of(location)[-1] == newest + 1
    filled.delete("things", "lot = 2", {})
    assert require_same(location) == told_of(ROWS[:10])


def test_two_that_take_out_the_same_rows_in_one_moment_are_one_commit(tmp_path, monkeypatch):
    """Both entries had the same bytes, and both writers took the one that was there for theirs."""
    first, second = opened(tmp_path, THINGS), opened(tmp_path, THINGS)
    merge(first, THINGS, IN_A, [("insert", {**A, **thing(1)})])
    monkeypatch.setattr("ledger.delta_log.log.time.time", lambda: 1_800_000_000.0)
    snapshots = [tables.load(THINGS.name, IN_A) for tables in (first, second)]
    edits = edits_of(THINGS, [("delete", {**A, **thing(1)})])
    first.merge(snapshots[0], THINGS.name, IN_A, edits, {"verb": "drop"})
    with pytest.raises(Conflict):
        second.merge(snapshots[1], THINGS.name, IN_A, edits, {"verb": "drop"})


def test_a_checkpoint_that_lacks_a_part_is_none(tables, location):
    """A writer that was killed between the parts: no checkpoint was made any more."""
    for number in range(3):
        merge(tables, THINGS, IN_A, [("insert", {**A, **thing(number)})])
    DeltaTable(location).create_checkpoint()
    (whole,) = Path(location, "_delta_log").glob("*.checkpoint.parquet")
    merge(tables, THINGS, IN_A, [("insert", {**A, **thing(3)})])
    newest = DeltaTable(location).version()
    part = whole.with_name(f"{newest:020}.checkpoint.0000000001.0000000002.parquet")
    shutil.copy(whole, part)
    paths = [f"_delta_log/{file.name}" for file in whole.parent.iterdir()]
    assert list_checkpoints(paths) == [newest - 1]
    assert list_checkpoints([*paths, f"_delta_log/{part.name.replace('1.0', '2.0')}"]) == [newest - 1, newest]
    merge(tables, THINGS, IN_A, [("insert", {**A, **thing(4)})])
    write_checkpoint(LocalFiles(recorded(location)), newest + 1)
    assert (whole.parent / f"{newest + 1:020}.checkpoint.parquet").exists()
    assert sorted(row["id"] for row in DeltaTable(location).to_pyarrow_table().to_pylist()) == [0, 1, 2, 3, 4]


def test_a_checkpoint_leaves_no_checksum_of_the_hint_before(tables, location):
    merge(tables, THINGS, IN_A, [("insert", {**A, **thing(1)})])
    checksum = Path(location, "_delta_log", "._last_checkpoint.crc")
    checksum.write_bytes(b"of before")
    write_checkpoint(LocalFiles(recorded(location)), DeltaTable(location).version())
    assert not checksum.exists()


def test_a_checkpoint_without_bytes_stops_none_after_it(tables, location):
    merge(tables, THINGS, IN_A, [("insert", {**A, **thing(1)})])
    Path(location, "_delta_log", f"{DeltaTable(location).version():020}.checkpoint.parquet").write_bytes(b"")
    merge(tables, THINGS, IN_A, [("insert", {**A, **thing(2)})])
    newest = DeltaTable(location).version()
    write_checkpoint(LocalFiles(recorded(location)), newest)
    assert Path(location, "_delta_log", f"{newest:020}.checkpoint.parquet").stat().st_size
