"""Bounds of decimals in the statistics of a log, digit by digit.

delta-rs writes the bounds of decimals as floats, which have some sixteen digits: readers that filter then pass by a
file that has the value. Without bounds it is worse: deltalake's own dataset compares with null, and finds no row.
So the exact bounds of all the rows of a write take their place in the statistics of each of its files.
"""

from __future__ import annotations

import decimal
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

#: By the path of a column, its least and its greatest value.
Bounds = Mapping[tuple[str, ...], tuple[decimal.Decimal, decimal.Decimal]]


def exact_bounds(rows: pa.Table) -> Bounds:
    """Return the bounds of the columns of decimals, also of those inside structs, that have a value."""
    found: dict[tuple[str, ...], tuple[decimal.Decimal, decimal.Decimal]] = {}
    for path, values in _decimals(rows):
        both = pc.min_max(values).as_py()
        if both["min"] is not None:
            found[path] = both["min"], both["max"]
    return found


def with_bounds(statistics: str, bounds: Bounds) -> str:
    """Return a file's statistics with these bounds of its columns of decimals, as JSON."""
    if not bounds:
        return statistics
    known = json.loads(statistics, parse_float=decimal.Decimal)
    numbers: dict[str, str] = {}
    for number, part in enumerate(("minValues", "maxValues")):
        for path, values in bounds.items():
            inner = known.setdefault(part, {})
            for name in path[:-1]:
                inner = inner.setdefault(name, {})
            inner[path[-1]] = values[number]

    def marked(value: object) -> str:
        # json writes no Decimal: the text of the number takes the place of a mark.
        mark = f"\x00{len(numbers)}\x00"
        numbers[json.dumps(mark)] = format(value, "f")
        return mark

    written = json.dumps(known, default=marked)
    for mark, text in numbers.items():
        written = written.replace(mark, text)
    return written


def _decimals(rows: pa.Table) -> Iterator[tuple[tuple[str, ...], pa.ChunkedArray]]:
    for name in rows.column_names:
        yield from _inside((name,), rows[name])


def _inside(path: tuple[str, ...], values: pa.ChunkedArray) -> Iterator[tuple[tuple[str, ...], Any]]:
    if pa.types.is_decimal(values.type):
        yield path, values
    elif pa.types.is_struct(values.type):
        for field, inner in zip(values.type, values.flatten()):
            yield from _inside((*path, field.name), inner)
