"""The texts that can be stored: UTF-8, with the characters that SQS accepts (M1)."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from ledger.errors import InvalidParameterValue

#: M1, one character outside the set "#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF". Java,
#: which Spark uses, reads the pattern in the same way.
FORBIDDEN = r"[\x00-\x08\x0B\x0C\x0E-\x1F\uD800-\uDFFF\uFFFE\uFFFF]"
#: The same pattern in two parts, without lone surrogates, which no UTF-8 text has. Java looks up a class of single
#: characters below #x100, and compares ranges one by one. Measured in a scan of bodies of 100 B, this takes half as
#: long.
CONTROLS = "[" + "".join(f"\\x{code:02X}" for code in range(32) if chr(code) not in "\t\n\r") + "]"
NONE_AT_ALL = ("\ufffe", "\uffff")
#: The pattern of most texts, in Java's syntax: one line without a tab, and no character from D800 on. Java compares a
#: single range in a loop of its own. Measured in a scan of bodies of 10 KB, it takes a seventh of the time of the
#: patterns above together.
PLAIN = r"\A[ -\uD7FF]*\z"
_FORBIDDEN = re.compile(FORBIDDEN)


class NamedTwice(ValueError):
    """An object of a JSON text has a name twice: one of its values would be lost."""


def names_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of an object, as json's `object_pairs_hook`. Raises NamedTwice."""
    members = dict(pairs)
    if len(members) < len(pairs):
        double = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise NamedTwice(f"the name {double!r} stands in it twice")
    return members


class JsonFloat(float):
    """A fraction of a JSON text. `text` has its digits as written, which may be more than Python's."""

    text: str

    def __new__(cls, text: str) -> JsonFloat:
        """Return the number of a text."""
        made = super().__new__(cls, text)
        made.text = text
        return made


def _no_constant(name: str) -> None:
    """Raise ValueError for NaN, Infinity or -Infinity, as json's `parse_constant`."""
    raise ValueError(f"{name} is no JSON")


#: The decoder of JSON texts, also of a text with something behind it: see `json_value`.
JSON = json.JSONDecoder(object_pairs_hook=names_once, parse_constant=_no_constant, parse_float=JsonFloat)


def json_value(text: str) -> Any:
    """Return the value of a JSON text; fractions are JsonFloat.

    Raises ValueError, with the reason, for a text that is no JSON. It also refuses NaN and Infinity, which Python
    reads, an object with a name twice, and one that is nested too deeply.
    """
    try:
        return JSON.decode(text)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def forbidden(text: str) -> str | None:
    """Return the code (such as #xB) of the first character of a text that SQS refuses; None if there is none."""
    match = _FORBIDDEN.search(text)
    return match and f"#x{ord(match[0]):X}"


def escaped(text: str) -> str:
    """Return `text` with each lone surrogate (half of a character), which no file can hold, as its escape."""
    return text.encode(errors="backslashreplace").decode()


def storable(field: str, text: str) -> bytes:
    """Return `text` in UTF-8. Raises InvalidParameterValue for a lone surrogate, which a str may contain."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidParameterValue(field, text, "It holds half a character (a lone surrogate)") from None
