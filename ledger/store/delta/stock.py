"""Which messages exist: the runs of ordinals in the files of `messages`, from the log without reading them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.store.delta.engine import Engine, Where, tuple_of


@dataclass(frozen=True)
class Stock:
    """The messages of one queue as runs. Milliseconds, of each run's file: first `sent_at`, last `available_at`."""

    lane: np.ndarray
    segment: pa.Array
    first_seq: np.ndarray
    last_seq: np.ndarray
    sent_at: np.ndarray
    available_at: np.ndarray

    def lane_of(self, segment: str) -> int | None:
        """The lane of a segment, None when no message of it exists."""
        at = pc.index(self.segment, segment).as_py()
        return None if at < 0 else int(self.lane[at])

    def last_of(self, segment: str) -> int:
        """The highest ordinal of a segment."""
        return int(self.last_seq[self._runs_of(segment)].max())

    def sent_from(self, segment: str) -> int:
        """When the first message of a segment was sent."""
        return int(self.sent_at[self._runs_of(segment)].min())

    def _runs_of(self, segment: str) -> np.ndarray:
        return pc.equal(self.segment, segment).to_numpy(zero_copy_only=False)


class Stocks:
    """Stocks by queue, kept until the version of `messages` moves on."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kept: tuple[int, pa.Table, dict[str, Stock]] | None = None

    def of(self, queue: str) -> Stock:
        """The messages that exist in a queue, by its id."""
        kept = self._kept
        if kept is None or kept[0] != self._engine.version("messages"):
            kept = self._kept = (*self._engine.files(), {})
        if queue not in kept[2]:
            kept[2][queue] = self._read(queue, kept[1].filter(pc.equal(kept[1]["queue"], queue)))
        return kept[2][queue]

    def _read(self, queue: str, files: pa.Table) -> Stock:
        span = pc.add(pc.subtract(files["last_seq"], files["first_seq"]), 1)
        broken = files["segment"].filter(pc.invert(pc.fill_null(pc.equal(span, files["messages"]), False)))
        runs = files.select(_COLUMNS)
        if len(broken):
            inside = pc.is_in(runs["segment"], broken.combine_chunks())
            runs = pa.concat_tables([runs.filter(pc.invert(inside)), self._inside(queue, tuple_of(broken.to_pylist()))])
        return Stock(
            runs["lane"].to_numpy().astype(np.int64),
            runs["segment"].combine_chunks(),
            runs["first_seq"].to_numpy(),
            runs["last_seq"].to_numpy(),
            runs["sent_at"].to_numpy(),
            runs["available_at"].to_numpy(),
        )

    def _inside(self, queue: str, segments: tuple[str, ...]) -> pa.Table:
        """The runs of segments with a file that has gaps: their ordinals have to be read."""
        rows = self._engine.messages(
            Where(queue, None, segments), ["lane", "segment", "seq", "sent_at", "available_at"]
        )
        rows = rows.sort_by([("segment", "ascending"), ("seq", "ascending")])
        seq = rows["seq"].to_numpy()
        segment = rows["segment"].combine_chunks().dictionary_encode().indices.to_numpy()
        starts = np.flatnonzero(np.concatenate([[True], (np.diff(seq) != 1) | (np.diff(segment) != 0)]))
        ends = np.concatenate([starts[1:] - 1, [len(seq) - 1]])
        sent_at = np.minimum.reduceat(_milliseconds(rows["sent_at"]), starts)
        available_at = np.maximum.reduceat(_milliseconds(rows["available_at"]), starts)
        first = rows.take(pa.array(starts))
        runs = [first["lane"], first["segment"], *map(pa.array, (seq[starts], seq[ends], sent_at, available_at))]
        return pa.table(runs, names=_COLUMNS)


_COLUMNS = ["lane", "segment", "first_seq", "last_seq", "sent_at", "available_at"]


def _milliseconds(column: pa.ChunkedArray) -> np.ndarray:
    return column.cast(pa.int64()).to_numpy() // 1_000
