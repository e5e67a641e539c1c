"""The evidence for bad messages or a broken handler, outcome by outcome.

A failure is an outcome with an error: the handler raised, or its answer cannot be written. Failures are alike if their
errors are (`RowError.is_like`). The bound of a claim is LEAST_WITNESSES + log2(its messages), rounded up.

1. Errors of the surroundings (an ImportError, no connection) are no message's fault. The handler is broken after as
   many such failures in a row, all alike, as the bound of the last failure's claim. The row goes across claims, and
   ends with a success or a failure that is not alike.
2. Bad messages often follow each other, as in a sorted file. So after LEAST_WITNESSES failures of a claim, all alike,
   all waiting messages are shuffled. The messages that handlers then have prove nothing. The handler is broken if,
   beyond their number, as many further messages as the bound fail alike. This rule does not decide while messages of
   claims in hand are unread. A success in the claim, or another error, acquits the handler for this claim.
3. When each message in hand has an outcome, the handler is broken after LEAST_WITNESSES failures alike in a row, if no
   message has ever succeeded. (After a success, a few bad messages may be all that is left of the queue.)

In rules 2 and 3 only witnesses count: messages that were received for the first time.

The failures of a claim are undecided until the claim acquits the handler, and errors of the surroundings until their
row ends. Undecided failures are settled only when each message in hand has an outcome, or the consumer drains.
"""

from __future__ import annotations

import threading
from enum import Enum
from math import ceil, log2
from typing import Any

from ledger.work.handler_calls import Handled, Verdict
from ledger.work.isolation import LEAST_WITNESSES


class Suspicion(Enum):
    NOTHING = "nothing new"
    SUSPICIOUS = "the waiting messages are to be shuffled"
    BROKEN = "everything fails alike"


class _ClaimEvidence:
    def __init__(self, messages: int) -> None:
        self.bound = LEAST_WITNESSES + ceil(log2(max(messages, 2)))
        self.is_acquitted = False
        self.failures: list[Handled] = []
        #: How many witnesses show a broken handler; None before the shuffle.
        self.needed: int | None = None


class HandlerEvidence:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[Any, _ClaimEvidence] = {}
        self._in_a_row: list[Handled] = []
        self._has_succeeded = False

    def add(self, claim: Any, messages: int, handled: Handled, running: int, *, may_judge: bool) -> Suspicion:
        """Add an outcome. Return what it shows.

        Args:
            messages: how many messages the claim has.
            running: how many messages are with handlers now, at most.
            may_judge: whether all messages of the claims in hand were read.
        """
        with self._lock:
            of_claim = self._of.setdefault(claim, _ClaimEvidence(messages))
            if handled.verdict is Verdict.DONE:
                self._acquit(of_claim)
                return Suspicion.NOTHING
            if handled.error is None:
                return Suspicion.NOTHING
            if self._in_a_row and not _are_alike(handled, self._in_a_row[0]):
                self._in_a_row.clear()
            self._in_a_row.append(handled)
            if handled.error.is_of_surroundings and len(self._in_a_row) >= of_claim.bound:
                return Suspicion.BROKEN
            if of_claim.is_acquitted:
                return Suspicion.NOTHING
            if of_claim.failures and not _are_alike(handled, of_claim.failures[0]):
                of_claim.is_acquitted = True
                return Suspicion.NOTHING
            of_claim.failures.append(handled)
            witnesses = _count_witnesses(of_claim.failures)
            if of_claim.needed is None and witnesses >= LEAST_WITNESSES:
                of_claim.needed = witnesses + running + of_claim.bound
                return Suspicion.SUSPICIOUS
            if of_claim.needed is not None and witnesses >= of_claim.needed and may_judge:
                return Suspicion.BROKEN
            return Suspicion.NOTHING

    def undecided(self, claim: Any) -> list[Handled]:
        """Return the claim's undecided failures, and those of the surroundings from any claim."""
        with self._lock:
            of_claim = self._of.get(claim)
            own = [] if of_claim is None or of_claim.is_acquitted else of_claim.failures
            return [*own, *(one for one in self._in_a_row if one.error and one.error.is_of_surroundings)]

    @property
    def is_suspicious(self) -> bool:
        with self._lock:
            return any(of_claim.needed is not None and not of_claim.is_acquitted for of_claim in self._of.values())

    def judge_all(self) -> Handled | None:
        """Apply rule 3. Return a failure if the handler is broken."""
        with self._lock:
            row = self._in_a_row
            is_broken = _count_witnesses(row) >= LEAST_WITNESSES and not self._has_succeeded
            return row[-1] if is_broken else None

    def forget(self, claim: Any) -> None:
        with self._lock:
            self._of.pop(claim, None)

    def _acquit(self, of_claim: _ClaimEvidence) -> None:
        self._has_succeeded = True
        of_claim.is_acquitted = True
        of_claim.failures.clear()
        self._in_a_row.clear()


def _are_alike(one: Handled, other: Handled) -> bool:
    return one.error is not None and other.error is not None and one.error.is_like(other.error)


def _count_witnesses(failures: list[Handled]) -> int:
    return sum(one.message.receive_count <= 1 for one in failures)
