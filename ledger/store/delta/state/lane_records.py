"""The recorded state of some lanes of a queue, as the store decides on it, and the edits that a decision amounts to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.store import RUNS
from ledger.store.delta.engines.protocol import EXPECTED_REVISION, OPERATION
from ledger.store.delta.model.run_algebra import ABSENT, Pieces, Runs
from ledger.store.delta.model.run_sets import Rows, difference, stored
from ledger.store.delta.model.tables import BITS, HEAD, INSTANT_COLUMNS, RECORD_COLUMNS, VISIBILITY, milliseconds
from ledger.store.delta.state.records import Records

#: The number of a segment that was not met.
UNKNOWN = -1
_WRITTEN = pa.array(["insert", "update"])
EDITS = pa.schema([*VISIBILITY, (OPERATION, pa.string()), (EXPECTED_REVISION, pa.int64())])


class Lanes:
    """Visibility rows on one axis. What is recorded about a run is `record(code)`; equal records share a code."""

    def __init__(self, queue: str, rows: pa.Table) -> None:
        self.queue = queue
        self.segments: list[str] = []
        self.lane_of: list[int] = []
        self._index: dict[str, int] = {}
        is_head = pc.equal(rows["segment"], HEAD)
        heads = rows.filter(is_head)
        by_revision = sorted(
            zip(*(heads[name].to_pylist() for name in ("revision", "first_seq", "lane"))), key=_as_head
        )
        #: By lane. Of several head rows, which upkeep makes one of, that with the highest revision counts; equal ones
        #: cannot be committed to.
        self.revisions = {lane: revision for revision, _, lane in by_revision}
        self._head_at = {lane: first_seq for _, first_seq, lane in by_revision}
        #: When the queue was last purged: it stands on the head row of lane 0, if that is loaded.
        purges = heads.filter(pc.and_(pc.equal(heads["lane"], 0), pc.is_valid(heads["deleted_at"])))
        self.purged_at = max(
            (at for at in milliseconds(purges["deleted_at"]).to_pylist() if at is not None), default=None
        )
        #: The time of the last commit that is seen here.
        self.latest = max(filter(None, milliseconds(heads["received_at"]).to_pylist()), default=0)
        rows = rows.filter(pc.invert(is_head))
        self.records = records = Records(rows)
        self.record, self.code, self.per_code = records.record, records.code, records.per_code
        known = Runs.from_arrow(rows, self.register(rows["segment"], rows["lane"]), records.codes)
        #: A table that could not be migrated has no such column, and gets no sets.
        self._has_bits = BITS in rows.column_names
        self._stored = stored(known, rows[BITS] if self._has_bits else None)
        #: Codes of messages that are left alone, whatever their deadline: nobody can tell whether they are written.
        self.undecided: set[int] = set()
        #: The runs as they are taken to be: those recorded, until `supersede`.
        self.runs = self._stored.runs

    def register(self, segments: Any, lanes: Any) -> np.ndarray:
        """The numbers of segments; those not met before get the next ones, in their `lanes`. Arrow columns or arrays of
        equal length."""
        encoded = pc.dictionary_encode(segments)
        encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        which = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        names = encoded.dictionary.to_pylist()
        some_lane = np.zeros(len(names), dtype=np.int64)
        some_lane[which] = np.asarray(lanes)
        numbers = [self._register_one(name, int(lane)) for name, lane in zip(names, some_lane)]
        number_of_each: np.ndarray = np.array(numbers, dtype=np.int64)[which]
        return number_of_each

    def look_up(self, segments: Any) -> np.ndarray:
        """The numbers of segments, UNKNOWN of those not met before. An Arrow column."""
        return np.array([self._index.get(name, UNKNOWN) for name in segments.to_pylist()], dtype=np.int64)

    def cut(self, rows: pa.Table) -> Pieces:
        """The messages of `rows` (RUNS), cut to what is taken to be recorded about them. Registers their segments."""
        asked = Runs.from_arrow(rows, self.register(rows["segment"], rows["lane"]), np.full(rows.num_rows, ABSENT))
        return self.runs.cut(asked.first, asked.last)

    def lanes(self, runs: Runs) -> np.ndarray:
        """The lane of each run."""
        lane_of_each: np.ndarray = np.array(self.lane_of, dtype=np.int64)[runs.segment]
        return lane_of_each

    def to_arrow(self, runs: Runs) -> list[pa.Array]:
        """Runs as the four columns lane, segment, first_seq, last_seq."""
        names = pa.array(self.segments, pa.string()).take(pa.array(runs.segment))
        seq = runs.first_seq
        return [pa.array(self.lanes(runs), pa.int32()), names, pa.array(seq), pa.array(seq + runs.lengths - 1)]

    def knows(self, segment: str) -> bool:
        """Whether the segment was met before."""
        return segment in self._index

    def lane_of_segment(self, segment: str) -> int:
        """The lane of a segment that was met before."""
        return self.lane_of[self._index[segment]]

    def supersede(self, replacement: Runs) -> None:
        """Takes `replacement` for what is recorded from now on; it will be with the next edits."""
        self.runs = self.runs.paint(replacement)

    def edits(self, replacement: Runs, now: int) -> pa.Table:
        """What a MERGE must insert, update and delete to make the recorded runs `runs` with `replacement` on top.

        Every lane that changes gets its head row counted up, which is what concurrent decisions about it trip over.
        Without a change: no rows.
        """
        return self.replacing(self.runs.paint(replacement), now)

    def replacing(self, new: Runs, now: int) -> pa.Table:
        """The edits that turn the recorded runs into `new`; see `run_sets.difference` for why they are no more than
        those, and one for each key. A lane without edits is not counted up: a decision that changes nothing in a lane
        disturbs nobody there."""
        change = difference(self._stored, new, sets=self._has_bits)
        if not len(change.written) and not len(change.gone):
            return EDITS.empty_table()
        upserts, deletes = self._rows(change.written), self._rows(change.gone)
        upserts = upserts.append_column(OPERATION, _WRITTEN.take(pa.array((~change.is_new).astype(np.int8))))
        deletes = deletes.append_column(OPERATION, pa.repeat("delete", deletes.num_rows))
        rows = pa.concat_tables([upserts, deletes])
        changed = np.unique(rows["lane"]).tolist()
        rows = rows.append_column(EXPECTED_REVISION, pa.nulls(rows.num_rows, pa.int64()))
        return pa.concat_tables([self.heads(changed, now), rows])

    def heads(self, lanes: Iterable[int], now: int) -> pa.Table:
        """The edits that count up the head rows of some lanes, and note the time of their last commit."""
        known = self.revisions.get
        rows = [
            head(self.queue, lane, self._head_at.get(lane, -1), known(lane), now, None if lane else self.purged_at)
            for lane in lanes
        ]
        return pa.Table.from_pylist(rows, schema=EDITS)

    def _register_one(self, segment: str, lane: int) -> int:
        if segment not in self._index:
            self._index[segment] = len(self.segments)
            self.segments.append(segment)
            self.lane_of.append(lane)
        return self._index[segment]

    def _rows(self, runs: Rows) -> pa.Table:
        used, inverse = np.unique(runs.code, return_inverse=True)
        inverse = pa.array(inverse, pa.int64())
        records = [self.record(code) for code in used.tolist()]
        columns: dict[str, Any] = {"queue": pa.repeat(self.queue, len(runs))}
        columns |= dict(zip(RUNS.names, self.to_arrow(runs)))
        for field, name in enumerate(RECORD_COLUMNS):
            values: list[Any] = [record[field] for record in records]
            kind = VISIBILITY.field(name).type
            column = instant_column(values) if name in INSTANT_COLUMNS else pa.array(values, kind)
            nothing = column.null_count == len(column)
            columns[name] = pa.nulls(len(runs), kind) if nothing else column.take(inverse)
        columns |= {BITS: runs.bits(), "revision": pa.nulls(len(runs), pa.int64())}
        return pa.table({name: columns[name] for name in VISIBILITY.names}, schema=VISIBILITY)


def _as_head(row: tuple[int, int, int]) -> tuple[int, int]:
    """What counts of a lane's head rows comes last."""
    revision, first_seq, _ = row
    return revision, -first_seq


def head(queue: str, lane: int, at: int, known: int | None, now: int, purged_at: int | None = None) -> dict[str, Any]:
    """The edit that makes a lane's head row, at the ordinal `at` below 0, or counts it up from the revision `known`."""
    return {
        "queue": queue,
        "lane": lane,
        "segment": HEAD,
        "first_seq": at,
        "last_seq": at,
        "received_at": now * 1_000,
        "deleted_at": None if purged_at is None else purged_at * 1_000,
        "revision": (known or 0) + 1,
        EXPECTED_REVISION: known,
        OPERATION: "insert" if known is None else "update",
    }


def instant_column(milliseconds: Iterable[int | None]) -> pa.Array:
    """Milliseconds as a column of instants."""
    return pa.array([None if m is None else m * 1_000 for m in milliseconds], pa.int64()).cast(
        pa.timestamp("us", "UTC")
    )
