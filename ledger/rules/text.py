"""Text that can be stored: what UTF-8 can say, and of that the characters that the service takes (M1)."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from ledger.errors import InvalidParameterValue

#: M1, one character outside the set "#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF".
#: Spark's engine, Java's, reads it alike.
FORBIDDEN = r"[\x00-\x08\x0B\x0C\x0E-\x1F\uD800-\uDFFF\uFFFE\uFFFF]"
#: The same in two parts, beside halves of characters, which no UTF-8 has. A class of single characters below #x100 Java
#: looks up, ranges it compares one by one: measured in a scan of bodies of 100 B, this takes half as long.
CONTROLS = "[" + "".join(f"\\x{code:02X}" for code in range(32) if chr(code) not in "\t\n\r") + "]"
NONE_AT_ALL = ("\ufffe", "\uffff")
#: What most texts are, in Java's words: one line without a tab, and no character from D800 on. One range is compared by
#: a loop of its own: measured in a scan of bodies of 10 KB, it takes a seventh of what the looks above take together.
PLAIN = r"\A[ -\uD7FF]*\z"
_FORBIDDEN = re.compile(FORBIDDEN)


class NamedTwice(ValueError):
    """An object of a JSON text has a name twice: one of its values would be lost."""


def names_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of an object, as json's `object_pairs_hook`. Raises NamedTwice."""
    known = dict(pairs)
    if len(known) < len(pairs):
        double = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise NamedTwice(f"the name {double!r} stands in it twice")
    return known


class JsonFloat(float):
    """A fraction of a JSON text; `text` has its digits as they stand there, which may be more than Python's."""

    text: str

    def __new__(cls, text: str) -> JsonFloat:
        """The number of a text."""
        made = super().__new__(cls, text)
        made.text = text
        return made


def _no_constant(name: str) -> None:
    """Raise ValueError for NaN, Infinity or -Infinity, as json's `parse_constant`."""
    raise ValueError(f"{name} is no JSON")


#: What reads a JSON text, also one that something stands behind: see `json_value`.
JSON = json.JSONDecoder(object_pairs_hook=names_once, parse_constant=_no_constant, parse_float=JsonFloat)


def json_value(text: str) -> Any:
    """The value of a JSON text; of fractions a JsonFloat. Raises ValueError, which says why, for a text that is no
    JSON: also for NaN and Infinity, which Python reads, for an object with a name twice, and for one that is nested too
    deeply."""
    try:
        return JSON.decode(text)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def forbidden(text: str) -> str | None:
    """The first character of a text that the service refuses, as it names it (#xB, say); None if there is none."""
    found = _FORBIDDEN.search(text)
    return found and f"#x{ord(found[0]):X}"


def escaped(text: str) -> str:
    """`text` with each half of a character, which no file can hold, as its escape."""
    return text.encode(errors="backslashreplace").decode()


def storable(field: str, text: str) -> bytes:
    """`text` in UTF-8; raises InvalidParameterValue for half a character, which Python's strings may hold."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidParameterValue(field, text, "It holds half a character (a lone surrogate)") from None
