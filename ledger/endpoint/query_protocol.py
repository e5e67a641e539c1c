"""The Query protocol: parameters as a form (`SendMessageBatchRequestEntry.1.Id=...`), results as XML."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from ledger.endpoint import addresses, service_model
from ledger.endpoint.statuses import NOT_FOUND, OK, ErrorAnswer
from ledger.endpoint.wire import Command, NoAction, Refusal, Request, Response, unknown_action
from ledger.errors import InvalidParameterValue

NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
#: This protocol's names of lists and maps, which botocore's model of SQS does not have. `{}` stands for the action.
#: Requests may use the model's names, too.
REQUEST_NAMES = {
    "AWSAccountIds": "AWSAccountId",
    "Actions": "ActionName",
    "AttributeNames": "AttributeName",
    "Attributes": "Attribute",
    "Entries": "{}RequestEntry",
    "MessageAttributeNames": "MessageAttributeName",
    "MessageAttributes": "MessageAttribute",
    "MessageSystemAttributeNames": "MessageSystemAttributeName",
    "MessageSystemAttributes": "MessageSystemAttribute",
    "TagKeys": "TagKey",
    "Tags": "Tag",
    "tags": "Tag",
    "StringListValues": "StringListValue",
    "BinaryListValues": "BinaryListValue",
}
RESPONSE_NAMES = {
    "Attributes": "Attribute",
    "Failed": "BatchResultErrorEntry",
    "MessageAttributes": "MessageAttribute",
    "Messages": "Message",
    "QueueUrls": "QueueUrl",
    "Results": "{}ResultEntry",
    "Successful": "{}ResultEntry",
    "Tags": "Tag",
    "queueUrls": "QueueUrl",
    "StringListValues": "StringListValue",
    "BinaryListValues": "BinaryListValue",
}
#: The names of the key and the value, in tags and in all other maps.
TAGS, OTHERS = ("Key", "Value"), ("Name", "Value")
#: Recorded: error responses have an empty element Detail, except the errors _FORM_OF_A_BATCH in these actions.
ACTIONS_WITHOUT_DETAIL = ("ChangeMessageVisibilityBatch", "DeleteMessageBatch")
_FORM_OF_A_BATCH = (
    "EmptyBatchRequest",
    "TooManyEntriesInBatchRequest",
    "InvalidBatchEntryId",
    "BatchEntryIdsNotDistinct",
)
#: SQS refuses these actions in a request to a queue's own URL. Source: tests of LocalStack that were validated against
#: AWS, test_get_create_queue_fails, test_get_list_queues_fails.
ACTIONS_WITHOUT_QUEUE = ("CreateQueue", "ListQueues")
#: Both in the query of the URL and in the body.
MOST_PARAMETERS = 2_000
_INDEX = re.compile(r"[1-9][0-9]{0,3}")
_FORBIDDEN_CHARACTERS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def read(request: Request) -> Command:
    """Return the command whose parameters are in a request's body and in its URL's query.

    Raises InvalidParameterValue for a wrong integer, and a Refusal for any other mistake.
    """
    try:
        text = request.body.decode()
        pairs = parse_qsl(request.query, True, max_num_fields=MOST_PARAMETERS, errors="strict")
        pairs += parse_qsl(text, True, max_num_fields=MOST_PARAMETERS, errors="strict")
    except ValueError:
        raise Refusal("MalformedQueryString", "The query string contains a syntax error.") from None
    values = dict(pairs)
    if len(values) != len(pairs):
        raise Refusal("MalformedQueryString", "The query string names a parameter twice.")
    action = values.get("Action")
    if action is None and request.method == "GET":
        raise NoAction()
    if action in ACTIONS_WITHOUT_QUEUE and addresses.queue_in_path(request.path):
        raise unknown_action(action)
    shape = service_model.input_shape(action)
    assert action is not None, "input_shape refuses a request without an action"
    parameters = _read_structure(shape, _parse_tree(values), action, "")
    # Recorded: a batch action without entries has an empty batch, not a missing parameter (issue 630 of aws-sdk-php).
    if "Entries" in shape.members:
        parameters.setdefault("Entries", [])
    # Recorded: if a request has AttributeName, SQS ignores its MessageSystemAttributeNames.
    if parameters.get("AttributeNames"):
        parameters.pop("MessageSystemAttributeNames", None)
    return Command(action, parameters)


def written(action: str, result: Mapping[str, object], request_id: str) -> Response:
    shape = service_model.output_shape(action)
    inside = "" if shape is None else _write_element(f"{action}Result", "".join(_write_members(shape, result, action)))
    return _make_response(
        OK,
        f'<{action}Response xmlns="{NAMESPACE}">{inside}<ResponseMetadata><RequestId>{request_id}</RequestId>'
        f"</ResponseMetadata></{action}Response>",
        request_id,
    )


def refused(action: str | None, error: ErrorAnswer, request_id: str) -> Response:
    on_wire = error.known
    detail = "" if action in ACTIONS_WITHOUT_DETAIL and on_wire.shape in _FORM_OF_A_BATCH else "<Detail/>"
    return _make_response(
        on_wire.status,
        f'<ErrorResponse xmlns="{NAMESPACE}"><Error><Type>{on_wire.fault}</Type><Code>{on_wire.query_code}</Code>'
        f"<Message>{_escape_text(error.query_message)}</Message>{detail}</Error><RequestId>{request_id}</RequestId>"
        "</ErrorResponse>",
        request_id,
    )


def answer_without_action(request_id: str) -> Response:
    """Return the response to a GET without an action: XML, whatever the client accepts.

    Source: LocalStack's tests that were validated against AWS, test_get_without_query_returns_unknown_operation and
    test_get_without_query_json_format_returns_returns_xml.
    """
    return Response(NOT_FOUND, b"<UnknownOperationException/>", _make_headers(request_id))


def pair_names(member: str) -> tuple[str, str]:
    return TAGS if member.lower() == "tags" else OTHERS


def _make_response(status: int, xml: str, request_id: str) -> Response:
    body = f'<?xml version="1.0"?>{xml}'.encode()
    return Response(status, body, _make_headers(request_id))


def _make_headers(request_id: str) -> dict[str, str]:
    return {"content-type": "text/xml", "x-amzn-requestid": request_id}


def _parse_tree(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters as nested dicts: `A.1.B=x` becomes {"A": {"1": {"B": "x"}}}."""
    tree: dict[str, Any] = {}
    for name, value in given.items():
        node, parts = tree, name.split(".")
        if len(parts) > 8:
            raise Refusal("MalformedQueryString", "A parameter's name has too many parts.")
        for part in parts[:-1]:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise _two_things(name)
        if isinstance(node.get(parts[-1]), dict):
            raise _two_things(name)
        node[parts[-1]] = value
    return tree


