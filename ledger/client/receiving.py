"""Receiving: one claim, after a wait if need be, or several at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ledger.claim import Claim
from ledger.client.access import Access
from ledger.client.tables import listed
from ledger.errors import InvalidParameterValue, LedgerError, OutputUnreadable, OverLimit
from ledger.rules import attempts
from ledger.rules import attributes as attribute_rules
from ledger.rules import limits as bounds
from ledger.store import QueueRecord, ReceiveRequest


class Reception:
    """A receive that may have to wait: it looks once at a time, and who has it says when to look again.

    `wait` is for how many seconds it may wait. Making one raises what `Queue.receive` does for what is asked wrong.
    """

    def __init__(
        self,
        access: Access,
        max_messages: int | None,
        visibility_timeout: int | None,
        wait: float | None,
        attempt_id: str | None,
    ) -> None:
        record = access.record()
        limits = attribute_rules.limits_of(record.attributes)
        self._access, self._known = access, [record]
        self._request = _request(record, max_messages, visibility_timeout, attempt_id)
        default = int(record.attributes["ReceiveMessageWaitTimeSeconds"])
        self.wait = bounds.wait(default if wait is None else wait, limits)

    def look(self, *, last: bool) -> Claim | None:
        """The claim, in one commit; None when there is nothing yet. The `last` look returns an empty claim instead.

        Raises OverLimit and OutputUnreadable where it cannot wait, QueueDoesNotExist when the queue is gone meanwhile.
        """
        # Deleted meanwhile, what was recorded about its messages is forgotten: acknowledged ones would come back.
        record = self._known.pop() if self._known else self._access.record()
        (received,) = self._access.store.receive(record, [self._request], self._access.clock)
        if isinstance(received, LedgerError):
            # Q2: "with long polling, no new messages are returned until the count drops". And beside messages that
            # are left alone others may come.
            waits = self.wait and isinstance(received, (OverLimit, OutputUnreadable))
            if not waits or (isinstance(received, OutputUnreadable) and last):
                raise received
            received = None
        if received is None and not last:
            return None
        return Claim(self._access, received, self._request.timeout)


def receive(
    access: Access,
    max_messages: int | None,
    visibility_timeout: int | None,
    wait: float | None,
    attempt_id: str | None,
) -> Claim:
    """See Queue.receive."""
    reception = Reception(access, max_messages, visibility_timeout, wait, attempt_id)
    give_up = time.monotonic() + reception.wait
    while True:
        seen = access.store.change_token() if reception.wait else None
        claim = reception.look(last=time.monotonic() >= give_up)
        if claim is not None:
            return claim
        _wait_for_change(access, seen, give_up)


def receive_many(access: Access, requests: Sequence[Sequence[Any]]) -> list[Claim]:
    """See Queue.receive_many."""
    record, asked = access.record(), listed("requests", requests)
    for one in asked:
        if isinstance(one, (str, bytes)) or not isinstance(one, Sequence) or not 1 <= len(one) <= 3:
            bound = "Must be (max_messages, visibility_timeout, attempt_id), of which the last ones may be missing"
            raise InvalidParameterValue("requests", one, bound)
    wanted = [_request(record, *one) for one in asked]
    attempts.require_different([request.attempt_id for request in wanted])
    found = access.store.receive(record, wanted, access.clock) if wanted else []
    return [
        Claim(access, None, request.timeout, error=one)
        if isinstance(one, LedgerError)
        else Claim(access, one, request.timeout)
        for request, one in zip(wanted, found)
    ]


def _wait_for_change(access: Access, seen: object, give_up: float) -> None:
    """Sleeps until the tables moved on, or some visibility timeout may have run out, but not past `give_up`."""
    look_again = min(give_up, time.monotonic() + 1.0)
    while time.monotonic() < look_again:
        time.sleep(min(access.settings.poll_interval, max(0.0, look_again - time.monotonic())))
        if access.store.change_token() != seen:
            return


def _request(
    record: QueueRecord, max_messages: int | None = 1, visibility_timeout: int | None = None, attempt_id: Any = None
) -> ReceiveRequest:
    """A receive as it is asked for, within the bounds of the queue. Raises InvalidParameterValue."""
    limits = attribute_rules.limits_of(record.attributes)
    maximum = bounds.maximum_messages(max_messages, limits)
    if visibility_timeout is None:
        visibility_timeout = int(record.attributes["VisibilityTimeout"])
    bounds.visibility_timeout(visibility_timeout, limits)
    return ReceiveRequest(maximum, visibility_timeout, attempts.attempt_id(attempt_id, "ReceiveRequestAttemptId"))
