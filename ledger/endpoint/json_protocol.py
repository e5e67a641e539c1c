"""AWS JSON 1.0: the header X-Amz-Target names the action; parameters and results are JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from ledger.endpoint import service_model
from ledger.endpoint.statuses import OK, ErrorAnswer
from ledger.endpoint.wire import Command, Request, Response, not_serialized
from ledger.rules.text import NamedTwice, require_unique_names

CONTENT_TYPE = "application/x-amz-json-1.0"
TARGET, PREFIX = "x-amz-target", "AmazonSQS."


def is_spoken_in(request: Request) -> bool:
    return TARGET in request.headers or request.headers.get("content-type", "").startswith("application/x-amz-json")


def read(request: Request) -> Command:
    """Return the command in a request. An empty body counts as an object without members.

    Raises a Refusal for a missing or unknown action, and for a value of another type than the model's. The body must be
    a JSON object, and no object in it may name a member twice.
    """
    target = request.headers.get(TARGET, "")
    action = target[len(PREFIX) :] if target.startswith(PREFIX) else target
    read_parameters = service_model.make_reader(action)
    try:
        parameters = _decode(request.body or b"{}")
    except NamedTwice:
        raise not_serialized("The request body has an object that names a member twice") from None
    except (ValueError, RecursionError):
        raise not_serialized("The request body is no JSON object") from None
    if not isinstance(parameters, dict):
        raise not_serialized("The request body is no JSON object")
    return Command(action, read_parameters(parameters))


def written(action: str, result: Mapping[str, object], request_id: str) -> Response:
    """Return the response; its body is empty for an action without a result.

    Source: the API reference of ChangeMessageVisibility.
    """
    body = b"" if service_model.output_shape(action) is None else _ENCODER.encode(result).encode()
    return Response(OK, body, _make_headers(request_id))


def refused(action: str | None, error: ErrorAnswer, request_id: str) -> Response:
    on_wire = error.known
    body = json.dumps({"__type": on_wire.json_type, "message": error.message}).encode()
    return Response(
        on_wire.status,
        body,
        {**_make_headers(request_id), "x-amzn-query-error": f"{on_wire.query_code};{on_wire.fault}"},
    )


def _make_headers(request_id: str) -> dict[str, str]:
    return {"content-type": CONTENT_TYPE, "x-amzn-requestid": request_id}


def _encode_bytes(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(type(value).__name__)


def _refuse_constant(name: str) -> object:
    raise ValueError(name)


def _decode(body: bytes) -> object:
    """Decode by the one decoder of all requests: with these hooks json.loads would make a decoder for each call."""
    return _DECODER.decode(body.decode(json.detect_encoding(body), "surrogatepass"))


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=require_unique_names)
_ENCODER = json.JSONEncoder(default=_encode_bytes)
