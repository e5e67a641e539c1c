"""Reads of rows from the files that may hold them, or from memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import and_
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from deltalake import DeltaTable

from ledger.delta_log.protocol import PartitionFilter, TableSpec
from ledger.delta_log.statements import INSTANT

#: By column, the lowest and the highest value to read; None: no such bound.
Bounds = Mapping[str, tuple[Any, Any]]
NO_BOUNDS: Bounds = MappingProxyType({})
NOTHING: Mapping[str, Any] = MappingProxyType({})
#: The highest reader version without deletion vectors or renamed columns.
READER = 1
#: Paths without escapes are the same in a log as on a storage.
PLAIN_PATH = re.compile(r"[A-Za-z0-9_.=/-]+")
_FORMAT = pads.ParquetFileFormat(default_fragment_scan_options=pads.ParquetFragmentScanOptions(pre_buffer=True))
_PARTITION = "partition."


class Wanted(NamedTuple):
    """Some columns of some rows.

    Attributes:
        where: A condition of Arrow's on the rows; None: all rows.
        asks: The columns that `where` may use.
        bounds: The part of `where` that bounds columns: the files' statistics are compared with it.
        above: The columns of `bounds` whose lowest value is itself excluded.
    """

    columns: Sequence[str]
    where: Any = None
    asks: Sequence[str] = ()
    bounds: Bounds = NO_BOUNDS
    above: Sequence[str] = ()


def delta_rs_filter(where: PartitionFilter) -> list[Any] | None:
    alternatives = [
        [(name, "in", list(map(str, values))) for name, values in alternative.items()]
        for alternative in where.shorten().alternatives()
    ]
    if not all(alternatives):
        return None
    return alternatives if len(alternatives) > 1 else alternatives[0]


def row_condition(where: PartitionFilter) -> Any:
    """Return the condition on rows of files that `where.shorten()` chooses; None: all their rows are wanted."""
    if where.shorten() is where:
        return None
    condition = pc.scalar(False)
    for alternative in where.alternatives():
        conditions = [pc.field(name).isin(list(values)) for name, values in alternative.items()]
        condition = condition | reduce(and_, conditions, pc.scalar(True))
    return condition


def plan_wanted_rows(
    table: TableSpec,
    where: PartitionFilter,
    columns: Sequence[str],
    between: Mapping[str, tuple[int, int]],
    above: Mapping[str, int],
) -> Wanted:
    conditions, bounds = [row_condition(where)], dict[str, tuple[Any, Any]]()
    for name, ends in between.items():
        lowest, highest = (_bound(table, name, end) for end in ends)
        conditions += [pc.field(name) >= lowest, pc.field(name) <= highest]
        bounds[name] = lowest, highest
    for name, bound in above.items():
        since = _bound(table, name, bound)
        conditions.append(pc.field(name) > since)
        bounds[name] = since, None
    set_conditions = [condition for condition in conditions if condition is not None]
    condition = reduce(and_, set_conditions) if set_conditions else None
    return Wanted(columns, condition, (*table.partitions, *bounds), bounds, tuple(above))


def _bound(table: TableSpec, name: str, value: int) -> Any:
    """`value` is in milliseconds for a column of instants."""
    is_instant = pa.types.is_timestamp(table.schema.field(name).type)
    return pa.scalar(value * 1_000, pa.int64()).cast(INSTANT) if is_instant else value


def filter_wanted_rows(rows: pa.Table, wanted: Wanted) -> pa.Table:
    """Return the wanted rows among rows of partitions that the read names. Only bounds are compared."""
    columns = list(wanted.columns)
    if not wanted.bounds:
        return rows.select(columns)
    # Chunks would be compared one by one.
    candidates = rows.select(list(dict.fromkeys((*columns, *wanted.bounds)))).combine_chunks()
    chosen = []
    for name, (lowest, highest) in wanted.bounds.items():
        if lowest is not None:
            chosen.append((pc.greater if name in wanted.above else pc.greater_equal)(candidates[name], lowest))
        if highest is not None:
            chosen.append(pc.less_equal(candidates[name], highest))
    return candidates.filter(reduce(pc.and_, chosen)).select(columns)


def dataset_of(loaded: DeltaTable, storage: Any, where: PartitionFilter, wanted: Wanted | None) -> Any:
    """Return the files that may hold wanted rows of `where` as a dataset on Arrow's file system `storage`.

    The dataset of delta-rs takes 0.7 ms a file: it is only for later reader versions, and paths that need escapes.
    """
    actions = pa.table(loaded.get_add_actions(flatten=True))
    chosen = filter_files(actions, where, wanted.bounds if wanted else {}) if actions.num_rows else actions
    paths = chosen["path"].to_pylist()
    if loaded.protocol().min_reader_version > READER or not all(map(PLAIN_PATH.fullmatch, paths)):
        return loaded.to_pyarrow_dataset(filesystem=storage, file_pruning_predicate=delta_rs_filter(where))
    partitions = chosen.select([name for name in chosen.column_names if name.startswith(_PARTITION)])
    fragments = [
        _FORMAT.make_fragment(path, storage, reduce(and_, _partition_conditions(partition), pc.scalar(True)))
        for path, partition in zip(paths, partitions.to_pylist() or [{}] * len(paths))
    ]
    return pads.FileSystemDataset(fragments, pa.schema(loaded.schema().to_arrow()), _FORMAT, storage)


def filter_files(actions: pa.Table, where: PartitionFilter, bounds: Bounds) -> pa.Table:
    """Return those of a table's files (`actions`, at least one) that may hold rows of `where` within the bounds.

    A file without statistics may hold any row.
    """
    parts = []
    for alternative in where.shorten().alternatives():
        columns = [(actions[f"{_PARTITION}{name}"], values) for name, values in alternative.items()]
        parts.append(
            reduce(
                pc.and_,
                [pc.is_in(column, pa.array(wanted_values, column.type)) for column, wanted_values in columns],
                pa.scalar(True),
            )
        )
    is_named = reduce(pc.or_, parts)
    chosen = actions.filter(is_named) if isinstance(is_named, pa.ChunkedArray) else actions
    for name, (lowest, highest) in bounds.items():
        for column, holds, bound in (
            (f"max.{name}", pc.greater_equal, lowest),
            (f"min.{name}", pc.less_equal, highest),
        ):
            if bound is not None and column in chosen.column_names:
                chosen = chosen.filter(pc.fill_null(holds(chosen[column], bound), True))
    return chosen


def _partition_conditions(partition: Mapping[str, Any]) -> Iterator[Any]:
    for name, value in partition.items():
        field = pc.field(name.removeprefix(_PARTITION))
        yield field.is_null() if value is None else field == pc.scalar(value)
