"""Upkeep: frees what is finished. Nothing depends on it for being right, only for staying small and fast."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.rules import message_id as ids
from ledger.rules import time
from ledger.rules.attributes import is_fifo
from ledger.rules.limits import DEDUPLICATION_INTERVAL, MILLISECONDS
from ledger.rules.state import Record
from ledger.store import QueueRecord
from ledger.store.delta import axis
from ledger.store.delta.axis import Runs
from ledger.store.delta.deciding import Loaded
from ledger.store.delta.engine import Conflict, Where, literal, tuple_of
from ledger.store.delta.existing import GONE_STATES
from ledger.store.delta.lanes import Lanes
from ledger.store.delta.receipts import fill_receipts
from ledger.store.delta.store import DeltaStore
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
        # Messages and what is recorded are listed before the queues: a queue is there before its first message.
        _, files = self._engine.files()
        compactable = _compactable(files)
        recorded = self._engine.load("visibility", Where()).rows["queue"].unique().to_pylist()
        queues = {queue.id for queue in self._store.queues()}
        gone = sorted(set(files["queue"].unique().to_pylist()) - queues)
        for queue in sorted(set(recorded) - queues):
            log.info("removing what is recorded about the deleted queue %s", queue)
            where = Where(queue).sql()
            self._retried("visibility", lambda w=where: self._engine.delete("visibility", w, {"verb": "upkeep"}))
        before = now - self._store.settings.keep_deleted_receipts * MILLISECONDS
        # What is deleted loses its receipt first: from then on nobody can restore it, and it may be dropped.
        joined = sum(self._join_rows(queue, before) for queue in sorted(queues))
        dropped = self._drop_finished({queue.id: queue for queue in self._store.queues()}, files, before, now)
        joined += sum(self._join_rows(queue, before) for queue in sorted(queues)) if dropped else 0
        compacted = sum(self._compact(*lane) for lane in compactable if lane[0] in queues)
        for table in TABLES if vacuum else ():
            with self._store.transactions.turn(table):
                self._engine.vacuum(table)
        report = UpkeepReport(filled, len(gone), dropped, joined, compacted)
        log.info("%s", report)
        return report

    def _drop_finished(self, queues: dict[str, QueueRecord], files: pa.Table, before: int, now: int) -> int:
        """Removes segments of which no message counts in any queue any more, a commit for all of a queue's.

        Not one that its sender may still append to: of a segment that lives on, nobody could tell what it once held.
        Nor one that deduplication still looks at.
        """
        needed = self._needed(list(queues.values()), before, now)
        opened_by = now - self._store.settings.open_segment_seconds * MILLISECONDS
        remembered = now - DEDUPLICATION_INTERVAL * MILLISECONDS
        dropped = 0
        # Only what was listed before anybody looked whether it is needed: a send may have committed since.
        for queue, segments in _segments(files).items():
            until = remembered if queue in queues and is_fifo(queues[queue].attributes) else now
            names = sorted(
                name
                for name, known in segments.items()
                if name not in needed
                and known["last_sent_at"] <= until
                and not (ids.is_open(name) and known["first_sent_at"] > opened_by)
            )
            if names:
                log.info("dropping %d finished segments of %s", len(names), queue)
                in_lanes = Where(queue, tuple_of(segments[name]["lane"] for name in names))
                where = f"{in_lanes.sql()} AND ({_predicate(names, segments)})"
                self._retried("messages", lambda w=where: self._engine.delete("messages", w, {"verb": "upkeep"}))
            dropped += len(names) if queue in queues else 0
        return dropped

    def _needed(self, queues: list[QueueRecord], before: int, now: int) -> set[str]:
        """The segments with a message that counts in a queue, or was deleted so recently that it may come back.

        Of all queues as of one version: what moves from one to another meanwhile is seen in one of them.
        """
        needed: set[str] = set()
        snapshot = self._engine.load("visibility", Where())
        for queue in queues:
            lanes = Lanes(queue.id, snapshot.rows.filter(pc.equal(snapshot.rows["queue"], queue.id)))
            at = time.not_before(now, lanes.latest, self._store.settings.maximum_clock_skew)
            _, _, pieces, state = Loaded(snapshot, queue, lanes, {}, at).look(self._store.stocks)
            recent = lanes.per_code(pieces.code, lambda r: _is_recent(r, before), bool)
            kept = recent | ~np.isin(state, GONE_STATES)
            needed |= {lanes.segments[place] for place in np.unique(pieces.first[kept] >> axis.SEGMENT_SHIFT).tolist()}
        return needed

    def _join_rows(self, queue: str, before: int) -> int:
        """Removes rows about messages that are gone and joins those of old deletions, a commit per lane."""
        all_lanes = Lanes(queue, self._engine.load("visibility", Where(queue)).rows)
        return sum(self._join_lane(queue, lane, before) for lane in sorted(all_lanes.revisions))

    def _join_lane(self, queue: str, lane: int, before: int) -> int:
        def decide(losses: int) -> Plan[int]:
            where = Where(queue, (lane,))
            snapshot = self._engine.load("visibility", where)
            lanes = Lanes(queue, snapshot.rows)
            # Listed after the rows were read: what they are about existed then, unless it was dropped.
            exists = self._store.stocks.newest().segments()
            old = lanes.runs
            known = np.array([name in exists for name in lanes.segments], dtype=bool)
            keep = known[old.first >> axis.SEGMENT_SHIFT] if len(old.first) else np.zeros(0, dtype=bool)
            faded = lanes.code(Record(deleted_at=before))
            fade = lambda r: faded if r.deleted_at is not None and r.deleted_at < before else lanes.code(r)  # noqa: E731
            code = lanes.per_code(old.code, fade, np.int64)
            new = axis.join(Runs(old.first[keep], old.last[keep], code[keep]))
            fewer = len(old.first) - len(new.first)
            restorable = lanes.per_code(old.code, lambda r: r.receipt_id is not None, bool)
            edits = lanes.replacing(new if fewer or (restorable & (code == faded)).any() else old, lanes.latest)
            return Plan(snapshot, where, edits, [], lambda version: fewer, lanes.latest)

        return self._store.transactions.run("upkeep", "visibility", queue, decide)

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


def _is_recent(record: Record, before: int) -> bool:
    """Whether a message was deleted so recently, or still has the receipt, that it may come back."""
    return record.deleted_at is not None and (record.deleted_at > before or record.receipt_id is not None)


def _segments(files: pa.Table) -> dict[str, dict[str, dict[str, Any]]]:
    """What the files say about each segment, by queue and name: lane, last_seq, first_sent_at, last_sent_at."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    wanted = [("last_seq", "max"), ("first_sent_at", "min"), ("last_sent_at", "max")]
    for row in files.group_by(["queue", "lane", "segment"]).aggregate(wanted).to_pylist():
        known = {"lane": row["lane"], **{name: row[f"{name}_{how}"] for name, how in wanted}}
        found.setdefault(row["queue"], {})[row["segment"]] = known
    return found


def _predicate(names: list[str], segments: dict[str, dict[str, Any]]) -> str:
    """A predicate for whole sealed segments, and for the known messages of open ones, which may gain more."""
    sealed = [literal(name) for name in names if not ids.is_open(name)]
    parts = [f"segment IN ({', '.join(sealed)})"] if sealed else []
    parts += [f"(segment = {literal(n)} AND seq <= {segments[n]['last_seq']})" for n in names if ids.is_open(n)]
    return " OR ".join(parts)


def _compactable(files) -> list[tuple[str, int]]:
    """The lanes (queue, lane) that have a segment of many files."""
    counted = files.group_by(["queue", "lane", "segment"]).aggregate([("messages", "count")]).to_pylist()
    return sorted({(row["queue"], row["lane"]) for row in counted if row["messages_count"] >= FILES_WORTH_COMPACTING})
