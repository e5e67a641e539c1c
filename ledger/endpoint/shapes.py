"""Messages as the service's model has them: what a request sends, and what a response tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ledger.endpoint.refusals import Refusal
from ledger.errors import InvalidParameterValue
from ledger.message import Message
from ledger.results import SendOutcome
from ledger.rules.message_attributes import Attribute, has_lists, md5_of_attributes

_EVERY = ("All", ".*", "*")
_TRACE = "AWSTraceHeader"


def to_send(given: Mapping[str, Any], trace: str | None) -> dict[str, object]:
    """Return an entry as `Queue.send` takes it.

    Args:
        given: A SendMessage's parameters, or an entry of a batch.
        trace: The request's header X-Amzn-Trace-Id: the AWSTraceHeader of what names none itself. Source: LocalStack's
            test_aws_trace_header_propagation, validated against AWS, and the guide's page about AWS X-Ray.

    Raises:
        InvalidParameterValue: It has another system attribute than AWSTraceHeader, or one of another type.
    """
    names = ("MessageBody", "DelaySeconds", "MessageAttributes", "MessageGroupId", "MessageDeduplicationId")
    entry = {name: given[name] for name in names if name in given}
    for name, one in (given.get("MessageSystemAttributes") or {}).items():
        if name != _TRACE or one.get("DataType") != "String" or not one.get("StringValue"):
            raise InvalidParameterValue(
                "MessageSystemAttributes",
                name,
                "The only message system attribute that can be sent is AWSTraceHeader, a non-empty String",
            )
        entry[_TRACE] = one["StringValue"]
    if trace:
        entry.setdefault(_TRACE, trace)
    return entry


def require_no_lists(action: str, entries: Iterable[Mapping[str, Any]]) -> None:
    """Raises UnsupportedOperation as the service does for attributes with lists of values."""
    for entry in entries:
        for kind in ("MessageAttributes", "MessageSystemAttributes"):
            for one in (entry.get(kind) or {}).values():
                if has_lists(one):
                    said = f"Message attribute list values in {action} operation are not supported."
                    raise Refusal("UnsupportedOperation", said)


def sent_as_sqs(outcome: SendOutcome, given: Mapping[str, Any]) -> dict[str, object]:
    """Return what a SendMessage answers of a message that was sent; `given` is what asked for it.

    The digest of the system attributes is one of those that were given: the request's own trace is not among them.
    """
    number, named = outcome.sequence_number, given.get("MessageSystemAttributes")
    return _present(
        MessageId=outcome.message_id,
        MD5OfMessageBody=outcome.md5_of_body,
        MD5OfMessageAttributes=outcome.md5_of_message_attributes,
        MD5OfMessageSystemAttributes=outcome.md5_of_system_attributes if named else None,
        SequenceNumber=None if number is None else f"{number:020d}",
    )


def message_as_sqs(message: Message, system: Sequence[str], own: Sequence[str]) -> dict[str, object]:
    """A received message with those of its attributes that are asked for by their names."""
    known, asked = message.attributes() if system else {}, _chosen(message.message_attributes, own)
    attributes = known if "All" in system else {name: text for name, text in known.items() if name in system}
    return _present(
        MessageId=message.message_id,
        ReceiptHandle=message.receipt_handle,
        MD5OfBody=message.md5_of_body,
        Body=message.body,
        Attributes=attributes or None,
        # Recorded: the digest is of those that are told.
        MD5OfMessageAttributes=md5_of_attributes(asked),
        MessageAttributes={name: one.as_sqs() for name, one in asked.items()} or None,
    )


def _chosen(known: Mapping[str, Attribute], names: Iterable[str]) -> dict[str, Attribute]:
    """Those of the names; `All` and `.*` are all, and `prefix.*` those that begin so."""
    wanted, prefixes = set(names), tuple(name[:-2] for name in names if name.endswith(".*"))
    if wanted.intersection(_EVERY):
        return dict(known)
    return {name: one for name, one in known.items() if name in wanted or (prefixes and name.startswith(prefixes))}


def _present(**members: object) -> dict[str, object]:
    return {name: value for name, value in members.items() if value is not None}
