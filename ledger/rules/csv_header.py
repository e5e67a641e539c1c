"""The check of a CSV file's header for mistaken names, and for signs of another format."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_SEPARATORS = ";\t|"
_OTHER_SEPARATOR = re.compile(f"[{_SEPARATORS}]")


def wrong_header(names: Sequence[str], body: str | None) -> str | None:
    """Return why a file with this header is refused, or None. `body` is the user's name for the column of bodies."""
    double = [name for name, count in Counter(names).items() if count > 1]
    if double:
        return f"The header has two columns {double[0]!r}."
    spaced = next((name for name in names if name != name.strip() and name != body), None)
    if spaced is not None:
        return f"The header has a column {spaced!r}, with spaces around its name: remove the spaces."
    if len(names) == 1 and names[0] != body and (mark := _OTHER_SEPARATOR.search(names[0])):
        return (
            f"The header is one column {names[0]!r}: are its columns separated by {mark[0]!r}? Separate them by "
            "commas. If it is one column, name it with --body."
        )
    for separator in _SEPARATORS:
        parted = [name for name in names if separator in name and name != body]
        if len(parted) > 1:
            return (
                f"The header has {separator!r} in several columns, {parted[0]!r} and {parted[1]!r}: are its columns "
                "separated by it? Separate them by commas. If not, rename these columns."
            )
    return None
