"""Message attributes: names, types, values, size, SQS's digests; and the sender's id (M1: docs/reference/rules.md)."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Mapping
from decimal import Decimal
from numbers import Integral, Real
from typing import NamedTuple

from ledger.errors import InvalidParameterValue, invalid_character
from ledger.rules.limits import MAXIMUM_MESSAGE_ATTRIBUTES
from ledger.rules.text import JsonFloat, find_forbidden_character, parse_json

#: Patterns of whole texts. Java's regular expressions (Spark) read them in the same way, except for \w.
NAME = r"(?!(?i:aws|amazon)\.)[\w-]+(\.[\w-]+)*"
#: M1: "attribute names may have letters beyond ASCII". In Java \w has only ASCII.
JAVA_NAME = NAME.replace(r"\w", r"\p{L}\p{N}_")
TYPE = r"(String|Number|Binary)(\.[!-~]+)?"
NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
LONGEST_NAME = 256
#: The sender's id is stored under this name, which no user's attribute can have.
SENDER = "AWS.SenderId"


class Attribute(NamedTuple):
    """A message attribute: String and Number have a `string_value`, Binary a `binary_value`."""

    data_type: str
    string_value: str | None = None
    binary_value: bytes | None = None

    @property
    def value(self) -> str | bytes:
        """The text or the bytes of the attribute."""
        return self.binary_value if self.binary_value is not None else self.string_value or ""

    def as_sqs(self) -> dict[str, object]:
        """Return the attribute in SQS's form: DataType, and StringValue or BinaryValue."""
        name = "StringValue" if self.binary_value is None else "BinaryValue"
        return {"DataType": self.data_type, name: self.value}


