"""Upkeep: frees what is finished. Nothing depends on it for being right, only for staying small and fast.

The settings for how long a ledger's past is kept become properties of the tables, which both engines go by
(`retain`).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from ledger.clock import Clock
from ledger.delta_log.protocol import LogReplaced
from ledger.delta_log.spec import FILE_RETENTION, LOG_RETENTION, Kept, interval_seconds, kept_by
from ledger.delta_log.values import literal
from ledger.errors import ClocksDisagree
from ledger.rules import message_id as ids
from ledger.rules.attributes import is_fifo
from ledger.rules.limits import DEDUPLICATION_INTERVAL, MILLISECONDS
from ledger.settings import Settings, require_within
from ledger.store.delta.commit.holdings import releasing
from ledger.store.delta.commit.transactions import Transactions
from ledger.store.delta.engine import Engine
from ledger.store.delta.model.tables import TABLES
from ledger.store.delta.model.where import Where, tuple_of
from ledger.store.delta.state.lane_records import Lanes
from ledger.store.delta.state.listing import FileRuns, Listing
from ledger.store.delta.state.statuses import existing_messages
from ledger.store.delta.verbs.ages import Judged
from ledger.store.delta.verbs.receipts import fill_receipts
from ledger.store.delta.verbs.staged_sends import remove_abandoned
from ledger.store.delta.verbs.store import DeltaStore
from ledger.store.delta.verbs.tidying import NEVER, Tidying, is_final, retried
from ledger.store.protocol import QueueRecord


def kept(engine: Engine, table: str) -> Kept:
    """As the table's properties say. Where they say nothing that is understood, readers go by Delta's defaults."""
    return kept_by(engine.layout(table).properties)


def require_possible(engine: Engine, settings: Settings) -> None:
    """Raises InvalidParameterValue where the settings say one of the two, and a table, which has the other from before,
    would keep files for longer than commits."""
    log, files = settings.log_retention, settings.deleted_file_retention
    if (log is None) == (files is None):
        return
    for table in TABLES:
        before = kept(engine, table)
        require_within(
            before.log_retention if log is None else log,
            "deleted_file_retention",
            before.deleted_file_retention if files is None else files,
            f"The table {table} has one of the two from before: set both.",
        )


def retain(engine: Engine, transactions: Transactions, settings: Settings, table: str, clock: Clock) -> None:
    """Sets what is kept of a table's past, where the settings say so and the table does not: one commit, or none."""
    wanted = {LOG_RETENTION: settings.log_retention, FILE_RETENTION: settings.deleted_file_retention}
    known = engine.layout(table).properties
    new = {
        name: f"interval {seconds} seconds"
        for name, seconds in wanted.items()
        if seconds is not None and interval_seconds(known.get(name)) != seconds
    }
    if new:
        said = transactions.metadata(secrets.token_hex(8), "upkeep", "", clock(), [])
        metadata = {**said, "read": transactions.beside(table, engine.version(table))}
        retried(transactions, table, partial(engine.configure, table, new, metadata))


log = logging.getLogger("ledger.upkeep")
#: A segment is rewritten into one file when it has at least so many.
FILES_WORTH_COMPACTING = 8
#: A predicate names at most so many runs of messages, or whole segments: delta-rs's stack is not made for thousands.
MOST_AT_ONCE = 500
#: Where a segment lies: its queue, its lane and its name.
PLACE = ["queue", "lane", "segment"]
Place = tuple[str, int, str]


@dataclass(frozen=True)
class UpkeepReport:
    """What an upkeep did. `queues_removed`: of how many deleted queues it dropped the last message."""

    receipts_filled: int
    queues_removed: int
    segments_dropped: int
    rows_joined: int
    lanes_compacted: int


