"""Who ended a claim: what its holder deleted or released itself is no loss; what another holder of its receipt did is.

Two tasks with one attempt id are one holder to the store: both have the same receipt. So each claim remembers what was
ended through it, or through the queue object that it came from; the rest that is settled was ended by somebody else.
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

#: Errors of a verb that changed nothing. After any other it may have landed, although its answer was lost.
NOTHING_CHANGED = (InvalidParameterValue, ContentionOutlastedRetries, LeaseLost, OutputNotWritten)
#: So many tables are looked through one by one: of thousands each costs more than all its rows.
MOST_APART = 64
_DONE = pa.array([Outcome.DELETED.value, Outcome.CHANGED.value])


class ClaimSettlements:
    """What was deleted or released through the claim that has this receipt, as RUNS."""

    def __init__(self, receipt_id: str | None) -> None:
        self.receipt_id = receipt_id
        self._lock, self._parts = threading.Lock(), dict[Ending, pa.Table]()
        #: What is known to be ended, in few tables.
        self._done: list[pa.Table] = []
        renew_in_child(self, ClaimSettlements._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def ending(self, runs: pa.Table) -> Iterator[Ending]:
        """While messages are deleted or released: they count as ended here from the first moment on, so that no
        heartbeat takes them for lost; if the verb changed nothing, not any more."""
        ending = Ending()
        with self._lock:
            self._parts[ending] = runs.select(RUNS.names)
        try:
            yield ending
        except NOTHING_CHANGED:
            ending.done = RUNS.empty_table()
            raise
        else:
            # Who says nothing else ended them all.
            ending.done = runs.select(RUNS.names) if ending.done is None else ending.done
        finally:
            if ending.done is not None:
                with self._lock:
                    del self._parts[ending]
                    self._done.append(ending.done)
                    if len(self._done) > MOST_APART:
                        self._done = [pa.concat_tables(self._done).combine_chunks()]

    def copy(self) -> ClaimSettlements:
        """What was ended until now."""
        copy = ClaimSettlements(self.receipt_id)
        with self._lock:
            copy._parts, copy._done = dict(self._parts), list(self._done)
        return copy

    def outside(self, runs: pa.Table) -> int:
        """How many messages of `runs` were not ended here."""
        with self._lock:
            return count_outside(runs, pa.concat_tables([RUNS.empty_table(), *self._done, *self._parts.values()]))

    def left(self, runs: pa.Table) -> int:
        """How many messages of `runs` are not known to be ended here: a verb whose answer was lost, or is not there
        yet, may have ended them or not."""
        with self._lock:
            # One that a copy took over while it was under way has its answer by now, perhaps.
            known = [*self._done, *(part for ending, part in self._parts.items() if ending.done is not None)]
        return count_outside(runs, pa.concat_tables([RUNS.empty_table(), *known])) if known else count_messages(runs)


class Ending:
    """One verb that ends messages; `done` is what it ended, None as long as that is not known."""

    done: pa.Table | None = None

    def answered(self, outcomes: pa.Table) -> None:
        """Of OUTCOME_RUNS."""
        self.done = outcomes.filter(pc.is_in(outcomes["outcome"], _DONE)).select(RUNS.names)


class OpenClaims:
    """What was ended through the claims that came from a queue object, as long as somebody has these claims."""

    def __init__(self) -> None:
        self._lock, self._known = threading.Lock(), weakref.WeakSet[ClaimSettlements]()
        renew_in_child(self, OpenClaims._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def add(self, endings: ClaimSettlements) -> None:
        """Remembers those of a claim, weakly."""
        with self._lock:
            self._known.add(endings)

    def of(self, receipt_id: str) -> Sequence[ClaimSettlements]:
        """Those of the claims with this receipt."""
        with self._lock:
            return [endings for endings in self._known if endings.receipt_id == receipt_id]


def count_outside(runs: pa.Table, others: pa.Table) -> int:
    """How many messages of some runs are in none of `others`. The runs of `others` may overlap, those of `runs` not."""
    if not runs.num_rows:
        return 0
    names = pa.chunked_array([*runs["segment"].chunks, *others["segment"].chunks]).unique()
    first, last = _positions(runs, names)
    start, end = _positions(others, names)
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    # Cut each where the one before it already reaches.
    start = np.concatenate([start[:1], np.maximum(start[1:], end[:-1] + 1)])
    # An empty one before all others, so that there always is one.
    start, end = np.concatenate([[-1], start]), np.concatenate([[-2], end])
    before = np.concatenate([[0], np.cumsum(np.maximum(end - start + 1, 0))])
    return count_messages(runs) - int((_below(last + 1, start, end, before) - _below(first, start, end, before)).sum())


def _positions(runs: pa.Table, names: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    segment = pc.index_in(runs["segment"], names).to_numpy().astype(np.int64) * SEQ_BOUND
    return segment + runs["first_seq"].to_numpy(), segment + runs["last_seq"].to_numpy()


def _below(at: np.ndarray, start: np.ndarray, end: np.ndarray, before: np.ndarray) -> np.ndarray:
    """How many positions below each of `at` the sorted runs cover; `before`: how many those before each run do."""
    index = np.searchsorted(start, at, "left") - 1
    below: np.ndarray = before[index] + np.maximum(np.minimum(at - 1, end[index]) - start[index] + 1, 0)
    return below
