"""Lanes: visibility rows read onto the axis, and edits that, applied to the old rows, give the painted ones."""

import random

import numpy as np
import pyarrow as pa
import pytest

from ledger.delta_log.protocol import EXPECTED_REVISION, OPERATION
from ledger.rules.visibility import UNTOUCHED, Record
from ledger.store.delta.model.message_runs import ABSENT, Runs, positions
from ledger.store.delta.model.tables import HEAD, VISIBILITY
from ledger.store.delta.state.lane_records import UNKNOWN, Lanes

RECORDS = [
    Record("r1", None, 1, 1_000, 1_000, 31_000),
    Record("r2", "job", 2, 1_000, 5_000, 35_000, released_at=5_500),
    Record(visible_at=9_000),
    Record("r1", None, 1, 1_000, 1_000, 31_000, deleted_at=7_000),
    Record("r1", None, 1, 1_000, 1_000, 31_000, moved_to="q2-00000000"),
    Record(receive_count=3, first_received_at=1_000, origin_queue="q1-00000000", enqueued_at=8_000),
    Record(receive_count=3, first_received_at=1_000, origin_queue="q1-00000000"),
    Record("r3", None, 1, 1_000, 1_000, 31_000, writing_to="s3://table", write_id="w"),
]
NOW = 1_700_000_000_000
SEGMENTS = {"s0": 0, "s1": 0, "s2": 2}


def applied(rows: pa.Table, edits: pa.Table) -> pa.Table:
    """What a MERGE by (lane, segment, first_seq) leaves; strict about what an operation demands."""
    found = {(row["lane"], row["segment"], row["first_seq"]): row for row in rows.to_pylist()}
    for edit in edits.to_pylist():
        key = edit["lane"], edit["segment"], edit["first_seq"]
        operation, expected = edit.pop(OPERATION), edit.pop(EXPECTED_REVISION)
        assert (key in found) == (operation != "insert"), (operation, key)
        if expected is not None:
            assert found[key]["revision"] == expected
        if operation == "delete":
            del found[key]
        else:
            found[key] = edit
    return pa.Table.from_pylist(list(found.values()), schema=VISIBILITY)


def content(lanes: Lanes) -> dict:
    """(lane, segment, seq) to record, one entry per message."""
    found = {}
    columns = [column.to_pylist() for column in lanes.to_arrow(lanes.runs)]
    for lane, segment, first, last, code in zip(*columns, lanes.runs.code.tolist()):
        found.update({(lane, segment, seq): lanes.record(code) for seq in range(first, last + 1)})
    return found


def random_runs(lanes: Lanes, random: random.Random, most: int) -> Runs:
    rows = []
    for segment, lane in SEGMENTS.items():
        at = int(positions(lanes.register(pa.array([segment]), [lane]), [0])[0])
        for _ in range(random.randrange(most)):
            first = at + random.randrange(4)
            last = first + random.randrange(6)
            rows.append((first, last, lanes.code(random.choice(RECORDS))))
            at = last + 1
    rows.sort()
    return Runs(*(np.array([row[i] for row in rows], dtype=np.int64) for i in range(3)))


@pytest.mark.parametrize("seed", range(40))
def test_edits_applied_to_the_old_rows_give_the_painted_ones(seed):
    dice = random.Random(seed)
    rows, expected = VISIBILITY.empty_table(), {}
    for _ in range(6):
        lanes = Lanes("q", rows)
        assert content(lanes) == expected
        replacement = random_runs(lanes, dice, 4)
        # Runs that are laid on top are joined, as the store does it.
        columns = lanes.to_arrow(replacement)
        for lane, segment, first, last, code in zip(*(c.to_pylist() for c in columns), replacement.code.tolist()):
            expected.update({(lane, segment, seq): lanes.record(code) for seq in range(first, last + 1)})
        rows = applied(rows, lanes.edits(replacement, NOW))
    assert content(Lanes("q", rows)) == expected


