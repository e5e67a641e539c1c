"""What commands print: tables and blocks for people, JSON documents a line for programs."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import click

#: So much of a body is shown to people; --json has all of it.
LONGEST = 400


def many(count: int, thing: str) -> str:
    """So many of a thing, in words."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def print_json(*documents: Any) -> None:
    """Each document as a line of JSON; instants in ISO 8601, UTC; null for numbers that JSON has no way to write."""
    for document in documents:
        try:
            text = json.dumps(document, ensure_ascii=False, default=_plain, allow_nan=False)
        except ValueError:
            text = json.dumps(_finite(document), ensure_ascii=False, default=_plain)
        click.echo(text)


def print_csv(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Rows as CSV with a header: instants and what is nested as in JSON, nothing where there is no value."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        cells = ((value if isinstance(value, (str, int, float)) else _cell(value)) for value in row.values())
        writer.writerow(cells)
    click.echo(text.getvalue(), nl=False)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    plain = _plain(value) if not isinstance(value, (dict, list, tuple)) else value
    return plain if isinstance(plain, str) else json.dumps(_finite(plain), ensure_ascii=False, default=_plain)


def report(json: bool, document: Mapping[str, Any], sentence: str) -> None:
    """What a command did: a document for programs, a sentence for people."""
    if json:
        print_json(document)
    else:
        click.echo(sentence)


def print_table(rows: Sequence[Mapping[str, Any]], none: str) -> None:
    """Rows in aligned columns, numbers to the right; without any, the text `none`."""
    click.echo(table_of(rows) if rows else none)


def table_of(rows: Sequence[Mapping[str, Any]], cell_of: Callable[[Any], str] | None = None) -> str:
    """Rows as text in aligned columns, numbers to the right; `cell_of` says how a value is shown (default: `shown`)."""
    names, text_of = list(rows[0]), cell_of or shown
    cells = [[text_of(row[name]) for name in names] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *cells)]
    right = [all(isinstance(row[name], (int, float, type(None))) for row in rows) for name in names]
    lines = [names, ["-" * width for width in widths], *cells]
    return "\n".join(
        "  ".join(
            f"{cell:>{width}}" if to_right else f"{cell:<{width}}" for cell, width, to_right in zip(*each)
        ).rstrip()
        for each in ((line, widths, right) for line in lines)
    )


def print_blocks(blocks: Iterable[Mapping[str, Any]], none: str) -> None:
    """A block of lines, `name  value`, for each; what has no value is left out. Without any, the text `none`."""
    first = True
    for block in blocks:
        known = {name: value for name, value in block.items() if value not in (None, {}, "")}
        width = max(map(len, known))
        if not first:
            click.echo()
        for name, value in known.items():
            click.echo(f"{name:<{width}}  {shown(value)}")
        first = False
    if first:
        click.echo(none)


def shown(value: Any) -> str:
    """A value for people: thousands separated, instants to the second, long texts cut, control characters escaped."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, datetime):
        return f"{value.astimezone(timezone.utc):%Y-%m-%d %H:%M:%SZ}"
    if isinstance(value, (dict, list)):
        return shown(json.dumps(value, ensure_ascii=False, default=_plain))
    text = "".join(one if one.isprintable() else repr(one)[1:-1] for one in str(value)[: LONGEST + 1])
    return (
        text if len(str(value)) <= LONGEST else f"{text[:LONGEST]}... ({len(str(value)):,} characters: --json has all)"
    )


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, (list, tuple)) else value


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
    if isinstance(value, bytes):
        import base64

        return base64.b64encode(value).decode()
    return str(value)


class Steps:
    """A line on stderr that says how far a command is, if that is a terminal."""

    def __init__(self, every: float = 0.2) -> None:
        self._shows, self._every, self._next = sys.stderr.isatty(), every, time.monotonic() + every

    def __call__(self, text: str) -> None:
        """Show a text in place of the one before, now and then."""
        if self._shows and time.monotonic() >= self._next:
            click.echo(f"\r\x1b[K{text} ...", err=True, nl=False)
            self._next = time.monotonic() + self._every

    def done(self) -> None:
        """Take the line away."""
        if self._shows:
            click.echo("\r\x1b[K", err=True, nl=False)
