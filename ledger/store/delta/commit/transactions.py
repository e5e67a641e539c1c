"""Transactions of verbs: a verb decides and commits again, until a commit wins or its tries are used up.

Delta's transaction ids are something else.
"""

from __future__ import annotations

import logging
import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import pyarrow as pa

from ledger.delta_log.protocol import Conflict, LogReplaced, Snapshot
from ledger.errors import ContentionOutlastedRetries, LedgerIsReadOnly, StorageFailed
from ledger.runtime.threads import renew_in_child, uses_arrow, waiting
from ledger.settings import Settings
from ledger.store.delta.commit.locks import PATIENCE, NoLock, PendingCall, Turns, releasing
from ledger.store.delta.engine import Tables
from ledger.store.delta.model.tables import TABLES, Where


class Tally:
    """Counts an open ledger's commits and turns, for monitoring. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        renew_in_child(self, Tally._renew)
        self._commits: Counter[str] = Counter()
        self._conflicts: Counter[str] = Counter()
        self._groups: Counter[tuple[str, int]] = Counter()

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def committed(self, verb: str, *, landed: bool) -> None:
        with self._lock:
            (self._commits if landed else self._conflicts)[verb] += 1

    def together(self, purpose: str, count: int) -> None:
        """Count one turn in which the calls of `count` threads (one or more) went together."""
        with self._lock:
            self._groups[purpose, count] += 1

    def commits(self) -> dict[str, int]:
        with self._lock:
            return dict(self._commits)

    def conflicts(self) -> dict[str, int]:
        with self._lock:
            return dict(self._conflicts)

    def groups(self) -> dict[tuple[str, int], int]:
        """Return how often each number of calls went together, by purpose: a table, or "reading"."""
        with self._lock:
            return dict(self._groups)


log = logging.getLogger("ledger.verbs")
retries = logging.getLogger("ledger.retries")
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.5
#: After this many losses, a warning: the queue may need more lanes.
LOST_OFTEN = 5


class Attempts:
    """The tries of one verb, at most `most`. The iterator yields the number of losses before each try.

    Before each try but the first there is a random pause. Its bound grows from `first_pause` to `longest_pause`
    (seconds).
    """

    def __init__(
        self, verb: str, most: int, first_pause: float = FIRST_PAUSE, longest_pause: float = LONGEST_PAUSE
    ) -> None:
        self._verb, self._most, self._pauses = verb, most, (first_pause, longest_pause)
        #: Monotonic seconds: when the first try and the current one began.
        self._started = self.began = time.monotonic()
        self.losses = 0

    def __iter__(self) -> Iterator[int]:
        for losses in range(self._most):
            self.losses = losses
            if losses:
                retries.debug("%s lost to another writer and is tried again, attempt %d", self._verb, losses + 1)
                pause(losses - 1, *self._pauses)
            if losses == LOST_OFTEN:
                log.warning("%s has lost to other writers %d times in %.1f s", self._verb, losses, self.seconds)
            self.began = time.monotonic()
            yield losses

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def give_up(self) -> ContentionOutlastedRetries:
        """Log that all tries lost, and return the error."""
        retries.warning(
            "%s lost to other writers %d times in %.1f s and is given up", self._verb, self._most, self.seconds
        )
        return ContentionOutlastedRetries(self._verb, self._most, self.seconds)


def pause(losses: int, first: float, longest: float) -> None:
    """Wait for a random time, whose bound doubles with each loss, from `first` to `longest` seconds."""
    with waiting():
        time.sleep(random.uniform(0, min(longest, first * 2**losses)))


Answer = TypeVar("Answer", covariant=True)
events = logging.getLogger("ledger.events")
#: "ledger.events" logs these at INFO, and all others at DEBUG.
UNASKED = ("expired", "moved")
#: The other tables whose versions a table's commits note.
NOTED = {"visibility": ("messages", "queues")}
MOST_TOGETHER = 31


@dataclass(frozen=True)
class Plan(Generic[Answer]):
    """A decision: the edits to merge, and `answer`, which makes the verb's answer from the commit's version.

    Without edits nothing is committed, and `answer` gets the decision's version.
    """

    snapshot: Snapshot
    where: Where
    edits: pa.Table
    events: list[dict[str, Any]]
    answer: Callable[[int], Answer]
    #: In milliseconds.
    at: int
    #: The versions of other tables that the decision read.
    read: Mapping[str, int] = field(default_factory=dict)


@contextmanager
def after_commit(verb: str) -> Iterator[None]:
    """Mark StorageFailed in the context as `unknown`, because the verb is committed."""
    try:
        yield
    except StorageFailed as error:
        raise error.of_verb(verb, unknown=True) from error


class Transactions:
    """Runs verbs on one engine. Tests see a verb's steps by `on_step`: "chosen", "committed", and others."""

    def __init__(
        self,
        tables: Tables,
        locks: Mapping[str, Any],
        needs_exclusive: bool,
        settings: Settings,
        owner: str,
        on_step: Callable[[str], None] | None = None,
        before_turn: Callable[[], None] | None = None,
        turns: Turns | None = None,
        read_only: bool = False,
    ) -> None:
        self._tables, self.locks, self._alone, self._settings, self.owner = (
            tables,
            locks,
            needs_exclusive,
            settings,
            owner,
        )
        self.on_step = on_step or (lambda step: None)
        self.before_turn = before_turn or (lambda: None)
        #: Gets table, version and instant of each commit.
        self.on_commit: Callable[[str, int, int], None] = lambda table, version, at: None
        self._turns, self.read_only = turns or Turns(), read_only
        self.tally = Tally()

    @uses_arrow
    @releasing
    def run(self, verb: str, table: str, queue: str, decide: Callable[[int], Plan[Answer]]) -> Answer:
        """Try `decide(losses)` and commit its plan, until a commit wins.

        Raises ContentionOutlastedRetries, StorageFailed and LedgerIsReadOnly, and what `decide` raises.
        """
        attempts = self.attempts(verb)
        for losses in attempts:
            with self.turn(table, queue, losses):
                plan = decide(losses)
                version = self.merge(verb, table, queue, plan, attempts)
                if version is not None:
                    return plan.answer(version)
        raise attempts.give_up()

    def merge(self, verb: str, table: str, queue: str, plan: Plan[Any], attempts: Attempts) -> int | None:
        """Commit a plan as one MERGE. Return the version, or None if the commit lost. Raises StorageFailed.

        Without edits, return the version that the plan was decided on.
        """
        if not plan.edits.num_rows:
            # The commits that the decision read must survive a power cut.
            self._tables.make_durable()
            return plan.snapshot.version
        self.step("chosen")
        metadata = self.metadata(secrets.token_hex(8), verb, queue, plan.at, plan.events, attempts.losses)

        def late() -> Mapping[str, Any]:
            return {"read": {**plan.read, **self.read_other_versions(table, plan.snapshot.version)}}

        merge = partial(self._tables.merge, plan.snapshot, table, plan.where, plan.edits, metadata, late)
        version = self.commit(table, metadata, plan.snapshot.version, merge, attempts, plan.snapshot.read_at)
        if version is not None:
            self.step("committed")
        return version

    def read_other_versions(self, table: str, since: int) -> dict[str, int]:
        """Return the versions that a commit to a table notes for `views.past`: `since`, and those of other tables.

        The others are read after the decision, so they include all commits that the decision read. No commit up to
        `since` notes newer versions. The result is empty if the table notes none, or if they cannot be read.
        """
        noted = NOTED.get(table, ())
        if not noted:
            return {}
        try:
            newest = self._tables.newest_versions(noted)
            for name, version in newest.items():
                # Otherwise, after a power cut, another commit may get a noted version.
                self._tables.make_durable(name, version)
            return {table: since, **newest}
        except StorageFailed as error:
            log.warning("a commit to %s does not note the newest versions of %s: %s", table, ", ".join(noted), error)
            return {}

    def attempts(self, verb: str) -> Attempts:
        self.require_writable(verb)
        return Attempts(verb, self._settings.maximum_attempts)

    def commit(
        self,
        table: str,
        metadata: Mapping[str, Any],
        since: int,
        write: Callable[[], int],
        attempts: Attempts,
        read_at: float | None = None,
    ) -> int | None:
        """Return the version that `write` committed, or None if another commit won or the log was replaced.

        After another Conflict or a StorageFailed, the commit may have landed: the log after `since` is searched for it.
        `read_at` (monotonic seconds) is for a debug line. Raises StorageFailed.
        """
        decided_at = time.monotonic()
        version = self._commit_durably(table, metadata, since, write)
        self.tally.committed(metadata["verb"], landed=version is not None)
        seconds_taken = (
            (read_at or decided_at) - attempts.began,
            decided_at - (read_at or decided_at),
            time.monotonic() - decided_at,
        )
        log.debug(
            "%s of %s, attempt %d: load %.1f ms, decide %.1f ms, commit %.1f ms, %s",
            metadata["verb"],
            metadata["queue"] or "the ledger",
            attempts.losses + 1,
            *(1_000 * seconds for seconds in seconds_taken),
            "lost to another writer" if version is None else f"version {version} of {table}",
        )
        if version is not None:
            self.on_commit(table, version, metadata["at"])
            for event in metadata["events"]:
                _tell(metadata, event)
        return version

    def _commit_durably(
        self, table: str, metadata: Mapping[str, Any], since: int, write: Callable[[], int]
    ) -> int | None:
        verb = metadata["verb"]
        try:
            # See `delta_log.durability`, rule 4.
            self._tables.make_durable()
            version: int | None = write()
            self._tables.make_durable(table, version or 0)
            return version
        except LogReplaced as replaced:
            log.info("%s decides anew: %s", verb, replaced)
            return None
        except (Conflict, StorageFailed) as error:
            if isinstance(error, StorageFailed):
                log.warning("the storage failed in %s; the log is searched for the commit: %s", verb, error.cause)
            try:
                version = self.landed(table, metadata["operation"], since)
            except StorageFailed as blind:
                raise blind.of_verb(verb, unknown=True) from error
            if version is None and isinstance(error, StorageFailed):
                # Except on a local path, a failed request may still arrive.
                local = not isinstance(self.locks[table], NoLock)
                raise error.of_verb(verb, unknown=not local) from error
            return version

    def require_writable(self, verb: str) -> None:
        if self.read_only:
            raise LedgerIsReadOnly(verb)

    def step(self, name: str) -> None:
        self.on_step(name)

    def metadata(
        self, commit_id: str, verb: str, queue: str, at: int, events: list[dict[str, Any]], losses: int = 0
    ) -> dict[str, Any]:
        """Return the metadata of a commit. `commit_id` is a random id of one try.

        The table `receipts` is filled from the metadata of commits to `visibility`.
        """
        entries = {
            "operation": commit_id,
            "verb": verb,
            "queue": queue,
            "at": at,
            "owner": self.owner,
            "events": events,
        }
        return {**entries, "losses": losses} if losses else entries

    def landed(self, table: str, operation: str, since: int) -> int | None:
        """Return the version of a commit whose answer never arrived, after making it durable, or None.

        Raises StorageFailed with `unknown` if the log has lost entries after `since` and does not have the commit.
        """
        commits = self._tables.history(table, since)
        for commit in commits:
            if commit.metadata.get("operation") == operation:
                self._tables.make_durable(table, commit.version)
                return commit.version
        if commits and commits[0].version > since + 1:
            cut = f"its log begins at version {commits[0].version}, and it was read at version {since}"
            raise StorageFailed(self._tables.place(table), cut, unknown=True)
        return None

    @contextmanager
    def turn(self, table: str, queue: str | None = None, losses: int = 0) -> Iterator[None]:
        """Make one commit to a table safe within the context.

        With a queue, threads take turns for the table and queue, or, without partitions, for the table.
        """
        own_turn = (
            nullcontext() if queue is None else self._turns.of((table, queue if TABLES[table].partitions else ""))
        )
        # The lock comes second, so its holder never waits for another thread's turn.
        with own_turn, self._safe(table, losses):
            yield

    @contextmanager
    def group_turn(self, table: str, queue: str, losses: int, call: PendingCall[Any]) -> Iterator[list[Any]]:
        """Take a `turn` for a pending call and waiting calls, and yield them (see `Turns.together`).

        Each loss halves the greatest number of calls: a commit to more lanes conflicts with more commits.
        """
        with self.together(table, queue, call, losses) as calls:
            if not calls:
                yield calls
                return
            with self._safe(table, losses):
                yield calls

    @contextmanager
    def together(
        self, purpose: str, queue: str, call: PendingCall[Any], losses: int = 0, size: int = 0
    ) -> Iterator[list[Any]]:
        """Take the threads' turn, but no file lock. `purpose` is the table to commit to, or "reading"."""
        with self._turns.together((purpose, queue), call, MOST_TOGETHER >> losses, size) as calls:
            if calls:
                self.tally.together(purpose, len(calls))
            yield calls

    @contextmanager
    def _safe(self, table: str, losses: int) -> Iterator[None]:
        self.require_writable(f"a commit to {table}")
        self.before_turn()
        lock = self.locks[table]
        waits = losses >= self._settings.losses_before_waiting
        # Without `_alone`, exclusivity only prevents lost races, so this wait is bounded.
        with lock.exclusive() if self._alone else lock.prefer_exclusive(PATIENCE) if waits else lock.shared():
            yield

    def spark_turn(self, table: str) -> Any:
        """Return a context in which a commit through Spark is safe."""
        self.require_writable(f"a commit to {table}")
        self.before_turn()
        return self.locks[table].exclusive()


def _tell(metadata: Mapping[str, Any], event: Mapping[str, Any]) -> None:
    events.log(
        logging.INFO if event["event"] in UNASKED else logging.DEBUG,
        "%s: %s %d messages, receipt %s",
        *(event.get("queue", metadata["queue"]), event["event"], event["messages"], event.get("receipt_id")),
    )
