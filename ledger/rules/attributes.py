"""Queue names, queue attributes and tags: kinds, ranges, defaults, and checks.

The values of attributes are text, as in SQS.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ledger.errors import InvalidAttributeName, InvalidAttributeValue, InvalidParameterValue
from ledger.rules import limits, redrive
from ledger.rules.arns import DEFAULT, Account
from ledger.rules.limits import SQS, UNBOUNDED, Limits
from ledger.rules.policy import UNDERSTOOD, is_understood
from ledger.rules.text import encode_text
from ledger.rules.visibility import Receipts


@dataclass(frozen=True)
class WholeNumber:
    """A number from `least` to `most`. With Limits=UNBOUNDED, `lifted` replaces `most`, unless it is None."""

    default: int
    least: int
    most: int
    lifted: int | None = None


@dataclass(frozen=True)
class Choice:
    default: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Text:
    """A short text, absent until it is set. The empty text removes it."""

    longest: int
    default: None = None


@dataclass(frozen=True)
class Document:
    """A JSON document, absent until it is set. The empty text removes it."""

    default: None = None


BOOLEAN = ("false", "true")
FENCED = "fenced"
#: The attributes about encryption are stored and answered, but the ledger encrypts nothing.
KEY, KEY_PERIOD, MANAGED = "KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled"
SQS_ATTRIBUTES: dict[str, WholeNumber | Choice | Document | Text] = {
    "VisibilityTimeout": WholeNumber(limits.DEFAULT_VISIBILITY_TIMEOUT, 0, limits.MAXIMUM_VISIBILITY_TIMEOUT),
    "DelaySeconds": WholeNumber(0, 0, limits.MAXIMUM_DELAY),
    "MessageRetentionPeriod": WholeNumber(
        limits.DEFAULT_RETENTION, limits.MINIMUM_RETENTION, limits.MAXIMUM_RETENTION, limits.LONGEST_RETENTION
    ),
    "MaximumMessageSize": WholeNumber(
        limits.MAXIMUM_MESSAGE_BYTES, 1_024, limits.MAXIMUM_MESSAGE_BYTES, limits.LARGEST_MESSAGE_BYTES
    ),
    "ReceiveMessageWaitTimeSeconds": WholeNumber(0, 0, limits.MAXIMUM_WAIT, 86_400),
    "RedrivePolicy": Document(),
    "RedriveAllowPolicy": Document(),
    "Policy": Document(),
    KEY: Text(longest=2_048),
    KEY_PERIOD: WholeNumber(300, 60, 86_400),
    MANAGED: Choice("true", BOOLEAN),
}
OUR_ATTRIBUTES: dict[str, WholeNumber | Choice] = {
    # The longest visibility timeout, and the longest hold by one receipt, extensions included, in seconds.
    "MaximumVisibilityTimeout": WholeNumber(
        limits.MAXIMUM_VISIBILITY_TIMEOUT, 1, limits.MAXIMUM_VISIBILITY_TIMEOUT, limits.MAXIMUM_RETENTION
    ),
    # "fenced" refuses changes through a replaced receipt, as SQS documents. "recorded" accepts them, and late changes
    # (see LateChange), as SQS was recorded to do. On FIFO queues the attribute has no effect.
    "Receipts": Choice(FENCED, (FENCED, "recorded")),
    # "accept" accepts late changes. A late change is a change through the last receipt, after its deadline or after a
    # release. See also `_set_late_change`.
    "LateChange": Choice("reject", ("reject", "accept")),
    "Limits": Choice("UNBOUNDED", ("UNBOUNDED", "SQS")),
    "Lanes": WholeNumber(limits.DEFAULT_LANES, 1, limits.MAXIMUM_LANES),
    # 0 is no bound. Deleted, expired and moved messages do not count.
    "MaximumMessages": WholeNumber(0, 0, limits.MAXIMUM_STORED),
    # The bytes of the same messages, compressed in data files. 0 is no bound.
    "MaximumStoredBytes": WholeNumber(0, 0, limits.MAXIMUM_STORED_BYTES),
}
ATTRIBUTES = {**SQS_ATTRIBUTES, **OUR_ATTRIBUTES}
#: An answer in SQS's form leaves these attributes out.
OURS = frozenset(OUR_ATTRIBUTES)
FIFO_ATTRIBUTES: dict[str, Choice] = {
    "FifoQueue": Choice("true", ("true",)),
    "ContentBasedDeduplication": Choice("false", BOOLEAN),
    "DeduplicationScope": Choice("queue", ("queue", "messageGroup")),
    "FifoThroughputLimit": Choice("perQueue", ("perQueue", "perMessageGroupId")),
}
#: For these attributes on a standard queue, SQS has a sentence of its own (recorded): see `complete_attributes`.
ONLY_FIFO = ("DeduplicationScope", "FifoThroughputLimit")
#: For each attribute that cannot be changed, the reason in the error. FifoQueue's reason is SQS's own (recorded).
FIXED_AT_CREATION = {
    "Lanes": "It is fixed when the queue is created",
    "Limits": "It is fixed when the queue is created",
    "FifoQueue": "Modifying queue type is not supported",
}


_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
_DIGITS = r"[0-9]{1,15}"
FIFO_SUFFIX = ".fifo"


def check_queue_name(name: object, attributes: Mapping[str, object] | None = None) -> str:
    """Return `name` if SQS accepts it: 1 to 80 letters, digits, - and _. Raises InvalidParameterValue.

    A FIFO queue's name ends in .fifo, which counts towards the 80.
    """
    named_attributes = attributes if isinstance(attributes, Mapping) else {}
    fifo = str(named_attributes.get("FifoQueue", "")).lower() == "true"
    text = name if isinstance(name, str) else ""
    if fifo:
        stem = text[: -len(FIFO_SUFFIX)] if text.endswith(FIFO_SUFFIX) else ""
        if not _NAME.fullmatch(stem) or len(text) > 80:
            raise InvalidParameterValue(
                "QueueName",
                name,
                "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end "
                "with .fifo suffix and be 1 to 80 in length",
            )
    elif not _NAME.fullmatch(text):
        fix = "A name with .fifo needs the attribute FifoQueue=true." if str(name).endswith(FIFO_SUFFIX) else ""
        raise InvalidParameterValue(
            "QueueName",
            name,
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length",
            fix,
        )
    return text


def complete_attributes(
    given: Mapping[str, object], stored: Mapping[str, str] | None = None, account: Account = DEFAULT
) -> dict[str, str]:
    """Return all attributes of a queue as text. `given` replaces `stored`, which replaces the defaults.

    Raises InvalidAttributeName, InvalidAttributeValue and InvalidParameterValue.
    """
    if not isinstance(given, Mapping):
        raise InvalidParameterValue(
            "Attributes", given, "Must be a mapping of names to values", 'Write {"DelaySeconds": 5}.'
        )
    texts = {name: _text(value) for name, value in given.items()}
    fifo = is_fifo(stored) if stored else texts.get("FifoQueue", "false").lower() != "false"
    kinds = {**ATTRIBUTES, **FIFO_ATTRIBUTES} if fifo else ATTRIBUTES
    unknown = sorted(set(texts) - set(kinds), key=str)
    if unknown and unknown[0] in ONLY_FIFO:
        raise InvalidAttributeName(f"You can specify the {unknown[0]} only when FifoQueue is set to true.")
    if unknown:
        advice = f"Known attributes: {', '.join(kinds)}."
        if stored and unknown[0] == "FifoQueue":
            advice = "It is given when a queue is made, and cannot be changed."
        raise InvalidAttributeName(f"Unknown Attribute {unknown[0]}.", advice)
    defaults = {name: str(kind.default) for name, kind in kinds.items() if kind.default is not None}
    values = {**defaults, **(stored or {})}
    values.update({name: _normalize_text(kinds[name], text) for name, text in texts.items()})
    _set_late_change(texts, values)
    for name, bound in FIXED_AT_CREATION.items():
        if stored and values.get(name) != stored.get(name):
            raise InvalidAttributeValue(
                name, values[name], bound, "Make a new queue.", in_message=name == "FifoQueue" or name in OURS
            )
    lifted = values["Limits"] == "UNBOUNDED"
    for name in [name for name, kind in kinds.items() if kind.default is None and values.get(name) == ""]:
        del values[name]
    for name, value in values.items():
        # Attributes of a newer release stay as they are.
        if name in kinds:
            _check(name, value, kinds[name], lifted)
    if texts.get("Policy") and not is_understood(json.loads(values["Policy"])):
        fix = "A statement without this form would neither allow nor deny anything."
        raise InvalidAttributeValue("Policy", values["Policy"], UNDERSTOOD, fix)
    if int(values["VisibilityTimeout"]) > int(values["MaximumVisibilityTimeout"]):
        raise InvalidAttributeValue(
            "VisibilityTimeout", values["VisibilityTimeout"], "Must be <= the queue's MaximumVisibilityTimeout"
        )
    if values.get("FifoThroughputLimit") == "perMessageGroupId" and values["DeduplicationScope"] != "messageGroup":
        raise InvalidAttributeValue(
            "FifoThroughputLimit", "perMessageGroupId", "It needs DeduplicationScope to be messageGroup"
        )
    redrive.policy_of(values)
    redrive.allow_policy_of(values)
    redrive.require_names_once(texts)
    redrive.require_own(texts, account)
    if values.get(KEY) and texts.get(MANAGED, "").lower() == "true":
        raise InvalidAttributeName(
            "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS "
            "SSE.",
            "Set KmsMasterKeyId to the empty text, or SqsManagedSseEnabled to false.",
        )
    # Recorded: a queue that gets its own key does not use SQS's managed keys.
    return {**values, MANAGED: "false"} if values.get(KEY) else values


def answer_attributes(stored: Mapping[str, str]) -> dict[str, str]:
    """Return the stored attributes as a call answers them, with defaults for missing ones.

    Recorded: KmsDataKeyReusePeriodSeconds is among them only if the queue has a key.
    """
    kinds = {**ATTRIBUTES, **(FIFO_ATTRIBUTES if is_fifo(stored) else {})}
    defaults = {name: str(kind.default) for name, kind in kinds.items() if kind.default is not None}
    answer = {name: value for name, value in {**defaults, **stored}.items() if name != KEY_PERIOD or stored.get(KEY)}
    if "RedrivePolicy" in answer:
        answer["RedrivePolicy"] = redrive.answer_policy(answer["RedrivePolicy"])
    return answer


#: SQS's documentation of tags: "Don't use the reserved prefix aws: in tag names". Capitals make no difference.
RESERVED_TAGS = "aws:"


def check_tags(given: Mapping[str, str], stored: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return `given` if it can be a queue's tags. Raises InvalidParameterValue.

    A queue keeps a reserved key that it has already (`stored`).
    """
    if not isinstance(given, Mapping):
        raise InvalidParameterValue("Tags", given, "Must be a mapping of strings to strings", 'Write {"key": "value"}.')
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidParameterValue("Tags", {key: value}, "Keys and values must be strings")
        if not 1 <= len(key) <= limits.MAXIMUM_TAG_KEY or len(value) > limits.MAXIMUM_TAG_VALUE:
            raise InvalidParameterValue("Tags", {key: value}, "A key has 1 to 128 characters, a value at most 256")
        encode_text("Tags", key + value)
        if key.lower().startswith(RESERVED_TAGS) and key not in (stored or {}):
            bound = f"A key that begins with {RESERVED_TAGS}, in whatever case, is reserved for the service"
            raise InvalidParameterValue("Tags", {key: value}, bound, "Begin it with another word.")
    if len(given) > limits.MAXIMUM_TAGS:
        raise InvalidParameterValue("Tags", len(given), f"Too many tags: a queue has at most {limits.MAXIMUM_TAGS}")
    return dict(given)


