"""The receives of a worker or a consumer.

Here a worker is a worker of `Queue.work`, or one process of a consumer. If the caller gave an attempt id, each receive
has an id made of it and numbers (`rules.attempts.claim_id`). By these ids a retry finds the claims of a failed run.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from ledger.claim import Claim, receive
from ledger.client.access import Access
from ledger.clock import Clock
from ledger.errors import InvalidParameterValue
from ledger.rules.attempts import ALONE, LONGEST, Share, claim_id, parse_claim_id, shorten_id
from ledger.rules.attributes import is_fifo
from ledger.rules.limits import MILLISECONDS
from ledger.rules.visibility import Status

#: A longer attempt id is shortened: the numbers of the process and of the claim follow it.
LONGEST_ATTEMPT_CHARACTERS = LONGEST - len("/255.1000000000")
#: A run that meets another live run of its attempt draws its next claim's number from these.
RANDOM_CLAIM_NUMBERS = range(1_000_000, 1_000_000_000)
#: The states of messages that may be received: at once (the first state), or after a delay or a lock.
STORED_STATES = (Status.VISIBLE, Status.DELAYED, Status.LOCKED)


class ClaimSource:
    """The claims of one worker on one queue, each with the visibility timeout `timeout`, in seconds."""

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
        self._in_order = is_fifo(access.record().attributes)
        #: On a FIFO queue, the store's change token from just before the last receive.
        self._before: object = None
        self._parts_ways = False

    def attempts(self) -> Iterator[tuple[str | None, int]]:
        """Yield an attempt id for each receive, and how many messages an earlier run of the attempt holds under it.

        Earlier claims that are still held come first. Two live runs of one attempt get the same claims, until one calls
        `part_ways`. Without an attempt id, each receive gets (None, 0).
        """
        if not self._attempt_id:
            yield from itertools.repeat((None, 0))
        attempt = shorten_id(str(self._attempt_id), LONGEST_ATTEMPT_CHARACTERS)
        held = self._count_held(attempt)
        for (process, number), messages in sorted(held.items(), key=lambda one: (one[0][0] or 0, one[0][1])):
            self._say(f"carries on with {messages:,} messages that an earlier run of {attempt} holds")
            yield claim_id(attempt, process, number), messages
        share = self._share or ALONE
        own = share.number if share.processes > 1 else None
        number = max((number for _, number in held), default=-1) + 1
        while True:
            if self._parts_ways:
                number, self._parts_ways = random.choice(RANDOM_CLAIM_NUMBERS), False
            yield claim_id(attempt, own, number), 0
            number += 1

    def part_ways(self) -> None:
        """Number the next claims from a random number on: another live run may have the same claims."""
        self._parts_ways = True

    def receive(self, attempt_id: str | None, most: int | None, wait: float) -> Claim:
        self._before = self._access.store.change_token() if self._in_order else None
        return receive(self._access, most, self.timeout, wait, attempt_id)

    def may_get_more(self) -> bool:
        """Return whether, after an empty receive, the queue has messages to receive, or may soon have some.

        Delayed and locked messages count. Held, postponed and parked messages count if their deadline is within the
        visibility timeout. On a FIFO queue, visible messages do not count if nothing has changed since the receive
        began: hidden messages of their groups block them.

        Guarantees:
            False describes the queue at one instant: if a commit comes between the reads, they are repeated.
        """
        store = self._access.store
        while True:
            seen, now = store.change_token(), self._access.clock()
            is_blocked = self._in_order and seen == self._before
            if self._has_more(lambda: now, STORED_STATES[1:] if is_blocked else STORED_STATES):  # noqa: B023 - called at once
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

    def _count_held(self, attempt: str) -> Mapping[tuple[int | None, int], int]:
        """Return how many messages this worker takes over, by the numbers of process (None: one process) and claim."""
        held = Counter[tuple[int | None, int]]()
        for lease in self._access.store.leases(self._access.record(), self._access.clock):
            numbers = parse_claim_id(attempt, lease.attempt_id)
            if numbers is None:
                continue
            process, share = numbers[0], self._share
            is_mine = process is None if share is None else (process or 0) % share.processes == share.number
            if is_mine:
                held[numbers] += lease.messages
        return held


def describe_earlier_rows(messages: int) -> str:
    return (
        f"{messages:,} messages had rows by another run with this attempt_id. It is alive, or ended a moment ago. "
        "Two runs at once handle the same messages twice: end one run, or give each an attempt_id of its own"
    )
