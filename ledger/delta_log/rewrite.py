"""Rewrites of a partition's files by edits, and checks of the assumptions of edits.

An edit replaces the files that have a changed row, and files with fewer than ENOUGH rows. A row is *settled* if it has
a value in one of the `final_columns` of its table's spec, and no value of `still_changing`. Settled rows hardly ever
change, and are many. So they get files of their own once there are ENOUGH of them. A file is joined with new settled
rows if it has at most twice as many rows as these, and if all together are at most FULL rows. A partition has about a
dozen files at most, and one for each FULL rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.delta_log.protocol import EXPECTED_REVISION, OPERATION, Conflict, Snapshot, TableSpec
from ledger.errors import LedgerDamaged

#: The most rows, or edits, that are compared without a query of Arrow's: planning a query takes 0.3 ms.
FEW_ROWS = 1_000
VERY_FEW_ROWS = 100
_ROW, _EDIT = "row", "edit"


def number_rows(columns: Sequence[pa.ChunkedArray], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a number (0 or more) for each of `length` rows, the same for equal rows, and one row's index for each
    number."""
    number, some_row = np.zeros(length, dtype=np.int64), np.zeros(min(length, 1), dtype=np.int64)
    for column in columns:
        if column.null_count == length:
            continue
        values = _number_values(column)
        # Mostly a column separates no more rows than the columns before it: then there is no need to sort.
        if (values[some_row][number] != values).any():
            _, values = np.unique(values, return_inverse=True)
            together = number * (int(values.max()) + 1) + values
            _, some_row, number = np.unique(together, return_index=True, return_inverse=True)
    return number, some_row


def list_distinct_rows(rows: pa.Table, columns: Sequence[str]) -> list[dict[str, Any]]:
    if rows.num_rows > FEW_ROWS:
        rows = rows.group_by(list(columns), use_threads=False).aggregate([])
    return [dict(zip(columns, combination)) for combination in dict.fromkeys(_tuples(rows, columns))]