def parse_message_attributes(given: object) -> dict[str, Attribute]:
    """Return attributes by name from strings, numbers (int, float, Decimal), bytes, or SQS's form.

    Raises InvalidParameterValue.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidParameterValue("MessageAttributes", given, "Must be attributes by name")
    if len(given) > MAXIMUM_MESSAGE_ATTRIBUTES:
        raise InvalidParameterValue(
            "MessageAttributes",
            len(given),
            f"Number of message attributes exceeds the allowed maximum [{MAXIMUM_MESSAGE_ATTRIBUTES}]",
        )
    return {_check_name(name): _parse_attribute(name, value) for name, value in given.items()}


def attributes_of_json(text: str) -> object:
    return parse_json(text) if text else None


def size_of(attributes: Mapping[str, Attribute]) -> int:
    return sum(
        len(text)
        for name, one in attributes.items()
        for text in (_bytes(name), _bytes(one.data_type), _bytes(one.value))
    )


def md5_of_body(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def md5_of_attributes(attributes: Mapping[str, Attribute]) -> str | None:
    """Return MD5OfMessageAttributes; None without attributes.

    Source: the SQS Developer Guide, "Calculating the MD5 message digest for message attributes".
    """
    if not attributes:
        return None
    digest = hashlib.md5(usedforsecurity=False)
    for name in sorted(attributes):
        attribute = attributes[name]
        for text in (_bytes(name), _bytes(attribute.data_type)):
            digest.update(struct.pack("!I", len(text)) + text)
        value = _bytes(attribute.value)
        digest.update((b"\1" if attribute.binary_value is None else b"\2") + struct.pack("!I", len(value)) + value)
    return digest.hexdigest()


def _check_name(name: object) -> str:
    if isinstance(name, str) and len(name) <= LONGEST_NAME and re.fullmatch(NAME, name):
        return name
    bound = (
        "A name has 1 to 256 letters, digits, - _ and single periods inside, and does not begin with AWS. or Amazon."
    )
    characters = isinstance(name, str) and not re.fullmatch(r"[\w.-]*", name)
    sentence = (
        "Message (user) attributes name can only contain upper and lower score characters, digits, periods, "
        "hyphens and underscores. "
    )
    raise InvalidParameterValue(
        "MessageAttributes", name, bound, bound if characters else "", message=sentence if characters else None
    )


def _parse_attribute(name: str, given: object) -> Attribute:
    data_type: object
    text: object
    binary: object
    if isinstance(given, Attribute):
        data_type, text, binary = given
    elif isinstance(given, Mapping):
        data_type, text, binary = given.get("DataType"), given.get("StringValue"), given.get("BinaryValue")
    elif isinstance(given, (bytes, bytearray)):
        data_type, text, binary = "Binary", None, bytes(given)
    elif isinstance(given, (Real, Decimal)) and not isinstance(given, bool):
        data_type, text, binary = "Number", _format_number(name, given), None
    else:
        data_type, text, binary = "String", given, None
    match = re.fullmatch(TYPE, data_type) if isinstance(data_type, str) and len(data_type) <= LONGEST_NAME else None
    if match is None:
        sentence = f"Message (user) attribute '{name}' must contain a non-empty attribute type."
        if data_type:
            sentence = (
                f"The type of message (user) attribute '{name}' is invalid. You must use only the following supported "
                "type prefixes: Binary, Number, String."
            )
        bound = "Must be String, Number or Binary, or one of them with a .label"
        raise InvalidParameterValue(
            f"MessageAttributes.{name}.DataType",
            data_type,
            bound,
            f"{bound}, of printable characters.",
            message=sentence,
        )
    value = binary if match[1] == "Binary" else text
    if not isinstance(value, bytes if match[1] == "Binary" else str) or not value:
        raise _make_error(
            name,
            given,
            f"Message (user) attribute '{name}' must contain a non-empty value of type '{match[1]}'",
            _advice(given, value, match[1]),
        )
    if has_lists(given):
        raise _make_error(
            name, given, f"Message (user) attribute '{name}' must contain one value, of type '{match[1]}'"
        )
    if isinstance(value, bytes):
        return Attribute(match[0], None, value)
    require_characters(f"MessageAttributes.{name}", f"message attribute '{name}' value", value)
    if match[1] == "Number" and not re.fullmatch(NUMBER, value):
        raise _make_error(name, given, f"Can't cast the value of message (user) attribute '{name}' to a number")
    return Attribute(match[0], value)


def require_characters(field: str, place: str, text: str) -> None:
    """Raise InvalidParameterValue if a text has a character that SQS also refuses in bodies (M1)."""
    refused = find_forbidden_character(text)
    if refused is not None:
        bound = f"It holds {refused}, which the service does not take"
        raise InvalidParameterValue(field, text, bound, "Send it as Binary.", message=invalid_character(refused, place))


def has_lists(given: object) -> bool:
    return isinstance(given, Mapping) and any(given.get(name) for name in ("StringListValues", "BinaryListValues"))


def _make_error(name: str, given: object, sentence: str, fix: str = "") -> InvalidParameterValue:
    return InvalidParameterValue(f"MessageAttributes.{name}", given, sentence, fix, message=f"{sentence}.")


def _advice(given: object, value: object, kind: str) -> str:
    if value is None or isinstance(value, bytes if kind == "Binary" else str):
        return ""
    accepted = "bytes" if kind == "Binary" else "a text (str), a number (int, float) or bytes"
    return f"It is of the type {type(value).__name__}: give {accepted}, such as str(value)."


def _format_number(name: str, given: Real | Decimal) -> str:
    """Return a number as a JSON text has it, or as Python or numpy writes it.

    Python would write numpy's float32 with more digits.
    """
    if isinstance(given, JsonFloat):
        return given.text
    try:
        if isinstance(given, Integral):
            return int.__repr__(int(given))
        return float.__repr__(given) if isinstance(given, float) else str(given)
    except ValueError as error:
        # The number has more digits than Python writes.
        raise _make_error(
            name, "a number", f"Can't cast the value of message (user) attribute '{name}' to a number", f"{error}"
        ) from None


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def check_sender_id(given: object) -> str | None:
    """Return `given` if it can be a SenderId: 1 to 128 printable ASCII characters, or None.

    Raises InvalidParameterValue.
    """
    if given is not None and (not isinstance(given, str) or not re.fullmatch(r"[!-~]{1,128}", given)):
        bound = "Must be 1 to 128 letters, digits and punctuation"
        raise InvalidParameterValue("SenderId", given, bound, "Name an account or a user.")
    return given
