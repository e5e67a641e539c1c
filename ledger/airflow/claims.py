"""Claims that outlive a task: said in an XCom, found again, and given back. Knows nothing of Airflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledger.claim import Claim
from ledger.errors import InvalidParameterValue, LeaseLost, MessageDoesNotExist
from ledger.queue import Queue
from ledger.rules.attempts import claim_of_process, shortened
from ledger.rules.limits import MILLISECONDS
from ledger.rules.message_id import message_id
from ledger.rules.state import Status
from ledger.work.claim_source import LONGEST_ATTEMPT

NAMES = ("ledger_queue", "receipt_id", "count", "version", "visibility_timeout", "message_id")


def told(claim: Claim) -> dict[str, Any]:
    """What another task needs to carry on with a claim: small, without a body. `message_id` is one of its messages."""
    assert claim.grant is not None
    first = claim.grant.runs.slice(0, 1).to_pylist()[0]
    return {
        "ledger_queue": claim.access.name,
        "receipt_id": claim.receipt_id,
        "count": claim.count,
        "version": claim.version,
        "visibility_timeout": claim.visibility_timeout,
        "message_id": message_id(first["segment"], first["first_seq"]),
    }


def require_told(claim: object) -> Mapping[str, Any]:
    """What a task was told of a claim. Raises InvalidParameterValue for anything else."""
    if isinstance(claim, Mapping) and set(NAMES) <= set(claim):
        return claim
    fix = "LedgerReceiveOperator returns a list of them: work_operator.partial(...).expand(claim=receive.output)."
    raise InvalidParameterValue("claim", type(claim).__name__, "Must be one claim of a LedgerReceiveOperator", fix)


def was_acknowledged(queue: Queue, told_of: Mapping[str, Any]) -> bool:
    """Whether a claim of which nothing is held was acknowledged, by what became of one of its messages: others may have
    done that, too. What upkeep removed was acknowledged, or nobody wants it any more."""
    try:
        return queue.peek(told_of["message_id"]).status is Status.DELETED
    except MessageDoesNotExist:
        return True


def attempt_of(attempt_id: str, number: int) -> str:
    """The attempt id of a task's claim of this number; those of Queue.work are the same."""
    return f"{shortened(attempt_id, LONGEST_ATTEMPT)}/{number}"


def give_back(queue: Queue, attempt_id: str, visibility_timeout: int) -> int:
    """Releases what a dead process of an attempt still holds; returns how many messages.

    A claim of which something is hidden for longer than a living process would ask for is left alone: it was parked.
    """
    access, attempt = queue.access, shortened(attempt_id, LONGEST_ATTEMPT)
    soon = access.clock() + visibility_timeout * MILLISECONDS
    leases = access.store.leases(access.record(), access.clock)
    mine = [lease for lease in leases if claim_of_process(attempt, lease.attempt_id) is not None]
    parked = {lease.receipt_id for lease in mine if lease.visible_at > soon}
    released = 0
    for receipt_id in {lease.receipt_id for lease in mine} - parked:
        try:
            released += queue.claim(receipt_id).release().messages
        except LeaseLost:
            # It ran out meanwhile: others may have its messages.
            continue
    return released