def check_tag_keys(given: Iterable[str]) -> frozenset[str]:
    several = isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping))
    keys = list(given) if several else []
    if not several or not all(isinstance(key, str) for key in keys):
        raise InvalidParameterValue("TagKeys", given, "Must be a list of strings", 'Write ["key"].')
    return frozenset(keys)


def not_understood(attributes: Mapping[str, str]) -> str | None:
    """Return the name of an attribute with a value that this release does not know, or None.

    Only a newer release makes such a value. Attributes whose names this release does not know do not count.
    """
    kinds = {**ATTRIBUTES, **(FIFO_ATTRIBUTES if is_fifo(attributes) else {})}
    for name, kind in kinds.items():
        value = attributes.get(name)
        if value is None:
            continue
        is_word = not isinstance(kind, Choice) or value in kind.words
        is_number = not isinstance(kind, WholeNumber) or re.fullmatch(_DIGITS, value)
        if not is_word or not is_number:
            return name
    return None


def is_fifo(attributes: Mapping[str, str]) -> bool:
    return attributes.get("FifoQueue") == "true"


def queue_name_of(queue_id: str) -> str:
    return queue_id.rpartition("-")[0]


def retention_period(attributes: Mapping[str, str]) -> int:
    """Return for how many milliseconds a queue keeps a message."""
    return int(attributes["MessageRetentionPeriod"]) * limits.MILLISECONDS


