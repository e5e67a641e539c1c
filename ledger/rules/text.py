"""Rules for texts: the characters that SQS accepts (M1 of docs/reference/rules.md), UTF-8, and JSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from ledger.errors import InvalidParameterValue

#: A character that M1 forbids: one outside the set "#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to
#: #x10FFFF". Java's regular expressions, which Spark uses, read the pattern in the same way.
FORBIDDEN = r"[\x00-\x08\x0B\x0C\x0E-\x1F\uD800-\uDFFF\uFFFE\uFFFF]"
#: CONTROLS and NONE_AT_ALL together have the characters of FORBIDDEN, except the surrogates, which valid UTF-8 cannot
#: have. In a scan of bodies of 100 B by Spark, their checks together took half as long as the check of FORBIDDEN: Java
#: compares ranges one after the other.
CONTROLS = "[" + "".join(f"\\x{code:02X}" for code in range(32) if chr(code) not in "\t\n\r") + "]"
NONE_AT_ALL = ("\ufffe", "\uffff")
#: A pattern, in Java's syntax, that most texts match. It has only the characters from the space to #xD7FF: no tab, no
#: line end and no emoji. A text that matches needs no other check. In a scan of bodies of 10 KB by Spark, this check
#: took a seventh of the time that the checks of CONTROLS and NONE_AT_ALL took together.
PLAIN = r"\A[ -\uD7FF]*\z"
_FORBIDDEN = re.compile(FORBIDDEN)


class NamedTwice(ValueError):
    """An object of a JSON text has a name twice."""


def names_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of an object, as json's `object_pairs_hook`. Raises NamedTwice."""
    members = dict(pairs)
    if len(members) < len(pairs):
        double = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise NamedTwice(f"the name {double!r} is in one object twice")
    return members


class JsonFloat(float):
    """A number of a JSON text that is written with a decimal point or an exponent.

    `text` is the number as it was written, perhaps with more digits than a float keeps.
    """

    text: str

    def __new__(cls, text: str) -> JsonFloat:
        """Return the number of a text."""
        number = super().__new__(cls, text)
        number.text = text
        return number


def _no_constant(name: str) -> None:
    """Raise ValueError for NaN, Infinity or -Infinity, as json's `parse_constant`."""
    raise ValueError(f"{name} is no JSON")


#: The decoder of JSON texts. If something follows the JSON text, use its `raw_decode`, otherwise use `json_value`.
JSON = json.JSONDecoder(object_pairs_hook=names_once, parse_constant=_no_constant, parse_float=JsonFloat)


def json_value(text: str) -> Any:
    """Return the value of a JSON text. Numbers with a decimal point or an exponent are JsonFloat.

    Raises ValueError, with the reason, for a text that is no JSON, and for NaN and Infinity, which Python's json
    accepts. Raises ValueError also for an object that has a name twice, and for values that are nested too deeply.
    """
    try:
        return JSON.decode(text)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def forbidden(text: str) -> str | None:
    """Return the first character of a text that SQS refuses, as SQS writes it (#xB, say); None if there is none."""
    match = _FORBIDDEN.search(text)
    return match and f"#x{ord(match[0]):X}"


def escaped(text: str) -> str:
    """Return `text` with each lone surrogate, which UTF-8 cannot hold, replaced by its escape."""
    return text.encode(errors="backslashreplace").decode()


def storable(field: str, text: str) -> bytes:
    """Return `text` in UTF-8.

    Raises InvalidParameterValue for a lone surrogate, which a Python string may hold and UTF-8 may not.
    """
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidParameterValue(field, text, "It holds half a character (a lone surrogate)") from None
