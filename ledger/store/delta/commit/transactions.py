"""Transactions: each decides and commits again and again, until a commit wins.

A transaction whose commits lose too often raises ContentionOutlastedRetries.
"""

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

#: The answer of a plan. It is covariant: a Plan[None] also counts as a Plan[str | None].
Answer = TypeVar("Answer", covariant=True)
log = logging.getLogger("ledger.verbs")
events = logging.getLogger("ledger.events")
#: The events that happen to messages without an act of their holder.
UNASKED = ("expired", "moved")
#: By table, the other tables whose versions each commit to that table notes.
NOTED = {"visibility": ("messages", "queues")}
#: At most this many other calls go with one pending call.
MOST_TOGETHER = 31


@dataclass(frozen=True)
class Plan(Generic[Answer]):
    """A decision: the edits to merge, and the answer, which is computed from the version of the commit.

    Without edits there is nothing to commit.
    """

    snapshot: Snapshot
    where: Where
    edits: pa.Table
    events: list[dict[str, Any]]
    answer: Callable[[int], Answer]
    #: The time of the decision, in milliseconds.
    at: int
    #: The versions of the other tables that the decision read.
    read: Mapping[str, int] = field(default_factory=dict)


class Transactions:
    """Runs verbs on one engine. `on_step` gets "chosen" (decided, not committed) and "committed", for tests.

    With `read_only` every call that would commit raises LedgerIsReadOnly before it reads anything.
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
        #: Gets each commit of a verb: its table, its version and its instant.
        self.on_commit: Callable[[str, int, int], None] = lambda table, version, at: None
        self._turns, self.read_only = turns or Turns(), read_only
        self.tally = Tally()

    @releasing
    def run(self, verb: str, table: str, queue: str, decide: Callable[[int], Plan[Answer]]) -> Answer:
        """Try `decide(losses)` and commit its plan as one MERGE, until a commit wins.

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
        """Commit a plan as one MERGE and return the version, or None if another writer was first.

        Without edits, return the version that the plan was decided on. Raises StorageFailed.
        """
        if not plan.edits.num_rows:
            # The answer depends on commits of others, so these commits must survive a power cut.
            self._tables.make_durable()
            return plan.snapshot.version
        self.step("chosen")
        metadata = self.metadata(secrets.token_hex(8), verb, queue, plan.at, plan.events, attempts.losses)

        def late() -> Mapping[str, Any]:
            return {"read": {**plan.read, **self.other_table_versions(table, plan.snapshot.version)}}

        merge = partial(self._tables.merge, plan.snapshot, table, plan.where, plan.edits, metadata, late)
        version = self.commit(table, metadata, plan.snapshot.version, merge, attempts, plan.snapshot.read_at)
        if version is not None:
            self.step("committed")
        return version

    def other_table_versions(self, table: str, since: int) -> dict[str, int]:
        """Return the version that a commit is decided on, and the versions of other tables that go with it.

        The other versions are read after the decision, so they include all commits that the decision has read. A view
        of this version, or of an earlier instant, shows no commit to these tables after the returned versions. No
        commit up to `since` notes newer versions. Commits that land between `since` and this commit may note newer
        versions.
        """
        noted = NOTED.get(table, ())
        if not noted:
            return {}
        try:
            newest = self._tables.newest_versions(noted)
            for name, version in newest.items():
                # A noted version must survive a power cut: otherwise another commit may get its number.
                self._tables.make_durable(name, version)
            return {table: since, **newest}
        except StorageFailed as error:
            # The verb does without these versions: a view uses the versions that earlier commits noted.
            log.warning("a commit to %s does not note the newest versions of %s: %s", table, ", ".join(noted), error)
            return {}

    def attempts(self, verb: str) -> Attempts:
        """Return the tries of a verb, as many as the setting maximum_attempts says. Raises LedgerIsReadOnly."""
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
        """Return the version that `write` committed, even if its answer was lost, or None if another writer was first.

        A debug line in the log "ledger.verbs" says how long each part took. "load" is the wait for the turn and the
        reading of the state, until `read_at` (monotonic seconds). "decide" and "commit" follow.

        A commit to a log that was replaced (LogReplaced) does not count: the method returns None. After every other
        failure, the log after version `since` is searched for the commit's operation. A conflict may hide a commit that
        landed, and so may a failure to write the checkpoint, which follows the commit. Raises StorageFailed.
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
            # The state that the decision relied on must survive a power cut before the decision does: see
            # `delta_log.durability`, rule 4.
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
                # On a local path a failed request is over. On other storage the request may still arrive later.
                local = not isinstance(self.locks[table], NoLock)
                raise error.of_verb(verb, unknown=not local) from error
            return version

    def require_writable(self, verb: str) -> None:
        """Raise LedgerIsReadOnly, naming the verb, if nothing may be written."""
        if self.read_only:
            raise LedgerIsReadOnly(verb)

    def step(self, name: str) -> None:
        """Report to the listener that a verb has reached a step."""
        self.on_step(name)

    def metadata(
        self, operation: str, verb: str, queue: str, at: int, events: list[dict[str, Any]], losses: int = 0
    ) -> dict[str, Any]:
        """Return the metadata of a commit, from which the table `receipts` is filled.

        `queue` is a queue's id, or empty. `losses` is how often the verb has lost to other writers. The metadata does
        not have `losses` if it is 0.
        """
        entries = {
            "operation": operation,
            "verb": verb,
            "queue": queue,
            "at": at,
            "owner": self.owner,
            "events": events,
        }
        return {**entries, "losses": losses} if losses else entries

    def landed(self, table: str, operation: str, since: int) -> int | None:
        """Return the version of a commit whose answer was lost, or None if the history does not have this commit.

        A commit that is found is made to survive a power cut. Raises StorageFailed, with `unknown`, if the log was cut
        after `since`: upkeep cuts it after log_retention.
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

        With a queue, this process's verbs on that queue take turns. In a table without partitions all verbs take turns,
        as they all conflict.
        """
        own_turn = (
            nullcontext() if queue is None else self._turns.of((table, queue if TABLES[table].partitions else ""))
        )
        # Take the threads' turn first and the file lock second, so that the holder of the file lock never waits for a
        # thread.
        with own_turn, self._safe(table, losses):
            yield

    @contextmanager
    def group_turn(self, table: str, queue: str, losses: int, call: PendingCall[Any]) -> Iterator[list[Any]]:
        """Take a `turn` for a pending call and the waiting calls that go with it, and yield all these calls.

        Yield an empty list if another thread has carried out this call. Each loss halves the number of calls that go
        together, because a commit to more lanes conflicts with more other commits.
        """
        with self.together(table, queue, call, losses) as calls:
            if not calls:
                yield calls
                return
            with self._safe(table, losses):
                yield calls

    @contextmanager
    def together(self, table: str, queue: str, call: PendingCall[Any], losses: int = 0) -> Iterator[list[Any]]:
        """Do what `group_turn` does, but without making a commit safe."""
        with self._turns.together((table, queue), call, MOST_TOGETHER >> losses) as calls:
            if calls:
                self.tally.together(table, len(calls))
            yield calls

    @contextmanager
    def _safe(self, table: str, losses: int) -> Iterator[None]:
        self.require_writable(f"a commit to {table}")
        self.before_turn()
        lock = self.locks[table]
        waits = losses >= self._settings.losses_before_waiting
        # Exclusivity is optional after losses (it only avoids lost races), so that wait is bounded: a stopped process
        # must not hold up others.
        with lock.exclusive() if self._alone else lock.prefer_exclusive(PATIENCE) if waits else lock.shared():
            yield

    def spark_turn(self, table: str) -> Any:
        """Make a commit through Spark safe within the context, whichever engine runs the verbs."""
        self.require_writable(f"a commit to {table}")
        self.before_turn()
        return self.locks[table].exclusive()


def _tell(metadata: Mapping[str, Any], event: Mapping[str, Any]) -> None:
    """Write to the log "ledger.events" an event of a commit, as the table `receipts` gets it."""
    events.log(
        logging.INFO if event["event"] in UNASKED else logging.DEBUG,
        "%s: %s %d messages, receipt %s",
        *(event.get("queue", metadata["queue"]), event["event"], event["messages"], event.get("receipt_id")),
    )
