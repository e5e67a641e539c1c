"""The lanes that a verb decides on, as of one version, and the plan of the verb's commit with its events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.clock import Clock
from ledger.delta_log.protocol import Snapshot
from ledger.errors import ClocksDisagree, OutputUnreadable
from ledger.rules import instants
from ledger.rules.visibility import Record, Status
from ledger.settings import Settings
from ledger.store.delta.commit.transactions import Answer, Plan, Transactions
from ledger.store.delta.engine import MessageFiles, Tables
from ledger.store.delta.model.message_runs import Pieces, Runs, distinct_codes
from ledger.store.delta.model.tables import HEAD, Where, sort_distinct
from ledger.store.delta.state.lane_records import Lanes
from ledger.store.delta.state.listing import (
    GONE_STATES,
    INDEX,
    FileRuns,
    Listing,
    Listings,
    PlacedRuns,
    find_states,
    place_files,
)
from ledger.store.delta.state.send_history import LaneTimes
from ledger.store.protocol import Action, QueueRecord

#: A receive or a move notes at most this many records with an expired receipt one by one, so that its commit stays
#: small.
MOST_EXPIRED = 100


class Events:
    """Collects the events of one decision, which its commit notes. An event about zero messages is left out."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def add(self, event: str, record: Record, runs: Runs) -> None:
        """Note an event with the receipt, attempt and deadline of `record`."""
        self._note(event, record, runs.count)

    def note(self, event: str, queue: str, messages: int) -> None:
        """Note an event about messages of any queue."""
        if messages:
            self.entries.append({"event": event, "queue": queue, "messages": messages})

    def _note(self, event: str, record: Record, messages: int) -> None:
        if messages:
            self.entries.append(
                {
                    "event": event,
                    "receipt_id": record.receipt_id,
                    "attempt_id": record.attempt_id,
                    "messages": messages,
                    "visible_at": record.visible_at,
                }
            )

    def note_action(self, action: Action, lanes: Lanes, changed: Runs) -> None:
        """Note what an action changed, with the record of the first changed message."""
        if len(changed):
            self.add(action.event, lanes.record(changed.code[0]), changed)
            if action.reason is not None:
                self.entries[-1]["reason"] = action.reason
            if not action.counted:
                self.entries[-1]["counted"] = False

    def expired(self, lanes: Lanes, taken: Runs) -> None:
        """Note, by record, the receipts that expired on messages that are now received again or moved.

        The records beyond MOST_EXPIRED, those with the fewest messages, share one entry.
        """
        codes_taken = distinct_codes(taken.code)
        lanes.records.read(codes_taken)
        if not any(is_unreleased(lanes.record(code)) for code in codes_taken):
            return
        codes, inverse = np.unique(taken.code, return_inverse=True)
        messages = np.bincount(inverse, taken.lengths, len(codes)).astype(np.int64)
        over = lanes.per_code(codes, is_unreleased, bool)
        codes, messages = codes[over], messages[over]
        by_size = np.argsort(-messages, kind="stable")
        for place in np.sort(by_size[:MOST_EXPIRED]).tolist():
            self._note("expired", lanes.record(int(codes[place])), int(messages[place]))
        self.note("expired", lanes.queue, int(messages[by_size[MOST_EXPIRED:]].sum()))


def is_unreleased(record: Record) -> bool:
    """Return whether a record has a hold that ends only at its deadline."""
    return record.receipt_id is not None and record.released_at is None


class Classified(NamedTuple):
    """Every message of a queue, in pieces (see `find_existing_messages`).

    A piece is a part of one run of `files`. Its messages share one record, or have none, and `state` has one state for
    them all.
    """

    listing: Listing
    files: FileRuns
    pieces: Pieces
    state: np.ndarray

    def count_stored_messages(self) -> int:
        return self.pieces.where(~np.isin(self.state, GONE_STATES)).count

    def count_stored_bytes(self) -> int:
        """Return roughly how many bytes of data files belong to messages that are not gone.

        The log has only sizes of files, so a message counts with its segment's mean. A segment without a count of
        messages counts whole.
        """
        is_stored = ~np.isin(self.state, GONE_STATES)
        stored = pa.table(
            {
                "segment": self.files.segment.take(pa.array(self.pieces.query[is_stored])),
                "stored": self.pieces.where(is_stored).lengths,
            }
        )
        stored = stored.group_by("segment").aggregate([("stored", "sum")])
        sizes = self.listing.sizes(stored["segment"].unique()).join(stored, "segment")
        if not sizes.num_rows:
            return 0
        messages = pc.fill_null(sizes["messages"], sizes["stored_sum"]).to_numpy()
        share = np.minimum(sizes["stored_sum"].to_numpy() / np.maximum(messages, 1), 1)
        return int(np.ceil(sizes["bytes"].to_numpy() * share).sum())

    def oldest_sent_at(self) -> int | None:
        """Return when the oldest message that is not gone was sent.

        A gone message of the same file as a message that is not gone counts, too (see `FileRuns`).
        """
        sent_at = self.files.sent_at[self.pieces.query[~np.isin(self.state, GONE_STATES)]]
        return int(sent_at.min()) if len(sent_at) else None


