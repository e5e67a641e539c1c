"""Values in the texts of errors."""

from __future__ import annotations

#: How many characters of a value errors show.
LONGEST_TEXT, LONGEST_OTHER = 4_096, 120


def shown(value: object) -> str:
    """A value as the service shows it: a text as it is. What has no end is cut."""
    if not isinstance(value, str):
        return quoted(value)
    # Half a character, which Python's strings may hold, cannot be printed or sent on.
    return _cut(value[: LONGEST_TEXT + 1].encode("utf-8", "backslashreplace").decode(), LONGEST_TEXT)


def quoted(value: object) -> str:
    """A value as Python writes it, cut where it has no end; one that cannot be written by the name of its type."""
    try:
        return _cut(repr(value), LONGEST_OTHER)
    except Exception:  # an object's own, or that of a number with thousands of digits
        return f"<{type(value).__name__}>"


def invalid_character(character: str, place: str) -> str:
    """What the service says of a character that it refuses; public reports of it agree on the sentence for bodies."""
    return (
        f"Invalid binary character '{character}' was found in the {place}, the set of allowed characters is "
        "#x9 | #xA | #xD | [#x20-#xD7FF] | [#xE000-#xFFFD] | [#x10000-#x10FFFF]."
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
