"""JSON answers to requests of the Query protocol.

Members have the names of botocore's model, except for two older names of SQS: `messages` for Messages, and `queueUrls`
for QueueUrls. A map becomes a list of pairs. A member that the result does not have is null.

Source: `ReceiveMessageResponse` and `SendMessageResponse` in aws-samples/serverless-patterns (apigw-sqs), a
`ListQueuesResponse` of SQS that the tests of aws-sdk-for-zig quote, and LocalStack's tests that were validated against
AWS, test_get_queue_attributes_json_format and test_get_list_queues_fails_json_format.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from ledger.endpoint import service_model
from ledger.endpoint.query_protocol import pair_names
from ledger.endpoint.statuses import OK, ErrorAnswer
from ledger.endpoint.wire import Request, Response

CONTENT_TYPE = "application/json"
_XML_TYPES = ("application/xml", "text/xml")
_OLDER_NAMES = {"Messages": "messages", "QueueUrls": "queueUrls"}


def is_accepted(request: Request) -> bool:
    """Tell whether the header Accept names JSON, and no XML before it. Weights (q=) and wildcards are ignored."""
    kinds = (part.partition(";")[0].strip().lower() for part in request.headers.get("accept", "").split(","))
    return next((kind == CONTENT_TYPE for kind in kinds if kind in (CONTENT_TYPE, *_XML_TYPES)), False)


def written(action: str, result: Mapping[str, object], request_id: str) -> Response:
    shape = service_model.output_shape(action)
    answer: dict[str, object] = {"ResponseMetadata": {"RequestId": request_id}}
    if shape is not None:
        answer[f"{action}Result"] = _write_structure(shape, result)
    return _make_response(OK, {f"{action}Response": answer}, request_id)


def refused(action: str | None, error: ErrorAnswer, request_id: str) -> Response:
    on_wire = error.known
    fields = {"Code": on_wire.query_code, "Detail": None, "Message": error.query_message, "Type": on_wire.fault}
    return _make_response(on_wire.status, {"Error": fields, "RequestId": request_id}, request_id)


def _make_response(status: int, answer: Mapping[str, object], request_id: str) -> Response:
    body = json.dumps(answer, sort_keys=True).encode()
    return Response(status, body, {"content-type": CONTENT_TYPE, "x-amzn-requestid": request_id})


def _write_structure(shape: Any, values: Mapping[str, Any]) -> dict[str, object]:
    return {
        _OLDER_NAMES.get(name, name): _write_value(member, name, values[name]) if name in values else None
        for name, member in shape.members.items()
    }


def _write_value(shape: Any, name: str, value: Any) -> object:
    kind = shape.type_name
    if kind == "structure":
        return _write_structure(shape, value)
    if kind == "list":
        return [_write_value(shape.member, "", item) for item in value]
    if kind == "map":
        key, of_key = pair_names(name)
        return [{key: key_text, of_key: _write_value(shape.value, "", item)} for key_text, item in value.items()]
    return base64.b64encode(value).decode() if kind == "blob" else value
