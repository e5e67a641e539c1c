"""Dead letters: their queues, and the records of a move (D1, D2 and M4 of docs/reference/rules.md).

D1: "a message received that often and not deleted goes to the target instead of being received again, with its id,
body, attributes, sent time". Nothing is copied: the message stays in its segment, and the records of both queues say
which queue has it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ledger.errors import InvalidParameterValue
from ledger.rules.arns import Account, not_ours, queue_of
from ledger.rules.limits import MAXIMUM_RECEIVES
from ledger.rules.state import Record
from ledger.rules.text import NamedTwice, names_once

_FIELDS = ("deadLetterTargetArn", "maxReceiveCount")
_PERMISSIONS = ("allowAll", "denyAll", "byQueue")
MAXIMUM_SOURCES = 10
RECEIVES_BEFORE_PARKING = 3
_ALLOW_POLICY = "It holds redrivePermission (allowAll, denyAll or byQueue), and with byQueue 1 to 10 sourceQueueArns."


@dataclass(frozen=True)
class RedrivePolicy:
    target: str
    maximum_receives: int


@dataclass(frozen=True)
class RedriveAllowPolicy:
    """The queues that may name a queue as their dead-letter queue. `sources` counts only for byQueue."""

    permission: str = "allowAll"
    sources: tuple[str, ...] = ()

    def allows(self, source: str) -> bool:
        return self.permission == "allowAll" or (self.permission == "byQueue" and source in self.sources)


def policy_of(attributes: Mapping[str, str]) -> RedrivePolicy | None:
    """Return the redrive policy in a queue's attributes, or None. M4: raises InvalidParameterValue."""
    text = attributes.get("RedrivePolicy")
    if not text:
        return None
    policy = _map(text)
    if policy is None:
        raise _refused(text, "Redrive policy is not a valid JSON map")
    for name in reversed(_FIELDS):
        if name not in policy:
            raise _refused(text, f"Redrive policy does not contain mandatory attribute: {name}")
    if set(policy) - set(_FIELDS):
        raise _refused(text, f"Only following attributes are supported: [{', '.join(_FIELDS)}]")
    target, count = queue_of(policy["deadLetterTargetArn"]), policy["maxReceiveCount"]
    if target is None:
        raise _refused(text, "Invalid value for deadLetterTargetArn", "Give a queue's ARN, or its name.")
    if (
        isinstance(count, bool)
        or not re.fullmatch(r"[0-9]{1,4}", str(count))
        or not 1 <= int(count) <= MAXIMUM_RECEIVES
    ):
        raise _refused(
            text, f"Invalid value for maxReceiveCount: {count}, valid values are from 1 to 1000 both inclusive"
        )
    return RedrivePolicy(target, int(count))


def dead_letter_names(attributes: Iterable[Mapping[str, str]]) -> set[str]:
    policies = map(policy_of, attributes)
    return {policy.target for policy in policies if policy is not None}


def answered(text: str) -> str:
    """Return a redrive policy as SQS answers it: without spaces, its count as a number. Other texts stay unchanged.

    Source: issue 5119 of hashicorp/terraform and pull request 5888, "the AWS API accepts either, but will always return
    an integer".
    """
    stored = _map(text) or {}
    if set(stored) != set(_FIELDS) or not re.fullmatch(r"[0-9]{1,4}", str(stored["maxReceiveCount"])):
        return text
    policy = {"deadLetterTargetArn": stored["deadLetterTargetArn"], "maxReceiveCount": int(stored["maxReceiveCount"])}
    return json.dumps(policy, separators=(",", ":"))


def allow_policy_of(attributes: Mapping[str, str]) -> RedriveAllowPolicy:
    """Return the redrive allow policy in a queue's attributes. Raises InvalidParameterValue."""
    text = attributes.get("RedriveAllowPolicy")
    if not text:
        return RedriveAllowPolicy()
    policy = _map(text) or {}
    sources, permission = policy.get("sourceQueueArns", []), policy.get("redrivePermission")
    source_names = [queue_of(arn) for arn in sources] if isinstance(sources, list) else [None]
    names = tuple(name for name in source_names if name is not None)
    bound = "Amazon SQS can't create the redrive allow policy"
    if permission == "byQueue" and not source_names:
        bound += (
            ". When you specify the byQueue permission type, you must also specify one or more sourceQueueArns values"
        )
    elif permission in _PERMISSIONS and permission != "byQueue" and source_names:
        bound += ". To specify one or more source queue ARNs, you must set redrivePermission to byQueue"
    elif permission in _PERMISSIONS and len(names) == len(source_names) <= MAXIMUM_SOURCES:
        return RedriveAllowPolicy(permission, names)
    raise InvalidParameterValue("RedriveAllowPolicy", text, bound, _ALLOW_POLICY)


def require_names_once(given: Mapping[str, str]) -> None:
    """Raise InvalidParameterValue if a new policy has a name twice. Stored policies are still read."""
    for name in ("RedrivePolicy", "RedriveAllowPolicy"):
        try:
            json.loads(given.get(name) or "{}", object_pairs_hook=names_once)
        except NamedTwice:
            bound = "It has a name twice"
            raise InvalidParameterValue(name, given[name], bound, "Give each name one value.") from None


