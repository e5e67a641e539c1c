"""The head rows of a queue's lanes: each counts the commits to its lane.

An edit of a head row names the count that the decision read. If another commit has counted since, the commit conflicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from ledger.delta_log.protocol import EXPECTED_REVISION, OPERATION
from ledger.delta_log.values import milliseconds
from ledger.store.delta.model.tables import HEAD, VISIBILITY, instant_column

EDITS = pa.schema([*VISIBILITY, (OPERATION, pa.string()), (EXPECTED_REVISION, pa.int64())])
NO_EDITS = EDITS.empty_table()


def edit_rows(count: int, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Return `count` edits (rows of a MERGE) with these columns, and null in all others."""
    arrays = [columns[one.name] if one.name in columns else pa.nulls(count, one.type) for one in EDITS]
    return pa.Table.from_arrays(arrays, schema=EDITS)


class _Edit(NamedTuple):
    operation: str
    lane: int
    at: int
    expected: int | None
    revision: int


class Heads:
    def __init__(self, queue: str, rows: pa.Table) -> None:
        self._queue = queue
        lanes, first, revision = (rows[name].to_pylist() for name in ("lane", "first_seq", "revision"))
        received, deleted = (milliseconds(rows[name]).to_pylist() for name in ("received_at", "deleted_at"))
        highest_last = sorted(zip(revision, (-at for at in first), lanes))
        #: The count by lane. Of several head rows, the highest count holds, until upkeep makes one of them. If two have
        #: one ordinal, commits to the lane fail until then.
        self.revisions = {lane: revision for revision, _, lane in highest_last}
        self._at = {lane: -below for _, below, lane in highest_last}
        self._all = list(zip(lanes, first))
        #: When the queue was last purged.
        self.purged_at = max((at for lane, at in zip(lanes, deleted) if not lane and at is not None), default=None)
        #: The time of the last commit: to each lane, and to any lane.
        self.times = {lane: at for at, lane in sorted((at, lane) for lane, at in zip(lanes, received) if at)}
        self.latest = max(self.times.values(), default=0)

    def edits(self, lanes: Iterable[int], now: int) -> pa.Table:
        """Return the edits that count up the head rows of some lanes at the time `now`."""
        return self._rows([self._counted_up(lane) for lane in lanes], now)

    def one_more(self, lane: int, now: int) -> pa.Table:
        """Return the edit that adds a head row to a lane, above the highest revision and below the lowest ordinal."""
        lowest = min(at for one, at in self._all if one == lane)
        return self._rows([_Edit("insert", lane, lowest - 1, None, self.revisions[lane] + 1)], now)

    def _counted_up(self, lane: int) -> _Edit:
        revision = self.revisions.get(lane)
        return _Edit(
            "insert" if revision is None else "update", lane, self._at.get(lane, -1), revision, (revision or 0) + 1
        )

    def _rows(self, edits: Sequence[_Edit], now: int) -> pa.Table:
        if not edits:
            return NO_EDITS
        count, (operations, lanes, at, expected, revisions) = len(edits), zip(*edits)
        at = pa.array(at, pa.int64())
        columns = {
            "queue": pa.repeat(self._queue, count),
            "lane": pa.array(lanes, pa.int32()),
            "segment": pa.repeat(HEAD, count),
            "first_seq": at,
            "last_seq": at,
            "received_at": instant_column([now] * count),
            "revision": pa.array(revisions, pa.int64()),
            OPERATION: pa.array(operations),
            EXPECTED_REVISION: pa.array(expected, pa.int64()),
        }
        if self.purged_at is not None and 0 in lanes:
            columns["deleted_at"] = instant_column(None if lane else self.purged_at for lane in lanes)
        return edit_rows(count, columns)
