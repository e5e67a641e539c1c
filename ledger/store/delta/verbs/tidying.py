"""Upkeep of the records of messages: usually one commit for each lane that needs a change.

An expired message must become final before it may be dropped (see `is_final`). First the queue records for good which
messages have expired. Then the lane records the message as deleted.

A clock that is days ahead makes every message look old, and dropped messages are gone. Upkeep therefore drops messages
for their age only after two looks at the clock, at least `mark_seconds` apart (a setting; 0: one look is enough):

- A process that has had the ledger open for `mark_seconds`, without a step of its clock, needs nothing else.
- Otherwise the first look is the *mark* of an earlier round: the property MARK of the table `tasks`. Until
  `mark_seconds` are over, a round drops no message for its age. A missing or refuted mark is made anew. Three things
  refute a mark: an instant in the future, a later commit with a much earlier instant, or a drift between the wall clock
  and the passing time.
- On another machine, or after a restart, passing time cannot be compared. Then a round drops only messages that were
  old at the instant of the mark, and marks anew.
- The storage's own clock (of an object store, or Ledger.open's `storage_clock`) replaces the mark and the wait.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.clock import Clock, boot_of
from ledger.delta_log.protocol import Conflict, LogReplaced, require_generation
from ledger.rules import instants
from ledger.rules.limits import MILLISECONDS
from ledger.rules.visibility import Record
from ledger.settings import Settings
from ledger.store.delta.commit.clocks import SteadyClock
from ledger.store.delta.commit.transactions import Attempts, Plan, Transactions
from ledger.store.delta.engine import Engine
from ledger.store.delta.model.message_runs import Runs
from ledger.store.delta.model.tables import HEAD, Where
from ledger.store.delta.state.lane_records import NO_EDITS, Lanes
from ledger.store.delta.state.listing import Listing, find_existing_messages, find_kept_from
from ledger.store.delta.state.snapshot import load
from ledger.store.delta.verbs.store import DeltaStore
from ledger.store.protocol import QueueRecord

log = logging.getLogger("ledger.upkeep")
ATTEMPTS, FIRST_PAUSE = 10, 0.08
NEVER = -1


def is_final(record: Record, before: int) -> bool:
    """Return whether no verb of this queue can change a message any more: the message is *final*.

    A moved message is final. So is a message that was deleted by the instant `before` and has no receipt to restore it
    by. A verb that decided on an older state conflicts through the lane's head row.
    """
    gone = record.deleted_at is not None and record.deleted_at <= before and record.receipt_id is None
    return gone or record.moved_to is not None


class Tidying:
    """The changes that one round of upkeep makes to records.

    Messages that were deleted before the instant `before` lose their receipts. If the clock is not confirmed (see the
    module's docstring), `tidy` and `repair` use the instant `not_beyond` in place of the clock. In a generation after
    `generation`, removals of rows raise LogReplaced.
    """

    def __init__(self, store: DeltaStore, clock: Clock, before: int, not_beyond: int | None, generation: int) -> None:
        self._store, self._engine, self._clock, self._before = store, store.engine, clock, before
        self._not_beyond, self._generation = not_beyond, generation

    def repair(self, rows: pa.Table) -> None:
        """Give lanes that have several head rows one head row again.

        One commit adds a new head row, which verbs then use. A second commit removes the others.
        """
        heads = rows.filter(pc.equal(rows["segment"], HEAD)).group_by(["queue", "lane"]).aggregate([([], "count_all")])
        for row in heads.filter(pc.greater(heads["count_all"], 1)).to_pylist():
            log.warning("lane %s of %s has several head rows; making one of them", row["lane"], row["queue"])
            self._repair_lane(row["queue"], row["lane"])

    def _repair_lane(self, queue: str, lane: int) -> None:
        where = Where(queue, (lane,))

        def decide(losses: int) -> Plan[int]:
            snapshot = self._engine.load("visibility", where)
            heads = snapshot.rows.filter(pc.equal(snapshot.rows["segment"], HEAD))
            lanes = Lanes(queue, snapshot.rows)
            now = max(self._clock() if self._not_beyond is None else self._not_beyond, lanes.latest)
            edits, kept = NO_EDITS, heads
            if heads.num_rows > 1:
                edits = kept = lanes.heads.add_head_row(lane, now)
            return Plan(snapshot, where, edits, [], lambda version: pc.min(kept["first_seq"]).as_py(), now)

        kept = self._store.transactions.run("upkeep", "visibility", queue, decide)
        others = f"{where.sql()} AND segment = '' AND first_seq > {kept}"
        try_commit(self._store.transactions, "visibility", lambda: self._delete(queue, others))

    def forget(self, queue: str, lanes: tuple[int, ...]) -> bool:
        """Remove the records of a deleted queue. Return False if the next round has to remove them.

        First each of `lanes`, which have the queue's messages, gets a head row. Through the head row, a verb that is
        about to move these messages conflicts with the removal.
        """

        def decide(losses: int) -> Plan[None]:
            snapshot, now = self._engine.load("visibility", Where(queue)), self._clock()
            require_generation("visibility", self._generation, self._engine.generation())
            records = Lanes(queue, snapshot.rows)
            missing = tuple(lane for lane in lanes if lane not in records.heads.revisions)
            edits = records.heads.edits(missing, max(now, records.latest))
            return Plan(snapshot, Where(queue, missing), edits, [], lambda version: None, now)

        self._store.transactions.run("upkeep", "visibility", queue, decide)
        return try_commit(self._store.transactions, "visibility", lambda: self._delete(queue, Where(queue).sql()))

    def expire(self, queues: list[QueueRecord], rows: pa.Table, listing: Listing, at: int) -> list[QueueRecord]:
        """Record for good which messages had expired at the instant `at`. Return all `queues` as they are
        afterwards."""
        with_expired = [queue for queue in queues if self._has_expired(queue, _lanes(queue, rows), listing, at)]
        changed_by_id = (
            {queue.id: queue for queue in self._store.expire(with_expired, at, self._clock)} if with_expired else {}
        )
        return [changed_by_id.get(queue.id, queue) for queue in queues]

    def tidy(self, queue: QueueRecord, rows: pa.Table, listing: Listing) -> int:
        """Tidy the lanes of a queue that need it, each in one commit. Return how many runs were saved.

        A commit removes rows about dropped segments, takes the receipts from messages deleted long ago, and joins
        neighbours. Messages that the queue has noted as expired are recorded as deleted, except those in flight or
        locked. `rows` and `listing` may be of any version.
        """
        lanes = _lanes(queue, rows)
        new, _ = self._tidy_runs(queue, lanes, listing)
        changed = lanes.replace_runs(new, 0)["lane"].unique().to_pylist()
        return sum(self._tidy_lane(queue, lane) for lane in sorted(changed))

    def _tidy_lane(self, queue: QueueRecord, lane: int) -> int:
        def decide(losses: int) -> Plan[int]:
            clock, not_beyond = self._clock if self._not_beyond is None else None, self._not_beyond or NEVER
            loaded = load(self._engine, self._store.settings, queue, clock, (lane,))
            loaded = replace(loaded, now=max(loaded.now, not_beyond))
            # The listing is newer than the rows, so it lacks no messages but dropped ones.
            new, joined = self._tidy_runs(queue, loaded.lanes, self._store.listings.newest(), lane)
            require_generation("visibility", self._generation, self._engine.generation())
            edits = loaded.lanes.replace_runs(new, loaded.now)
            return Plan(loaded.snapshot, Where(queue.id, (lane,)), edits, [], lambda version: joined, loaded.now)

        return self._store.transactions.run("upkeep", "visibility", queue.id, decide)

    def _tidy_runs(
        self, queue: QueueRecord, lanes: Lanes, listing: Listing, only: int | None = None
    ) -> tuple[Runs, int]:
        """Return the runs to record in the lanes, and how many runs this saves.

        `only`: record expired messages of this lane alone as deleted.
        """
        old, before = lanes.runs, self._before
        exists = listing.segments()
        is_listed = np.array([name in exists for name in lanes.segments], dtype=bool)
        faded = lanes.code(Record(deleted_at=before))

        def fade(record: Record) -> int:
            is_old = record.deleted_at is not None and record.deleted_at < before
            return faded if is_old else lanes.code(record)

        code = lanes.per_code(old.code, fade, np.int64)
        new = old.recode(code).where(is_listed[old.segment]).joined()
        joined = len(old) - len(new)
        receipts = lanes.per_code(old.code, lambda r: r.receipt_id is not None, bool) & (code == faded)
        known_expired = before != NEVER and self._is_believed(queue)
        # The lanes' own time does not count: a clock ahead may have set it.
        expired = (
            _find_expired(lanes, listing, queue.expired_before, self._now(), only) if known_expired else Runs.empty()
        )
        if not joined and not receipts.any() and not len(expired):
            return old, 0
        return new.paint(expired.recode(faded)), joined

    def _now(self) -> int:
        return self._clock() if self._not_beyond is None else self._not_beyond

    def _is_believed(self, queue: QueueRecord) -> bool:
        """Return whether a right clock can have noted what has expired."""
        return queue.noted_at <= self._now() + self._store.settings.skew

    def _has_expired(self, queue: QueueRecord, lanes: Lanes, listing: Listing, at: int) -> bool:
        until = queue.retention.expired(at)
        return (
            self._is_believed(queue)
            and until > queue.expired_before
            and len(_find_expired(lanes, listing, until, at, None)) > 0
        )

    def _delete(self, queue: str, predicate: str) -> None:
        transactions = self._store.transactions
        metadata = transactions.metadata("", "upkeep", queue, self._clock(), [])
        read = transactions.read_other_versions("visibility", self._engine.version("visibility"))
        self._engine.delete("visibility", predicate, {**metadata, "read": read}, self._generation)


def _find_expired(lanes: Lanes, listing: Listing, until: int, now: int, only: int | None) -> Runs:
    """Return the messages that came to the queue by the instant `until`, still exist, and are not in flight or
    locked."""
    files, pieces = find_existing_messages(lanes, listing, now, until)
    chosen = lanes.per_code(pieces.code, lambda r: _is_free(r, now), bool) & (
        find_kept_from(lanes, files, pieces) <= until
    )
    if only is not None:
        chosen &= lanes.lanes(pieces) == only
    return pieces.where(chosen).recode(0).in_order()


def _is_free(record: Record, now: int) -> bool:
    held = record.visible_at is not None and record.visible_at > now
    return record.deleted_at is None and record.moved_to is None and not held


def _lanes(queue: QueueRecord, rows: pa.Table) -> Lanes:
    return Lanes(queue.id, rows.filter(pc.equal(rows["queue"], queue.id)))


def try_commit(transactions: Transactions, table: str, commit: Callable[[], object]) -> bool:
    """Try a commit of upkeep until it succeeds. Return False after ATTEMPTS losses.

    Each try makes the same `commit`, which must decide nothing. Raises LogReplaced and StorageFailed.
    """
    attempts = Attempts(f"upkeep of {table}", ATTEMPTS, FIRST_PAUSE)
    for _ in attempts:
        try:
            with transactions.turn(table):
                commit()
                return True
        except LogReplaced:
            raise
        except Conflict:
            continue
    log.warning("%s; it is left to the next upkeep", attempts.give_up())
    return False


MARK = "ledger.marked"
#: The tables whose newest commits, up to MOST_COMMITS, are evidence of the time.
WITNESSES, MOST_COMMITS = ("messages", "visibility"), 20


#: The seconds that an unconfirmed clock may be ahead: far less than the 7 days for which a new ledger keeps files.
NEAR = 86_400


class JudgedAges(NamedTuple):
    """The instant by which ages may be judged (None: no age may be judged), and whether the clock was confirmed."""

    at: int | None
    is_confirmed: bool

    def is_near(self, now: int) -> bool:
        """Return whether upkeep may do work by the machine's clock, such as the engines' vacuum."""
        return self.is_confirmed or (self.at is not None and now - self.at <= NEAR * MILLISECONDS)


UNCONFIRMED = JudgedAges(None, is_confirmed=False)


class _Mark(NamedTuple):
    """A look at the clock: the instant, the milliseconds `passed` since the machine's start `boot`, and the versions of
    WITNESSES."""

    at: int
    passed: int
    boot: str
    versions: dict[str, int]


class Ages:
    def __init__(
        self,
        engine: Engine,
        transactions: Transactions,
        clock: SteadyClock,
        settings: Settings,
        storage: Clock | None = None,
    ) -> None:
        self._engine, self._transactions, self._clock, self._storage = engine, transactions, clock, storage
        self._wait, self._skew = settings.mark_seconds * MILLISECONDS, settings.maximum_clock_skew

    def judge(self) -> JudgedAges:
        """Return the instant by which this round may judge ages. If the round may judge none, make sure that there is a
        mark.

        Raises StorageFailed. Raises ClocksDisagree if the clock made a step, or differs from the storage's clock.
        """
        now, steady_for = self._clock.look()
        if self._storage is not None:
            instants.require_alike(now, self._storage(), self._skew, "the storage's clock says")
            return JudgedAges(now, is_confirmed=True)
        mark, skew = self._read_mark(), round(self._skew * MILLISECONDS)
        if steady_for * MILLISECONDS >= self._wait:
            if mark is not None and mark.at > now + skew:
                # This mark must not confirm the clock ahead that made it.
                self._mark(now)
            return JudgedAges(now, is_confirmed=True)
        if mark is None:
            return self._mark_and_refuse(now, "there is no mark of an earlier round")
        elapsed, passed = now - mark.at, self._measure_passed() - mark.passed
        if elapsed < -skew:
            log.warning(
                "this machine's clock is %.0f s behind the clock of an earlier upkeep: one of the two is wrong. As "
                "long as both run upkeep, each marks anew, and nothing is dropped for its age",
                -elapsed / MILLISECONDS,
            )
            return self._mark_and_refuse(now, "the mark of an earlier round is in the future")
        here = mark.boot != "" and mark.boot == boot_of(self._clock.passing)
        if here and abs(elapsed - passed) > skew:
            return self._mark_and_refuse(now, f"the clock moved by {elapsed} ms while {passed} ms passed")
        since = (
            commit.metadata.get("at") for name in WITNESSES for commit in self._read_newest(name, mark.versions[name])
        )
        if instants.contradicts((at for at in since if at is not None), mark.at, self._skew):
            return self._mark_and_refuse(now, "a commit after the mark has an earlier instant")
        if elapsed < self._wait:
            log.info("messages may be dropped for their age by a round at least %d ms after the mark", self._wait)
            return UNCONFIRMED
        if here:
            return JudgedAges(now, is_confirmed=True)
        # With the same mark the next round would know no more, so make a newer mark.
        self._mark(now)
        return JudgedAges(mark.at, is_confirmed=False)

    def explain(self, now: int, expected: int) -> bool:
        """Return whether the storage's clock, or else commits of other owners, confirm a step of the clock to `now`."""
        if self._storage is not None:
            return abs(self._storage() - now) <= self._skew * MILLISECONDS
        owner = self._transactions.owner
        commits = (commit.metadata for name in WITNESSES for commit in self._read_newest(name))
        others = [metadata["at"] for metadata in commits if metadata.get("owner", owner) != owner and "at" in metadata]
        return instants.explains(others, now, expected, self._skew)

    def _read_newest(self, table: str, since: int = -1) -> list[Any]:
        return self._engine.history(table, max(since, self._engine.version(table) - MOST_COMMITS))

    def _measure_passed(self) -> int:
        return round(self._clock.passing() * MILLISECONDS)

    def _read_mark(self) -> _Mark | None:
        content = self._engine.layout("tasks").properties.get(MARK)
        try:
            return None if content is None else _Mark(**json.loads(content))
        except (TypeError, ValueError):
            # A mark that this release cannot read confirms nothing.
            return None

    def _mark_and_refuse(self, now: int, why: str) -> JudgedAges:
        log.info("this round drops nothing for its age, and makes a mark for a later round: %s", why)
        self._mark(now)
        return UNCONFIRMED

    def _mark(self, now: int) -> None:
        versions = {name: self._engine.version(name) for name in WITNESSES}
        content = json.dumps(_Mark(now, self._measure_passed(), boot_of(self._clock.passing), versions)._asdict())
        metadata = self._transactions.metadata(secrets.token_hex(8), "upkeep", "", now, [])
        try_commit(self._transactions, "tasks", partial(self._engine.configure, "tasks", {MARK: content}, metadata))
