"""Messages in the shapes (types) of botocore's model of SQS, in requests and responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ledger.endpoint.wire import Refusal
from ledger.errors import InvalidParameterValue
from ledger.message import Message
from ledger.results import SendOutcome
from ledger.rules.message_attributes import Attribute, has_lists, md5_of_attributes

_EVERY_ATTRIBUTE = ("All", ".*", "*")
_TRACE = "AWSTraceHeader"


def make_entry(given: Mapping[str, Any], trace: str | None) -> dict[str, object]:
    """Return an entry for `Queue.send`. `given` has SendMessage's parameters, or is an entry of a batch.

    A message without an AWSTraceHeader gets `trace`, the request's X-Amzn-Trace-Id. Source: LocalStack's
    test_aws_trace_header_propagation, validated against AWS, and the guide's page about AWS X-Ray.
    """
    names = ("MessageBody", "DelaySeconds", "MessageAttributes", "MessageGroupId", "MessageDeduplicationId")
    entry = {name: given[name] for name in names if name in given}
    for name, attribute in (given.get("MessageSystemAttributes") or {}).items():
        if name != _TRACE or attribute.get("DataType") != "String" or not attribute.get("StringValue"):
            raise InvalidParameterValue(
                "MessageSystemAttributes",
                name,
                "The only message system attribute that can be sent is AWSTraceHeader, a non-empty String",
            )
        entry[_TRACE] = attribute["StringValue"]
    if trace:
        entry.setdefault(_TRACE, trace)
    return entry


def require_no_lists(action: str, entries: Iterable[Mapping[str, Any]]) -> None:
    """Refuse message attributes with lists of values, as SQS does."""
    for entry in entries:
        for kind in ("MessageAttributes", "MessageSystemAttributes"):
            for attribute in (entry.get(kind) or {}).values():
                if has_lists(attribute):
                    sentence = f"Message attribute list values in {action} operation are not supported."
                    raise Refusal("UnsupportedOperation", sentence)


def sent_as_sqs(outcome: SendOutcome, given: Mapping[str, Any]) -> dict[str, object]:
    """Return SendMessage's answer for a sent message.

    System attributes get a digest only if `given` has them: a trace in the request's header gets none.
    """
    number, named = outcome.sequence_number, given.get("MessageSystemAttributes")
    return _drop_missing(
        MessageId=outcome.message_id,
        MD5OfMessageBody=outcome.md5_of_body,
        MD5OfMessageAttributes=outcome.md5_of_message_attributes,
        MD5OfMessageSystemAttributes=outcome.md5_of_system_attributes if named else None,
        SequenceNumber=None if number is None else f"{number:020d}",
    )


def message_as_sqs(message: Message, system: Sequence[str], own: Sequence[str]) -> dict[str, object]:
    """Return a received message with the attributes that a request names: SQS's (`system`) and the sender's (`own`)."""
    all_attributes, chosen = message.attributes() if system else {}, _choose_attributes(message.message_attributes, own)
    attributes = (
        all_attributes if "All" in system else {name: text for name, text in all_attributes.items() if name in system}
    )
    return _drop_missing(
        MessageId=message.message_id,
        ReceiptHandle=message.receipt_handle,
        MD5OfBody=message.md5_of_body,
        Body=message.body,
        Attributes=attributes or None,
        # Recorded: the digest covers only the attributes in the answer.
        MD5OfMessageAttributes=md5_of_attributes(chosen),
        MessageAttributes={name: attribute.as_sqs() for name, attribute in chosen.items()} or None,
    )


def _choose_attributes(attributes: Mapping[str, Attribute], names: Iterable[str]) -> dict[str, Attribute]:
    """Return the named attributes. `All`, `.*` and `*` name all; `prefix.*` names all that begin with the prefix."""
    exact_names, prefixes = set(names), tuple(name[:-2] for name in names if name.endswith(".*"))
    if exact_names.intersection(_EVERY_ATTRIBUTE):
        return dict(attributes)
    return {
        name: attribute
        for name, attribute in attributes.items()
        if name in exact_names or (prefixes and name.startswith(prefixes))
    }


def _drop_missing(**members: object) -> dict[str, object]:
    return {name: value for name, value in members.items() if value is not None}
