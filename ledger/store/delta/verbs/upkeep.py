"""Upkeep: one round removes what is finished, joins rows and files, and fills the table `receipts`.

Only `receipts` needs upkeep to be complete. A round, or `Ledger.fill_receipts`, must copy the events of commits before
the commits are older than `log_retention`.
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
from ledger.delta_log.protocol import FILE_RETENTION, LOG_RETENTION, Kept, LogReplaced, interval_seconds, read_retention
from ledger.delta_log.statements import literal
from ledger.errors import ClocksDisagree
from ledger.rules import message_id as ids
from ledger.rules.attributes import is_fifo
from ledger.rules.limits import DEDUPLICATION_INTERVAL, MILLISECONDS
from ledger.settings import Settings, require_within
from ledger.store.delta.commit.locks import releasing
from ledger.store.delta.commit.transactions import Transactions
from ledger.store.delta.engine import Engine
from ledger.store.delta.model.tables import TABLES, Where, sort_distinct
from ledger.store.delta.state.lane_records import Lanes
from ledger.store.delta.state.listing import FileRuns, Listing, find_existing_messages
from ledger.store.delta.verbs.receipts import fill_receipts
from ledger.store.delta.verbs.staged_sends import remove_abandoned
from ledger.store.delta.verbs.store import DeltaStore
from ledger.store.delta.verbs.tidying import NEVER, JudgedAges, Tidying, is_final, try_commit
from ledger.store.protocol import QueueRecord


def kept(engine: Engine, table: str) -> Kept:
    """Return how long a table keeps its past, by its properties or Delta's defaults."""
    return read_retention(engine.layout(table).properties)


def require_possible(engine: Engine, settings: Settings) -> None:
    """Raise InvalidParameterValue if a table would keep files for longer than commits.

    Settings with both retentions were checked when they were read.
    """
    log_retention, file_retention = settings.log_retention, settings.deleted_file_retention
    if (log_retention is None) == (file_retention is None):
        return
    for table in TABLES:
        before = kept(engine, table)
        require_within(
            before.log_retention if log_retention is None else log_retention,
            "deleted_file_retention",
            before.deleted_file_retention if file_retention is None else file_retention,
            f"The table {table} has one of the two from before: set both.",
        )


def set_retention(engine: Engine, transactions: Transactions, settings: Settings, table: str, clock: Clock) -> None:
    seconds_by_property = {LOG_RETENTION: settings.log_retention, FILE_RETENTION: settings.deleted_file_retention}
    properties = engine.layout(table).properties
    new = {
        name: f"interval {seconds} seconds"
        for name, seconds in seconds_by_property.items()
        if seconds is not None and interval_seconds(properties.get(name)) != seconds
    }
    if new:
        base = transactions.metadata(secrets.token_hex(8), "upkeep", "", clock(), [])
        metadata = {**base, "read": transactions.read_other_versions(table, engine.version(table))}
        try_commit(transactions, table, partial(engine.configure, table, new, metadata))


log = logging.getLogger("ledger.upkeep")
#: The fewest files of an open segment that upkeep joins.
FILES_WORTH_COMPACTING = 8
#: The most parts of one predicate. Thousands overflow delta-rs's stack.
MOST_AT_ONCE = 500
PLACE = ["queue", "lane", "segment"]
Place = tuple[str, int, str]


@dataclass(frozen=True)
class UpkeepReport:
    """The result of one round of upkeep.

    Attributes:
        receipts_filled: How many entries `receipts` got.
        queues_removed: How many deleted queues lost their last message row.
        segments_dropped: How many finished segments of existing queues the round dropped, or tried to drop in commits
            that lost.
        rows_joined: How many runs of existing queues `visibility` lost (a set counts as its runs).
        lanes_compacted: How often the files of a lane were joined. A round can join a lane's files twice.
    """

    receipts_filled: int
    queues_removed: int
    segments_dropped: int
    rows_joined: int
    lanes_compacted: int


@dataclass(frozen=True)
class Segment:
    """A segment as it was listed.

    `runs` has the first and last ordinals of the listed messages, if the segment is open. A sealed segment gains no
    messages.
    """

    queue: str
    lane: int
    name: str
    runs: tuple[tuple[int, int], ...] = ()

    def predicates(self) -> list[str]:
        named = f"segment = {literal(self.name)}"
        return [f"({named} AND seq BETWEEN {first} AND {last})" for first, last in self.runs] or [named]

    @property
    def is_open(self) -> bool:
        return ids.is_open(self.name)


