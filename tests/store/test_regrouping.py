"""Which files of a lane a small commit writes anew: the same rows as one file of all, in few files, of which the large
ones are left alone."""

from datetime import datetime, timezone

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import Ledger
from ledger.delta_log import rewrite
from ledger.delta_log.protocol import EXPECTED_REVISION, OPERATION
from ledger.delta_log.rewrite import plan_rewrite
from ledger.store.delta.model.tables import HEAD, TABLES, VISIBILITY

ENOUGH = 4
LANE = {"queue": "work-1", "lane": 0}
TABLE = TABLES["visibility"]
EDITS = pa.schema([*VISIBILITY, (OPERATION, pa.string()), (EXPECTED_REVISION, pa.int64())])
THEN = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.fixture(autouse=True)
def enough():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rewrite, "ENOUGH", ENOUGH)
        yield


def row(seq, state="held", count=1):
    ended = {"deleted": {"deleted_at": THEN}, "moved": {"moved_to": "dead"}}.get(state, {})
    return {**LANE, "segment": "s", "first_seq": seq, "last_seq": seq, "receive_count": count, **ended}


def purged_head(revision):
    return {**LANE, "segment": HEAD, "first_seq": -1, "last_seq": -1, "deleted_at": THEN, "revision": revision}


def edits(operations):
    return pa.Table.from_pylist([{**row, OPERATION: operation} for operation, row in operations], EDITS)


class Lane:
    """A lane's files, as one commit after the other leaves them."""

    def __init__(self):
        self.files, self.made, self.rewritten = {}, 0, 0

    def commit(self, operations):
        gone, written = plan_rewrite(self.files, edits(operations), TABLE)
        kept = {path: rows for path, rows in self.files.items() if path not in gone}
        for rows in written:
            self.made += 1
            self.rewritten += rows.num_rows
            kept[f"file {self.made}"] = rows
        self.files = kept

    def rows(self):
        return sorted(pa.concat_tables(self.files.values()).to_pylist(), key=lambda one: one["first_seq"])


COMMITS = st.lists(
    st.dictionaries(st.integers(0, 40), st.sampled_from(["held", "deleted", "moved", "gone"]), min_size=1, max_size=8),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(commits=COMMITS)
def test_the_rows_are_those_that_edits_leave_of_a_single_file(commits):
    lane, expected = Lane(), {}
    for count, wanted in enumerate(commits):
        operations = []
        for seq, state in wanted.items():
            if state == "gone":
                operations += [("delete", row(seq))] * (seq in expected)
                expected.pop(seq, None)
            else:
                operations.append(("update" if seq in expected else "insert", row(seq, state, count)))
                expected[seq] = operations[-1][1]
        lane.commit(operations)
        whole = pa.Table.from_pylist([expected[seq] for seq in sorted(expected)], VISIBILITY)
        assert (lane.rows() if lane.files else []) == whole.to_pylist()
        assert all(rows.num_rows for rows in lane.files.values())


def test_what_is_done_with_is_not_written_with_every_commit_and_its_files_are_few():
    lane, claims = Lane(), 300
    lane.commit([("insert", purged_head(1)), *(("insert", row(seq)) for seq in range(-12, -2))])
    for seq in range(claims):
        lane.commit([("insert", row(seq)), ("update", purged_head(2 * seq + 2))])
        lane.commit([("update", row(seq, "deleted")), ("update", purged_head(2 * seq + 3))])
        # What is in flight, the head row, and less than is enough for a file.
        hot = [rows for rows in lane.files.values() if HEAD in rows["segment"].to_pylist()]
        assert len(hot) == 1 and hot[0].num_rows < 11 + ENOUGH
    assert len(lane.rows()) == claims + 11
    assert len(lane.files) <= 10
    # Each row comes along in the small file for a moment, and then into ever larger ones.
    assert lane.rewritten < claims * (2 * (11 + ENOUGH) + 10)


def test_files_are_few_whatever_comes_after_what():
    """Each a little smaller than the one before."""
    lane, first = Lane(), 0
    for size in range(60, ENOUGH, -1):
        lane.commit([("insert", row(first + seq, "deleted")) for seq in range(size)])
        first += size
    assert len(lane.files) < 12 and len(lane.rows()) == first


def test_what_is_large_is_left_alone_so_that_no_commit_is_of_all_rows(monkeypatch):
    monkeypatch.setattr(rewrite, "FULL", 40)
    lane = Lane()
    for seq in range(400):
        before = lane.rewritten
        lane.commit([("insert", row(seq, "deleted"))])
        assert lane.rewritten - before <= 40 + ENOUGH
    assert len(lane.files) < 400 / 40 + 24 and len(lane.rows()) == 400


@pytest.mark.parametrize("state", ["deleted", "moved"])
def test_a_row_that_changes_in_a_file_of_those_done_with_is_written_with_those_in_flight(state):
    lane = Lane()
    lane.commit([("insert", purged_head(1)), *(("insert", row(seq, state)) for seq in range(20))])
    assert sorted(rows.num_rows for rows in lane.files.values()) == [1, 20]
    lane.commit([("update", purged_head(2)), ("update", row(7, "held", 2))])
    held = [rows for rows in lane.files.values() if pc.max(rows["receive_count"]).as_py() == 2]
    assert [rows.num_rows for rows in held] == [2] and len(lane.rows()) == 21


def test_a_lane_of_acknowledged_claims_writes_what_is_in_flight(tmp_path, monkeypatch):
    """As the log tells it: files of acknowledged claims stay while others are claimed and acknowledged."""
    queue = Ledger.open(tmp_path, engine="delta-rs").create_queue("work", {"Lanes": 1})
    queue.send([f"message {number}" for number in range(60)])
    first, *others = (queue.receive(2) for _ in range(20))
    for claim in (first, *others):
        claim.delete()
    claim = queue.receive(2)
    table = DeltaTable(str(tmp_path / "visibility"))
    before = set(table.file_uris())
    claim.extend(600)
    table.update_incremental()
    rows_of = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    (new,) = [one["num_records"] for one in rows_of if not any(uri.endswith(one["path"]) for uri in before)]
    assert len(before) > 1 and new < 1 + 1 + ENOUGH
    assert queue.counts().deleted == 40
    assert queue.restore(first.receipt_id) == 2 and queue.counts().deleted == 38