@dataclass(frozen=True)
class Segment:
    """A segment as it was listed: its queue and lane, and the runs of an open one's messages, which may gain more."""

    queue: str
    lane: int
    name: str
    runs: tuple[tuple[int, int], ...] = ()

    def predicates(self) -> list[str]:
        """The messages that were listed, and no other, whatever was sent since."""
        named = f"segment = {literal(self.name)}"
        return [f"({named} AND seq BETWEEN {first} AND {last})" for first, last in self.runs] or [named]

    @property
    def is_open(self) -> bool:
        """Whether it may gain messages."""
        return ids.is_open(self.name)


class Upkeep:
    """Safe beside everything, however long it is stopped between two of its steps, and however many of them run.

    A message may be dropped when it is *final* (see `tidying`), and that it stays. So it does not matter of which
    version each thing is that was read, as long as nothing is missed that counts:
    - The files of `messages` are listed first. What is sent afterwards is not dropped: of an open segment only the
      ordinals that were listed, and a sealed segment gains nothing.
    - Queues are listed after those files and after `visibility`: a queue is there before anything about it is. One
      that is not in that list was deleted, for good; what is recorded about it is removed, in commits that make
      whoever is about to move something out of it decide again, before any of its messages is dropped.
    - Whether messages are final is read last, from one version of `visibility`: what moves from one queue to another
      is in one of them. All queues that it tells of count there, those made or deleted meanwhile, too.
    - Each commit that removes rows names the generation in which the round began, and is to a table that the round has
      read. Where the ledger is replaced meanwhile, the commit is refused, and the round begins anew: what is final in
      one ledger may be work in a backup of it, with the same ids.
    """

    def __init__(self, store: DeltaStore, clock: Clock, say: Callable[[str], None] | None = None) -> None:
        self._store, self._engine, self._clock, self._say = store, store.engine, clock, say or log.debug
        self._generation = 0

    @releasing
    def run(self, vacuum: bool, judged: Judged) -> UpkeepReport:
        """One round over all queues, which judges ages as `judged` says. Deleted messages keep their rows for the
        setting keep_deleted_receipts. Raises ContentionOutlastedRetries where the ledger is replaced again and again.
        """
        attempts = self._store.transactions.attempts("upkeep")
        for _ in attempts:
            try:
                return self._round(vacuum, judged)
            except LogReplaced as replaced:
                log.info("the upkeep begins anew: %s", replaced)
        raise attempts.outlasted()

    def _round(self, vacuum: bool, judged: Judged) -> UpkeepReport:
        self._generation, now = self._engine.generation(), judged.at
        settings = self._store.settings
        if vacuum:
            require_possible(self._engine, settings)
        before = NEVER if now is None else now - settings.keep_deleted_receipts * MILLISECONDS
        skew = settings.skew
        not_beyond = None if judged.is_confirmed else NEVER if now is None else now
        tidying = Tidying(self._store, self._clock, before, not_beyond, self._generation)
        self._say("fills the receipts")
        filled = fill_receipts(self._engine, self._store.transactions)
        self._say("reads what is recorded")
        compacted = sum(self._compact(where) for where in _where(_doubled(self._engine.files()[1])))
        version, files = self._engine.files()
        listing = Listing(self._engine, version, files)
        rows = self._engine.load("visibility", Where()).rows
        queues = self._store.queues()
        tidying.repair(rows)
        lanes = _lanes(files)
        gone = sorted({*lanes, *rows["queue"].unique().to_pylist()} - {queue.id for queue in queues})
        forgotten = [queue for queue in gone if tidying.forget(queue, lanes.get(queue, ()))]
        # What is deleted loses its receipt, and what expired by any driver's clock is recorded as deleted.
        if now is not None:
            queues = tidying.expire(queues, rows, listing, now - skew)
        joined = 0
        for number, known in enumerate(queues, 1):
            self._say(f"tidies {known.name} ({number:,} of {len(queues):,} queues)")
            joined += self._tidied(tidying, known, rows, listing)
        by_id = {queue.id: queue for queue in queues}
        droppable = [] if now is None else self._droppable(files, listing, by_id, forgotten, now, skew)
        finished = self._finished(droppable, by_id, before)
        self._say(f"drops {len(finished):,} finished segments")
        for queue in sorted({segment.queue for segment in finished}):
            self._drop(queue, [segment for segment in finished if segment.queue == queue])
        dropped = sum(segment.queue in by_id for segment in finished)
        if dropped:
            rows, listing = self._engine.load("visibility", Where()).rows, self._store.listings.newest()
            joined += sum(self._tidied(tidying, queue, rows, listing) for queue in queues)
        self._say("joins small files")
        compacted += sum(self._compact(where) for where in _where(_of_many_files(files)))
        if vacuum and now is not None:
            remove_abandoned(self._store, self._clock if judged.is_confirmed else lambda: now)
        for table in TABLES if vacuum else ():
            self._say(f"vacuums {table}")
            retain(self._engine, self._store.transactions, settings, table, self._clock)
            if table == "visibility":
                # Once more: of what was committed since, however long that is ago, no entry of the log goes unread.
                filled += fill_receipts(self._engine, self._store.transactions)
            # The engines go by the machine's clock, whatever instant a round judges by.
            if judged.is_near(self._clock()):
                with self._store.transactions.turn(table):
                    self._engine.vacuum(table)
        removed = lanes.keys() & set(gone)
        if removed:
            # Dead letters of a deleted queue stay where they are as long as they count elsewhere.
            removed -= _lanes(self._engine.files()[1]).keys()
        report = UpkeepReport(filled, len(removed), dropped, joined, compacted)
        log.info("%s", report)
        return report

    def _tidied(self, tidying: Tidying, queue: QueueRecord, rows: pa.Table, listing: Listing) -> int:
        """See Tidying.tidy. A queue whose time is ahead is left to the round behind a repair, and stops no other."""
        try:
            return tidying.tidy(queue, rows, listing)
        except ClocksDisagree as error:
            log.warning("the queue %s is not tidied: %s", queue.name, error)
            return 0

    def _droppable(
        self,
        files: pa.Table,
        listing: Listing,
        queues: dict[str, QueueRecord],
        forgotten: list[str],
        now: int,
        skew: int,
    ) -> list[Segment]:
        """The segments that may be dropped, if they are finished.

        Not one that its sender may still append to: of a segment that lives on, nobody could tell what it once held.
        Nor one that deduplication still looks at, by any driver's clock.
        """
        opened_by = now - self._store.settings.open_segment_seconds * MILLISECONDS
        remembered = now - DEDUPLICATION_INTERVAL * MILLISECONDS - skew
        wanted = [("first_sent_at", "min"), ("last_sent_at", "max")]
        found: list[Segment] = []
        for row in files.group_by(["queue", "lane", "segment"]).aggregate(wanted).to_pylist():
            queue, name = row["queue"], row["segment"]
            known = queues.get(queue)
            until = remembered if known is not None and is_fifo(known.attributes) else now
            if known is None and queue not in forgotten:
                continue
            if row["last_sent_at_max"] > until or (ids.is_open(name) and row["first_sent_at_min"] > opened_by):
                continue
            found.append(Segment(queue, row["lane"], name))
        # Some ordinals of an open segment may be missing yet: those were given out, and their send stands still.
        runs = {queue: _runs(listing.of(queue, NEVER, NEVER)) for queue in {one.queue for one in found if one.is_open}}
        return [replace(one, runs=runs[one.queue][one.name]) if one.is_open else one for one in found]

    def _finished(self, droppable: list[Segment], queues: dict[str, QueueRecord], before: int) -> list[Segment]:
        """Those of which every message is final in every queue, as of one version of what is recorded."""
        needed: set[str] = set()
        rows = self._engine.load("visibility", Where()).rows
        listing = self._store.listings.newest()
        for queue in {*queues, *rows["queue"].unique().to_pylist()} if droppable else ():
            lanes = Lanes(queue, rows.filter(pc.equal(rows["queue"], queue)))
            pieces = existing_messages(lanes, listing, NEVER, NEVER)[1] if queue in queues else lanes.runs
            kept = ~lanes.per_code(pieces.code, lambda r: is_final(r, before), bool)
            needed |= {lanes.segments[place] for place in set(pieces.segment[kept].tolist())}
        return [segment for segment in droppable if segment.name not in needed]

    def _drop(self, queue: str, segments: list[Segment]) -> None:
        """Removes finished segments, in as few commits as their number allows."""
        log.info("dropping %d finished segments of %s", len(segments), queue)
        for is_open in (False, True):
            # Whole segments apart: of those no file is rewritten.
            mine = [segment for segment in segments if segment.is_open == is_open]
            parts = [(part, segment.lane) for segment in mine for part in segment.predicates()]
            for start in range(0, len(parts), MOST_AT_ONCE):
                some = parts[start : start + MOST_AT_ONCE]
                where = Where(queue, tuple_of(lane for _, lane in some)).sql()
                predicate = f"{where} AND ({' OR '.join(part for part, _ in some)})"
                retried(self._store.transactions, "messages", partial(self._delete, queue, predicate))

    def _delete(self, queue: str, predicate: str) -> None:
        metadata = self._store.transactions.metadata("", "upkeep", queue, self._clock(), [])
        self._engine.delete("messages", predicate, metadata, self._generation)

    def _compact(self, where: Where) -> bool:
        done: list[bool] = []
        retried(self._store.transactions, "messages", lambda: done.append(self._engine.compact(where)))
        return any(done)


