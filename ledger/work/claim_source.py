"""The receives of a worker, numbered so that a retry finds a dead run's claims."""

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

#: The numbers of the process and of the claim are appended to an attempt id.
LONGEST_ATTEMPT = LONGEST - len("/255.1000000000")
#: After a run met another run of its attempt, its claims get numbers from this range.
APART = range(1_000_000, 1_000_000_000)
#: The states of messages that somebody may receive now (the first state) or soon.
STORED = (Status.VISIBLE, Status.DELAYED, Status.LOCKED)


class ClaimSource:
    """The claims of one worker on one queue. `timeout` is how long each is held, in seconds.

    Raises:
        InvalidParameterValue: for a visibility timeout of 0: such a claim cannot be worked on.
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
        #: Whether the queue is FIFO; if so, `_before` is its state before the last receive.
        self._in_order = is_fifo(access.record().attributes)
        self._before: object = None
        self._parts_ways = False

    def attempts(self) -> Iterator[tuple[str | None, int]]:
        """Yield an attempt id for each receive, and how many messages a failed run of this attempt holds under it.

        The claims of failed runs come first. Then come numbers that no earlier claim has, with 0 messages. A live run
        of the same attempt has the same numbers, and so the same claims, until one of the two parts ways.
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
        """Give the next claims numbers that no other run has, after a live run of this attempt got the same claims."""
        self._parts_ways = True

    def receive(self, attempt_id: str | None, most: int | None, wait: float) -> Claim:
        """Return the next claim, or an empty one if no message came within `wait` seconds."""
        self._before = self._access.store.change_token() if self._in_order else None
        return receive(self._access, most, self.timeout, wait, attempt_id)

    def may_get_more(self) -> bool:
        """Tell whether there are messages, or some come within the visibility timeout.

        Messages come when a lease ends, or when they were postponed until then. A live holder extends its lease in
        time; a dead holder leaves work. Call this after a receive that found none: on a FIFO queue, messages that are
        visible then stand behind hidden ones.

        Guarantees:
            The answer describes one state of the queue at one instant. A message that comes, or that others receive or
            give back, between two reads is not missed.
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
        """Return how many messages in flight this worker carries on with, by the numbers of process and claim."""
        held = Counter[tuple[int | None, int]]()
        for lease in self._access.store.leases(self._access.record(), self._access.clock):
            numbers = claim_of_process(attempt, lease.attempt_id)
            if numbers is None:
                continue
            process, share = numbers[0], self._share
            is_mine = process is None if share is None else (process or 0) % share.processes == share.number
            if is_mine:
                held[numbers] += lease.messages
        return held


def earlier_rows(messages: int) -> str:
    """Return the error text for rows that another holder of the same receipt wrote first."""
    return (
        f"{messages:,} messages had rows by another run with this attempt_id, which is alive, or ended a moment ago. "
        "Two at once do the same messages twice: end one of them, or give each an attempt_id of its own"
    )
