"""What a receive answers: the messages that one receipt is granted, or the error that its request alone meets."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ledger.errors import LedgerDamaged, LedgerError, OutputUnreadable
from ledger.rules import visibility
from ledger.rules.state import Record, latest_hold
from ledger.store import GRANTED_RUNS, Grant, Received, Request
from ledger.store.delta.model.run_algebra import FEW_CODES, Runs
from ledger.store.delta.model.tables import TWO_MESSAGES
from ledger.store.delta.state.journal import Events
from ledger.store.delta.state.lane_records import Lanes
from ledger.store.delta.state.snapshot import Loaded


@dataclass(frozen=True)
class Part:
    """What one request of a receive comes to: runs with what is to be recorded, and the answer at a version."""

    runs: Runs
    answer: Callable[[int], Received]


def refused(error: LedgerError) -> Part:
    """An error, and nothing recorded."""
    return Part(Runs.empty(), lambda version: error)


def require_apart(lanes: Lanes, runs: Runs, doubled: Collection[str]) -> None:
    """Raises LedgerDamaged for runs of a segment that is `doubled`: several messages have one place there, and whoever
    settled one of them would settle the others, too."""
    if doubled and any(lanes.segments[number] in doubled for number in set(runs.segment.tolist())):
        raise LedgerDamaged(TWO_MESSAGES)


def granted(
    loaded: Loaded,
    chosen: Runs,
    request: Request,
    receipt_id: str,
    order: np.ndarray | None,
    undecided: OutputUnreadable | None,
    events: Events,
) -> Part:
    """Messages under a new receipt, in `order` (see Grant). When there are none: `undecided`, which says why, if some
    are left alone in doubt."""
    lanes, (_, timeout, attempt_id) = loaded.lanes, request

    def received(record: Record) -> int:
        return lanes.code(visibility.receive(record, receipt_id, attempt_id, timeout, loaded.now))

    runs = chosen.coded(lanes.per_code(chosen.code, received, np.int64)).in_order()
    if not len(runs):
        return Part(runs, lambda version: undecided)
    events.add("granted", lanes.record(runs.code[0]), runs)
    return Part(runs, grant_of(lanes, runs, order))


def grant_of(lanes: Lanes, runs: Runs, order: np.ndarray | None = None) -> Callable[[int], Grant | None]:
    """The grant of runs that one receipt holds, once its version is known; None for no messages. `order`: see Grant."""

    def answer(version: int) -> Grant | None:
        codes, which = _each_once(runs.code)
        records = [lanes.record(code) for code in codes]
        latest = latest_hold(records)
        if latest is None:
            return None
        columns = [
            *lanes.to_arrow(runs),
            _taken([r.receive_count for r in records], pa.int32(), which),
            _taken([r.first_received_at for r in records], pa.int64(), which),
            _taken([r.origin_queue for r in records], pa.string(), which),
            _taken([r.enqueued_at for r in records], pa.int64(), which),
        ]
        table = pa.table(columns, schema=GRANTED_RUNS)
        places = None if order is None else pa.array(order)
        return Grant(latest.receipt_id, latest.visible_at, latest.received_at, version, table, places)

    return answer


def _each_once(codes: np.ndarray) -> tuple[list[int], pa.Array | None]:
    """The codes, and which of them each run has; None: the first run has the first one, and so on."""
    if len(codes) <= FEW_CODES:
        return codes.tolist(), None
    distinct, which = np.unique(codes, return_inverse=True)
    return distinct.tolist(), pa.array(which)


def _taken(values: list[Any], kind: pa.DataType, which: pa.Array | None) -> pa.Array:
    """A column with one of the values for each run."""
    column = pa.array(values, kind)
    return column if which is None else column.take(which)