def _lanes(files: pa.Table) -> dict[str, tuple[int, ...]]:
    """The lanes in which each queue has messages."""
    found: dict[str, list[int]] = {}
    for row in files.group_by(["queue", "lane"]).aggregate([]).to_pylist():
        found.setdefault(row["queue"], []).append(row["lane"])
    return {queue: tuple_of(lanes) for queue, lanes in found.items()}


def _runs(files: FileRuns) -> dict[str, tuple[tuple[int, int], ...]]:
    """The ordinals (first, last) that each segment has, neighbours joined."""
    found: dict[str, list[tuple[int, int]]] = {}
    for name, first, last in sorted(zip(files.segment.to_pylist(), files.first_seq.tolist(), files.last_seq.tolist())):
        mine = found.setdefault(name, [])
        if mine and mine[-1][1] + 1 == first:
            first = mine.pop()[0]
        mine.append((first, last))
    return {name: tuple(runs) for name, runs in found.items()}


def _of_many_files(files: pa.Table) -> set[Place]:
    """The open segments that have many files."""
    counted = files.group_by(PLACE).aggregate([("messages", "count")]).to_pylist()
    return {
        (row["queue"], row["lane"], row["segment"])
        for row in counted
        if row["messages_count"] >= FILES_WORTH_COMPACTING and ids.is_open(row["segment"])
    }


def _doubled(files: pa.Table) -> set[Place]:
    """The segments in which several messages have one ordinal (see `joining`), as nobody's sends have them."""
    told = files.filter(pc.is_valid(files["first_seq"])).sort_by([("segment", "ascending"), ("first_seq", "ascending")])
    before, behind = told.slice(0, max(0, told.num_rows - 1)), told.slice(1)
    across = pc.less_equal(behind["first_seq"], before["last_seq"])
    across = pc.and_(across, pc.equal(before["segment"], behind["segment"]))
    doubled = pc.greater(told["messages"], pc.add(pc.subtract(told["last_seq"], told["first_seq"]), 1))
    wrong = pa.concat_tables([behind.filter(across), told.filter(doubled)])
    return {(row["queue"], row["lane"], row["segment"]) for row in wrong.select(PLACE).to_pylist()}


def _where(places: Iterable[Place]) -> list[Where]:
    """Segments, by the lanes that they lie in."""
    lanes: dict[tuple[str, int], list[str]] = {}
    for queue, lane, segment in sorted(places):
        lanes.setdefault((queue, lane), []).append(segment)
    return [Where(queue, (lane,), tuple(segments)) for (queue, lane), segments in lanes.items()]
