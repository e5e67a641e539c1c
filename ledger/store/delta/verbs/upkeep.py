"""Upkeep: one round removes what is finished, joins rows and files, and fills the table `receipts`.

No verb needs upkeep for being right, but the table `receipts` needs it to be complete. A round, or
`Ledger.fill_receipts`, must copy the events of commits before these commits are older than `log_retention`.

A round with a vacuum writes the settings `log_retention` and `deleted_file_retention`, if they are given, into the
properties of the tables (`set_retention`). Both engines obey these properties.
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
from ledger.store.delta.verbs.ages import JudgedAges
from ledger.store.delta.verbs.receipts import fill_receipts
from ledger.store.delta.verbs.staged_sends import remove_abandoned
from ledger.store.delta.verbs.store import DeltaStore
from ledger.store.delta.verbs.tidying import NEVER, Tidying, is_final, try_commit
from ledger.store.protocol import QueueRecord


def kept(engine: Engine, table: str) -> Kept:
    """Return how long a table keeps its past, by its properties. Delta's defaults replace a property that is missing or
    cannot be parsed."""
    return kept_by(engine.layout(table).properties)


def require_possible(engine: Engine, settings: Settings) -> None:
    """Raise InvalidParameterValue if a table would keep files for longer than commits.

    Checks only settings that give one of `log_retention` and `deleted_file_retention`. Settings that give both are
    checked when they are read.
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
    """Set the retention properties of a table in one commit, if the settings give other values than the table has."""
    seconds_by_property = {LOG_RETENTION: settings.log_retention, FILE_RETENTION: settings.deleted_file_retention}
    properties = engine.layout(table).properties
    new = {
        name: f"interval {seconds} seconds"
        for name, seconds in seconds_by_property.items()
        if seconds is not None and interval_seconds(properties.get(name)) != seconds
    }
    if new:
        base = transactions.metadata(secrets.token_hex(8), "upkeep", "", clock(), [])
        metadata = {**base, "read": transactions.other_table_versions(table, engine.version(table))}
        try_commit(transactions, table, partial(engine.configure, table, new, metadata))


log = logging.getLogger("ledger.upkeep")
#: Upkeep joins the files of an open segment that has at least this many.
FILES_WORTH_COMPACTING = 8
#: The most runs of messages, or whole segments, in one predicate. A predicate with thousands overflows delta-rs's
#: stack.
MOST_AT_ONCE = 500
#: The columns that locate a segment.
PLACE = ["queue", "lane", "segment"]
Place = tuple[str, int, str]


@dataclass(frozen=True)
class UpkeepReport:
    """The result of a round of upkeep.

    Attributes:
        receipts_filled: How many entries `receipts` got.
        queues_removed: How many deleted queues lost their last message.
        segments_dropped: How many finished segments of existing queues the round dropped, or tried to drop in commits
            that lost.
        rows_joined: How many runs of existing queues `visibility` lost (a set counts as its runs).
        lanes_compacted: In how many lanes files were joined. A lane may count twice, as a round joins files twice.
    """

    receipts_filled: int
    queues_removed: int
    segments_dropped: int
    rows_joined: int
    lanes_compacted: int


@dataclass(frozen=True)
class Segment:
    """A segment as it was listed.

    `runs` are the listed messages of an open segment, as first and last ordinals. (The ordinal of a message is its
    place in its segment.) A sealed segment, which gains no messages, has no `runs`.
    """

    queue: str
    lane: int
    name: str
    runs: tuple[tuple[int, int], ...] = ()

    def predicates(self) -> list[str]:
        """Return SQL predicates for the messages that were listed: one for each run, or one for a whole sealed
        segment."""
        named = f"segment = {literal(self.name)}"
        return [f"({named} AND seq BETWEEN {first} AND {last})" for first, last in self.runs] or [named]

    @property
    def is_open(self) -> bool:
        """Whether the segment may gain messages."""
        return ids.is_open(self.name)


