"""The answers of a receive to one request: a grant, an error of this request alone, or None (no message)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ledger.errors import LedgerDamaged, LedgerError, OutputUnreadable
from ledger.rules import visibility
from ledger.rules.visibility import Record, latest_hold
from ledger.store.delta.model.message_runs import FEW_CODES, Runs, distinct_codes
from ledger.store.delta.model.tables import TWO_MESSAGES
from ledger.store.delta.state.lane_records import Lanes
from ledger.store.delta.state.snapshot import Events, Loaded
from ledger.store.protocol import GRANTED_RUNS, Grant, Received, ReceiveRequest


@dataclass(frozen=True)
class RequestGrant:
    """The outcome of one request: the runs to record, and the answer by the commit's version."""

    runs: Runs
    answer: Callable[[int], Received]


def make_refusal(error: LedgerError) -> RequestGrant:
    return RequestGrant(Runs.empty(), lambda version: error)


def require_apart(lanes: Lanes, runs: Runs, doubled: Collection[str]) -> None:
    """Raise LedgerDamaged if one of the runs is in a segment that is `doubled`.

    In a `doubled` segment several messages share a place, so a verb on one of them would change all.
    """
    if doubled and any(lanes.segments[number] in doubled for number in set(runs.segment.tolist())):
        raise LedgerDamaged(TWO_MESSAGES)


def grant(
    loaded: Loaded,
    chosen: Runs,
    request: ReceiveRequest,
    receipt_id: str,
    order: np.ndarray | None,
    undecided: OutputUnreadable | None,
    events: Events,
    grants: GrantRows,
) -> RequestGrant:
    """Return the outcome of a request that gets the messages `chosen` under a new receipt, in `order` (see Grant).

    Without a message, the answer is `undecided`: the error that says why messages stay in doubt, or None.
    """
    lanes, (_, timeout, attempt_id) = loaded.lanes, request

    def received(record: Record) -> int:
        return lanes.code(visibility.receive(record, receipt_id, attempt_id, timeout, loaded.now))

    runs = chosen.recode(lanes.per_code(chosen.code, received, np.int64)).in_order()
    if not len(runs):
        return RequestGrant(runs, lambda version: undecided)
    events.add("granted", lanes.record(runs.code[0]), runs)
    return RequestGrant(runs, grant_of(lanes, runs, order, grants))


def grant_of(
    lanes: Lanes, runs: Runs, order: np.ndarray | None = None, grants: GrantRows | None = None
) -> Callable[[int], Grant | None]:
    """Return a function that takes the commit's version and returns the grant of one receipt's runs (None: no runs).

    The grant's deadline is the last one of its messages.
    """
    rows = GrantRows(lanes) if grants is None else grants
    number = rows.add(runs)

    def answer(version: int) -> Grant | None:
        latest = latest_hold(map(lanes.record, distinct_codes(runs.code)))
        if latest is None:
            return None
        places = None if order is None else pa.array(order)
        return Grant(latest.receipt_id, latest.visible_at, latest.received_at, version, rows.of(number), places)

    return answer


class GrantRows:
    """The rows (GRANTED_RUNS) of grants that are decided together, as slices of one table."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes, self._runs = lanes, list[Runs]()
        self._table: pa.Table | None = None

    def add(self, runs: Runs) -> int:
        """Add the runs of a grant, and return its number. Add all grants before the first call of `of`."""
        self._runs.append(runs)
        return len(self._runs) - 1

    def of(self, number: int) -> pa.Table:
        if self._table is None:
            self._table = self._rows()
        before = sum(map(len, self._runs[:number]))
        return self._table.slice(before, len(self._runs[number]))

    def _rows(self) -> pa.Table:
        runs = Runs.concatenate(self._runs)
        codes, which = _list_distinct_codes(runs.code)
        records = [self._lanes.record(code) for code in codes]
        columns = [
            *self._lanes.to_arrow(runs),
            _make_column([r.receive_count for r in records], pa.int32(), which),
            _make_column([r.first_received_at for r in records], pa.int64(), which),
            _make_column([r.origin_queue for r in records], pa.string(), which),
            _make_column([r.enqueued_at for r in records], pa.int64(), which),
        ]
        return pa.table(columns, schema=GRANTED_RUNS)


def _list_distinct_codes(codes: np.ndarray) -> tuple[list[int], pa.Array | None]:
    """Return codes, and for each run the index of its code (None: the codes are the runs' codes, one by one)."""
    if len(codes) <= FEW_CODES:
        return codes.tolist(), None
    distinct, which = np.unique(codes, return_inverse=True)
    return distinct.tolist(), pa.array(which)


def _make_column(values: list[Any], kind: pa.DataType, which: pa.Array | None) -> pa.Array:
    column = pa.array(values, kind)
    return column if which is None else column.take(which)
