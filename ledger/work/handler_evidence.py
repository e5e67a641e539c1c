"""The evidence for bad messages or a broken handler, outcome by outcome.

The rules resemble those of `isolation`, for outcomes that come one by one. A failure is an outcome with an error: the
handler raised, or its answer cannot be written. Failures are alike if their errors are (`RowError.is_like`). Outcomes
without an error, such as RetryLater, count neither as failures nor as successes.

1. Errors of the surroundings (an ImportError, no connection) are no message's fault. The handler is broken after
   LEAST_WITNESSES + log2(messages of the claim) such failures in a row that are alike, of any claims. The claim is that
   of the last failure, and the logarithm is rounded up. A success, or a failure that is not alike, ends the row.
2. Bad messages often follow each other, as in a sorted file. After LEAST_WITNESSES failures of one claim that are
   alike, and no success in that claim, all waiting messages are therefore shuffled. The messages that were with
   handlers at that time prove nothing, so their number is added to the bound. If, beyond these, as many further
   messages as in rule 1 fail alike, the handler is broken. While the claims in hand have messages that were not read,
   this rule does not decide. One success in the claim, or another error, acquits the handler: rule 2 no longer applies
   to this claim.
3. When each message in hand has an outcome, the claims are judged together. The handler is broken after LEAST_WITNESSES
   failures alike in a row, if no message has succeeded since the consumer began. (After a success, a few bad messages
   may be all that is left of the queue.)

In rules 2 and 3 only messages that were received for the first time count: they are the witnesses.

The failures of a claim are undecided until the claim acquits the handler. Errors of the surroundings are undecided
until their row ends. Undecided failures are not settled before each message in hand has an outcome, or the consumer
drains.
"""

from __future__ import annotations

import threading
from enum import Enum
from math import ceil, log2
from typing import Any

from ledger.work.handler_calls import Handled, Verdict
from ledger.work.isolation import LEAST_WITNESSES


class Suspicion(Enum):
    """What one more outcome shows about the handler."""

    NOTHING = "nothing new"
    SUSPICIOUS = "the waiting messages are to be shuffled"
    BROKEN = "everything fails alike"


class _ClaimEvidence:
    """What the outcomes of one claim show about the handler so far."""

    def __init__(self, messages: int) -> None:
        self.bound = LEAST_WITNESSES + ceil(log2(max(messages, 2)))
        self.is_acquitted = False
        self.failures: list[Handled] = []
        #: How many witnesses that fail alike show a broken handler; None until the waiting messages are shuffled.
        self.needed: int | None = None


class HandlerEvidence:
    """The outcomes of a consumer that show whether its handler is broken. Threads share the object."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[Any, _ClaimEvidence] = {}
        self._in_a_row: list[Handled] = []
        self._has_succeeded = False

    def add(self, claim: Any, messages: int, handled: Handled, running: int, *, may_judge: bool) -> Suspicion:
        """Add an outcome. Return what it shows.

        Args:
            claim: the key of the claim that the message belongs to.
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
        """Return the failures that are not decided yet: the handler may be their cause, not the messages.

        These are failures of the claim, and errors of the surroundings from any claim.
        """
        with self._lock:
            of_claim = self._of.get(claim)
            own = [] if of_claim is None or of_claim.is_acquitted else of_claim.failures
            return [*own, *(one for one in self._in_a_row if one.error and one.error.is_of_surroundings)]

    @property
    def is_suspicious(self) -> bool:
        """Whether the waiting messages are to be shuffled."""
        with self._lock:
            return any(of_claim.needed is not None and not of_claim.is_acquitted for of_claim in self._of.values())

    def judge_all(self) -> Handled | None:
        """Judge all claims together. Call this when each message in hand has an outcome (rule 3).

        Return a failure if the handler is broken, and None if it is not.
        """
        with self._lock:
            row = self._in_a_row
            is_broken = _count_witnesses(row) >= LEAST_WITNESSES and not self._has_succeeded
            return row[-1] if is_broken else None

    def forget(self, claim: Any) -> None:
        """Forget a claim that is over."""
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