class Upkeep:
    """Rounds of upkeep. A round is safe during every verb and other rounds.

    A message may be dropped when it is *final* in every queue (see `tidying`), and it stays final. The round may
    therefore read the tables at different versions, as long as it misses no message and no record:

    - A round lists the files of `messages` before it reads records and queues. The round drops no segment that begins
      afterwards. A sealed segment gains no messages, and of an open segment the round drops only the listed ordinals.
    - The round lists queues after those files and after `visibility`. A queue exists before its messages and records. A
      queue that has messages or records and is missing from the list was therefore deleted for good. The round removes
      the records of that queue before it drops any of its messages. A verb that is about to move messages out of the
      queue conflicts with this removal.
    - After that the round reads, from one version of `visibility`, whether messages are final. A message that moves is
      in one of its two queues in that version. All queues in that version count.
    - No commit of the round removes rows in another *generation* than the round began in. A generation ends when other
      tables or a backup replace the ledger's tables. Then the commit is refused, and the round begins anew.
    """

    def __init__(self, store: DeltaStore, clock: Clock, say: Callable[[str], None] | None = None) -> None:
        self._store, self._engine, self._clock, self._say = store, store.engine, clock, say or log.debug
        self._generation = 0

    @releasing
    def run(self, vacuum: bool, judged: JudgedAges) -> UpkeepReport:
        """Do one round over all queues. The round judges ages by the instant `judged.at` (None: it judges none).

        Deleted messages keep their receipts for at least keep_deleted_receipts seconds (a setting). `vacuum`: also
        remove files that no kept version needs. Raises StorageFailed. Raises ContentionOutlastedRetries if the ledger
        is replaced, or a commit loses, again and again.
        """
        attempts = self._store.transactions.attempts("upkeep")
        for _ in attempts:
            try:
                return self._round(vacuum, judged)
            except LogReplaced as replaced:
                log.info("the upkeep begins anew: %s", replaced)
        raise attempts.outlasted()

    def _round(self, vacuum: bool, judged: JudgedAges) -> UpkeepReport:
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
        # A message counts as expired only if it has expired by the clock of every driver.
        if now is not None:
            queues = tidying.expire(queues, rows, listing, now - skew)
        joined = 0
        for number, queue_record in enumerate(queues, 1):
            self._say(f"tidies {queue_record.name} ({number:,} of {len(queues):,} queues)")
            joined += self._tidied(tidying, queue_record, rows, listing)
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
            set_retention(self._engine, self._store.transactions, settings, table, self._clock)
            if table == "visibility":
                # Fill again just before the vacuum, which can remove entries of the log.
                filled += fill_receipts(self._engine, self._store.transactions)
            # The engines vacuum by the machine's clock: vacuum only if it is near `judged.at`.
            if judged.is_near(self._clock()):
                with self._store.transactions.turn(table):
                    self._engine.vacuum(table)
        removed = lanes.keys() & set(gone)
        if removed:
            # Count only queues whose segments are all gone: a segment with dead letters in another queue stays.
            removed -= _lanes(self._engine.files()[1]).keys()
        report = UpkeepReport(filled, len(removed), dropped, joined, compacted)
        log.info("%s", report)
        return report

    def _tidied(self, tidying: Tidying, queue: QueueRecord, rows: pa.Table, listing: Listing) -> int:
        """Tidy a queue (see Tidying.tidy) and return how many runs were saved.

        If the queue's time is too far ahead of the clock, log a warning and skip the queue.
        """
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
        """Return the segments that may be dropped once all their messages are final.

        An open segment stays while its sender may still append to it. A segment of a FIFO queue stays while
        deduplication still reads it, by the clock of any driver. A segment of a queue that is not in `queues` stays
        unless the queue is `forgotten`. A segment also stays if it has a message from after `now`, or a file whose age
        the log does not show.
        """
        opened_by = now - self._store.settings.open_segment_seconds * MILLISECONDS
        remembered = now - DEDUPLICATION_INTERVAL * MILLISECONDS - skew
        times = [("first_sent_at", "min"), ("last_sent_at", "max")]
        segments: list[Segment] = []
        # The log does not show the ages of files without statistics.
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
        # Drop only the listed runs of an open segment: a stalled send may still commit further ordinals.
        runs = {
            queue: _runs(listing.of(queue, NEVER, NEVER)) for queue in {one.queue for one in segments if one.is_open}
        }
        return [replace(one, runs=runs[one.queue][one.name]) if one.is_open else one for one in segments]

    def _finished(self, droppable: list[Segment], queues: dict[str, QueueRecord], before: int) -> list[Segment]:
        """Return the segments whose messages are all final in every queue, as of one version of the records."""
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
        """Remove finished segments of a queue, in commits of at most MOST_AT_ONCE predicates.

        A commit that keeps losing to others is left to the next round (see `try_commit`).
        """
        log.info("dropping %d finished segments of %s", len(segments), queue)
        for is_open in (False, True):
            # Remove sealed segments in commits of their own, which rewrite no file.
            chosen = [segment for segment in segments if segment.is_open == is_open]
            parts = [(part, segment.lane) for segment in chosen for part in segment.predicates()]
            for start in range(0, len(parts), MOST_AT_ONCE):
                batch = parts[start : start + MOST_AT_ONCE]
                where = Where(queue, tuple_of(lane for _, lane in batch)).sql()
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
    """Return the lanes in which each queue has messages."""
    lanes_by_queue: dict[str, list[int]] = {}
    for row in files.group_by(["queue", "lane"]).aggregate([]).to_pylist():
        lanes_by_queue.setdefault(row["queue"], []).append(row["lane"])
    return {queue: tuple_of(lanes) for queue, lanes in lanes_by_queue.items()}


def _runs(files: FileRuns) -> dict[str, tuple[tuple[int, int], ...]]:
    """Return the ordinals (first, last) of each segment, with neighbours joined."""
    runs_by_segment: dict[str, list[tuple[int, int]]] = {}
    for name, first, last in sorted(zip(files.segment.to_pylist(), files.first_seq.tolist(), files.last_seq.tolist())):
        joined = runs_by_segment.setdefault(name, [])
        if joined and joined[-1][1] + 1 == first:
            first = joined.pop()[0]
        joined.append((first, last))
    return {name: tuple(runs) for name, runs in runs_by_segment.items()}


def _of_many_files(files: pa.Table) -> set[Place]:
    """Return the open segments that have at least FILES_WORTH_COMPACTING files (files without statistics do not
    count)."""
    counted = files.group_by(PLACE).aggregate([("messages", "count")]).to_pylist()
    return {
        (row["queue"], row["lane"], row["segment"])
        for row in counted
        if row["messages_count"] >= FILES_WORTH_COMPACTING and ids.is_open(row["segment"])
    }


def _doubled(files: pa.Table) -> set[Place]:
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


def _where(places: Iterable[Place]) -> list[Where]:
    """Return a Where for each lane of a queue, with the segments in that lane."""
    lanes: dict[tuple[str, int], list[str]] = {}
    for queue, lane, segment in sorted(places):
        lanes.setdefault((queue, lane), []).append(segment)
    return [Where(queue, (lane,), tuple(segments)) for (queue, lane), segments in lanes.items()]
