"""Rows told apart, and found in other tables: of many by Arrow's queries, of few without one.

To plan a query takes Arrow a third of a millisecond and more, which small verbs would do twenty times.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: Up to so many rows are few: no query is planned for them.
FEW = 1_000
#: So many rows more than others are simply compared with them.
VERY_FEW = 100
_ROW, _EDIT = "row", "edit"


def numbered(columns: Sequence[pa.ChunkedArray], length: int) -> tuple[np.ndarray, np.ndarray]:
    """A number from 0 on for each of so many rows, given by columns, which equal rows share; and some row of each."""
    number, some_row = np.zeros(length, dtype=np.int64), np.zeros(min(length, 1), dtype=np.int64)
    for column in columns:
        if column.null_count == length:
            continue
        values = _comparable(column)
        # Mostly a column says no more than those before it, a receipt's above all. To sort what says more takes longer.
        if (values[some_row][number] != values).any():
            _, values = np.unique(values, return_inverse=True)
            together = number * (int(values.max()) + 1) + values
            _, some_row, number = np.unique(together, return_index=True, return_inverse=True)
    return number, some_row


def distinct(rows: pa.Table, columns: Sequence[str]) -> list[dict[str, Any]]:
    """What is in some columns, each combination once."""
    if rows.num_rows > FEW:
        rows = rows.group_by(list(columns), use_threads=False).aggregate([])
    return [dict(zip(columns, one)) for one in dict.fromkeys(_tuples(rows, columns))]


def matches(rows: pa.Table, edits: pa.Table, keys: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of rows and of edits that are the same in the columns `keys`, a pair for each; nulls are the same as
    nothing."""
    if edits.num_rows > FEW:
        pairs = _placed(rows, keys, _ROW).join(_placed(edits, keys, _EDIT), keys, join_type="inner")
        return pairs[_ROW].to_numpy(), pairs[_EDIT].to_numpy()
    near, some = np.arange(rows.num_rows), rows
    if rows.num_rows > edits.num_rows + VERY_FEW:
        for key in keys:
            # What has an edit's value in each column, one by one, is mostly the row itself.
            values = rows[key] if len(near) == rows.num_rows else rows[key].take(pa.array(near))
            near = near[pc.is_in(values, pc.unique(edits[key]), skip_nulls=True).to_numpy()]
        some = rows.select(list(keys)).take(pa.array(near))
    known: dict[tuple[Any, ...], list[int]] = {}
    for number, one in enumerate(_tuples(edits, keys)):
        if None not in one:
            known.setdefault(one, []).append(number)
    found = [known.get(one, []) for one in _tuples(some, keys)]
    return np.repeat(near, [len(some) for some in found]), np.array([*chain(*found)], dtype=np.int64)


def _comparable(column: pa.ChunkedArray) -> np.ndarray:
    """Numbers that are equal where a column's values are."""
    if pa.types.is_timestamp(column.type):
        # No instant of ours is before 1970.
        instants: np.ndarray = pc.fill_null(column.cast(pa.int64()), -1).to_numpy()
        return instants
    encoded = pc.dictionary_encode(column, null_encoding="encode").combine_chunks()
    numbers: np.ndarray = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _tuples(rows: pa.Table, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(rows[name].to_pylist() for name in columns)))


def _placed(rows: pa.Table, keys: Sequence[str], name: str) -> pa.Table:
    # Without the others: columns of maps cannot go through a join.
    return rows.select(list(keys)).append_column(name, pa.array(np.arange(rows.num_rows)))
