"""The messages that were settled through a claim, not by others.

Messages that the claim's holder deleted or released are not lost. Messages that another holder of its receipt deleted
or released are lost. Two tasks with one attempt id have the same receipt, and are one holder to the store. Therefore
each claim remembers what was ended through it, or through the queue object that made it. All other settled messages
were ended by somebody else.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.errors import ContentionOutlastedRetries, InvalidParameterValue, LeaseLost, OutputNotWritten
from ledger.rules.message_id import SEQ_BOUND
from ledger.rules.visibility import Outcome
from ledger.runtime.forks import renew_in_child
from ledger.store.protocol import RUNS, count_messages

#: Errors of a verb that changed nothing. After any other error the verb may have been committed, although its answer
#: was lost.
NOTHING_CHANGED = (InvalidParameterValue, ContentionOutlastedRetries, LeaseLost, OutputNotWritten)
#: Up to this number of tables are searched one by one. With more tables, each table costs more than its rows.
MOST_APART = 64
_DONE = pa.array([Outcome.DELETED.value, Outcome.CHANGED.value])


class ClaimSettlements:
    """The messages that were deleted or released through the claim with this receipt, as RUNS."""

    def __init__(self, receipt_id: str | None) -> None:
        self.receipt_id = receipt_id
        self._lock, self._parts = threading.Lock(), dict[Ending, pa.Table]()
        #: The messages that are known to be ended, in few tables.
        self._done: list[pa.Table] = []
        renew_in_child(self, ClaimSettlements._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def ending(self, runs: pa.Table) -> Iterator[Ending]:
        """Return a context in which messages are deleted or released.

        The messages count as ended here from the start, so that no heartbeat takes them for lost. If the verb changes
        nothing, they no longer count.
        """
        ending = Ending()
        with self._lock:
            self._parts[ending] = runs.select(RUNS.names)
        try:
            yield ending
        except NOTHING_CHANGED:
            ending.done = RUNS.empty_table()
            raise
        else:
            # If the caller reports no outcome, assume that every message was ended.
            ending.done = runs.select(RUNS.names) if ending.done is None else ending.done
        finally:
            if ending.done is not None:
                with self._lock:
                    del self._parts[ending]
                    self._done.append(ending.done)
                    if len(self._done) > MOST_APART:
                        self._done = [pa.concat_tables(self._done).combine_chunks()]

    def copy(self) -> ClaimSettlements:
        """Return a copy of what was ended until now."""
        copy = ClaimSettlements(self.receipt_id)
        with self._lock:
            copy._parts, copy._done = dict(self._parts), list(self._done)
        return copy

    def outside(self, runs: pa.Table) -> int:
        """Return how many messages of `runs` were not ended here."""
        with self._lock:
            return count_outside(runs, pa.concat_tables([RUNS.empty_table(), *self._done, *self._parts.values()]))

    def left(self, runs: pa.Table) -> int:
        """Return how many messages of `runs` are not known to be ended here.

        A verb whose answer was lost, or has not arrived, may have ended them or not.
        """
        with self._lock:
            # A copy may hold a verb that was running when it was copied and has its answer by now.
            ended = [*self._done, *(part for ending, part in self._parts.items() if ending.done is not None)]
        return count_outside(runs, pa.concat_tables([RUNS.empty_table(), *ended])) if ended else count_messages(runs)


class Ending:
    """A verb that ends messages. `done` is what it ended; None until that is known."""

    done: pa.Table | None = None

    def answered(self, outcomes: pa.Table) -> None:
        """Record what the verb ended, from its OUTCOME_RUNS."""
        self.done = outcomes.filter(pc.is_in(outcomes["outcome"], _DONE)).select(RUNS.names)


class OpenClaims:
    """The messages that were ended through the claims of a queue object, while these claims exist."""

    def __init__(self) -> None:
        self._lock, self._known = threading.Lock(), weakref.WeakSet[ClaimSettlements]()
        renew_in_child(self, OpenClaims._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def add(self, endings: ClaimSettlements) -> None:
        """Remember the endings of a claim, weakly."""
        with self._lock:
            self._known.add(endings)

    def of(self, receipt_id: str) -> Sequence[ClaimSettlements]:
        """Return the endings of the claims with this receipt."""
        with self._lock:
            return [endings for endings in self._known if endings.receipt_id == receipt_id]


def count_outside(runs: pa.Table, others: pa.Table) -> int:
    """Return how many messages of `runs` are in none of `others`.

    The runs of `others` may overlap, those of `runs` not.
    """
    if not runs.num_rows:
        return 0
    names = pa.chunked_array([*runs["segment"].chunks, *others["segment"].chunks]).unique()
    first, last = _positions(runs, names)
    start, end = _positions(others, names)
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    # Cut each run where the run before it already reaches.
    start = np.concatenate([start[:1], np.maximum(start[1:], end[:-1] + 1)])
    # Put an empty run before all others, so that there always is one.
    start, end = np.concatenate([[-1], start]), np.concatenate([[-2], end])
    before = np.concatenate([[0], np.cumsum(np.maximum(end - start + 1, 0))])
    return count_messages(runs) - int((_below(last + 1, start, end, before) - _below(first, start, end, before)).sum())


def _positions(runs: pa.Table, names: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    segment = pc.index_in(runs["segment"], names).to_numpy().astype(np.int64) * SEQ_BOUND
    return segment + runs["first_seq"].to_numpy(), segment + runs["last_seq"].to_numpy()


def _below(at: np.ndarray, start: np.ndarray, end: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return how many positions below each of `at` the sorted runs cover.

    `before` has for each run how many positions the runs before it cover.
    """
    index = np.searchsorted(start, at, "left") - 1
    below: np.ndarray = before[index] + np.maximum(np.minimum(at - 1, end[index]) - start[index] + 1, 0)
    return below
