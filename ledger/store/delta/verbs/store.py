"""DeltaStore: the Store on Delta tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from ledger.clock import Clock
from ledger.delta_log.failures import find_gone_folder
from ledger.errors import LedgerDamaged, MessageDoesNotExist, StorageFailed
from ledger.output_tables.protocol import ForeignTables
from ledger.rules import message_id as ids
from ledger.rules import visibility
from ledger.rules.copies import CopyProgress, Position
from ledger.rules.limits import Limits
from ledger.rules.location import recorded
from ledger.rules.message import Entry
from ledger.rules.redrive import MoveTask
from ledger.rules.visibility import UNTOUCHED, Outcome, Receipts, Record
from ledger.settings import Settings
from ledger.store.delta.commit.readiness import Readiness
from ledger.store.delta.commit.transactions import Plan, Transactions
from ledger.store.delta.engine import Engine
from ledger.store.delta.model.message_runs import ABSENT, Runs
from ledger.store.delta.model.tables import TABLES
from ledger.store.delta.state.fifo_groups import Groups
from ledger.store.delta.state.listing import ORDINALS, STATES, Listings, find_kept_from, find_missing, outside
from ledger.store.delta.state.send_history import LaneTimes
from ledger.store.delta.state.sent_messages import RecentMessages
from ledger.store.delta.state.snapshot import Classified, Events, Loaded, OpenTables, load_all
from ledger.store.delta.verbs.actions import Applier
from ledger.store.delta.verbs.copies import Copies, QueueContents
from ledger.store.delta.verbs.granting import grant_of
from ledger.store.delta.verbs.moving import Redriver, Rejecter, Tasks
from ledger.store.delta.verbs.output_writes import Outputs
from ledger.store.delta.verbs.purging import Purger
from ledger.store.delta.verbs.queues import Queues
from ledger.store.delta.verbs.reading import Reader
from ledger.store.delta.verbs.receiving import Receiver
from ledger.store.delta.verbs.rounds import OverdueNotice, Rounds
from ledger.store.delta.verbs.sending import Quotas, Sender
from ledger.store.delta.verbs.sharing import SharedReads, SharedSends, SharedVerbs
from ledger.store.delta.verbs.vitals import VitalSigns
from ledger.store.protocol import (
    RUNS,
    Action,
    Change,
    Contents,
    CopiedMessage,
    Grant,
    Lease,
    QueueRecord,
    Received,
    ReceiveRequest,
    StateCounts,
    StoredMessage,
    StoredSend,
    count_messages,
    leases_of,
)

if TYPE_CHECKING:
    from ledger.output_tables.tables_of_spark import SparkOutputTables

OUTCOMES = list(Outcome)


class AllCounts(NamedTuple):
    """The counts of all queues by name. `version` is the version of `visibility` that was read, `messages` that of
    `messages`."""

    version: int
    messages: int
    now: int
    counts: Mapping[str, StateCounts]


class DeltaStore:
    """A Store on one ledger's tables, through one engine. Threads may share the store.

    `outputs` reaches output tables through the engine, `by_spark` through the user's Spark session.
    """

    def __init__(
        self,
        engine: Engine,
        transactions: Transactions,
        settings: Settings,
        outputs: ForeignTables,
        by_spark: SparkOutputTables | None = None,
        sender_id: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        readiness: Readiness | None = None,
    ) -> None:
        self.sender_id = sender_id
        self.spark = None if by_spark is None else by_spark.session
        self.storage_options = storage_options
        self.engine, self.transactions, self.settings = engine, transactions, settings
        self._readiness = readiness
        self.rounds = Rounds(engine, transactions)
        transactions.on_commit = OverdueNotice(self.rounds.look, self.rounds.log_retention).committed
        self.listings = Listings(engine)
        self.times = LaneTimes(engine, settings)
        opened = self._opened = OpenTables(engine, engine, transactions, settings, self.listings, self.times)
        queues = self._queues = Queues(engine, transactions, settings)
        groups = Groups(engine, queues.all)
        self.recent = RecentMessages(sender_id)
        self._sends = SharedSends(opened, queues, Sender(opened, sender_id, self.recent))
        self._purger = Purger(opened)
        self._tasks = Tasks(engine, transactions)
        self.outputs = Outputs(opened, outputs, by_spark)
        self._shared = SharedVerbs(opened, queues)
        self._applier = Applier(engine, self.listings, self._shared)
        self._receiver = Receiver(opened, groups, queues, self.outputs, self._shared)
        self._rejecter = Rejecter(opened, queues, self._shared)
        self._redriver = Redriver(opened, groups, queues, self.outputs)
        self.vital_signs = VitalSigns(engine, settings, queues.all, self.listings, storage_options)
        self._reader = Reader(engine, self.listings, self.recent)
        self._reads = SharedReads(opened, self._reader)
        self._contents = QueueContents(opened, self._reader)
        self._copies = Copies(opened, engine, queues)
        self.quotas = Quotas(opened)

    def create_queue(
        self, name: str, attributes: Mapping[str, str], tags: Mapping[str, str], clock: Clock
    ) -> QueueRecord:
        return self._queues.create(name, attributes, tags, clock)

    def queue(self, name: str) -> QueueRecord:
        return self._queues.get(name)

    def queues(self) -> list[QueueRecord]:
        return self._queues.all()

    def change_queue(self, queue: QueueRecord, change: Change, clock: Clock) -> QueueRecord:
        """See Store. Raises ClocksDisagree (see `LaneTimes.require`)."""
        self.times.require(queue, clock)
        return self._queues.change(queue, change, clock)

    def delete_queue(self, queue: QueueRecord, clock: Clock) -> None:
        self._queues.delete(queue, clock)

    def require_queue(self, queue: QueueRecord, others: Sequence[QueueRecord] = ()) -> tuple[int, bool]:
        return self._queues.require(queue, others)

    def current_queue(self, queue: QueueRecord) -> QueueRecord:
        return self._queues.current(queue)

    def expire(self, queues: Sequence[QueueRecord], at: int, clock: Clock) -> list[QueueRecord]:
        return self._queues.expire(queues, at, clock)

    def put_back_queue(self, queue: QueueRecord, clock: Clock) -> None:
        self._queues.put_back(queue, clock)

    def send(
        self, queue: QueueRecord, entries: Sequence[Entry], clock: Clock, attempt_id: str | None
    ) -> list[StoredSend]:
        return self._sends.send(queue, entries, clock, attempt_id)

    def receive(self, queue: QueueRecord, requests: Sequence[ReceiveRequest], clock: Clock) -> list[Received]:
        return self._receiver.receive(queue, requests, clock)

    def apply(
        self, queue: QueueRecord, actions: Sequence[Action], limits: Limits, receipts: Receipts, clock: Clock
    ) -> list[pa.Table]:
        return self._applier.apply(queue, actions, limits, receipts, clock)

    def reject(self, queue: QueueRecord, actions: Sequence[Action], clock: Clock) -> int | None:
        return self._rejecter.reject(queue, actions, clock)

    def redrive(
        self,
        source: QueueRecord,
        target: QueueRecord | None,
        maximum: int | None,
        chosen: pa.Table | None,
        clock: Clock,
    ) -> int:
        return self._redriver.redrive(source, target, maximum, chosen, clock)

    def purge(self, queue: QueueRecord, clock: Clock, older_than: int | None = None) -> int:
        return self._purger.purge(queue, clock, older_than)

    def tasks(self) -> list[MoveTask]:
        return self._tasks.all()

    def put_task(self, task: MoveTask) -> bool:
        return self._tasks.put(task)

    def contents(
        self, queue: QueueRecord, clock: Clock, after: Position | None = None, until: int | None = None
    ) -> Contents:
        return self._contents.contents(queue, clock, after, until)

    def copy_progress(self, queue: QueueRecord, key: str) -> CopyProgress | None:
        return self._copies.progress(queue, key)

    def add_copies(
        self, queue: QueueRecord, messages: Sequence[CopiedMessage], key: str, progress: CopyProgress, clock: Clock
    ) -> bool:
        return self._copies.add(queue, messages, key, progress, clock)

    def restore(self, queue: QueueRecord, receipt_id: str, clock: Clock) -> int:
        def decide(losses: int) -> Plan[int]:
            loaded = self._opened.load(queue, clock)
            self.outputs.fence_writes(loaded, receipt_id)
            _, files, pieces, _ = loaded.classify(self.listings)
            lanes = loaded.lanes

            def restored_code(record: Record) -> int:
                if record is UNTOUCHED:
                    return ABSENT
                return lanes.code(visibility.restore(record, receipt_id, loaded.now) or record)

            new = lanes.per_code(pieces.code, restored_code, np.int64)
            changed = new != pieces.code
            changed &= find_kept_from(lanes, files, pieces) > queue.retention.expired(loaded.now)
            replacement = pieces.recode(new).where(changed).in_order()
            events = Events()
            events.add("restored", Record(receipt_id=receipt_id, visible_at=loaded.now), replacement)
            return loaded.plan(replacement, events, lambda version: replacement.count)

        return self.transactions.run("restore", "visibility", queue.id, decide)

    def lock(self, queue: QueueRecord, message_id: str, timeout: int, clock: Clock) -> bool:
        lanes_with_it = self._lanes_of(queue, message_id)

        def decide(losses: int) -> Plan[bool]:
            loaded, events = self._opened.load(queue, clock, lanes_with_it), Events()
            _, code = self._find(queue, loaded, message_id)
            undecided = self.outputs.fence_doubts(loaded, events, only=loaded.lanes.record(code))
            if undecided is not None:
                raise undecided
            found, code = self._find(queue, loaded, message_id)
            record = visibility.lock(loaded.lanes.record(code), timeout, loaded.now)
            replacement = Runs.empty() if record is None else found.recode(loaded.lanes.code(record))
            if record is not None:
                events.add("locked", record, replacement)
            return loaded.plan(replacement, events, lambda version: record is not None)

        return self.transactions.run("lock", "visibility", queue.id, decide)

    def peek(self, queue: QueueRecord, message_id: str) -> StoredMessage:
        loaded = self._opened.load(queue, None, self._lanes_of(queue, message_id))
        found, code = self._find(queue, loaded, message_id)
        lane = int(loaded.lanes.lanes(found)[0])
        return self._reader.message(queue, lane, message_id, loaded.lanes.record(code))

    def held(self, queue: QueueRecord, receipt_id: str, clock: Clock | None = None) -> Grant | None:
        loaded = self._opened.load(queue, clock, receipt_id=receipt_id)
        lanes, now = loaded.lanes, None if clock is None else loaded.now
        is_held = lanes.per_code(lanes.runs.code, lambda r: visibility.is_held(r, receipt_id, now), bool)
        runs = lanes.runs.where(is_held)
        return grant_of(lanes, runs)(loaded.snapshot.version)

    def read(self, queue: QueueRecord, grant: Grant) -> list[StoredMessage]:
        messages = self._reads.read(queue, grant)
        if len(messages) < grant.count:
            rows = [(one.segment, one.seq, one.seq) for one in messages]
            found = pa.table([pa.array(column) for column in zip(*rows)], names=ORDINALS) if rows else None
            self._require_none_held(queue, grant, grant.runs if found is None else outside(grant.runs, found))
        return messages

    def require_messages(self, queue: QueueRecord, grant: Grant, runs: pa.Table) -> None:
        missing = find_missing(self.listings.newest(), runs)
        if missing.num_rows:
            self._require_none_held(queue, grant, missing)

    def _require_none_held(self, queue: QueueRecord, grant: Grant, missing: pa.Table) -> None:
        """Raise LedgerDamaged if a grant still holds messages that have no row.

        Upkeep drops only final messages, and a held message is not final. The caller looked for the rows before this
        method reads the records. So the row of a message that is still held is lost.
        """
        held = self.held(queue, grant.receipt_id)
        lost = count_messages(missing) - count_messages(missing if held is None else outside(missing, held.runs))
        if lost:
            raise make_missing_rows_error(grant.receipt_id, grant.count, lost, self.engine.place("messages"))

    def leases(self, queue: QueueRecord, clock: Clock) -> list[Lease]:
        return self._leases(queue, clock, postponed=False)

    def postponed(self, queue: QueueRecord, clock: Clock) -> list[Lease]:
        return self._leases(queue, clock, postponed=True)

    def given_back(self, queue: QueueRecord, clock: Clock) -> Mapping[str, pa.Table]:
        loaded = self._opened.load(queue, clock)
        lanes, codes_by_receipt = loaded.lanes, dict[str, list[int]]()
        for code in set(lanes.runs.code.tolist()):
            record = lanes.record(code)
            if visibility.is_postponed(record, loaded.now):
                codes_by_receipt.setdefault(record.receipt_id or "", []).append(code)
        return {
            receipt_id: pa.table(lanes.to_arrow(lanes.runs.where(np.isin(lanes.runs.code, receipt_codes))), schema=RUNS)
            for receipt_id, receipt_codes in codes_by_receipt.items()
        }

    def _leases(self, queue: QueueRecord, clock: Clock, *, postponed: bool) -> list[Lease]:
        loaded = self._opened.load(queue, clock)
        runs = loaded.lanes.runs
        recorded = zip(map(loaded.lanes.record, runs.code.tolist()), runs.lengths.tolist())
        return leases_of(recorded, loaded.now, postponed=postponed)

    def counts(self, queue: QueueRecord, clock: Clock) -> StateCounts:
        return _counts(self._opened.load(queue, clock).classify(self.listings))

    def all_counts(self, clock: Clock) -> AllCounts:
        """Return the counts of all queues, as of one version of the records."""
        snapshot, now, loaded = load_all(self.engine, self.settings, list(self.queues()), clock)
        counts = {name: _counts(one.classify(self.listings)) for name, one in loaded.items()}
        read = [one.read["messages"] for one in loaded.values()]
        messages = max(read) if read else self.engine.version("messages")
        return AllCounts(snapshot.version, messages, now, counts)

    def change_token(self) -> object:
        return self.engine.version("messages"), self.engine.version("visibility"), self.engine.generation()

    def require_tables(self) -> None:
        # `Engine.version` may return the last known version of a table that is gone.
        for table in TABLES:
            if not self.engine.exists(table):
                gone = find_gone_folder(self.engine.place(table))
                problem = "there is no table" if gone is None else f"there is no folder {gone} any more"
                raise StorageFailed(self.engine.place(table), problem)

    def require_ready(self, free_bytes: int) -> None:
        if self._readiness is not None:
            self._readiness.require(free_bytes)

    @property
    def place(self) -> str:
        location = recorded(self.engine.place("queues"))
        return str(Path(location.text).resolve()) if location.is_local else location.text

    def refusals(self) -> Mapping[str, tuple[str, str]]:
        return {} if self._readiness is None else self._readiness.refusals()

    def _lanes_of(self, queue: QueueRecord, message_id: str) -> tuple[int, ...] | None:
        """Return the lane of a message that was sent to this queue, else None (any lane may have the message)."""
        home = self.listings.newest().home(ids.place(message_id)[0])
        return (home[1],) if home is not None and home[0] == queue.id else None

    def _exists(self, highest: int | None, message_id: str) -> bool:
        """Return whether a message was sent. `highest` is the highest ordinal of its segment.

        The log shows no ordinal (None) of files that a user's OPTIMIZE wrote without statistics.
        """
        return self._reader.has_row(message_id) if highest is None else ids.place(message_id)[1] <= highest

    def _find(self, queue: QueueRecord, loaded: Loaded, message_id: str) -> tuple[Runs, int]:
        """Return a message as a run, and its record's code. Raises MessageDoesNotExist."""
        segment, seq = ids.place(message_id)
        home, lanes = self.listings.newest().home(segment), loaded.lanes
        own = home is not None and home[0] == queue.id
        if home is not None and (own or lanes.knows(segment)) and self._exists(home[2], message_id):
            lane = home[1] if own else lanes.lane_of_segment(segment)
            found = lanes.cut(pa.table([[lane], [segment], [seq], [seq]], schema=RUNS))
            code = int(found.code[0])
            if lanes.record(code).moved_to is None and (own or code != ABSENT):
                return found, code
        raise MessageDoesNotExist(f"There is no message {message_id} in queue {queue.name}")


def make_missing_rows_error(receipt_id: str, count: int, lost: int, place: str) -> LedgerDamaged:
    return LedgerDamaged(
        f"Of the {count:,} messages of the claim {receipt_id}, {lost:,} have no row in the table {place} any more",
        "`ledger repair`, a RESTORE or a DELETE of that table removed the rows. Nothing was acknowledged. "
        "claim.release() gives the other messages to the next receive; claim.delete() acknowledges all, the lost ones "
        "too. A backup may have the lost ones.",
    )


def _counts(classified: Classified) -> StateCounts:
    counted = np.bincount(classified.state, classified.pieces.lengths, len(STATES)).astype(np.int64)
    return StateCounts(dict(zip(STATES, counted.tolist())), classified.oldest_sent_at())