class Upkeep:
    """Rounds of upkeep. A round is safe during every verb and other rounds.

    A message may be dropped when it is *final* in every queue (see `tidying`), and it stays final. The round may
    therefore read the tables at different versions, as long as it misses no message and no record:

    - The round lists the files of `messages` before records and queues, and drops no later segment. A sealed segment
      gains no messages. Of an open segment the round drops only the listed ordinals.
    - The round lists queues after files and records. A queue exists before its messages, so a queue missing from the
      list was deleted. The round removes the queue's records before its messages. A verb that is about to move messages
      out of the queue conflicts with this removal.
    - One version of `visibility` then decides which messages are final. In that version a moving message is in one of
      its two queues.
    - A commit that removes rows is refused in another *generation* than the round began in. Then the round begins anew.
    """

    def __init__(self, store: DeltaStore, clock: Clock, say: Callable[[str], None] | None = None) -> None:
        self._store, self._engine, self._clock, self._say = store, store.engine, clock, say or log.debug
        self._generation = 0

    @releasing
    def run(self, vacuum: bool, judged: JudgedAges) -> UpkeepReport:
        """Do one round over all queues. The round judges ages by the instant `judged.at` (None: it judges none).

        `vacuum`: also remove files that no kept version needs. Raises StorageFailed. Raises ContentionOutlastedRetries
        if the ledger is replaced, or a commit loses, again and again.
        """
        attempts = self._store.transactions.attempts("upkeep")
        for _ in attempts:
            try:
                return self._run_round(vacuum, judged)
            except LogReplaced as replaced:
                log.info("the upkeep begins anew: %s", replaced)
        raise attempts.give_up()

    def _run_round(self, vacuum: bool, judged: JudgedAges) -> UpkeepReport:
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
        compacted = sum(self._compact(where) for where in _build_where(_find_doubled(self._engine.files()[1])))
        version, files = self._engine.files()
        listing = Listing(self._engine, version, files)
        rows = self._engine.load("visibility", Where()).rows
        queues = self._store.queues()
        tidying.repair(rows)
        lanes = _lanes(files)
        gone = sorted({*lanes, *rows["queue"].unique().to_pylist()} - {queue.id for queue in queues})
        forgotten = [queue for queue in gone if tidying.forget(queue, lanes.get(queue, ()))]
        # A message must have expired by the clock of every driver.
        if now is not None:
            queues = tidying.expire(queues, rows, listing, now - skew)
        joined = 0
        for number, queue_record in enumerate(queues, 1):
            self._say(f"tidies {queue_record.name} ({number:,} of {len(queues):,} queues)")
            joined += self._tidy_queue(tidying, queue_record, rows, listing)
        by_id = {queue.id: queue for queue in queues}
        droppable = [] if now is None else self._find_droppable(files, listing, by_id, forgotten, now, skew)
        finished = self._find_finished(droppable, by_id, before)
        self._say(f"drops {len(finished):,} finished segments")
        for queue in sorted({segment.queue for segment in finished}):
            self._drop(queue, [segment for segment in finished if segment.queue == queue])
        dropped = sum(segment.queue in by_id for segment in finished)
        if dropped:
            rows, listing = self._engine.load("visibility", Where()).rows, self._store.listings.newest()
            joined += sum(self._tidy_queue(tidying, queue, rows, listing) for queue in queues)
        self._say("joins small files")
        compacted += sum(self._compact(where) for where in _build_where(_find_many_files(files)))
        if vacuum and now is not None:
            remove_abandoned(self._store, self._clock if judged.is_confirmed else lambda: now)
        for table in TABLES if vacuum else ():
            self._say(f"vacuums {table}")
            set_retention(self._engine, self._store.transactions, settings, table, self._clock)
            if table == "visibility":
                # The vacuum can remove entries of the log that `receipts` lacks.
                filled += fill_receipts(self._engine, self._store.transactions)
            # The engines vacuum by the machine's clock.
            if judged.is_near(self._clock()):
                with self._store.transactions.turn(table):
                    self._engine.vacuum(table)
        removed = lanes.keys() & set(gone)
        if removed:
            # Segments with dead letters in other queues stay.
            removed -= _lanes(self._engine.files()[1]).keys()
        report = UpkeepReport(filled, len(removed), dropped, joined, compacted)
        log.info("%s", report)
        return report

    def _tidy_queue(self, tidying: Tidying, queue: QueueRecord, rows: pa.Table, listing: Listing) -> int:
        """Tidy a queue and return how many runs were saved: none if a lane's time is too far ahead."""
        try:
            return tidying.tidy(queue, rows, listing)
        except ClocksDisagree as error:
            log.warning("the queue %s is not tidied: %s", queue.name, error)
            return 0

    def _find_droppable(
        self,
        files: pa.Table,
        listing: Listing,
        queues: dict[str, QueueRecord],
        forgotten: list[str],
        now: int,
        skew: int,
    ) -> list[Segment]:
        """Return the segments that may be dropped once all their messages are final.

        A segment stays if a sender may append to it, if deduplication reads it, or if its deleted queue is not
        `forgotten`. It also stays if it is newer than `now` or of unknown age.
        """
        opened_by = now - self._store.settings.open_segment_seconds * MILLISECONDS
        remembered = now - DEDUPLICATION_INTERVAL * MILLISECONDS - skew
        times = [("first_sent_at", "min"), ("last_sent_at", "max")]
        segments: list[Segment] = []
        ageless = set(files.filter(pc.is_null(files["last_sent_at"]))["segment"].to_pylist())
        for row in files.group_by(["queue", "lane", "segment"]).aggregate(times).to_pylist():
            queue, name = row["queue"], row["segment"]
            record = queues.get(queue)
            until = remembered if record is not None and is_fifo(record.attributes) else now
            if (record is None and queue not in forgotten) or name in ageless:
                continue
            if row["last_sent_at_max"] > until or (ids.is_open(name) and row["first_sent_at_min"] > opened_by):
                continue
            segments.append(Segment(queue, row["lane"], name))
        # A stalled send may still commit further ordinals of an open segment.
        runs = {
            queue: _runs(listing.of(queue, NEVER, NEVER)) for queue in {one.queue for one in segments if one.is_open}
        }
        return [replace(one, runs=runs[one.queue][one.name]) if one.is_open else one for one in segments]

    def _find_finished(self, droppable: list[Segment], queues: dict[str, QueueRecord], before: int) -> list[Segment]:
        needed: set[str] = set()
        rows = self._engine.load("visibility", Where()).rows
        listing = self._store.listings.newest()
        for queue in {*queues, *rows["queue"].unique().to_pylist()} if droppable else ():
            lanes = Lanes(queue, rows.filter(pc.equal(rows["queue"], queue)))
            pieces = find_existing_messages(lanes, listing, NEVER, NEVER)[1] if queue in queues else lanes.runs
            kept = ~lanes.per_code(pieces.code, lambda r: is_final(r, before), bool)
            needed |= {lanes.segments[place] for place in set(pieces.segment[kept].tolist())}
        return [segment for segment in droppable if segment.name not in needed]

    def _drop(self, queue: str, segments: list[Segment]) -> None:
        log.info("dropping %d finished segments of %s", len(segments), queue)
        for is_open in (False, True):
            # Commits that remove only sealed segments rewrite no file.
            chosen = [segment for segment in segments if segment.is_open == is_open]
            parts = [(part, segment.lane) for segment in chosen for part in segment.predicates()]
            for start in range(0, len(parts), MOST_AT_ONCE):
                batch = parts[start : start + MOST_AT_ONCE]
                where = Where(queue, sort_distinct(lane for _, lane in batch)).sql()
                predicate = f"{where} AND ({' OR '.join(part for part, _ in batch)})"
                try_commit(self._store.transactions, "messages", partial(self._delete, queue, predicate))

    def _delete(self, queue: str, predicate: str) -> None:
        metadata = self._store.transactions.metadata("", "upkeep", queue, self._clock(), [])
        self._engine.delete("messages", predicate, metadata, self._generation)

    def _compact(self, where: Where) -> bool:
        done: list[bool] = []
        try_commit(self._store.transactions, "messages", lambda: done.append(self._engine.compact(where)))
        return any(done)


