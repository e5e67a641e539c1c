"""The output of commands: tables and blocks for people, JSON lines for programs."""

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

#: Longer texts are cut, except in JSON and CSV.
MOST_CHARACTERS = 400


def pluralize(count: int, thing: str) -> str:
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def print_json(*documents: Any) -> None:
    """Print each document as a JSON line. Instants are in ISO 8601 and UTC, bytes in base64, NaN and infinity null."""
    for document in documents:
        try:
            text = json.dumps(document, ensure_ascii=False, default=_convert_to_json, allow_nan=False)
        except ValueError:
            text = json.dumps(_replace_infinite(document), ensure_ascii=False, default=_convert_to_json)
        click.echo(text)


def print_csv(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Print CSV with a header. Instants, bytes and nested values are as in JSON."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        cells = ((value if isinstance(value, (str, int, float)) else _format_cell(value)) for value in row.values())
        writer.writerow(cells)
    click.echo(text.getvalue(), nl=False)


def _format_cell(value: Any) -> str:
    if value is None:
        return ""
    plain = _convert_to_json(value) if not isinstance(value, (dict, list, tuple)) else value
    return (
        plain
        if isinstance(plain, str)
        else json.dumps(_replace_infinite(plain), ensure_ascii=False, default=_convert_to_json)
    )


def report(json: bool, document: Mapping[str, Any], sentence: str) -> None:
    if json:
        print_json(document)
    else:
        click.echo(sentence)


def print_table(rows: Sequence[Mapping[str, Any]], if_empty: str) -> None:
    click.echo(format_table(rows) if rows else if_empty)


def format_table(rows: Sequence[Mapping[str, Any]], cell_of: Callable[[Any], str] | None = None) -> str:
    """Return rows (at least one) as text in aligned columns, numbers on the right."""
    names, text_of = list(rows[0]), cell_of or text_for_people
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


def print_blocks(blocks: Iterable[Mapping[str, Any]], if_empty: str) -> None:
    """Print each block as lines of `name  value`, without values that are None, an empty mapping or an empty text."""
    first = True
    for block in blocks:
        filled = {name: value for name, value in block.items() if value not in (None, {}, "")}
        width = max(map(len, filled))
        if not first:
            click.echo()
        for name, value in filled.items():
            click.echo(f"{name:<{width}}  {text_for_people(value)}")
        first = False
    if first:
        click.echo(if_empty)


def text_for_people(value: Any) -> str:
    """Return a value as text for people. Cut a long text, and escape characters that cannot be printed."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, datetime):
        return f"{_convert_to_utc(value):%Y-%m-%d %H:%M:%S}{'' if value.tzinfo is None else 'Z'}"
    if isinstance(value, (dict, list)):
        return text_for_people(json.dumps(value, ensure_ascii=False, default=_convert_to_json))
    text = "".join(
        character if character.isprintable() else repr(character)[1:-1]
        for character in str(value)[: MOST_CHARACTERS + 1]
    )
    return (
        text
        if len(str(value)) <= MOST_CHARACTERS
        else f"{text[:MOST_CHARACTERS]}... ({len(str(value)):,} characters: --json has all)"
    )


def _replace_infinite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _replace_infinite(item) for name, item in value.items()}
    return [_replace_infinite(item) for item in value] if isinstance(value, (list, tuple)) else value


def _convert_to_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return _convert_to_utc(value).isoformat().replace("+00:00", "Z")
    if isinstance(value, bytes):
        import base64

        return base64.b64encode(value).decode()
    return str(value)


def _convert_to_utc(value: datetime) -> datetime:
    return value if value.tzinfo is None else value.astimezone(timezone.utc)


class ProgressLine:
    """A line on stderr that shows progress, if stderr is a terminal."""

    def __init__(self, every: float = 0.2) -> None:
        self._shows, self._every, self._next = sys.stderr.isatty(), every, time.monotonic() + every

    def __call__(self, text: str) -> None:
        """Replace the line by this text, unless it was replaced within `every` seconds."""
        if self._shows and time.monotonic() >= self._next:
            click.echo(f"\r\x1b[K{text} ...", err=True, nl=False)
            self._next = time.monotonic() + self._every

    def done(self) -> None:
        if self._shows:
            click.echo("\r\x1b[K", err=True, nl=False)