@dataclass(frozen=True)
class Decision(Generic[Answer]):
    """The changes of one verb, or of several verbs of one kind.

    Attributes:
        replacement: The changed runs of the queue.
        answer: Makes the verb's answer from the version of the commit.
        meeting: Lanes that the commit counts up even if nothing changes in them, as long as some lane of the queue
            changes.
        arriving: The changed runs of other queues.
        always: Whether the commit counts up `meeting` even if no lane changes.
        granted: The part of `replacement` that the receives got.
    """

    replacement: Runs
    events: Events
    answer: Callable[[int], Answer]
    meeting: Sequence[int] = ()
    arriving: Mapping[str, Runs] = field(default_factory=dict)
    always: bool = False
    granted: Runs = field(default_factory=Runs.empty)


@dataclass(frozen=True)
class Loaded:
    """Lanes of a queue, and of the queues that messages may move to, all as of one version.

    `now` is never before the last commit to these lanes.
    """

    snapshot: Snapshot
    queue: QueueRecord
    lanes: Lanes
    others: dict[str, Lanes]
    now: int
    #: The versions of other tables that the decision read.
    read: dict[str, int] = field(default_factory=dict)
    targets: Sequence[QueueRecord] = ()
    #: The errors of output tables that did not answer.
    silent: dict[str, OutputUnreadable] = field(default_factory=dict)
    #: What `place_files` returned, by the listing's version, the number of registered segments, and the `borders` of
    #: `classify`.
    _placed: dict[tuple[int, ...], PlacedRuns] = field(default_factory=dict)

    def classify(self, listings: Listings, *borders: int) -> Classified:
        """Return every message of the queue, with its state at `now`. `borders`: see `Listing.of`."""
        expired, listing = self.queue.retention.expired(self.now), listings.newest()
        self.read["messages"] = listing.version
        looked_at = (listing.version, len(self.lanes.segments), *borders)
        placed = self._placed.get(looked_at)
        if placed is None:
            placed = self._placed[looked_at] = place_files(self.lanes, listing, self.now, expired, *borders)
        files, pieces = placed.files, placed.messages(self.lanes)
        state = find_states(self.lanes, files, pieces, self.now, expired)
        # Undecided messages count as locked: on a FIFO queue, they hide the later messages of their groups.
        undecided = np.isin(pieces.code, list(self.lanes.undecided)) & (state == INDEX[Status.VISIBLE])
        return Classified(listing, files, pieces, np.where(undecided, INDEX[Status.LOCKED], state))

    def plan(
        self,
        replacement: Runs,
        events: Events,
        answer: Callable[[int], Answer],
        meeting: Sequence[int] = (),
        arriving: dict[str, Runs] | None = None,
        always: bool = False,
    ) -> Plan[Answer]:
        decision = Decision(replacement, events, answer, meeting, arriving or {}, always)
        self.take(decision)
        return self.commit_of([decision], answer)

    def take(self, decision: Decision[Any]) -> None:
        self.lanes.supersede(decision.replacement)
        for queue, runs in decision.arriving.items():
            if queue != self.queue.id:
                self.others[queue].supersede(runs)

    def taken(self) -> dict[str, Runs]:
        return {lanes.queue: lanes.runs for lanes in (self.lanes, *self.others.values())}

    def take_back(self, before: Mapping[str, Runs]) -> None:
        for lanes in (self.lanes, *self.others.values()):
            lanes.runs = before[lanes.queue]

    def commit_of(self, decisions: Sequence[Decision[Any]], answer: Callable[[int], Answer]) -> Plan[Answer]:
        """Return the plan of one commit for decisions that were taken."""
        edits = self.lanes.edits(Runs.empty(), self.now)
        changed = set(edits["lane"].unique().to_pylist())
        meeting = {lane for decision in decisions for lane in decision.meeting}
        if changed or any(decision.always for decision in decisions):
            edits = pa.concat_tables([self.lanes.heads.edits(sorted(meeting - changed), self.now), edits])
        where = Where(self.queue.id, sort_distinct(changed | meeting))
        for queue, lanes in self.others.items():
            other_edits = lanes.edits(Runs.empty(), self.now)
            if other_edits.num_rows:
                edits = pa.concat_tables([edits, other_edits])
                where = Where(queue, sort_distinct(other_edits["lane"].unique().to_pylist()), also=where)
        events = [entry for decision in decisions for entry in decision.events.entries]
        return Plan(self.snapshot, where, edits, events, answer, self.now, self.read)


