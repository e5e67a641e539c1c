"""Choose, decide, merge: one closure, tried until it wins, or until ContentionOutlastedRetries."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import pyarrow as pa

from ledger.delta_log.protocol import Conflict, LogReplaced, Snapshot
from ledger.errors import LedgerIsReadOnly, StorageFailed
from ledger.settings import Settings
from ledger.store.delta.commit.file_locks import PATIENCE, NoLock
from ledger.store.delta.commit.holdings import releasing
from ledger.store.delta.commit.retrying import Attempts, Tally
from ledger.store.delta.commit.turns import PendingCall, Turns
from ledger.store.delta.engine import Tables
from ledger.store.delta.model.tables import TABLES
from ledger.store.delta.model.where import Where

#: Covariant: a plan that returns None is one of those that return a text or None.
Answer = TypeVar("Answer", covariant=True)
log = logging.getLogger("ledger.verbs")
events = logging.getLogger("ledger.events")
#: What happened to messages without their holder's doing.
UNASKED = ("expired", "moved")
#: By a table, those whose versions each commit to it notes.
NOTED = {"visibility": ("messages", "queues")}
#: With one wish go at most so many others.
MOST_TOGETHER = 31


@dataclass(frozen=True)
class Plan(Generic[Answer]):
    """A decision: what to merge where, and the answer once that is a version. No edits: nothing to commit."""

    snapshot: Snapshot
    where: Where
    edits: pa.Table
    events: list[dict[str, Any]]
    answer: Callable[[int], Answer]
    #: The time of the decision, in milliseconds.
    at: int
    #: The versions of other tables that it was made on, as far as it read them.
    read: Mapping[str, int] = field(default_factory=dict)


class Transactions:
    """Runs verbs on one engine. `on_step` is told of "chosen" (decided, not committed) and "committed", for tests.

    With `read_only` whatever would commit raises LedgerIsReadOnly before it looks at anything.
    """

    def __init__(
        self,
        tables: Tables,
        locks: Mapping[str, Any],
        alone: bool,
        settings: Settings,
        owner: str,
        on_step: Callable[[str], None] | None = None,
        before_turn: Callable[[], None] | None = None,
        turns: Turns | None = None,
        read_only: bool = False,
    ) -> None:
        self._tables, self.locks, self._alone, self._settings, self.owner = tables, locks, alone, settings, owner
        self.on_step = on_step or (lambda step: None)
        self.before_turn = before_turn or (lambda: None)
        #: Is told of each commit of a verb: its table, its version and its instant.
        self.on_commit: Callable[[str, int, int], None] = lambda table, version, at: None
        self._turns, self.read_only = turns or Turns(), read_only
        self.tally = Tally()

    @releasing
    def run(self, verb: str, table: str, queue: str, decide: Callable[[int], Plan[Answer]]) -> Answer:
        """Tries `decide(losses)` and commits its plan as one MERGE.

        Raises ContentionOutlastedRetries and StorageFailed.
        """
        attempts = self.attempts(verb)
        for losses in attempts:
            with self.turn(table, queue, losses):
                plan = decide(losses)
                version = self.merge(verb, table, queue, plan, attempts)
                if version is not None:
                    return plan.answer(version)
        raise attempts.outlasted()

    def merge(self, verb: str, table: str, queue: str, plan: Plan[Any], attempts: Attempts) -> int | None:
        """The version that holds what was planned: of one MERGE, or where there is nothing to edit, that which it was
        decided on. None when another writer was first. Raises StorageFailed."""
        if not plan.edits.num_rows:
            # The answer tells what others have committed.
            self._tables.make_durable()
            return plan.snapshot.version
        self.step("chosen")
        said = self.metadata(secrets.token_hex(8), verb, queue, plan.at, plan.events, attempts.losses)
        metadata = {**said, "read": {**plan.read, **self.beside(table, plan.snapshot.version)}}
        merge = partial(self._tables.merge, plan.snapshot, table, plan.where, plan.edits, metadata)
        version = self.commit(table, metadata, plan.snapshot.version, merge, attempts, plan.snapshot.read_at)
        if version is not None:
            self.step("committed")
        return version

    def beside(self, table: str, since: int) -> dict[str, int]:
        """The version that a commit is decided on, and those of other tables that it goes with. They are asked for
        behind the decision: whatever that has read is in them, and what lands later is in no view of this version, nor
        of an instant before it. No commit up to `since` notes newer ones; those that land between it and this one may.
        """
        noted = NOTED.get(table, ())
        if not noted:
            return {}
        try:
            newest = self._tables.newest_versions(noted)
            for name, version in newest.items():
                # After a power cut another commit may have a version that was noted, and lost.
                self._tables.make_durable(name, version)
            return {table: since, **newest}
        except StorageFailed as error:
            # The verb does without: a view goes by what the commits before it noted.
            log.warning("a commit to %s does not note the newest versions of %s: %s", table, ", ".join(noted), error)
            return {}

    def attempts(self, verb: str) -> Attempts:
        """As many tries as the setting maximum_attempts says. Raises LedgerIsReadOnly, naming the verb."""
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
        """The version that `write` committed, whatever became of its answer; None when another writer was first.

        A debug line in the log "ledger.verbs" says how long it all took: to load what the decision is about, the wait
        for the turn included (until `read_at`, in monotonic seconds), to decide, and to commit.

        A commit to a log that was replaced (LogReplaced) is no commit: None.
        Every other commit that says no, in whatever words, is looked for by its operation in the log after version
        `since`: a conflict may hide a commit that landed, and so does a failure to write a checkpoint, which comes
        after it.
        Raises StorageFailed.
        """
        decided_at = time.monotonic()
        version = self._committed(table, metadata, since, write)
        self.tally.committed(metadata["verb"], landed=version is not None)
        took = (
            (read_at or decided_at) - attempts.began,
            decided_at - (read_at or decided_at),
            time.monotonic() - decided_at,
        )
        log.debug(
            "%s of %s, attempt %d: load %.1f ms, decide %.1f ms, commit %.1f ms, %s",
            metadata["verb"],
            metadata["queue"] or "the ledger",
            attempts.losses + 1,
            *(1_000 * seconds for seconds in took),
            "lost to another writer" if version is None else f"version {version} of {table}",
        )
        if version is not None:
            self.on_commit(table, version, metadata["at"])
            for event in metadata["events"]:
                _tell(metadata, event)
        return version

    def _committed(self, table: str, metadata: Mapping[str, Any], since: int, write: Callable[[], int]) -> int | None:
        verb = metadata["verb"]
        try:
            # What the decision relied on survives a power cut before what is decided does: see `durability`, rule 4.
            self._tables.make_durable()
            version: int | None = write()
            self._tables.make_durable(table, version or 0)
            return version
        except LogReplaced as replaced:
            log.info("%s decides anew: %s", verb, replaced)
            return None
        except (Conflict, StorageFailed) as error:
            if isinstance(error, StorageFailed):
                log.warning(
                    "the storage failed in %s; whether it landed is looked for in the log: %s", verb, error.cause
                )
            try:
                version = self.landed(table, metadata["operation"], since)
            except StorageFailed as blind:
                raise blind.of_verb(verb, unknown=True) from error
            if version is None and isinstance(error, StorageFailed):
                # On a local path what failed is over. Elsewhere a request that nobody waits for may still arrive.
                local = not isinstance(self.locks[table], NoLock)
                raise error.of_verb(verb, unknown=not local) from error
            return version

    def require_writable(self, verb: str) -> None:
        """Raises LedgerIsReadOnly, naming the verb, where nothing may be written."""
        if self.read_only:
            raise LedgerIsReadOnly(verb)

    def step(self, name: str) -> None:
        """Tells whoever listens that a verb has come so far."""
        self.on_step(name)

    def metadata(
        self, operation: str, verb: str, queue: str, at: int, events: list[dict[str, Any]], losses: int = 0
    ) -> dict[str, Any]:
        """What a commit says of itself; the receipts ledger is filled from it. `queue` is a queue's id, or empty;
        `losses`: how often the verb has lost to other writers, which is said where it has."""
        said = {"operation": operation, "verb": verb, "queue": queue, "at": at, "owner": self.owner, "events": events}
        return {**said, "losses": losses} if losses else said

    def landed(self, table: str, operation: str, since: int) -> int | None:
        """A conflict may hide a commit that landed (a lost answer): its version, if the history has it. It survives
        a power cut then.

        Raises StorageFailed, `unknown`, where the log was cut behind `since`, as upkeep does after log_retention.
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
        """A context in which one commit to a table is safe. With a queue, this process's verbs on it take turns; in a
        table without partitions all of them do, as they all conflict."""
        one = nullcontext() if queue is None else self._turns.of((table, queue if TABLES[table].partitions else ""))
        # First the threads' turn, then the files' lock: whoever holds that never waits for a thread.
        with one, self._safe(table, losses):
            yield

    @contextmanager
    def turn_for_all(self, table: str, queue: str, losses: int, wish: PendingCall[Any]) -> Iterator[list[Any]]:
        """As `turn`, for a wish and those of the threads that wait meanwhile and go with it, which are yielded: fewer
        with each loss, as a commit to more lanes meets more others. None when the wish went with another thread's."""
        with self.together(table, queue, wish, losses) as wishes:
            if not wishes:
                yield wishes
                return
            with self._safe(table, losses):
                yield wishes

    @contextmanager
    def together(self, table: str, queue: str, wish: PendingCall[Any], losses: int = 0) -> Iterator[list[Any]]:
        """As `turn_for_all`, without what makes a commit safe."""
        with self._turns.together((table, queue), wish, MOST_TOGETHER >> losses) as wishes:
            if wishes:
                self.tally.together(table, len(wishes))
            yield wishes

    @contextmanager
    def _safe(self, table: str, losses: int) -> Iterator[None]:
        self.require_writable(f"a commit to {table}")
        self.before_turn()
        lock = self.locks[table]
        waits = losses >= self._settings.losses_before_waiting
        # Where it need not be alone, to be so is only to lose no more: nobody's stop may hold it up.
        with lock.exclusive() if self._alone else lock.rather_exclusive(PATIENCE) if waits else lock.shared():
            yield

    def spark_turn(self, table: str) -> Any:
        """A context in which a commit through Spark is safe, whichever engine runs the verbs."""
        self.require_writable(f"a commit to {table}")
        self.before_turn()
        return self.locks[table].exclusive()


def _tell(metadata: Mapping[str, Any], event: Mapping[str, Any]) -> None:
    """Says in the log "ledger.events" what a commit did, as the receipts ledger is told."""
    events.log(
        logging.INFO if event["event"] in UNASKED else logging.DEBUG,
        "%s: %s %d messages, receipt %s",
        *(event.get("queue", metadata["queue"]), event["event"], event["messages"], event.get("receipt_id")),
    )
