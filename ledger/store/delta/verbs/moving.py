"""Messages that count elsewhere from now on: dead letters (D1) and their way back (D2). No body is copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ledger.clock import Clock
from ledger.errors import QueueDoesNotExist
from ledger.rules import redrive
from ledger.rules.state import Record
from ledger.settings import Settings
from ledger.store import QueueRecord
from ledger.store.delta.commit.transactions import Plan, Transactions
from ledger.store.delta.engines.protocol import Engine, Where
from ledger.store.delta.model import run_algebra
from ledger.store.delta.model.run_algebra import ABSENT, Runs
from ledger.store.delta.state.choosing import first_in_order
from ledger.store.delta.state.fifo_groups import Groups
from ledger.store.delta.state.journal import Events
from ledger.store.delta.state.lane_records import Lanes
from ledger.store.delta.state.listing import Listing, Stocks
from ledger.store.delta.state.receivable import receivable
from ledger.store.delta.state.snapshot import Loaded, in_order, load
from ledger.store.delta.verbs.output_writes import Outputs
from ledger.store.delta.verbs.queues import Queues


@dataclass(frozen=True)
class Move:
    """One move as two sides: what is laid on the lanes that the messages leave, and on those that they come to."""

    leaving: Runs
    arriving: Runs


def move(
    loaded: Loaded,
    listing: Listing,
    target: QueueRecord,
    runs: Runs,
    arrives: Callable[[Record], Record],
    events: Events,
) -> Move:
    """Moves `runs` of the queue (with the codes of what is recorded) to `target`, whose lanes are loaded too. That may
    be the queue itself.

    A segment has one lane in each queue, wherever its messages come from: two moves of its messages then count up the
    same head row, and receives find all of them. That lane follows from the one that the segment was sent to, which
    never changes, and not from the one it is in now, which differs by the way that it took.
    """
    lanes, count = loaded.lanes, int(run_algebra.lengths(runs.first, runs.last).sum())
    events.note("moved", loaded.queue.id, count)
    events.note("arrived", target.id, count)
    if target.id == loaded.queue.id:
        # M4: it leaves no row that says so, and stays where it is: in one lane.
        again = lanes.per_code(runs.code, lambda r: lanes.code(arrives(r)), np.int64)
        return Move(runs._replace(code=again), run_algebra.empty_runs())
    there = loaded.others[target.id]
    away = lanes.per_code(runs.code, lambda r: lanes.code(redrive.moved_away(r, target.id)), np.int64)
    arrived = lanes.per_code(runs.code, lambda r: there.code(arrives(r)), np.int64)
    _, segment, first_seq, _ = lanes.table(runs.first, runs.last)
    segment = segment.dictionary_encode()
    names, most = segment.dictionary.to_pylist(), int(target.attributes["Lanes"])
    sent_to = listing.lanes_sent_to(names)
    lane = np.array([sent_to[name] % most for name in names])[segment.indices.to_numpy()]
    first = there.positions(lane, segment, np.asarray(first_seq))
    return Move(Runs(runs.first, runs.last, away), in_order(Runs(first, first + runs.last - runs.first, arrived)))


def load_beside(
    engine: Engine,
    settings: Settings,
    queues: Queues,
    queue: QueueRecord,
    clock: Clock,
    others: Callable[[], Sequence[QueueRecord]],
) -> tuple[Loaded, Sequence[QueueRecord]]:
    """The lanes of a queue and of those that its messages may move to, which `others` looks up; and these queues.

    All of them were there once the lanes had been read: where one was deleted in between, they are looked up again. A
    message that moved to a queue that is gone would be in none. Raises QueueDoesNotExist for the queue itself.
    """
    while True:
        asked = others()
        loaded = load(engine, settings, queue, clock, others=asked)
        loaded.read["queues"], there = queues.require(queue, asked)
        if there:
            return loaded, asked


class Redriver:
    """D2: moves dead letters back, or anywhere, as many as there are in one commit."""

    def __init__(
        self,
        engine: Engine,
        transactions: Transactions,
        stocks: Stocks,
        groups: Groups,
        queues: Queues,
        outputs: Outputs,
        settings: Settings,
    ) -> None:
        self._engine, self._transactions, self._stocks = engine, transactions, stocks
        self._groups, self._queues, self._outputs, self._settings = groups, queues, outputs, settings

    def redrive(
        self,
        source: QueueRecord,
        target: QueueRecord | None,
        maximum: int | None,
        chosen: pa.Table | None,
        clock: Clock,
    ) -> int:
        """See Store.redrive."""

        def decide(losses: int) -> Plan[int]:
            others = lambda: self._destinations(source, target)  # noqa: E731
            loaded, known = load_beside(self._engine, self._settings, self._queues, source, clock, others)
            lanes, events = loaded.lanes, Events()
            self._outputs.decide_doubts(loaded, events)
            seen = loaded.look(self._stocks)
            runs, order = receivable(loaded, seen, self._groups)
            if chosen is not None:
                runs, order = _only(loaded.lanes, runs, order, chosen)
            to = lanes.per_code(runs.code, lambda r: _index(r, target, loaded), np.int64)
            runs, order = run_algebra.where(runs, to >= 0), order[to >= 0]
            runs = first_in_order(runs, order, maximum)
            to = lanes.per_code(runs.code, lambda r: _index(r, target, loaded), np.int64)
            leaving, arriving = [run_algebra.empty_runs()], {}
            for index, queue in enumerate(known):
                mine = run_algebra.where(runs, to == index)
                if len(mine.first):
                    arrives = lambda record: redrive.redriven(loaded.now, source.id)  # noqa: E731
                    sides = move(loaded, seen.listing, queue, mine, arrives, events)
                    leaving.append(sides.leaving)
                    arriving[queue.id] = sides.arriving
            count = int(run_algebra.lengths(runs.first, runs.last).sum())
            over = in_order(run_algebra.concatenated(leaving))
            return loaded.plan(over, events, lambda version: count, arriving=arriving)

        return self._transactions.run("redrive", "visibility", source.id, decide)

    def _destinations(self, source: QueueRecord, target: QueueRecord | None) -> list[QueueRecord]:
        known = {queue.id: queue for queue in self._queues.all() if queue.id != source.id}
        if target is not None:
            redrive.require_destination(source, target)
            if target.id not in known:
                raise QueueDoesNotExist(target.name)
            return [target]
        origins = set(self._engine.load("visibility", Where(source.id)).rows["origin_queue"].unique().to_pylist())
        there = [known[origin] for origin in sorted(origins - {None}) if origin in known]
        return [queue for queue in there if redrive.broken_bound(source, queue) is None]


def _index(record: Record, target: QueueRecord | None, loaded: Loaded) -> int:
    """Which of the other queues a message goes to; -1: nowhere."""
    queue = target.id if target is not None else record.origin_queue
    return list(loaded.others).index(queue) if queue in loaded.others else -1


def _only(lanes: Lanes, runs: Runs, order: np.ndarray, chosen: pa.Table) -> tuple[Runs, np.ndarray]:
    """The parts of runs that lie in `chosen` (RUNS), each with its run's place in the order."""
    first = lanes.positions(chosen["lane"], chosen["segment"], chosen["first_seq"])
    last = first + chosen["last_seq"].to_numpy() - chosen["first_seq"].to_numpy()
    sort = np.argsort(first, kind="stable")
    wanted = Runs(first[sort], last[sort], np.zeros(len(first), dtype=np.int64))
    pieces = run_algebra.cut(wanted, runs.first, runs.last)
    inside = pieces.code != ABSENT
    query = pieces.query[inside]
    return Runs(pieces.first[inside], pieces.last[inside], runs.code[query]), order[query]
