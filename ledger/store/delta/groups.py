"""The message groups of FIFO queues: every message's group and place in the order, read once per version."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.rules.state import Status
from ledger.store import QueueRecord
from ledger.store.delta.axis import Pieces, Runs
from ledger.store.delta.deciding import Loaded
from ledger.store.delta.engine import Engine, Where, tuple_of
from ledger.store.delta.existing import GONE_STATES, INDEX
from ledger.store.delta.stock import Stock, Stocks

_COLUMNS = ["lane", "segment", "seq", "message_group_id", "sequence_number"]


class Groups:
    """Reads the groups of the messages that a FIFO queue has, and takes each free group's prefix, all of it as arrays."""

    def __init__(self, engine: Engine, stocks: Stocks) -> None:
        self._engine, self._stocks = engine, stocks
        self._kept: tuple[int, dict[str, pa.Table]] = (-1, {})

    def receivable(
        self, queue: QueueRecord, loaded: Loaded, stock: Stock, pieces: Pieces, state: np.ndarray
    ) -> tuple[Runs, np.ndarray]:
        """See `receivable.receivable`: the set-based twin of `rules.fifo.receivable`."""
        lanes = loaded.lanes
        homes = self._stocks.homes(tuple_of(stock.segment.unique().to_pylist()))
        rows = pa.concat_tables([self._rows(home, tuple_of(names), queue.id) for home, names in homes.items()] or [_nothing()])
        # A dead letter's lane is that of its segment here.
        known = pc.is_in(rows["segment"], pa.array(lanes.segments, pa.string()))
        rows = rows.filter(known)
        position = lanes.positions(rows["lane"], rows["segment"], rows["seq"])
        sort = np.argsort(pieces.first, kind="stable")
        at = np.searchsorted(pieces.first[sort], position, "right") - 1
        inside = (at >= 0) & (position <= pieces.last[sort][at]) if len(sort) else np.zeros(len(position), dtype=bool)
        piece = sort[at[inside]]
        position, rows = position[inside], rows.filter(pa.array(inside))
        status, code = state[piece], pieces.code[piece]
        moved_in = lanes.per_code(code, lambda r: -1 if r.enqueued_at is None else r.enqueued_at, np.int64)
        came = np.where(moved_in < 0, stock.sent_at[pieces.query[piece]], moved_in)
        group = pc.dictionary_encode(rows["message_group_id"]).combine_chunks()
        group_of, groups = group.indices.to_numpy(zero_copy_only=False), len(group.dictionary)
        order = np.empty(len(position), dtype=np.int64)
        order[np.lexsort((rows["sequence_number"].to_numpy(), came))] = np.arange(len(position))
        first = _free_prefix(order, group_of, groups, status)
        return Runs(position[first], position[first], code[first]), order[first]

    def _rows(self, home: str, segments: tuple[str, ...], queue: str) -> pa.Table:
        """Of the home's own messages all (the usual case, kept), of another queue's those segments."""
        version = self._engine.version("messages")
        if self._kept[0] != version:
            self._kept = version, {}
        if home != queue:
            return self._engine.messages(Where(home, None, segments), _COLUMNS)
        if home not in self._kept[1]:
            self._kept[1][home] = self._engine.messages(Where(home), _COLUMNS)
        return self._kept[1][home]


def _free_prefix(order: np.ndarray, group: np.ndarray, groups: int, status: np.ndarray) -> np.ndarray:
    """Which messages may be received: visible, in a group without a member in flight, before any that is not visible."""
    if not len(order):
        return np.empty(0, dtype=np.int64)
    gone = np.isin(status, GONE_STATES)
    held = np.zeros(groups, dtype=bool)
    held[group[status == INDEX[Status.IN_FLIGHT]]] = True
    barrier = np.full(groups, np.iinfo(np.int64).max)
    hidden = ~gone & (status != INDEX[Status.VISIBLE])
    np.minimum.at(barrier, group[hidden], order[hidden])
    return np.flatnonzero((status == INDEX[Status.VISIBLE]) & ~held[group] & (order < barrier[group]))


def _nothing() -> pa.Table:
    types = [pa.int32(), pa.string(), pa.int64(), pa.string(), pa.int64()]
    return pa.schema(list(zip(_COLUMNS, types))).empty_table()
