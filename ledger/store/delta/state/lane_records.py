"""The recorded state of a queue's lanes, and the edits (rows of a MERGE into `visibility`) that change it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.delta_log.protocol import OPERATION
from ledger.store.delta.model.run_algebra import ABSENT, Pieces, Runs
from ledger.store.delta.model.run_sets import SetRows, difference, stored
from ledger.store.delta.model.tables import BITS, HEAD, INSTANT_COLUMNS, RECORD_COLUMNS, VISIBILITY, instant_column
from ledger.store.delta.state.head_rows import NO_EDITS, Heads, edit_rows
from ledger.store.delta.state.records import Records
from ledger.store.protocol import RUNS

UNKNOWN = -1
_WRITTEN = pa.array(["update", "insert"])


class Lanes:
    """Rows of `visibility` of one queue, as runs on one line of numbers, the axis (see `run_algebra`)."""

    def __init__(self, queue: str, rows: pa.Table) -> None:
        self.queue = queue
        self.segments: list[str] = []
        self.lane_of: list[int] = []
        self._index: dict[str, int] = {}
        is_head = pc.equal(rows["segment"], HEAD)
        self.heads = Heads(queue, rows.filter(is_head))
        #: The time of the last commit that these rows show (0: none).
        self.latest = self.heads.latest
        rows = rows.filter(pc.invert(is_head))
        self.records = records = Records(rows)
        self.record, self.code, self.per_code = records.record, records.code, records.per_code
        recorded = Runs.from_arrow(rows, self.register(rows["segment"], rows["lane"]), records.codes)
        self._stored = stored(recorded, rows[BITS])
        #: Codes of records in doubt whose output table gave no answer.
        self.undecided: set[int] = set()
        #: The recorded runs, with replacements on top.
        self.runs = self._stored.runs

    def register(self, segments: Any, lanes: Any) -> np.ndarray:
        """Return the number of each segment in an Arrow column. A new segment gets the next number, and its lane in
        `lanes`."""
        names, which = _each_once(segments)
        lane_of_name = np.zeros(len(names), dtype=np.int64)
        lane_of_name[which] = np.asarray(lanes)
        numbers = [self._register_one(name, int(lane)) for name, lane in zip(names, lane_of_name)]
        number_of_each: np.ndarray = np.array(numbers, dtype=np.int64)[which]
        return number_of_each

    def look_up(self, segments: Any) -> np.ndarray:
        """Return the number of each segment in an Arrow column, or UNKNOWN."""
        names, which = _each_once(segments)
        number_of_each: np.ndarray = np.array([self._index.get(name, UNKNOWN) for name in names], dtype=np.int64)[which]
        return number_of_each

    def cut(self, rows: pa.Table) -> Pieces:
        """Cut the messages of `rows` (RUNS) at the borders of the current runs. Register their segments."""
        runs = Runs.from_arrow(rows, self.register(rows["segment"], rows["lane"]), np.full(rows.num_rows, ABSENT))
        return self.runs.cut(runs.first, runs.last)

    def lanes(self, runs: Runs) -> np.ndarray:
        lane_of_each: np.ndarray = np.array(self.lane_of, dtype=np.int64)[runs.segment]
        return lane_of_each

    def to_arrow(self, runs: Runs) -> list[pa.Array]:
        segment = runs.segment
        if len(runs) < len(self.segments):
            names = pa.array([self.segments[number] for number in segment.tolist()], pa.string())
        else:
            names = pa.array(self.segments, pa.string()).take(pa.array(segment))
        seq = runs.first_seq
        return [pa.array(self.lanes(runs), pa.int32()), names, pa.array(seq), pa.array(seq + runs.lengths - 1)]

    def knows(self, segment: str) -> bool:
        return segment in self._index

    def lane_of_segment(self, segment: str) -> int:
        return self.lane_of[self._index[segment]]

    def supersede(self, replacement: Runs) -> None:
        self.runs = self.runs.paint(replacement)

    def edits(self, replacement: Runs, now: int) -> pa.Table:
        """Return the edits that turn the recorded runs into `runs` with `replacement` on top (see `replacing`)."""
        return self.replacing(self.runs.paint(replacement), now)

    def replacing(self, new: Runs, now: int) -> pa.Table:
        """Return the edits that turn the recorded runs into `new`. No two edits have one key (`run_sets.difference`).

        The edits count up the head row of each lane that changes, so that concurrent decisions about the lane conflict.
        """
        change = difference(self._stored, new)
        if not len(change.written) and not len(change.gone):
            return NO_EDITS
        changed = np.unique(np.concatenate([self.lanes(change.written), self.lanes(change.gone)])).tolist()
        rows = [self._written(change.written, change.is_new), self._gone(change.gone)]
        return pa.concat_tables([self.heads.edits(changed, now), *rows])

    def _register_one(self, segment: str, lane: int) -> int:
        if segment not in self._index:
            self._index[segment] = len(self.segments)
            self.segments.append(segment)
            self.lane_of.append(lane)
        return self._index[segment]

    def _written(self, runs: SetRows, is_new: np.ndarray) -> pa.Table:
        used, inverse = np.unique(runs.code, return_inverse=True)
        inverse = pa.array(inverse, pa.int64())
        columns = self._places(runs, _WRITTEN.take(pa.array(is_new.astype(np.int8))))
        for name, values in zip(RECORD_COLUMNS, zip(*map(self.record, used.tolist()))):
            if any(value is not None for value in values):
                is_instant = name in INSTANT_COLUMNS
                column = instant_column(values) if is_instant else pa.array(values, VISIBILITY.field(name).type)
                columns[name] = column.take(inverse)
        if runs.size.any():
            columns[BITS] = runs.bits()
        return edit_rows(len(runs), columns)

    def _gone(self, runs: SetRows) -> pa.Table:
        return edit_rows(len(runs), self._places(runs, pa.repeat("delete", len(runs)))) if len(runs) else NO_EDITS

    def _places(self, runs: Runs, operations: pa.Array) -> dict[str, pa.Array]:
        places = dict(zip(RUNS.names, self.to_arrow(runs)))
        return {"queue": pa.repeat(self.queue, len(runs)), **places, OPERATION: operations}


def _each_once(segments: Any) -> tuple[list[str], np.ndarray]:
    """Return the distinct names in an Arrow column, and the number of each row's name."""
    encoded = pc.dictionary_encode(segments)
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