def _lanes(files: pa.Table) -> dict[str, tuple[int, ...]]:
    lanes_by_queue: dict[str, list[int]] = {}
    for row in files.group_by(["queue", "lane"]).aggregate([]).to_pylist():
        lanes_by_queue.setdefault(row["queue"], []).append(row["lane"])
    return {queue: sort_distinct(lanes) for queue, lanes in lanes_by_queue.items()}


def _runs(files: FileRuns) -> dict[str, tuple[tuple[int, int], ...]]:
    runs_by_segment: dict[str, list[tuple[int, int]]] = {}
    for name, first, last in sorted(zip(files.segment.to_pylist(), files.first_seq.tolist(), files.last_seq.tolist())):
        joined = runs_by_segment.setdefault(name, [])
        if joined and joined[-1][1] + 1 == first:
            first = joined.pop()[0]
        joined.append((first, last))
    return {name: tuple(runs) for name, runs in runs_by_segment.items()}


def _find_many_files(files: pa.Table) -> set[Place]:
    counted = files.group_by(PLACE).aggregate([("messages", "count")]).to_pylist()
    return {
        (row["queue"], row["lane"], row["segment"])
        for row in counted
        if row["messages_count"] >= FILES_WORTH_COMPACTING and ids.is_open(row["segment"])
    }


def _find_doubled(files: pa.Table) -> set[Place]:
    """Return the segments in which several messages may share an ordinal (see `delta_log.join`).

    Only a fork under an earlier release could leave such a segment.
    """
    listed = files.filter(pc.is_valid(files["first_seq"])).sort_by(
        [("segment", "ascending"), ("first_seq", "ascending")]
    )
    before, behind = listed.slice(0, max(0, listed.num_rows - 1)), listed.slice(1)
    across = pc.less_equal(behind["first_seq"], before["last_seq"])
    across = pc.and_(across, pc.equal(before["segment"], behind["segment"]))
    doubled = pc.greater(listed["messages"], pc.add(pc.subtract(listed["last_seq"], listed["first_seq"]), 1))
    wrong = pa.concat_tables([behind.filter(across), listed.filter(doubled)])
    return {(row["queue"], row["lane"], row["segment"]) for row in wrong.select(PLACE).to_pylist()}


def _build_where(places: Iterable[Place]) -> list[Where]:
    lanes: dict[tuple[str, int], list[str]] = {}
    for queue, lane, segment in sorted(places):
        lanes.setdefault((queue, lane), []).append(segment)
    return [Where(queue, (lane,), tuple(segments)) for (queue, lane), segments in lanes.items()]
