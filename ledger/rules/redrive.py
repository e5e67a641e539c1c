"""Dead letters (D1, D2): which queue they go to, from which they may come, and what a move records.

D1: "a message received that often and not deleted goes to the target instead of being received again, with its id,
body, attributes, sent time". Nothing is copied: the message stays in its segment, and the records say where it counts.
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
#: A worker parks a message that failed so often, where no RedrivePolicy says what becomes of it.
RECEIVES_BEFORE_PARKING = 3
_ALLOW_POLICY = "It holds redrivePermission (allowAll, denyAll or byQueue), and with byQueue 1 to 10 sourceQueueArns."


@dataclass(frozen=True)
class RedrivePolicy:
    """Where messages go that were received `maximum_receives` times and not deleted: the name of a queue."""

    target: str
    maximum_receives: int


@dataclass(frozen=True)
class RedriveAllowPolicy:
    """The queues that may name this one as their dead-letter queue. `sources` counts only for byQueue."""

    permission: str = "allowAll"
    sources: tuple[str, ...] = ()

    def allows(self, source: str) -> bool:
        """Whether the queue of this name may."""
        return self.permission == "allowAll" or (self.permission == "byQueue" and source in self.sources)


def policy_of(attributes: Mapping[str, str]) -> RedrivePolicy | None:
    """Return the redrive policy in a queue's attributes; None where it has none. M4: raises InvalidParameterValue."""
    text = attributes.get("RedrivePolicy")
    if not text:
        return None
    given = _map(text)
    if given is None:
        raise _refused(text, "Redrive policy is not a valid JSON map")
    for name in reversed(_FIELDS):
        if name not in given:
            raise _refused(text, f"Redrive policy does not contain mandatory attribute: {name}")
    if set(given) - set(_FIELDS):
        raise _refused(text, f"Only following attributes are supported: [{', '.join(_FIELDS)}]")
    target, count = queue_of(given["deadLetterTargetArn"]), given["maxReceiveCount"]
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


def answered(text: str) -> str:
    """Return a redrive policy as a queue answers it: without spaces, the count a number. A text that is
    no policy is answered as it is.

    Source: issue 5119 of hashicorp/terraform and pull request 5888, "the AWS API accepts either, but will always return
    an integer"; the service answered a policy of several lines so.
    """
    given = _map(text) or {}
    if set(given) != set(_FIELDS) or not re.fullmatch(r"[0-9]{1,4}", str(given["maxReceiveCount"])):
        return text
    policy = {"deadLetterTargetArn": given["deadLetterTargetArn"], "maxReceiveCount": int(given["maxReceiveCount"])}
    return json.dumps(policy, separators=(",", ":"))


def allow_policy_of(attributes: Mapping[str, str]) -> RedriveAllowPolicy:
    """Return which queues may use this one for dead letters; by default all. Raises InvalidParameterValue."""
    text = attributes.get("RedriveAllowPolicy")
    if not text:
        return RedriveAllowPolicy()
    given = _map(text) or {}
    sources, permission = given.get("sourceQueueArns", []), given.get("redrivePermission")
    found = [queue_of(arn) for arn in sources] if isinstance(sources, list) else [None]
    names = tuple(name for name in found if name is not None)
    said = "Amazon SQS can't create the redrive allow policy"
    if permission == "byQueue" and not found:
        said += (
            ". When you specify the byQueue permission type, you must also specify one or more sourceQueueArns values"
        )
    elif permission in _PERMISSIONS and permission != "byQueue" and found:
        said += ". To specify one or more source queue ARNs, you must set redrivePermission to byQueue"
    elif permission in _PERMISSIONS and len(names) == len(found) <= MAXIMUM_SOURCES:
        return RedriveAllowPolicy(permission, names)
    raise InvalidParameterValue("RedriveAllowPolicy", text, said, _ALLOW_POLICY)


def require_names_once(given: Mapping[str, str]) -> None:
    """Raises InvalidParameterValue when a policy that is being set has a name twice: one of its values would be lost.
    One that was stored so goes on as it is read."""
    for name in ("RedrivePolicy", "RedriveAllowPolicy"):
        try:
            json.loads(given.get(name) or "{}", object_pairs_hook=names_once)
        except NamedTwice:
            bound = "It has a name twice"
            raise InvalidParameterValue(name, given[name], bound, "Give each name one value.") from None