@pytest.mark.parametrize("seed", range(10))
def test_every_lane_that_changes_has_its_head_counted_up_once_and_no_other(seed):
    dice = random.Random(seed)
    rows = VISIBILITY.empty_table()
    for _ in range(5):
        lanes = Lanes("q", rows)
        edits = lanes.edits(random_runs(lanes, dice, 3), NOW)
        heads = [e for e in edits.to_pylist() if e["segment"] == HEAD]
        others = {e["lane"] for e in edits.to_pylist() if e["segment"] != HEAD}
        assert sorted(h["lane"] for h in heads) == sorted(others)
        for head in heads:
            before = lanes.heads.revisions.get(head["lane"])
            assert head["revision"] == (before or 0) + 1 and head[EXPECTED_REVISION] == before
            assert head[OPERATION] == ("insert" if before is None else "update")
            assert round(head["received_at"].timestamp() * 1_000) == NOW
        rows = applied(rows, edits)


def test_what_changes_nothing_has_no_edits():
    lanes = Lanes("q", VISIBILITY.empty_table())
    assert lanes.edits(Runs.empty(), NOW).num_rows == 0
    at = positions(lanes.register(pa.array(["s0"]), [0]), [0])
    replacement = Runs(at, at + 9, np.array([lanes.code(RECORDS[0])]))
    again = Lanes("q", applied(VISIBILITY.empty_table(), lanes.edits(replacement, NOW)))
    assert again.edits(again.runs, NOW).num_rows == 0


def test_a_run_that_shrinks_writes_as_few_rows_as_it_can():
    lanes = Lanes("q", VISIBILITY.empty_table())
    at = positions(lanes.register(pa.array(["s0"]), [0]), [0])
    replacement = Runs(at, at + 999_999, np.array([lanes.code(RECORDS[0])]))
    rows = applied(VISIBILITY.empty_table(), lanes.edits(replacement, NOW))
    assert rows.num_rows == 2
    lanes = Lanes("q", rows)
    at = positions(lanes.register(pa.array(["s0"]), [0]), [500])
    edits = lanes.edits(Runs(at, at, np.array([lanes.code(RECORDS[3])])), NOW)
    operations = [(e["first_seq"], e["last_seq"], e[OPERATION]) for e in edits.to_pylist() if e["segment"] != HEAD]
    assert operations == [(0, 499, "update"), (500, 500, "insert"), (501, 999_999, "insert")]


def test_the_latest_commit_of_the_lanes_is_known_and_that_of_no_commit_is_the_beginning():
    lanes = Lanes("q", VISIBILITY.empty_table())
    assert lanes.latest == 0
    rows = VISIBILITY.empty_table()
    for lane, at in ((0, NOW), (1, NOW + 7), (2, NOW - 7)):
        rows = applied(rows, Lanes("q", rows).heads.edits([lane], at))
    assert Lanes("q", rows).latest == NOW + 7
    assert Lanes("q", rows).heads.revisions == {0: 1, 1: 1, 2: 1}
    assert len(Lanes("q", rows).runs) == 0


def test_heads_of_lanes_that_are_only_met_are_counted_up_too():
    rows = applied(VISIBILITY.empty_table(), Lanes("q", VISIBILITY.empty_table()).heads.edits([0], NOW))
    lanes = Lanes("q", applied(rows, Lanes("q", rows).heads.edits([0, 3], NOW + 1)))
    assert lanes.heads.revisions == {0: 2, 3: 1}
    assert lanes.heads.edits([], NOW).num_rows == 0


def test_equal_records_share_a_code():
    lanes = Lanes("q", VISIBILITY.empty_table())
    assert lanes.code(RECORDS[0]) == lanes.code(Record(*RECORDS[0])) != lanes.code(RECORDS[1])
    assert lanes.record(ABSENT) == UNTOUCHED