def receipts_of(attributes: Mapping[str, str]) -> Receipts:
    if attributes["Receipts"] == "recorded":
        return Receipts.RECORDED
    return Receipts.LATE if attributes["LateChange"] == "accept" else Receipts.FENCED


def limits_of(attributes: Mapping[str, str]) -> Limits:
    chosen = SQS if attributes["Limits"] == "SQS" else UNBOUNDED
    in_flight = chosen.maximum_in_flight and (
        limits.MAXIMUM_IN_FLIGHT_FIFO if is_fifo(attributes) else limits.MAXIMUM_IN_FLIGHT
    )
    return Limits(
        maximum_visibility_timeout=int(attributes["MaximumVisibilityTimeout"]),
        maximum_messages_per_receive=chosen.maximum_messages_per_receive,
        maximum_wait=chosen.maximum_wait,
        maximum_in_flight=in_flight,
        maximum_move_rate=chosen.maximum_move_rate,
        maximum_messages=int(attributes.get("MaximumMessages", 0)) or None,
        maximum_stored_bytes=int(attributes.get("MaximumStoredBytes", 0)) or None,
        has_intervals=chosen.has_intervals,
    )


def _set_late_change(given: Mapping[str, str], values: dict[str, str]) -> None:
    """Set LateChange in `values` as Receipts implies, if `given` has Receipts and no LateChange.

    Raises InvalidAttributeValue if the two contradict each other.
    """
    if "Receipts" in given and "LateChange" not in given:
        values["LateChange"] = "accept" if values["Receipts"] == "recorded" else "reject"
    if values["Receipts"] == "recorded" and values["LateChange"] == "reject":
        bound = "With Receipts=recorded late changes are accepted"
        raise InvalidAttributeValue("LateChange", "reject", bound, "Set Receipts=fenced.")


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (str, int)) else repr(value)


