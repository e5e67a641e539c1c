"""Where a worker gets its claims: the receives of an attempt, numbered so that a retry finds what a dead run holds."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from ledger.claim import Claim, receive
from ledger.client.access import Access
from ledger.clock import Clock
from ledger.errors import InvalidParameterValue
from ledger.rules.attempts import ALONE, LONGEST, Share, claim_id, claim_of_process, shortened
from ledger.rules.attributes import is_fifo
from ledger.rules.limits import MILLISECONDS
from ledger.rules.state import Status

#: An attempt has behind it the numbers of its processes and of their claims.
LONGEST_ATTEMPT = LONGEST - len("/255.1000000000")
#: The claims of a run that met others of its attempt have numbers out of these.
APART = range(1_000_000, 1_000_000_000)
#: The states of messages that somebody may receive, now, which is the first one, or soon.
STORED = (Status.VISIBLE, Status.DELAYED, Status.LOCKED)


class ClaimSource:
    """The claims of one worker on one queue. `timeout` is how long each is held, in seconds.

    Raises InvalidParameterValue for a visibility timeout of 0: such a claim cannot be worked on.
    """

    def __init__(
        self,
        access: Access,
        visibility_timeout: int | None,
        attempt_id: str | None,
        say: Callable[[str], None],
        share: Share | None = None,
    ) -> None:
        timeout = visibility_timeout
        if timeout is None:
            timeout = int(access.record().attributes["VisibilityTimeout"])
        if not timeout:
            raise InvalidParameterValue(
                "visibility_timeout", timeout, "A claim that is held for no time cannot be worked on"
            )
        self._access, self.timeout, self._attempt_id, self._say = access, timeout, attempt_id, say
        self._share = share
        #: Of a FIFO queue: its state before the last receive.
        self._in_order = is_fifo(access.record().attributes)
        self._before: object = None
        self._parts_ways = False

    def attempts(self) -> Iterator[tuple[str | None, int]]:
        """Yield an attempt id for each receive, and how many messages a failed run of this attempt holds under it.

        First comes what such a run holds, then new work under numbers that no earlier claim has (0 messages). A run of
        the attempt that is alive has the same numbers, and so the same claims, until one of the two parts ways.
        """
        if not self._attempt_id:
            yield from itertools.repeat((None, 0))
        attempt = shortened(str(self._attempt_id), LONGEST_ATTEMPT)
        held = self._held(attempt)
        for (process, number), messages in sorted(held.items(), key=lambda one: (one[0][0] or 0, one[0][1])):
            self._say(f"carries on with {messages:,} messages that an earlier run of {attempt} holds")
            yield claim_id(attempt, process, number), messages
        share = self._share or ALONE
        own = share.number if share.processes > 1 else None
        number = max((number for _, number in held), default=-1) + 1
        while True:
            if self._parts_ways:
                number, self._parts_ways = random.choice(APART), False
            yield claim_id(attempt, own, number), 0
            number += 1

    def part_ways(self) -> None:
        """Number the next claims as no other run of this attempt does: one that is alive received the same ones."""
        self._parts_ways = True

    def receive(self, attempt_id: str | None, most: int | None, wait: float) -> Claim:
        """Return the next claim; an empty one after `wait` seconds without messages."""
        self._before = self._access.store.change_token() if self._in_order else None
        return receive(self._access, most, self.timeout, wait, attempt_id)

    def may_get_more(self) -> bool:
        """Return whether there are messages, or some come within the visibility timeout: because their lease ends (its
        holder beats in time, or is dead and leaves work), or because they were postponed until then. Ask behind a
        receive that found none: what is visible on a FIFO queue all the same stands behind what is hidden.

        Guarantees: the answer is of one state of the queue at one instant. A message that comes, or that others receive
        or give back, between two reads is not missed.
        """
        store = self._access.store
        while True:
            seen, now = store.change_token(), self._access.clock()
            is_blocked = self._in_order and seen == self._before
            if self._has_more(lambda: now, STORED[1:] if is_blocked else STORED):  # noqa: B023 - called at once
                return True
            if store.change_token() == seen:
                return False

    def _has_more(self, clock: Clock, stored: Sequence[Status]) -> bool:
        record, store = self._access.record(), self._access.store
        counted = store.counts(record, clock).by_status
        if any(counted.get(status, 0) for status in stored):
            return True
        ending = itertools.chain(store.leases(record, clock), store.postponed(record, clock))
        return any(lease.visible_at <= clock() + self.timeout * MILLISECONDS for lease in ending)

    def _held(self, attempt: str) -> Mapping[tuple[int | None, int], int]:
        """By the numbers of their process and their claim: how many messages are in flight that this worker carries on
        with."""
        held = Counter[tuple[int | None, int]]()
        for lease in self._access.store.leases(self._access.record(), self._access.clock):
            found = claim_of_process(attempt, lease.attempt_id)
            if found is None:
                continue
            process, share = found[0], self._share
            is_mine = process is None if share is None else (process or 0) % share.processes == share.number
            if is_mine:
                held[found] += lease.messages
        return held


def earlier_rows(messages: int) -> str:
    """Return what is said of rows that somebody with the same receipt was the first to write."""
    return (
        f"{messages:,} messages had rows by another run with this attempt_id, which is alive, or ended a moment ago. "
        "Two at once do the same messages twice: end one of them, or give each an attempt_id of its own"
    )