def load(
    tables: Tables,
    settings: Settings,
    queue: QueueRecord,
    clock: Clock | None,
    lanes: tuple[int, ...] | None = None,
    others: Sequence[QueueRecord] = (),
    receipt_id: str | None = None,
) -> Loaded:
    """Load lanes of a queue (None: all) and all lanes of `others`. Raises ClocksDisagree.

    With a `receipt_id`, the result has only the records under this receipt, so no verb may decide on it. The clock is
    read after the lanes, so that reading them does not shorten a hold. Without a `clock`, `now` is the time of the last
    commit.
    """
    where = Where(queue.id, lanes)
    other_queues = [other for other in others if other.id != queue.id]
    for other in other_queues:
        where = Where(other.id, also=where)
    snapshot = tables.load("visibility", where)
    if receipt_id is not None:
        snapshot = replace(snapshot, rows=_filter_by_receipt(snapshot.rows, receipt_id))
    rows = {
        one.id: _rows_of(snapshot.rows, one.id) if other_queues else snapshot.rows for one in (queue, *other_queues)
    }
    by_queue = {name: Lanes(name, own_rows) for name, own_rows in rows.items()}
    latest = max(one.latest for one in by_queue.values())
    at = latest
    if clock is not None:
        now, skew = clock(), settings.maximum_clock_skew
        at = instants.advance_to_last_commit(now, latest, skew)
        instants.require_expiry(now, max(one.noted_at for one in (queue, *other_queues)), skew)
    own_rows = by_queue.pop(queue.id)
    return Loaded(snapshot, queue, own_rows, by_queue, at, targets=others)


def load_all(
    tables: Tables, settings: Settings, queues: Sequence[QueueRecord], clock: Clock
) -> tuple[Snapshot, int, dict[str, Loaded]]:
    """Load all lanes of queues, as of one version and one instant (or a queue's last commit, if later).

    Return the snapshot, the instant, and the loaded lanes by the queue's name. Raises ClocksDisagree.
    """
    snapshot, loaded = tables.load("visibility", Where()), {}
    now = clock()
    for queue in queues:
        lanes = Lanes(queue.id, _rows_of(snapshot.rows, queue.id))
        at = instants.advance_to_last_commit(now, lanes.latest, settings.maximum_clock_skew)
        instants.require_expiry(now, queue.noted_at, settings.maximum_clock_skew)
        loaded[queue.name] = Loaded(snapshot, queue, lanes, {}, at)
    return snapshot, now, loaded


def _filter_by_receipt(rows: pa.Table, receipt_id: str) -> pa.Table:
    return rows.filter(pc.or_kleene(pc.equal(rows["segment"], HEAD), pc.equal(rows["receipt_id"], receipt_id)))


def _rows_of(rows: pa.Table, queue: str) -> pa.Table:
    return rows.filter(pc.equal(rows["queue"], queue))


@dataclass(frozen=True)
class OpenTables:
    """The shared parts of an open ledger. `tables` and `files` are one engine under two protocols."""

    tables: Tables
    files: MessageFiles
    transactions: Transactions
    settings: Settings
    listings: Listings
    times: LaneTimes

    def load(
        self,
        queue: QueueRecord,
        clock: Clock | None,
        lanes: tuple[int, ...] | None = None,
        others: Sequence[QueueRecord] = (),
        receipt_id: str | None = None,
    ) -> Loaded:
        """Load lanes (see `snapshot.load`). If clocks disagree, make the next send look at the lanes again."""
        try:
            return load(self.tables, self.settings, queue, clock, lanes, others, receipt_id)
        except ClocksDisagree:
            self.times.forget(queue.id)
            raise
