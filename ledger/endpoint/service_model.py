"""botocore's model of SQS: each action's parameters, their types (*shapes*), and which are required."""

from __future__ import annotations

import base64
import binascii
import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ledger.endpoint.wire import not_serialized, unknown_action
from ledger.errors import MissingParameter

_JSON_KINDS = {str: "STRING_VALUE", bool: "TRUE_VALUE", int: "NUMBER_VALUE", float: "NUMBER_VALUE"}
#: Converts a JSON value to the type that a shape asks for.
Reader: TypeAlias = "Callable[[object], Any]"
_WANTED_TYPES = {
    "string": "a String",
    "integer": "an Integer",
    "long": "a Long",
    "boolean": "a Boolean",
    "blob": "a Blob",
}


@functools.cache
def _model() -> Any:
    from botocore.loaders import Loader
    from botocore.model import ServiceModel

    return ServiceModel(Loader().load_service_model("sqs", "service-2"), "sqs")


@functools.cache
def actions() -> tuple[str, ...]:
    return tuple(_model().operation_names)


@functools.cache
def errors() -> dict[str, Any]:
    return {shape.name: shape for shape in _model().error_shapes}


@functools.cache
def input_shape(action: str | None) -> Any:
    """Return the shape of an action's parameters. Raise a Refusal for an unknown action."""
    if action not in actions():
        raise unknown_action(action)
    return _model().operation_model(action).input_shape


@functools.cache
def output_shape(action: str) -> Any | None:
    return _model().operation_model(action).output_shape


def require_parameters(action: str, parameters: Mapping[str, object]) -> None:
    """Raise MissingParameter if an action, or an entry of a batch, lacks a required parameter."""
    shape = input_shape(action)
    for name in shape.required_members:
        if name not in parameters:
            raise MissingParameter(name)
    entries = parameters.get("Entries")
    if isinstance(entries, list):
        needed = shape.members["Entries"].member.required_members
        for number, entry in enumerate(entries, 1):
            for name in needed:
                if name not in entry:
                    raise MissingParameter(f"{action}RequestEntry.{number}.{name}")


@functools.cache
def make_reader(action: str) -> Reader:
    """Return the function that converts an action's JSON parameters. Raise a Refusal for an unknown action.

    The function decodes blobs, drops members of structures that are null or unknown, and refuses a value of a wrong
    type. The function is cached, because the model is slow.
    """
    return _make_reader(input_shape(action))


def _make_reader(shape: Any) -> Reader:
    kind = shape.type_name
    if kind == "structure":
        members = {name: _make_reader(member) for name, member in shape.members.items()}
        return lambda value: {
            name: members[name](member)
            for name, member in _expect(value, dict).items()
            if name in members and member is not None
        }
    if kind == "list":
        read_member = _make_reader(shape.member)
        return lambda value: [read_member(member) for member in _expect(value, list)]
    if kind == "map":
        read_value = _make_reader(shape.value)
        return lambda value: {key: read_value(entry) for key, entry in _expect(value, dict).items()}
    if kind == "string":
        return lambda value: value if isinstance(value, str) else _convert_scalar(kind, value)
    return functools.partial(_convert_scalar, kind)


def _expect(value: object, kind: type) -> Any:
    if isinstance(value, kind):
        return value
    if isinstance(value, list):
        raise not_serialized("Start of list found where not expected")
    if isinstance(value, dict):
        raise not_serialized("Start of structure or map found where not expected.")
    raise not_serialized("Unexpected value type in payload")


def _convert_scalar(kind: str, value: object) -> object:
    if isinstance(value, (dict, list)) or value is None:
        _expect(value, str)
    if kind == "blob" and isinstance(value, str):
        return decode_blob(value)
    expected = {"string": str, "blob": str, "boolean": bool}.get(kind, int)
    if isinstance(value, expected) and not (expected is int and isinstance(value, bool)):
        return value
    found_type = "FALSE_VALUE" if value is False else _JSON_KINDS[type(value)]
    raise not_serialized(f"{found_type} can not be converted to {_WANTED_TYPES[kind]}")


def decode_blob(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise not_serialized("A Blob is not base64") from None
