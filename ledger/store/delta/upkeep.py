"""Upkeep: frees what is finished. Nothing depends on it for being right, only for staying small and fast."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ledger.rules import message_id as ids
from ledger.rules.limits import MILLISECONDS
from ledger.rules.state import Record
from ledger.store.delta import axis
from ledger.store.delta.axis import Runs
from ledger.store.delta.engine import Conflict, Where, literal, tuple_of
from ledger.store.delta.lanes import Lanes
from ledger.store.delta.receipts import fill_receipts
from ledger.store.delta.stock import Stock
from ledger.store.delta.store import DeltaStore, pieces_of
from ledger.store.delta.tables import TABLES
from ledger.store.delta.transaction import Plan, pause

log = logging.getLogger("ledger.upkeep")
#: A segment is rewritten into one file when it has at least so many.
FILES_WORTH_COMPACTING = 8
ATTEMPTS = 10


@dataclass(frozen=True)
class UpkeepReport:
    """What an upkeep did."""

    receipts_filled: int
    queues_removed: int
    segments_dropped: int
    rows_joined: int
    lanes_compacted: int


class Upkeep:
    """Safe beside running claims: it commits lane by lane, and is the one that tries again."""

    def __init__(self, store: DeltaStore) -> None:
        self._store, self._engine = store, store.engine

    def run(self, now: int, vacuum: bool = True) -> UpkeepReport:
        """One round over all queues. Deleted messages keep their rows for the setting keep_deleted_receipts."""
        filled = fill_receipts(self._engine, self._store.transactions)
        # The messages are listed before the queues: a queue is there before its first message.
        _, files = self._engine.files()
        compactable = _compactable(files)
        queues = {queue.id for queue in self._store.queues()}
        gone = sorted(set(files["queue"].unique().to_pylist()) - queues)
        for queue in gone:
            log.info("removing the messages of the deleted queue %s", queue)
            for table in ("messages", "visibility"):
                self._retried(
                    table, lambda t=table, q=queue: self._engine.delete(t, Where(q).sql(), {"verb": "upkeep"})
                )
        before = now - self._store.settings.keep_deleted_receipts * MILLISECONDS
        dropped = sum(self._drop_finished(queue, before, now) for queue in sorted(queues))
        joined = sum(self._join_rows(queue, before, now) for queue in sorted(queues))
        compacted = sum(self._compact(*lane) for lane in compactable if lane[0] in queues)
        for table in TABLES if vacuum else ():
            with self._store.transactions.turn(table):
                self._engine.vacuum(table)
        report = UpkeepReport(filled, len(gone), dropped, joined, compacted)
        log.info("%s", report)
        return report

    def _drop_finished(self, queue: str, before: int, now: int) -> int:
        """Removes segments whose every message was deleted before `before`, a commit for all of the queue's.

        Not one that its sender may still append to: of a segment that lives on, nobody could tell what it once held.
        """
        lanes = Lanes(queue, self._engine.load("visibility", Where(queue)).rows)
        stock = self._store.stocks.of(queue)
        pieces = pieces_of(lanes, stock)
        alive = ~lanes.per_code(pieces.code, lambda r: r.deleted_at is not None and r.deleted_at < before, bool)
        place = pieces.first >> axis.SEGMENT_SHIFT
        finished = sorted(set(np.unique(place).tolist()) - set(np.unique(place[alive]).tolist()))
        opened_by = now - self._store.settings.open_segment_seconds * MILLISECONDS
        names = [lanes.segments[index] for index in finished]
        names = [name for name in names if not ids.is_open(name) or stock.sent_from(name) <= opened_by]
        if names:
            log.info("dropping %d finished segments of %s", len(names), queue)
            in_lanes = Where(queue, tuple_of(stock.lane_of(name) for name in names))
            where = f"{in_lanes.sql()} AND ({_segments(names, stock)})"
            self._retried("messages", lambda: self._engine.delete("messages", where, {"verb": "upkeep"}))
        return len(names)

    def _join_rows(self, queue: str, before: int, now: int) -> int:
        """Removes rows about messages that are gone and joins those of old deletions, a commit per lane."""
        all_lanes = Lanes(queue, self._engine.load("visibility", Where(queue)).rows)
        return sum(self._join_lane(queue, lane, before, now) for lane in sorted(all_lanes.revisions))

    def _join_lane(self, queue: str, lane: int, before: int, now: int) -> int:
        def decide(losses: int) -> Plan[int]:
            where = Where(queue, (lane,))
            snapshot = self._engine.load("visibility", where)
            lanes = Lanes(queue, snapshot.rows)
            # Listed after the rows were read: what they are about existed then, unless it was dropped.
            exists = set(self._store.stocks.of(queue).segment.unique().to_pylist())
            old = lanes.runs
            deleted = lanes.per_code(old.code, lambda r: r.deleted_at is not None, bool)
            known = np.array([name in exists for name in lanes.segments], dtype=bool)
            keep = ~deleted | known[old.first >> axis.SEGMENT_SHIFT] if len(old.first) else deleted
            faded = lanes.code(Record(deleted_at=before))
            fade = lambda r: faded if r.deleted_at is not None and r.deleted_at <= before else lanes.code(r)  # noqa: E731
            code = lanes.per_code(old.code, fade, np.int64)
            new = axis.join(Runs(old.first[keep], old.last[keep], code[keep]))
            fewer = len(old.first) - len(new.first)
            edits = lanes.replacing(new if fewer else old)
            return Plan(snapshot, where, edits, [], lambda version: fewer)

        return self._store.transactions.run("upkeep", "visibility", queue, now, decide)

    def _compact(self, queue: str, lane: int) -> int:
        self._retried("messages", lambda: self._engine.compact("messages", Where(queue, (lane,))))
        return 1

    def _retried(self, table: str, commit: Callable[[], None]) -> None:
        for losses in range(ATTEMPTS):
            try:
                with self._store.transactions.turn(table):
                    commit()
                    return
            except Conflict:
                pause(losses + 4)
        log.warning("upkeep of %s lost to other writers %d times and leaves it to the next round", table, ATTEMPTS)


def _segments(names: list[str], stock: Stock) -> str:
    """A predicate for whole sealed segments, and for the known messages of open ones, which may gain more."""
    sealed = [literal(name) for name in names if not ids.is_open(name)]
    parts = [f"segment IN ({', '.join(sealed)})"] if sealed else []
    parts += [f"(segment = {literal(name)} AND seq <= {stock.last_of(name)})" for name in names if ids.is_open(name)]
    return " OR ".join(parts)


def _compactable(files) -> list[tuple[str, int]]:
    """The lanes (queue, lane) that have a segment of many files."""
    counted = files.group_by(["queue", "lane", "segment"]).aggregate([("messages", "count")]).to_pylist()
    return sorted({(row["queue"], row["lane"]) for row in counted if row["messages_count"] >= FILES_WORTH_COMPACTING})