def matches(rows: pa.Table, edits: pa.Table, keys: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of rows and of edits that are equal in `keys`, a pair for each match. A null matches
    nothing."""
    if edits.num_rows > FEW_ROWS:
        pairs = _add_row_numbers(rows, keys, _ROW).join(_add_row_numbers(edits, keys, _EDIT), keys, join_type="inner")
        return pairs[_ROW].to_numpy(), pairs[_EDIT].to_numpy()
    candidates, candidate_rows = np.arange(rows.num_rows), rows
    if rows.num_rows > edits.num_rows + VERY_FEW_ROWS:
        for key in keys:
            values = rows[key] if len(candidates) == rows.num_rows else rows[key].take(pa.array(candidates))
            candidates = candidates[pc.is_in(values, pc.unique(edits[key]), skip_nulls=True).to_numpy()]
        candidate_rows = rows.select(list(keys)).take(pa.array(candidates))
    edits_by_key: dict[tuple[Any, ...], list[int]] = {}
    for number, edit_key in enumerate(_tuples(edits, keys)):
        if None not in edit_key:
            edits_by_key.setdefault(edit_key, []).append(number)
    edits_of_row = [edits_by_key.get(row_key, []) for row_key in _tuples(candidate_rows, keys)]
    return np.repeat(candidates, [len(numbers) for numbers in edits_of_row]), np.array(
        [*chain(*edits_of_row)], dtype=np.int64
    )


def _number_values(column: pa.ChunkedArray) -> np.ndarray:
    if pa.types.is_timestamp(column.type):
        # No instant of the ledger is before 1970, so -1 means null alone.
        instants: np.ndarray = pc.fill_null(column.cast(pa.int64()), -1).to_numpy()
        return instants
    encoded = pc.dictionary_encode(column, null_encoding="encode").combine_chunks()
    numbers: np.ndarray = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _tuples(rows: pa.Table, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(rows[name].to_pylist() for name in columns)))


def _add_row_numbers(rows: pa.Table, keys: Sequence[str], name: str) -> pa.Table:
    # Columns of maps cannot go through a join.
    return rows.select(list(keys)).append_column(name, pa.array(np.arange(rows.num_rows)))


#: Revisions count from 1.
NO_REVISION = -1


def require_expected(snapshot: Snapshot, table: TableSpec, edits: pa.Table) -> None:
    """Raise Conflict if an edit does not find the table, or its partition in the snapshot, as it supposes.

    A row to insert must not exist. A row to update or delete must exist with the expected revision (null: any
    revision).

    Raises LedgerDamaged for an edit of a row that exists twice, and for two inserts of one key if the spec has
    `duplicate_error`. Raises ValueError for any other two edits of one row, and for an edit without a partition.
    """
    keys = [*table.partitions, *table.key]
    if edits.num_rows != len(list_distinct_rows(edits, keys)):
        inserts = edits.filter(pc.equal(edits[OPERATION], "insert"))
        if table.duplicate_error is not None and inserts.num_rows != len(list_distinct_rows(inserts, keys)):
            raise LedgerDamaged(table.duplicate_error)
        raise ValueError(f"two edits of {table.name} are about one row")
    touched = list_distinct_rows(edits, table.partitions) if table.partitions else []
    for partition in touched:
        table.require_partition(partition)
    if not all(snapshot.where.covers(*partition.values()) for partition in touched):
        raise Conflict(f"of {table.name} more is changed than was read")
    row, edit = matches(snapshot.rows, edits, keys)
    found_rows = np.bincount(edit, minlength=edits.num_rows)
    if (found_rows > 1).any():
        raise LedgerDamaged(
            f"A row of the table {table.name} is there twice. Run upkeep (Ledger.upkeep or jobs/upkeep.py), which "
            "repairs it"
        )
    wanted = pc.not_equal(edits[OPERATION], "insert").to_numpy()
    # A missing row has no revision, so it cannot have the expected one.
    revision = np.full(edits.num_rows, NO_REVISION)
    revision[edit] = _numbers(snapshot.rows["revision"].take(pa.array(row)))
    expected = _numbers(edits[EXPECTED_REVISION])
    if ((found_rows > 0) != wanted).any() or ((expected != NO_REVISION) & (expected != revision)).any():
        raise Conflict(f"{table.name} is not as the decision supposed")


def _numbers(revisions: pa.ChunkedArray) -> np.ndarray:
    numbers: np.ndarray = pc.fill_null(revisions, NO_REVISION).to_numpy()
    return numbers


ENOUGH = 256
FULL = 50_000


class Rewrite(NamedTuple):
    gone: list[str]
    written: list[pa.Table]


def plan_rewrite(files: Mapping[str, pa.Table], edits: pa.Table, table: TableSpec) -> Rewrite:
    rows = pa.concat_tables([table.nothing, *files.values()])
    sizes = np.array([file_rows.num_rows for file_rows in files.values()], dtype=np.int64)
    file_of = np.repeat(np.arange(len(files)), sizes)
    is_kept = np.ones(rows.num_rows, dtype=bool)
    is_kept[matches(rows, edits, table.key)[0]] = False
    new_rows = _rows_after_edits(edits, table)
    new_settled, kept_settled = _find_settled(new_rows, table), _find_settled(rows, table) & is_kept
    is_replaced = sizes < ENOUGH
    is_replaced[file_of[~is_kept]] = True
    while True:
        count = np.count_nonzero(new_settled) + np.count_nonzero(kept_settled[is_replaced[file_of]])
        is_joined = ~is_replaced & (sizes <= 2 * count)
        # Larger files stay as they are.
        if count < ENOUGH or not is_joined.any() or count + sizes[is_joined].sum() > FULL:
            break
        is_replaced |= is_joined
    chosen = is_kept & is_replaced[file_of]
    written_rows = pa.concat_tables([rows.filter(pa.array(chosen)), new_rows])
    settled = np.concatenate([kept_settled[chosen], new_settled]) & (count >= ENOUGH)
    parts = (
        [written_rows.filter(pa.array(chosen_part)) for chosen_part in (~settled, settled)]
        if settled.any()
        else [written_rows]
    )
    # The rows are kept in memory, and each commit would add a chunk.
    written = [part.combine_chunks() for part in parts if part.num_rows]
    return Rewrite([path for path, is_old in zip(files, is_replaced) if is_old], written)


def _rows_after_edits(edits: pa.Table, table: TableSpec) -> pa.Table:
    stays = pc.not_equal(edits[OPERATION], "delete")
    rows = edits.select(table.schema.names)
    rows = rows if pc.all(stays).as_py() else rows.filter(stays)
    return rows if rows.schema.equals(table.schema) else rows.cast(table.schema)


def _find_settled(rows: pa.Table, table: TableSpec) -> np.ndarray:
    filled = [name for name in table.final_columns if rows[name].null_count < rows.num_rows]
    if not filled:
        return np.zeros(rows.num_rows, dtype=bool)
    is_settled: np.ndarray = np.logical_or.reduce([pc.is_valid(rows[name]).to_numpy() for name in filled])
    for name, value in (table.still_changing or {}).items():
        is_settled = is_settled & pc.not_equal(rows[name], value).to_numpy()
    return is_settled


def filter_partitions(rows: pa.Table, partitions: Sequence[Mapping[str, Any]]) -> pa.Table:
    conditions = [
        reduce(pc.and_, [pc.equal(rows[name], value) for name, value in partition.items()])
        for partition in partitions
        if partition
    ]
    return rows.filter(reduce(pc.or_, conditions)) if conditions else rows