def test_rows_with_equal_records_are_read_as_one_code_whatever_is_null():
    lanes = Lanes("q", VISIBILITY.empty_table())
    base = positions(lanes.register(pa.array(["s0"] * 5), [0] * 5), [0, 2, 4, 6, 8])
    records = [RECORDS[0], RECORDS[2], RECORDS[0], RECORDS[3], RECORDS[2]]
    replacement = Runs(base, base, np.array([lanes.code(record) for record in records]))
    read = Lanes("q", applied(VISIBILITY.empty_table(), lanes.edits(replacement, NOW)))
    assert [read.record(code) for code in read.runs.code.tolist()] == records
    assert len(read.records.all()) == 3


def test_a_rule_is_asked_once_per_distinct_record():
    lanes, asked = Lanes("q", VISIBILITY.empty_table()), []
    codes = np.array([lanes.code(RECORDS[n % 2]) for n in range(1_000)] + [ABSENT])
    counts = lanes.per_code(codes, lambda r: asked.append(r) or r.receive_count, np.int64)
    assert counts.tolist() == [1, 2] * 500 + [0]
    assert len(asked) == 3


def test_what_is_superseded_counts_from_now_on_and_is_written_with_the_next_edits():
    lanes = Lanes("q", VISIBILITY.empty_table())
    at = positions(lanes.register(pa.array(["s0"]), [0]), [0])
    rows = applied(VISIBILITY.empty_table(), lanes.edits(Runs(at, at + 9, np.array([lanes.code(RECORDS[0])])), NOW))
    lanes = Lanes("q", rows)
    at = positions(lanes.register(pa.array(["s0"]), [0]), [4])
    lanes.supersede(Runs(at, at, np.array([lanes.code(RECORDS[3])])))
    decided = content(lanes)
    assert decided[0, "s0", 4] == RECORDS[3] and decided[0, "s0", 5] == RECORDS[0]
    replacement = Runs(at + 1, at + 1, np.array([lanes.code(RECORDS[1])]))
    written = content(Lanes("q", applied(rows, lanes.edits(replacement, NOW))))
    assert written == {**decided, (0, "s0", 5): RECORDS[1]}


def test_lanes_know_the_segments_that_they_met_and_a_look_up_meets_none():
    lanes = Lanes("q", VISIBILITY.empty_table())
    assert lanes.look_up(pa.array(["s0"])).tolist() == [UNKNOWN] and lanes.segments == []
    assert lanes.register(pa.array(["s1", "s0", "s1"]), [2, 3, 2]).tolist() == [0, 1, 0]
    assert lanes.look_up(pa.array(["s0", "s9", "s1"])).tolist() == [1, UNKNOWN, 0]
    assert lanes.knows("s0") and not lanes.knows("s9")
    assert lanes.lane_of_segment("s0") == 3


def test_what_new_runs_leave_out_is_deleted_and_its_lanes_are_counted_up():
    lanes = Lanes("q", VISIBILITY.empty_table())
    at = positions(lanes.register(pa.array(["s0", "s2"]), [0, 2]), [0, 0])
    both = Runs(at, at + 9, np.array([lanes.code(RECORDS[0]), lanes.code(RECORDS[1])]))
    rows = applied(VISIBILITY.empty_table(), lanes.edits(both, NOW))
    lanes = Lanes("q", rows)
    left = lanes.runs.where(slice(1))
    after = Lanes("q", applied(rows, lanes.replace_runs(left, NOW)))
    assert set(content(after)) == {(0, "s0", seq) for seq in range(10)}
    assert after.heads.revisions == {0: 1, 2: 2}, "nothing but what is deleted changes"


def test_edits_are_of_their_queue():
    lanes = Lanes("q", VISIBILITY.empty_table())
    at = positions(lanes.register(pa.array(["s0"]), [0]), [0])
    edits = lanes.edits(Runs(at, at, np.array([lanes.code(RECORDS[0])])), NOW)
    assert edits["queue"].to_pylist() == ["q", "q"]
