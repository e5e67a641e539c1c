"""What every verb that decides on lanes shares: loading them as of one version, the time, and the plan that results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.clock import Clock
from ledger.delta_log.protocol import Snapshot
from ledger.errors import OutputUnreadable
from ledger.rules import instants
from ledger.rules.state import Status
from ledger.settings import Settings
from ledger.store.delta.commit.transactions import Answer, Plan
from ledger.store.delta.engine import Tables
from ledger.store.delta.model.run_algebra import Pieces, Runs
from ledger.store.delta.model.tables import HEAD
from ledger.store.delta.model.where import Where, tuple_of
from ledger.store.delta.state.journal import Events
from ledger.store.delta.state.lane_records import Lanes
from ledger.store.delta.state.listing import FileRuns, Listing, Listings
from ledger.store.delta.state.statuses import GONE_STATES, INDEX, PlacedRuns, placed_files, states
from ledger.store.protocol import QueueRecord


class Classified(NamedTuple):
    """Every message of a queue: the listing and the runs of its files, their pieces (see `existing_messages`), and the
    state of each piece."""

    listing: Listing
    files: FileRuns
    pieces: Pieces
    state: np.ndarray

    def oldest_sent_at(self) -> int | None:
        """Return when the oldest message that is still there was sent; None: there is none."""
        sent_at = self.files.sent_at[self.pieces.query[~np.isin(self.state, GONE_STATES)]]
        return int(sent_at.min()) if len(sent_at) else None


@dataclass(frozen=True)
class Decision(Generic[Answer]):
    """What one verb lays on the queue's lanes, and on those of others (`arriving`, by queue); what it says that it did,
    and its answer once that is a version.

    `meeting`: lanes to count up even though nothing changes there, when anything changes at all, or `always`.
    `granted`: of the replacement, what somebody gets a claim of, who knows it by the version.
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
    """Lanes of a queue, and of those that messages may move to, all as of one version. `now` is never before the last
    commit there."""

    snapshot: Snapshot
    queue: QueueRecord
    lanes: Lanes
    others: dict[str, Lanes]
    now: int
    #: The versions of the other tables that the decision looked at.
    read: dict[str, int] = field(default_factory=dict)
    #: The queues that messages may move to.
    targets: Sequence[QueueRecord] = ()
    #: The output tables that were asked, and did not say what they have of a write.
    silent: dict[str, OutputUnreadable] = field(default_factory=dict)
    #: Where the queue's messages lie, by the version of the listing, how many segments were met by then, and borders.
    _placed: dict[tuple[int, ...], PlacedRuns] = field(default_factory=dict)

    def classify(self, listings: Listings, *borders: int) -> Classified:
        """Return every message of the queue. No piece has both messages that were sent by one of the instants `borders`
        and later ones."""
        expired, listing = self.queue.retention.expired(self.now), listings.newest()
        self.read["messages"] = listing.version
        looked_at = (listing.version, len(self.lanes.segments), *borders)
        placed = self._placed.get(looked_at)
        if placed is None:
            placed = self._placed[looked_at] = placed_files(self.lanes, listing, self.now, expired, *borders)
        files, pieces = placed.files, placed.messages(self.lanes)
        state = states(self.lanes, files, pieces, self.now, expired)
        # As if locked: not to be received, and on FIFO queues nothing behind it.
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
        """The commit that does one verb: what a Decision of these says."""
        decision = Decision(replacement, events, answer, meeting, arriving or {}, always)
        self.take(decision)
        return self.commit_of([decision], answer)

    def take(self, decision: Decision[Any]) -> None:
        """From now on all is taken to be recorded as a decision says."""
        self.lanes.supersede(decision.replacement)
        for queue, runs in decision.arriving.items():
            # A message that moves to its own queue is in `replacement`.
            if queue != self.queue.id:
                self.others[queue].supersede(runs)

    def taken(self) -> dict[str, Runs]:
        """What is taken to be recorded, by queue: to `take_back` to."""
        return {lanes.queue: lanes.runs for lanes in (self.lanes, *self.others.values())}

    def take_back(self, before: Mapping[str, Runs]) -> None:
        """Takes that to be recorded again which was `taken` before."""
        for lanes in (self.lanes, *self.others.values()):
            lanes.runs = before[lanes.queue]

    def commit_of(self, decisions: Sequence[Decision[Any]], answer: Callable[[int], Answer]) -> Plan[Answer]:
        """The one commit of decisions that were all taken."""
        edits = self.lanes.edits(Runs.empty(), self.now)
        changed = set(edits["lane"].unique().to_pylist())
        meeting = {lane for decision in decisions for lane in decision.meeting}
        if changed or any(decision.always for decision in decisions):
            edits = pa.concat_tables([self.lanes.heads.edits(sorted(meeting - changed), self.now), edits])
        where = Where(self.queue.id, tuple_of(changed | meeting))
        for queue, lanes in self.others.items():
            there = lanes.edits(Runs.empty(), self.now)
            if there.num_rows:
                edits = pa.concat_tables([edits, there])
                where = Where(queue, tuple_of(there["lane"].unique().to_pylist()), also=where)
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
    """Lanes of a queue (None: all) and all lanes of `others`; with a `receipt_id`, which is not to decide on, of what
    is recorded that alone which is under this receipt. Raises ClocksDisagree.

    The clock is read once they are: however long the wait and the reading took, a lease that is granted now counts from
    now. `clock` is None where the time is not asked for.
    """
    where = Where(queue.id, lanes)
    there = [other for other in others if other.id != queue.id]
    for other in there:
        where = Where(other.id, also=where)
    snapshot = tables.load("visibility", where)
    if receipt_id is not None:
        snapshot = replace(snapshot, rows=_under(snapshot.rows, receipt_id))
    rows = {one.id: _rows_of(snapshot.rows, one.id) if there else snapshot.rows for one in (queue, *there)}
    by_queue = {name: Lanes(name, mine) for name, mine in rows.items()}
    latest = max(one.latest for one in by_queue.values())
    at = latest
    if clock is not None:
        now, skew = clock(), settings.maximum_clock_skew
        at = instants.not_before(now, latest, skew)
        instants.require_expiry(now, max(one.noted_at for one in (queue, *there)), skew)
    mine = by_queue.pop(queue.id)
    return Loaded(snapshot, queue, mine, by_queue, at, targets=others)


def load_all(
    tables: Tables, settings: Settings, queues: Sequence[QueueRecord], clock: Clock
) -> tuple[Snapshot, int, dict[str, Loaded]]:
    """All lanes of queues, by their names, as of one version and one instant, which are said, too."""
    snapshot, found = tables.load("visibility", Where()), {}
    now = clock()
    for queue in queues:
        lanes = Lanes(queue.id, _rows_of(snapshot.rows, queue.id))
        at = instants.not_before(now, lanes.latest, settings.maximum_clock_skew)
        instants.require_expiry(now, queue.noted_at, settings.maximum_clock_skew)
        found[queue.name] = Loaded(snapshot, queue, lanes, {}, at)
    return snapshot, now, found


def _under(rows: pa.Table, receipt_id: str) -> pa.Table:
    """The rows under a receipt, and the head rows."""
    return rows.filter(pc.or_kleene(pc.equal(rows["segment"], HEAD), pc.equal(rows["receipt_id"], receipt_id)))


def _rows_of(rows: pa.Table, queue: str) -> pa.Table:
    return rows.filter(pc.equal(rows["queue"], queue))