def _normalize_text(kind: WholeNumber | Choice | Document | Text, text: str) -> str:
    """Return a value so that equal values are equal texts: TRUE as true, and 0030 as 30."""
    if isinstance(kind, WholeNumber) and re.fullmatch(_DIGITS, text):
        return str(int(text))
    return text.lower() if isinstance(kind, Choice) and kind.words in (BOOLEAN, ("true",)) else text


def _check(name: str, value: str, kind: WholeNumber | Choice | Document | Text, lifted: bool) -> None:
    if isinstance(kind, Document):
        _require_document(name, value)
        return
    if isinstance(kind, Choice):
        if value not in kind.words:
            raise InvalidAttributeValue(name, value, f"Must be one of {', '.join(kind.words)}", in_message=name in OURS)
        return
    if isinstance(kind, Text):
        encode_text(name, value)
        if len(value) > kind.longest:
            raise InvalidAttributeValue(
                name, value, f"Must have at most {kind.longest} characters", in_message=name in OURS
            )
        return
    most = kind.lifted if lifted and kind.lifted is not None else kind.most
    if not re.fullmatch(_DIGITS, value) or not kind.least <= int(value) <= most:
        raise InvalidAttributeValue(
            name, value, f"Must be a whole number from {kind.least} to {most}", in_message=name in OURS
        )


def _require_document(name: str, value: str) -> None:
    encode_text(name, value)
    if name.startswith("Redrive"):
        return
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise InvalidAttributeValue(name, value, "Must be a JSON object", "The empty text removes the attribute.")
