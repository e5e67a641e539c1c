"""The record of upkeep's rounds: how far the last round went, and who holds the lease to run the next.

The record is in the log of `tasks`, as transactions (Delta's application ids with a number each). The log and its
checkpoints keep the newest number of each application for good:

| application | its number |
|---|---|
| `upkeep/messages`, `upkeep/visibility` | the version of that table that the last round went up to |
| `upkeep/at` | when that round began, in milliseconds |
| `upkeep/lease` | the number of the lease that was taken last |
| `upkeep/leased` | when the last lease was taken, in milliseconds |
| `upkeep/free` | the number of the lease that was given back last |
| `upkeep/records` | a number for each commit that notes a round or frees a lease: two such commits at once conflict |

**The lease.** A process takes the lease by committing the next number, which Delta grants to one process. The lease is
held while `upkeep/lease` and `upkeep/free` differ. If the lease's holder died, another process takes the next number
after a time (see `ledger.upkeep_daemon`). Two rounds at once are safe: the lease only saves work.

**How far a round went.** A round takes the versions that were newest when it began. Upkeep's own commits directly after
these versions count as gone over.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from ledger.delta_log.protocol import Conflict, LogReplaced, read_retention
from ledger.errors import LedgerError
from ledger.rules.limits import MILLISECONDS
from ledger.rules.upkeep import (
    AGE_DUE,
    COMMAND,
    COMMITS_DUE,
    COMMITS_OVERDUE,
    Load,
    Round,
    gone_over,
    load_since,
    why_overdue,
)
from ledger.store.delta.commit.transactions import Attempts, Transactions
from ledger.store.delta.engine import Engine, is_of_upkeep

log = logging.getLogger("ledger.upkeep")
#: The table of the record, and the tables whose commits are the load of upkeep.
RECORD, LOADED = "tasks", ("messages", "visibility")
OF_TABLE = {table: f"upkeep/{table}" for table in LOADED}
AT, LEASE, FREE, RECORDS = "upkeep/at", "upkeep/lease", "upkeep/free", "upkeep/records"
LEASED = "upkeep/leased"
ATTEMPTS, FIRST_PAUSE = 10, 0.08


@dataclass(frozen=True)
class Look:
    """The record and the newest versions, as of one moment.

    `lease` is the number of the last lease. `leased_at` is in milliseconds (None: not known).
    """

    last: Round | None
    versions: dict[str, int]
    lease: int
    is_held: bool
    leased_at: int | None = None

    def load(self, now: int) -> Load:
        return load_since(self.last, self.versions["messages"], self.versions["visibility"], now)

    def find_processed_version(self) -> int:
        return gone_over(self.versions["visibility"], 0 if self.last is None else self.last.visibility)


class Rounds:
    def __init__(self, engine: Engine, transactions: Transactions) -> None:
        self._engine, self._transactions = engine, transactions
        self._read: tuple[tuple[int, int], Look] | None = None
        self._held: int | None = None

    def look(self) -> Look:
        """Return the record and the newest versions. Raises StorageFailed."""
        while True:
            versions = self._engine.newest_versions((*LOADED, RECORD))
            of_record = versions.pop(RECORD), self._engine.generation()
            kept = self._read
            if kept is not None and kept[0] == of_record:
                return replace(kept[1], versions=versions)
            record = self._record(versions)
            if (self._engine.newest_versions((RECORD,))[RECORD], self._engine.generation()) == of_record:
                self._read = of_record, record

    def log_retention(self) -> int:
        return read_retention(self._engine.layout("visibility").properties).log_retention

    def take(self, look: Look, at: int) -> bool:
        """Take the lease after the one that `look` saw, even if that lease is held.

        Return False if another process was first, or the ledger was replaced. Raises StorageFailed.
        """
        number = look.lease + 1
        try:
            with self._transactions.turn(RECORD):
                self._engine.mark(RECORD, self._metadata(at), (LEASE, number), (LEASED, at))
        except (Conflict, LogReplaced):
            return False
        self._held = number
        return True

    def give_back(self, at: int) -> None:
        """Give the lease back if this process has it. Raises StorageFailed."""
        if self._held is not None:
            self._note(at)

    def record(self, begun: Look, at: int) -> None:
        """Record that a round went over the versions that `begun` saw, and give the lease back.

        The round began at the instant `at`. If this process has no lease, and the last record has the same versions and
        is younger than AGE_DUE seconds, nothing is committed. A LedgerError is only logged.
        """
        try:
            reached = {table: self._find_reached(table, version) for table, version in begun.versions.items()}
            last = begun.last
            is_unchanged = last is not None and reached == {table: getattr(last, table) for table in LOADED}
            if is_unchanged and last is not None and 0 <= at - last.at < AGE_DUE * MILLISECONDS and self._held is None:
                return
            self._note(at, (AT, at), *((OF_TABLE[table], version) for table, version in reached.items()))
        except LedgerError as error:
            log.warning("the round of upkeep is done, and could not be recorded: %s", error)

    def _find_reached(self, table: str, version: int) -> int:
        for commit in self._engine.history(table, version):
            if not is_of_upkeep(commit.metadata):
                break
            version = commit.version
        return version

    def _note(self, at: int, *facts: tuple[str, int]) -> None:
        """Commit facts, and give back this process's lease, if any.

        After ATTEMPTS lost commits, the lease stays taken, as if its holder had died.
        """
        free = () if self._held is None else ((FREE, self._held),)
        attempts = Attempts("the record of upkeep", ATTEMPTS, FIRST_PAUSE)
        for _ in attempts:
            number = (self._engine.transaction_version(RECORD, RECORDS) or 0) + 1
            try:
                with self._transactions.turn(RECORD):
                    self._engine.mark(RECORD, self._metadata(at), (RECORDS, number), *facts, *free)
            except LogReplaced:
                # The round did nothing in the ledger that replaced this one.
                break
            except Conflict:
                continue
            else:
                break
        else:
            log.warning("%s", attempts.give_up())
        self._held = None

    def _record(self, versions: dict[str, int]) -> Look:
        number_of = partial(self._engine.transaction_version, RECORD)
        reached = {table: number_of(application) for table, application in OF_TABLE.items()}
        at, lease = number_of(AT), number_of(LEASE) or 0
        last = None if at is None else Round(reached["messages"] or 0, reached["visibility"] or 0, at)
        return Look(last, versions, lease, lease != (number_of(FREE) or 0), number_of(LEASED))

    def _metadata(self, at: int) -> dict[str, object]:
        return self._transactions.metadata(secrets.token_hex(8), "upkeep", "", at, [])


class OverdueNotice:
    """Logs a warning that upkeep is overdue, at most once for an open ledger.

    It reads the record when the last versions that this process committed to the LOADED tables add up to
    COMMITS_OVERDUE, and after each COMMITS_DUE more.
    """

    def __init__(self, look: Callable[[], Look], log_retention: Callable[[], int]) -> None:
        self._look, self._log_retention = look, log_retention
        self._newest: dict[str, int] = {}
        self._next_look_at = COMMITS_OVERDUE
        self._has_warned = False

    def committed(self, table: str, version: int, at: int) -> None:
        if self._has_warned or table not in LOADED:
            return
        self._newest[table] = version
        commits = sum(self._newest.values())
        if commits < self._next_look_at:
            return
        try:
            why = why_overdue(self._look().load(at), self._log_retention())
        except LedgerError as error:
            # A failed look must not make the verb fail.
            log.debug("whether upkeep is overdue is not known: %s", error)
            why = None
        self._next_look_at = commits + COMMITS_DUE
        if why is not None:
            self._has_warned = True
            log.warning("upkeep is overdue: %s. Run %s", why, COMMAND)
