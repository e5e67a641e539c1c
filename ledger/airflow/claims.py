"""A claim that passes between Airflow tasks. This module imports nothing of Airflow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ledger.claim import Claim
from ledger.errors import InvalidParameterValue, LeaseLost, MessageDoesNotExist, QueueDoesNotExist
from ledger.queue import Queue
from ledger.rules.attempts import parse_claim_id, shorten_id
from ledger.rules.message_id import message_id
from ledger.rules.redrive import policy_of
from ledger.rules.visibility import Status
from ledger.work.claim_source import LONGEST_ATTEMPT_CHARACTERS

DESCRIPTION_FIELDS = ("ledger_queue", "receipt_id", "count", "version", "visibility_timeout", "message_id")


def describe_claim(claim: Claim) -> dict[str, Any]:
    """Return the description by which another task resumes a claim. `message_id` is the id of one of its messages."""
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


def require_description(claim: object) -> Mapping[str, Any]:
    """Return `claim` if it has the fields of a description by `describe_claim`. Else raise InvalidParameterValue."""
    if isinstance(claim, Mapping) and set(DESCRIPTION_FIELDS) <= set(claim):
        return claim
    fix = "LedgerReceiveOperator returns a list of them: work_operator.partial(...).expand(claim=receive.output)."
    raise InvalidParameterValue("claim", type(claim).__name__, "Must be one claim of a LedgerReceiveOperator", fix)


def was_acknowledged(queue: Queue, description: Mapping[str, Any], get_queue: Callable[[str], Queue]) -> bool:
    """Return whether a claim that holds no message any more was acknowledged.

    The message that the description names stands for all messages of the claim. If neither the queue nor its
    dead-letter queue has this message, this returns True: most likely upkeep removed it after it was acknowledged.
    """
    try:
        return queue.peek(description["message_id"]).status is Status.DELETED
    except MessageDoesNotExist:
        policy = policy_of(queue.access.record().attributes)
    try:
        if policy is not None:
            get_queue(policy.target).peek(description["message_id"])
            return False
    except (MessageDoesNotExist, QueueDoesNotExist):
        pass
    return True


def attempt_of(attempt_id: str, number: int) -> str:
    """Return the attempt id of the claim with this number in a task, as in `Queue.work`."""
    return f"{shorten_id(attempt_id, LONGEST_ATTEMPT_CHARACTERS)}/{number}"


def give_back(queue: Queue, attempt_id: str) -> int:
    """Release what the claims of an attempt still hold. Return the number of messages."""
    access, attempt = queue.access, shorten_id(attempt_id, LONGEST_ATTEMPT_CHARACTERS)
    leases = access.store.leases(access.record(), access.clock)
    own_leases = [lease for lease in leases if parse_claim_id(attempt, lease.attempt_id) is not None]
    released = 0
    for receipt_id in {lease.receipt_id for lease in own_leases}:
        try:
            released += queue.claim(receipt_id).release().messages
        except LeaseLost:
            # The claim ran out after `leases` was read.
            continue
    return released
