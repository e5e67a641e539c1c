"""Choose, decide, merge: one closure, tried until it wins, or until ContentionOutlastedRetries."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

from ledger.errors import ContentionOutlastedRetries
from ledger.settings import Settings
from ledger.store.delta.engine import Conflict, Engine, Snapshot, Where

Answer = TypeVar("Answer")
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.5


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


class Transactions:
    """Runs verbs on one engine. `on_step` is told of "chosen" (decided, not committed) and "committed", for tests."""

    def __init__(
        self,
        engine: Engine,
        locks: Mapping[str, Any],
        alone: bool,
        settings: Settings,
        owner: str,
        on_step: Callable[[str], None] | None = None,
        before_turn: Callable[[], None] | None = None,
    ) -> None:
        self._engine, self._locks, self._alone, self._settings, self.owner = engine, locks, alone, settings, owner
        self._on_step = on_step or (lambda step: None)
        self._before_turn = before_turn or (lambda: None)

    def run(self, verb: str, table: str, queue: str, decide: Callable[[int], Plan[Answer]]) -> Answer:
        """Tries `decide(losses)` and commits its plan as one MERGE. Raises ContentionOutlastedRetries."""
        operation, started = secrets.token_hex(8), time.monotonic()
        for losses in range(self._settings.maximum_attempts):
            with self._turn(table, losses):
                plan = decide(losses)
                if not plan.edits.num_rows:
                    return plan.answer(plan.snapshot.version)
                self.step("chosen")
                metadata = self.metadata(operation, verb, queue, plan.at, plan.events)
                try:
                    version = self._engine.merge(plan.snapshot, table, plan.where, plan.edits, metadata)
                except Conflict:
                    version = self.landed(table, operation, plan.snapshot.version)
                if version is not None:
                    self.step("committed")
                    return plan.answer(version)
            pause(losses)
        raise ContentionOutlastedRetries(verb, self._settings.maximum_attempts, time.monotonic() - started)

    def step(self, name: str) -> None:
        """Tells whoever listens that a verb has come so far."""
        self._on_step(name)

    def metadata(self, operation: str, verb: str, queue: str, at: int, events: list[dict[str, Any]]) -> dict[str, Any]:
        """What a commit says of itself; the receipts ledger is filled from it."""
        return {"operation": operation, "verb": verb, "queue": queue, "at": at, "owner": self.owner, "events": events}

    def landed(self, table: str, operation: str, since: int) -> int | None:
        """A conflict may hide a commit that landed (a lost answer): its version, if the history has it."""
        for commit in self._engine.history(table, since):
            if commit.metadata.get("operation") == operation:
                return commit.version
        return None

    def turn(self, table: str) -> Any:
        """A context in which one commit to a table is safe."""
        return self._turn(table, 0)

    def spark_turn(self, table: str) -> Any:
        """A context in which a commit through Spark is safe, whichever engine runs the verbs."""
        self._before_turn()
        return self._locks[table].exclusive()

    def _turn(self, table: str, losses: int) -> Any:
        self._before_turn()
        lock = self._locks[table]
        return lock.exclusive() if self._alone or losses >= self._settings.losses_before_waiting else lock.shared()


def pause(losses: int) -> None:
    """Waits a random moment that grows with the losses."""
    time.sleep(random.uniform(0, min(LONGEST_PAUSE, FIRST_PAUSE * 2**losses)))