def require_own(given: Mapping[str, str], account: Account) -> None:
    """Raise InvalidParameterValue if a new policy names a queue of another account or region (M4)."""
    text = given.get("RedrivePolicy", "")
    bound = not_ours((_map(text) or {}).get("deadLetterTargetArn"), account) if text else None
    if bound is not None:
        raise _refused(text, bound, f"This ledger's queues have ARNs like {account.arn('name')}.")
    text = given.get("RedriveAllowPolicy", "")
    sources = (_map(text) or {}).get("sourceQueueArns") if text else None
    if isinstance(sources, list) and any(not_ours(arn, account) for arn in sources):
        raise InvalidParameterValue(
            "RedriveAllowPolicy",
            text,
            "Amazon SQS can't create the redrive allow policy",
            f"Sources are queues of this ledger; their ARNs are like {account.arn('name')}.",
        )


def require_target(
    queues: Iterable[Any], name: str, attributes: Mapping[str, str], given: Mapping[str, object]
) -> None:
    """Raise InvalidParameterValue if a new RedrivePolicy names an impossible target (M4)."""
    policy = policy_of(attributes) if "RedrivePolicy" in given else None
    if policy is None:
        return
    text = attributes["RedrivePolicy"]
    target = {queue.name: queue for queue in queues}.get(policy.target)
    # M4: an existing queue may be its own target. A queue that is being made does not exist yet.
    if target is None:
        raise _refused(text, "Dead letter target does not exist", "Create that queue first.")
    if target.attributes.get("FifoQueue") != attributes.get("FifoQueue"):
        raise _refused(text, "Dead-letter queue must be same type of queue as the source")
    if attributes.get("FifoQueue") and target.attributes["Lanes"] != attributes["Lanes"]:
        raise _refused(text, f"FIFO queues need equal Lanes; the target has {target.attributes['Lanes']}")
    if not allow_policy_of(target.attributes).allows(name):
        raise _refused(text, f"The RedriveAllowPolicy of {target.name} does not allow {name} as a source")


def broken_bound(source: Any, destination: Any) -> str | None:
    if destination.attributes.get("FifoQueue") != source.attributes.get("FifoQueue"):
        return "Must be the same type of queue as the source"
    lanes = source.attributes["Lanes"]
    if source.attributes.get("FifoQueue") and destination.attributes["Lanes"] != lanes:
        # If a group changed its lane, two receives at once could both get messages of the group.
        return f"FIFO queues need equal Lanes; the source has {lanes}"
    return None


def no_dead_letter_queue(name: str, fix: str = "Name it in another queue's RedrivePolicy.") -> InvalidParameterValue:
    """Return the error for a redrive from a queue that no RedrivePolicy names (D2, recorded)."""
    bound = "Source queue must be configured as a Dead Letter Queue"
    return InvalidParameterValue("SourceArn", name, bound, fix, message=f"{bound}.")


def require_destination(source: Any, destination: Any) -> None:
    another = "Must be another queue than the source" if destination.id == source.id else None
    bound = another or broken_bound(source, destination)
    if bound is not None:
        raise InvalidParameterValue("destination", destination.name, bound)


def receives_before_parking(attributes: Mapping[str, str], maximum_receives: int | None) -> int | None:
    """Return after how many receives a worker parks a message. None: the queue's RedrivePolicy decides."""
    if maximum_receives is not None:
        return maximum_receives
    return RECEIVES_BEFORE_PARKING if policy_of(attributes) is None else None


def is_dead(record: Record, policy: RedrivePolicy | None) -> bool:
    """Return whether a visible message goes to the dead-letter queue instead of being received again (D1)."""
    return policy is not None and record.receive_count >= policy.maximum_receives


def moved_away(record: Record, target: str) -> Record:
    return record._replace(moved_to=target)


def dead_letter(record: Record, origin: str, now: int, *, fifo: bool, target: str | None = None) -> Record:
    """Return the target's record of a dead letter (D1), with the receive count (recorded) and the first receive.

    On FIFO queues the retention restarts. On standard queues it goes on, so that no message stays for ever. M4: if the
    target is the queue itself, the count restarts, because with the old count nobody could receive the message.
    """
    if target == origin:
        return Record(origin_queue=origin, enqueued_at=now if fifo else record.enqueued_at, visible_at=now)
    return Record(
        receive_count=record.receive_count,
        first_received_at=record.first_received_at,
        origin_queue=origin,
        enqueued_at=now if fifo else record.enqueued_at,
    )


def redriven(now: int, origin: str | None = None) -> Record:
    """Return the destination's record of a redriven message (D2): never received, with a new retention."""
    return Record(enqueued_at=now, origin_queue=origin)


def _map(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refused(text: str, bound: str, fix: str = "") -> InvalidParameterValue:
    return InvalidParameterValue("RedrivePolicy", text, bound, fix)
