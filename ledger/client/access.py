"""Access to one queue of a ledger, and the messages that were ended through a claim.

To end a message is to delete or release it. A claim has lost a message that another holder of the same receipt ended.
(Two tasks with one attempt id have the same receipt.) The store does not distinguish the holders. So each Claim object
remembers the messages that were ended through the Claim, or through the Queue object that made it.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.clock import Clock
from ledger.errors import (
    ContentionOutlastedRetries,
    InvalidParameterValue,
    LeaseLost,
    OutputNotWritten,
    QueueDoesNotExist,
    SparkIsNeeded,
)
from ledger.rules.message_id import SEQ_BOUND
from ledger.rules.visibility import Outcome
from ledger.runtime.threads import renew_in_child
from ledger.settings import Settings
from ledger.store.protocol import RUNS, QueueRecord, Store, count_messages

if TYPE_CHECKING:
    from ledger.store.delta.dataframes.frames import Frames

#: Errors of a verb that changed nothing. After any other error it is unknown whether the verb has committed.
ERRORS_WITHOUT_CHANGE = (InvalidParameterValue, ContentionOutlastedRetries, LeaseLost, OutputNotWritten)
#: More tables than this are joined into one.
MOST_TABLES = 64
_DONE_OUTCOMES = pa.array([Outcome.DELETED.value, Outcome.CHANGED.value])


class ClaimSettlements:
    """The messages (RUNS) that were ended through the claim with this receipt."""

    def __init__(self, receipt_id: str | None) -> None:
        self.receipt_id = receipt_id
        self._lock, self._parts = threading.Lock(), dict[Ending, pa.Table]()
        self._done: list[pa.Table] = []
        renew_in_child(self, ClaimSettlements._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def ending(self, runs: pa.Table) -> Iterator[Ending]:
        """Return a context in which a verb ends the messages of `runs`.

        From the start, all of these messages count as ended for `count_surely_not_ended`, so that no heartbeat takes
        them for lost. After the verb only the messages that the verb ended count, or all if the outcome is unknown.
        """
        ending = Ending()
        with self._lock:
            self._parts[ending] = runs.select(RUNS.names)
        try:
            yield ending
        except ERRORS_WITHOUT_CHANGE:
            ending.done = RUNS.empty_table()
            raise
        else:
            # Without a call of `answered`, the verb ended every message.
            ending.done = runs.select(RUNS.names) if ending.done is None else ending.done
        finally:
            if ending.done is not None:
                with self._lock:
                    del self._parts[ending]
                    self._done.append(ending.done)
                    if len(self._done) > MOST_TABLES:
                        self._done = [pa.concat_tables(self._done).combine_chunks()]

    def copy(self) -> ClaimSettlements:
        copy = ClaimSettlements(self.receipt_id)
        with self._lock:
            copy._parts, copy._done = dict(self._parts), list(self._done)
        return copy

    def count_surely_not_ended(self, runs: pa.Table) -> int:
        """Return how many messages of `runs` were surely not ended through this claim."""
        with self._lock:
            return count_outside(runs, pa.concat_tables([RUNS.empty_table(), *self._done, *self._parts.values()]))

    def left(self, runs: pa.Table) -> int:
        """Return how many messages of `runs` are not known to be ended through this claim."""
        with self._lock:
            # A copy may have a part whose verb has ended since.
            ended = [*self._done, *(part for ending, part in self._parts.items() if ending.done is not None)]
        return count_outside(runs, pa.concat_tables([RUNS.empty_table(), *ended])) if ended else count_messages(runs)


class Ending:
    """A verb that ends messages. `done` has the messages that the verb ended; None: not known."""

    done: pa.Table | None = None

    def answered(self, outcomes: pa.Table) -> None:
        """Record the messages that the verb ended, from its OUTCOME_RUNS."""
        self.done = outcomes.filter(pc.is_in(outcomes["outcome"], _DONE_OUTCOMES)).select(RUNS.names)


class OpenClaims:
    def __init__(self) -> None:
        self._lock, self._settlements = threading.Lock(), weakref.WeakSet[ClaimSettlements]()
        renew_in_child(self, OpenClaims._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def add(self, endings: ClaimSettlements) -> None:
        with self._lock:
            self._settlements.add(endings)

    def of(self, receipt_id: str) -> Sequence[ClaimSettlements]:
        with self._lock:
            return [endings for endings in self._settlements if endings.receipt_id == receipt_id]


def count_outside(runs: pa.Table, others: pa.Table) -> int:
    """Return how many messages of `runs` are in none of `others`. Only the runs of `others` may overlap."""
    if not runs.num_rows:
        return 0
    names = pa.chunked_array([*runs["segment"].chunks, *others["segment"].chunks]).unique()
    first, last = _locate_runs(runs, names)
    start, end = _locate_runs(others, names)
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    # Let each run begin behind the last position of all runs before it.
    start = np.concatenate([start[:1], np.maximum(start[1:], end[:-1] + 1)])
    # With an empty run first, every position has a run before it.
    start, end = np.concatenate([[-1], start]), np.concatenate([[-2], end])
    before = np.concatenate([[0], np.cumsum(np.maximum(end - start + 1, 0))])
    return count_messages(runs) - int(
        (_count_covered_below(last + 1, start, end, before) - _count_covered_below(first, start, end, before)).sum()
    )


def _locate_runs(runs: pa.Table, names: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    segment = pc.index_in(runs["segment"], names).to_numpy().astype(np.int64) * SEQ_BOUND
    return segment + runs["first_seq"].to_numpy(), segment + runs["last_seq"].to_numpy()


def _count_covered_below(at: np.ndarray, start: np.ndarray, end: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return for each position in `at` how many lower positions the sorted runs cover."""
    index = np.searchsorted(start, at, "left") - 1
    below: np.ndarray = before[index] + np.maximum(np.minimum(at - 1, end[index]) - start[index] + 1, 0)
    return below


@dataclass(frozen=True)
class Access:
    """What the calls of a Queue and its claims share. `frames` handles DataFrames (None: opened without Spark).

    `made` is the queue's record when the user opened the queue. All but its name and id may have changed since.
    """

    store: Store
    clock: Clock
    settings: Settings
    frames: Frames | None
    made: QueueRecord
    #: Opens the ledger in another process, started by spawn, and returns access to this queue. None: no process can.
    reopen: Callable[[], Access] | None = field(default=None, compare=False)
    #: The messages that were ended through each claim of this queue object, or through the object.
    endings: OpenClaims = field(default_factory=OpenClaims, init=False)

    @property
    def name(self) -> str:
        return self.made.name

    @property
    def arn(self) -> str:
        return self.settings.account.arn(self.name)

    def record(self) -> QueueRecord:
        """Return the queue's present record. Raises QueueDoesNotExist, also if a newer queue has the name."""
        record = self.store.queue(self.name)
        if record.id != self.made.id:
            raise QueueDoesNotExist(self.name, made_anew=True)
        return record

    def named_jobs(self, verb: str, receipt_id: str | None = None) -> AbstractContextManager[None]:
        """Return a context in which Spark's jobs name the verb, the queue and the receipt."""
        return nullcontext() if self.frames is None else self.frames.named_jobs(verb, self.name, receipt_id)

    def spark(self, what: str = "A DataFrame", instead: str = "") -> Frames:
        """Return the object that handles DataFrames, or raise SparkIsNeeded.

        The error says that `what` needs Spark. `instead` is advice: a call that needs no Spark.
        """
        if self.frames is None:
            message = f"{what} needs Spark: open the ledger with Ledger.open(root, spark=spark)"
            raise SparkIsNeeded(message, instead)
        return self.frames
