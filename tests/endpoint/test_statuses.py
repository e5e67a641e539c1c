"""The one small table covers the service's model: every action, every error and every member, in both protocols."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

import pytest
from botocore.model import ServiceModel
from botocore.parsers import create_parser

from ledger import errors
from ledger.endpoint import json_protocol, query_protocol, service_model, statuses
from ledger.endpoint.actions import ACTIONS
from ledger.endpoint.wire import Refusal
from tests.endpoint.query_model import ERRORS, query_model

QUERY = ServiceModel(query_model(), "sqs")
JSON_ERRORS = service_model.errors()
BINARY = bytes(range(256))


def test_every_action_of_the_model_is_done():
    assert len(ACTIONS) == 23 and set(ACTIONS) == set(service_model.actions())


def test_every_error_of_the_model_is_known_by_its_shape():
    modeled = {known.shape for known in statuses.ERRORS.values() if known.json_type.startswith("com.amazonaws.sqs#")}
    assert modeled == set(JSON_ERRORS)


@pytest.mark.parametrize("shape", ERRORS)
def test_an_error_has_the_code_and_the_status_that_clients_of_query_know_it_by(shape):
    (known,) = (known for known in statuses.ERRORS.values() if known.shape == shape)
    assert (known.query_code, known.status) == ERRORS[shape]


def every_error() -> list[type[errors.LedgerError]]:
    found = [errors.LedgerError]
    for kind in found:
        found.extend(kind.__subclasses__())
    return [kind for kind in found if kind is not Refusal and kind.__module__.startswith("ledger.")]


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("protocol", [json_protocol, query_protocol], ids=["json", "query"])
def test_every_error_of_the_library_is_answered_in_both_protocols(kind, protocol):
    error = kind.__new__(kind)
    errors.LedgerError.__init__(error, 'a sentence with <&> and "quotes"', "advice")
    error.place, error.cause = "", ""
    response = protocol.refused("SendMessage", statuses.told(error), "an-id")
    assert response.status in (400, 403, 404, 500, 503) and b"advice" not in response.body
    parsed = parse(protocol, "SendMessage", response)["Error"]
    known = statuses.told(error).known
    assert parsed["Code"] == known.query_code and parsed["Type"] == known.fault


def test_contention_is_throttling_in_the_services_words():
    said = statuses.told(errors.ContentionOutlastedRetries("receive", 60, 12.0))
    assert (said.known.shape, said.message) == ("RequestThrottled", statuses.THROTTLED_SENTENCE)


@pytest.mark.parametrize("code", statuses.ERRORS)
@pytest.mark.parametrize("protocol", [json_protocol, query_protocol], ids=["json", "query"])
def test_clients_read_every_error_of_the_table(code, protocol):
    known = statuses.ERRORS[code]
    told = statuses.told(Refusal(code, "A sentence."))
    parsed = parse(protocol, "ReceiveMessage", protocol.refused("ReceiveMessage", told, "an-id"))
    assert parsed["Error"]["Code"] == known.query_code
    assert parsed["Error"]["Message"] == (known.query_message if protocol is query_protocol else None) or "A sentence."
    if protocol is json_protocol:
        assert parsed["Error"]["QueryErrorCode"] == known.shape


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("protocol", [json_protocol, query_protocol], ids=["json", "query"])
def test_clients_read_every_member_of_every_result(action, protocol):
    shape = service_model.output_shape(action)
    result = {} if shape is None else full(shape)
    response = protocol.written(action, result, "an-id")
    parsed = parse(protocol, action, response)
    assert parsed.pop("ResponseMetadata")["RequestId"] == "an-id"
    assert parsed == result


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("protocol", ["json", "query"])
def test_every_parameter_of_every_action_is_read(action, protocol):
    from botocore.serialize import create_serializer

    from ledger.endpoint.wire import Request

    given = full(service_model.input_shape(action))
    model = QUERY if protocol == "query" else ServiceModel(service_model_of_now(), "sqs")
    made = create_serializer(protocol).serialize_to_request(given, model.operation_model(action))
    headers = {name.lower(): value for name, value in made["headers"].items()}
    body = made["body"] if isinstance(made["body"], bytes) else urlencoded(made["body"])
    spoken = query_protocol if protocol == "query" else json_protocol
    command = spoken.read(Request("POST", "/", "", headers, body))
    assert command.action == action
    if protocol == "query" and "AttributeNames" in given:
        given.pop("MessageSystemAttributeNames", None)
    assert command.parameters == given


def service_model_of_now() -> Any:
    from botocore.loaders import Loader

    return Loader().load_service_model("sqs", "service-2")


def urlencoded(form: Any) -> bytes:
    from urllib.parse import urlencode

    return urlencode(form).encode()


def full(shape: Any, depth: int = 0) -> Any:
    """A value with every member."""
    kind = shape.type_name
    if kind == "structure":
        return {name: full(member, depth + 1) for name, member in shape.members.items()}
    if kind == "list":
        return [full(shape.member, depth + 1), full(shape.member, depth + 1)]
    if kind == "map":
        return {"one": full(shape.value, depth + 1), "two": full(shape.value, depth + 1)}
    return {"blob": BINARY, "boolean": True, "integer": 7, "long": 1 << 40}.get(kind, 'text & <more> "é" \r\n\t 𝄞')


def parse(protocol: Any, action: str, response: Any) -> Any:
    """The response as botocore reads it."""
    name, model = (
        ("query", QUERY) if protocol is query_protocol else ("json", ServiceModel(service_model_of_now(), "sqs"))
    )
    if protocol is query_protocol:
        ElementTree.fromstring(response.body)
    else:
        assert not response.body or json.loads(response.body) is not None
    given = {"status_code": response.status, "headers": Lower(response.headers), "body": response.body}
    return create_parser(name).parse(given, model.operation_model(action).output_shape)


class Lower(dict):  # type: ignore[type-arg]
    """Headers, whatever the case of their names."""

    def __init__(self, given: Any) -> None:
        super().__init__({name.lower(): value for name, value in given.items()})

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(str(name).lower())

    def __getitem__(self, name: str) -> Any:
        return super().__getitem__(name.lower())
