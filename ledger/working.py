"""The loop of a worker: claim, run the function, write, acknowledge, under a heartbeat; until nothing is left to do."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ledger import receiving
from ledger.access import Access
from ledger.claim import Claim
from ledger.claim_work import ClaimWork
from ledger.errors import InvalidParameterValue
from ledger.isolation import Evidence
from ledger.results import Worked
from ledger.rules import limits as bounds
from ledger.rules.attempts import LONGEST, claim_number, shortened
from ledger.rules.attributes import limits_of
from ledger.rules.limits import MILLISECONDS
from ledger.rules.state import Status
from ledger.termination import ended_by_sigterm
from ledger.work import Work

__all__ = ["Work", "Worker"]
log = logging.getLogger("ledger.work")
#: An attempt's claims have numbers behind it.
LONGEST_ATTEMPT = LONGEST - len("/1000000000")
#: How long a receive waits for messages before the worker looks whether any may come, in seconds.
WAIT = 2.0
#: The states of messages that somebody may receive, now or soon.
STORED = (Status.VISIBLE, Status.DELAYED, Status.LOCKED)


class Worker:
    """Works through claims of one queue."""

    def __init__(self, access: Access, work: Work) -> None:
        record = access.record()
        timeout = work.visibility_timeout
        timeout = int(record.attributes["VisibilityTimeout"]) if timeout is None else timeout
        self._access, self._work, self._timeout = access, replace(work, visibility_timeout=timeout), timeout
        if not timeout:
            raise InvalidParameterValue(
                "visibility_timeout", timeout, "A claim that is held for no time cannot be worked on"
            )
        bounds.visibility_timeout(work.park, limits_of(record.attributes), "park")
        self.say, self._evidence = work.say, Evidence()

    def run(self) -> Worked:
        """Works until there is nothing left, as `Work.until` says."""
        self._access.spark("Queue.work")
        worked = Worked(0, 0, 0)
        with ended_by_sigterm():
            for attempt_id, most in self.attempts():
                claim = self.receive(attempt_id, most)
                if claim.count:
                    worked = worked.and_then(self.work(claim))
                if self._work.until == "once" or (
                    not claim.count and self._work.until != "forever" and not self.may_get_more()
                ):
                    return worked
        return worked

    def attempts(self) -> Iterator[tuple[str | None, int | None]]:
        """For each receive, the attempt id and the most messages: first what a failed run of this attempt still holds,
        then new work under numbers that no earlier claim has."""
        if not self._work.attempt_id:
            yield from itertools.repeat((None, self._work.max_messages))
        attempt, most = shortened(str(self._work.attempt_id), LONGEST_ATTEMPT), self._work.max_messages
        held = self._held(attempt)
        soon = self._soon()
        for number, (messages, visible_at) in sorted(held.items()):
            # A run beats within its timeout. An earlier release kept what it had parked under its claim, for longer.
            if visible_at <= soon:
                self.say(f"carries on with {messages:,} messages that a failed run of {attempt} holds")
                yield f"{attempt}/{number}", None if most is None else max(most, messages)
        for number in itertools.count(max(held, default=-1) + 1):
            yield f"{attempt}/{number}", most

    def receive(self, attempt_id: str | None, most: int | None) -> Claim:
        """The next claim; an empty one after a moment without messages."""
        wait = 0 if self._work.until == "once" else WAIT
        return receiving.receive(self._access, most, self._timeout, wait, attempt_id)

    def may_get_more(self) -> bool:
        """Whether there are messages, or some come within the visibility timeout: because their lease ends (its holder
        beats in time, or is dead and leaves work), or because they were postponed until then."""
        record, clock = self._access.record(), self._access.clock
        counted = self._access.store.counts(record, clock).by_status
        if any(counted.get(status, 0) for status in STORED):
            return True
        store = self._access.store
        ending = itertools.chain(store.leases(record, clock), store.postponed(record, clock))
        return any(lease.visible_at <= self._soon() for lease in ending)

    def work(self, claim: Claim) -> Worked:
        """Works on a claim and acknowledges it. Whatever goes wrong, what is still held is given back at once."""
        return ClaimWork(self._access, self._work, claim, self._evidence).run()

    def _held(self, attempt: str) -> Mapping[int, tuple[int, int]]:
        """By the number of their claims: how many messages are in flight under an attempt, and their first deadline."""
        held: dict[int, tuple[int, int]] = {}
        for lease in self._access.store.leases(self._access.record(), self._access.clock):
            number = claim_number(attempt, lease.attempt_id)
            if number is not None:
                messages, visible_at = held.get(number, (0, lease.visible_at))
                held[number] = messages + lease.messages, min(visible_at, lease.visible_at)
        return held

    def _soon(self) -> int:
        return self._access.clock() + self._timeout * MILLISECONDS
