"""Rules for texts: the characters that SQS accepts (M1 of docs/reference/rules.md), UTF-8, JSON, version numbers."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from ledger.errors import InvalidParameterValue

#: A character outside M1's set "#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF". Java
#: (Spark) reads the pattern as Python does.
FORBIDDEN = r"[\x00-\x08\x0B\x0C\x0E-\x1F\uD800-\uDFFF\uFFFE\uFFFF]"
#: CONTROLS and NONE_AT_ALL together have the characters of the pattern FORBIDDEN, except the surrogates, which valid
#: UTF-8 cannot have. U+FFFE and U+FFFF are no characters at all in Unicode. Spark checked bodies of 100 B with CONTROLS
#: and NONE_AT_ALL in half the time of FORBIDDEN.
CONTROLS = "[" + "".join(f"\\x{code:02X}" for code in range(32) if chr(code) not in "\t\n\r") + "]"
NONE_AT_ALL = ("\ufffe", "\uffff")
#: A pattern in Java's syntax. Most texts match it. A text with a forbidden character never matches it. Spark checked
#: bodies of 10 KB with PLAIN in a seventh of the time of CONTROLS and NONE_AT_ALL.
PLAIN = r"\A[ -\uD7FF]*\z"
_FORBIDDEN = re.compile(FORBIDDEN)


class NamedTwice(ValueError):
    """An object of a JSON text has two members of the same name."""


def require_unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of an object, as json's `object_pairs_hook`. Raises NamedTwice."""
    members = dict(pairs)
    if len(members) < len(pairs):
        double = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise NamedTwice(f"the name {double!r} is in one object twice")
    return members


class JsonFloat(float):
    """A JSON number with a decimal point or an exponent. `text` may have more digits than a float keeps."""

    text: str

    def __new__(cls, text: str) -> JsonFloat:
        number = super().__new__(cls, text)
        number.text = text
        return number


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


#: The decoder of `parse_json`. `JSON.raw_decode` reads a JSON text at the start of a longer text.
JSON = json.JSONDecoder(object_pairs_hook=require_unique_names, parse_constant=_no_constant, parse_float=JsonFloat)


def parse_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: The text is no JSON, has NaN or Infinity, has a name twice in an object, or is nested too deeply.
    """
    try:
        return JSON.decode(text)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def find_forbidden_character(text: str) -> str | None:
    """Return the first refused character of a text, or None. The notation is that of SQS, such as #xB."""
    match = _FORBIDDEN.search(text)
    return match and f"#x{ord(match[0]):X}"


def escape_surrogates(text: str) -> str:
    """Return `text` with each lone surrogate, which UTF-8 cannot hold, replaced by its escape."""
    return text.encode(errors="backslashreplace").decode()


def encode_text(field: str, text: str) -> bytes:
    """Return `text` in UTF-8. Raises InvalidParameterValue for a lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidParameterValue(field, text, "It holds half a character (a lone surrogate)") from None


def parse_version(version: str) -> tuple[int, ...]:
    """Return the numbers at the start of a version, without the suffix of a platform or a release candidate."""
    return tuple(int(number) for number in re.findall(r"\d+", re.split(r"[^\d.]", version)[0]))
