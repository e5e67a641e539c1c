"""Queue names and queue attributes: which there are, their ranges and defaults. Values are text, as in SQS."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ledger.errors import InvalidAttributeName, InvalidAttributeValue, InvalidParameterValue
from ledger.rules import limits
from ledger.rules.limits import SQS, UNBOUNDED, Limits

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")


@dataclass(frozen=True)
class WholeNumber:
    """An attribute that is a number from `least` to `most`; on an UNBOUNDED queue up to `lifted`, if given."""

    default: int
    least: int
    most: int
    lifted: int | None = None


@dataclass(frozen=True)
class Choice:
    """An attribute that is one of a few words."""

    default: str
    words: tuple[str, ...]


#: The attributes of SQS that standard queues have, then ours.
ATTRIBUTES: dict[str, WholeNumber | Choice] = {
    "VisibilityTimeout": WholeNumber(limits.DEFAULT_VISIBILITY_TIMEOUT, 0, limits.MAXIMUM_VISIBILITY_TIMEOUT),
    "MaximumMessageSize": WholeNumber(
        limits.MAXIMUM_MESSAGE_BYTES, 1_024, limits.MAXIMUM_MESSAGE_BYTES, limits.LARGEST_MESSAGE_BYTES
    ),
    "ReceiveMessageWaitTimeSeconds": WholeNumber(0, 0, limits.MAXIMUM_WAIT, 86_400),
    # V7's ceiling and V1's bound at once: how long one receipt may hold a message, in all.
    "MaximumVisibilityTimeout": WholeNumber(
        limits.MAXIMUM_VISIBILITY_TIMEOUT, 1, limits.MAXIMUM_VISIBILITY_TIMEOUT, limits.MAXIMUM_RETENTION
    ),
    # V9: the documented error, or the recorded service's 200.
    "LateChange": Choice("reject", ("reject", "accept")),
    # Q4: UNBOUNDED keeps the semantics and lifts the numbers.
    "Limits": Choice("UNBOUNDED", ("UNBOUNDED", "SQS")),
    "Lanes": WholeNumber(limits.DEFAULT_LANES, 1, limits.MAXIMUM_LANES),
}
#: What messages already stored depend on cannot change.
FIXED_AT_CREATION = ("Lanes", "Limits")


def queue_name(name: object) -> str:
    """`name` if SQS would take it (recorded by SQS's model: 1 to 80 of letters, digits, - and _)."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidParameterValue(
            "QueueName", name, "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
        )
    return name


def complete(given: Mapping[str, object], known: Mapping[str, str] | None = None) -> dict[str, str]:
    """All attributes of a queue as text: `given` over `known` (or the defaults), each checked.

    Raises InvalidAttributeName for an unknown one, InvalidAttributeValue for one out of its range or fixed.
    """
    unknown = sorted(set(given) - set(ATTRIBUTES))
    if unknown:
        raise InvalidAttributeName(f"Unknown Attribute {unknown[0]}. Known ones: {', '.join(ATTRIBUTES)}.")
    values = dict(known) if known else {name: str(kind.default) for name, kind in ATTRIBUTES.items()}
    values.update({name: _text(value) for name, value in given.items()})
    for name in FIXED_AT_CREATION:
        if known and values[name] != known[name]:
            raise InvalidAttributeValue(
                name, values[name], "It is fixed when the queue is created", "Make a new queue."
            )
    lifted = values["Limits"] == "UNBOUNDED"
    for name, value in values.items():
        _check(name, value, ATTRIBUTES[name], lifted)
    if int(values["VisibilityTimeout"]) > int(values["MaximumVisibilityTimeout"]):
        raise InvalidAttributeValue(
            "VisibilityTimeout", values["VisibilityTimeout"], "Must be <= the queue's MaximumVisibilityTimeout"
        )
    return values


def tags(given: Mapping[str, str]) -> dict[str, str]:
    """`given` if it can be a queue's tags: text by text."""
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidParameterValue("Tags", {key: value}, "Must be strings by strings")
    return dict(given)


def limits_of(attributes: Mapping[str, str]) -> Limits:
    """The bounds a queue with these attributes works under."""
    chosen = SQS if attributes["Limits"] == "SQS" else UNBOUNDED
    return Limits(
        maximum_visibility_timeout=int(attributes["MaximumVisibilityTimeout"]),
        maximum_messages_per_receive=chosen.maximum_messages_per_receive,
        maximum_wait=chosen.maximum_wait,
    )


def _text(value: object) -> str:
    return str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else repr(value)


def _check(name: str, value: str, kind: WholeNumber | Choice, lifted: bool) -> None:
    if isinstance(kind, Choice):
        if value not in kind.words:
            raise InvalidAttributeValue(name, value, f"Must be one of {', '.join(kind.words)}")
        return
    most = kind.lifted if lifted and kind.lifted is not None else kind.most
    if not re.fullmatch(r"[0-9]{1,12}", value) or not kind.least <= int(value) <= most:
        raise InvalidAttributeValue(name, value, f"Must be a whole number from {kind.least} to {most}")