def require_own(given: Mapping[str, str], account: Account) -> None:
    """M4: raises InvalidParameterValue when a policy that is being set names a queue of another account or region.

    One of the same name here is not meant by it. ARNs as ledgers wrote them before they had an account are taken.
    """
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
    """M4: raises InvalidParameterValue when a RedrivePolicy that is being set names a queue that cannot be one."""
    wanted = policy_of(attributes) if "RedrivePolicy" in given else None
    if wanted is None:
        return
    text = attributes["RedrivePolicy"]
    target = {queue.name: queue for queue in queues}.get(wanted.target)
    # M4: a queue may be its own target, once it is there.
    if target is None:
        raise _refused(text, "Dead letter target does not exist", "Create that queue first.")
    if target.attributes.get("FifoQueue") != attributes.get("FifoQueue"):
        raise _refused(text, "Dead-letter queue must be same type of queue as the source")
    if attributes.get("FifoQueue") and target.attributes["Lanes"] != attributes["Lanes"]:
        raise _refused(text, f"FIFO queues need equal Lanes; the target has {target.attributes['Lanes']}")
    if not allow_policy_of(target.attributes).allows(name):
        raise _refused(text, f"The RedriveAllowPolicy of {target.name} does not allow {name} as a source")


def broken_bound(source: Any, destination: Any) -> str | None:
    """Return the bound that keeps a queue from taking another queue's messages, dead or redriven; None where it may."""
    if destination.attributes.get("FifoQueue") != source.attributes.get("FifoQueue"):
        return "Must be the same type of queue as the source"
    lanes = source.attributes["Lanes"]
    if source.attributes.get("FifoQueue") and destination.attributes["Lanes"] != lanes:
        # A group is in one lane, or two receives could each be given some of it.
        return f"FIFO queues need equal Lanes; the source has {lanes}"
    return None


def no_dead_letter_queue(name: str, fix: str = "Name it in another queue's RedrivePolicy.") -> InvalidParameterValue:
    """D2: what is raised for the messages of a queue that are to go back, when no queue sends its dead letters there
    (recorded): what comes from elsewhere in it is work, and its way back would be the wrong one."""
    bound = "Source queue must be configured as a Dead Letter Queue"
    return InvalidParameterValue("SourceArn", name, bound, fix, message=f"{bound}.")


def require_destination(source: Any, destination: Any) -> None:
    """Raises InvalidParameterValue when a queue cannot be the destination of a redrive."""
    another = "Must be another queue than the source" if destination.id == source.id else None
    bound = another or broken_bound(source, destination)
    if bound is not None:
        raise InvalidParameterValue("destination", destination.name, bound)


def receives_before_parking(attributes: Mapping[str, str], asked: int | None) -> int | None:
    """Return after how many receives a worker parks a message that fails: as often as it was `asked` to. None: never,
    the RedrivePolicy of the queue says what becomes of it."""
    if asked is not None:
        return asked
    return RECEIVES_BEFORE_PARKING if policy_of(attributes) is None else None


def is_dead(record: Record, policy: RedrivePolicy | None) -> bool:
    """D1: whether a visible message goes to the dead-letter queue instead of being received again."""
    return policy is not None and record.receive_count >= policy.maximum_receives


def moved_away(record: Record, target: str) -> Record:
    """Return what the source queue records of a message that leaves it: where it is now. The last receipt is kept."""
    return record._replace(moved_to=target)


def dead_letter(record: Record, origin: str, now: int, *, fifo: bool, target: str | None = None) -> Record:
    """D1: what the target records. Its counts go on (recorded); on FIFO queues the move restarts the retention.

    M4: where the target is the queue itself, its counts begin anew, or it could never be received again; no receipt of
    before works on it, and on FIFO queues it comes behind what is there. On standard queues its retention goes on: no
    message stays for ever.
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
    """D2: what the destination of a redrive records: received never, kept from now on. The id stays."""
    return Record(enqueued_at=now, origin_queue=origin)


def _map(text: str) -> dict[str, Any] | None:
    """Return the JSON map in a text; None where the text is no JSON map."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _refused(text: str, bound: str, fix: str = "") -> InvalidParameterValue:
    return InvalidParameterValue("RedrivePolicy", text, bound, fix)