def _two_things(name: str) -> Refusal:
    return Refusal("MalformedQueryString", f"The parameter {name[:80]} has a value and parts of its own.")


def _read_structure(shape: Any, tree: object, action: str, where: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if not isinstance(tree, dict):
        raise Refusal("MalformedQueryString", f"The parameter {where} has a value, and takes parts: {where}.NAME.")
    for name, member in shape.members.items():
        names = [request_name for request_name in _list_request_names(name, action) if request_name in tree]
        if len(names) > 1:
            raise Refusal("MalformedQueryString", f"The parameters {' and '.join(names)} are the same parameter.")
        for called in names:
            values[name] = _read_value(member, name, tree[called], action, f"{where}.{called}".lstrip("."))
    return values


def _read_value(shape: Any, member: str, given: object, action: str, where: str) -> Any:
    kind = shape.type_name
    if kind == "structure":
        return _read_structure(shape, given, action, where)
    if kind == "list":
        parts = [name for item in getattr(shape.member, "members", ()) for name in _list_request_names(item, action)]
        return [
            _read_value(shape.member, member, item, action, f"{where}.{n}")
            for n, item in _sort_members(given, where, parts)
        ]
    if kind == "map":
        key, value = pair_names(member)
        pairs = _sort_members(given, where, (key, value))
        values = {}
        for number, item in pairs:
            if not isinstance(item, dict) or not isinstance(item.get(key), str):
                raise Refusal("MissingParameter", f"The request must contain the parameter {where}.{number}.{key}.")
            if item[key] in values:
                raise Refusal("MalformedQueryString", f"The parameter {where} has the {key} {item[key][:80]} twice.")
            if value in item:
                values[item[key]] = _read_value(shape.value, "", item[value], action, f"{where}.{number}.{value}")
            else:
                raise Refusal("MissingParameter", f"The request must contain the parameter {where}.{number}.{value}.")
        return values
    if not isinstance(given, str):
        raise Refusal("MalformedQueryString", f"The parameter {where} has parts, and takes a value.")
    if kind in ("integer", "long"):
        if not re.fullmatch(r"-?[0-9]{1,18}", given):
            raise InvalidParameterValue(where, given, "Must be an integer of at most 18 digits")
        return int(given)
    return service_model.decode_blob(given) if kind == "blob" else given


def _list_request_names(name: str, action: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((REQUEST_NAMES.get(name, name).format(action), name)))


def _sort_members(given: object, where: str, parts: Collection[str]) -> list[tuple[int, object]]:
    """Return the members of a list or a map with their numbers, sorted by number. Numbers may have gaps.

    `parts` has the names of one member's fields (none for a text). A value without a number is the only member, as in
    the API's own samples. An empty text means no member.
    """
    if given == "":
        return []
    if (isinstance(given, str) and not parts) or (isinstance(given, dict) and parts and set(given) <= set(parts)):
        return [(1, given)]
    if not isinstance(given, dict):
        raise Refusal("MalformedQueryString", f"The parameter {where} needs a number after it: {where}.1.")
    wrong = next((number for number in given if not _INDEX.fullmatch(number)), None)
    if wrong is not None:
        bound = f"the part after {where} must be a number from 1 to 9999 without leading zeros"
        raise Refusal("MalformedQueryString", f"In the parameter {where}.{wrong[:20]}, {bound}.")
    return sorted((int(number), member) for number, member in given.items())


def _write_members(shape: Any, result: Mapping[str, Any], action: str) -> Iterator[str]:
    for name, member in shape.members.items():
        if name not in result:
            continue
        value, called = result[name], RESPONSE_NAMES.get(name, name).format(action)
        if member.type_name == "list":
            yield from (f"<{called}>{_write_content(member.member, item, action)}</{called}>" for item in value)
        elif member.type_name == "map":
            key, end = pair_names(name)
            for key_text, item in value.items():
                inside = _write_content(member.value, item, action)
                yield f"<{called}><{key}>{_escape_text(key_text)}</{key}><{end}>{inside}</{end}></{called}>"
        else:
            yield f"<{called}>{_write_content(member, value, action)}</{called}>"


def _write_element(name: str, inside: str) -> str:
    """Return an element. SQS writes an empty element as `<name/>` (LocalStack's test_get_send_and_receive_messages)."""
    return f"<{name}>{inside}</{name}>" if inside else f"<{name}/>"


def _write_content(shape: Any, value: Any, action: str) -> str:
    if shape.type_name == "structure":
        return "".join(_write_members(shape, value, action))
    if shape.type_name == "blob":
        return base64.b64encode(value).decode()
    return _escape_text(str(value).lower() if isinstance(value, bool) else str(value))


def _escape_text(value: str) -> str:
    """Escape a text for XML. A parser would change carriage returns, so escape them. Drop forbidden characters."""
    return _FORBIDDEN_CHARACTERS.sub("", escape(value, {"\r": "&#xD;"}))
