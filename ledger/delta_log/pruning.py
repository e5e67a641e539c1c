"""Rows of a loaded table, of the files alone that may hold what is asked for, as its log tells."""

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

from ledger.delta_log.where import Where
from ledger.store.delta.model.tables import INSTANT

#: By column, the lowest and the highest value that is asked for; None: no such bound.
Bounds = Mapping[str, tuple[Any, Any]]
NONE: Bounds = MappingProxyType({})
#: The reader's version of tables whose files hold their rows as they are, and nothing but them.
READER = 1
#: Paths that are the same in a log as on a storage, where others are escaped.
PLAIN_PATH = re.compile(r"[A-Za-z0-9_.=/-]+")
_FORMAT = pads.ParquetFileFormat(default_fragment_scan_options=pads.ParquetFragmentScanOptions(pre_buffer=True))
_PARTITION = "partition."


class Wanted(NamedTuple):
    """Some columns of the rows where a condition of Arrow's holds; `asks` names the columns that it is about, and
    `bounds` what it says of each that leaves out files."""

    columns: Sequence[str]
    where: Any = None
    asks: Sequence[str] = ()
    bounds: Bounds = NONE


def filters(where: Where) -> list[Any] | None:
    """The files that may hold what `where` names, as delta-rs takes it: alternatives of conditions on partitions."""
    alternatives = []
    for queues, lanes, segments in where.bounded().alternatives():
        known = {"queue": queues, "lane": lanes and [str(lane) for lane in lanes], "segment": segments}
        alternatives.append([(name, "in", list(values)) for name, values in known.items() if values is not None])
    if not all(alternatives):
        return None
    return alternatives if len(alternatives) > 1 else alternatives[0]


def rows_in(where: Where) -> Any:
    """What the filter on files leaves to be said about rows, when `where` names too much for it; else None."""
    if where.bounded() is where:
        return None
    condition = pc.scalar(False)
    for part in where.parts():
        known = {"queue": part.queue and (part.queue,), "lane": part.lanes, "segment": part.segments}
        named = [pc.field(name).isin(list(values)) for name, values in known.items() if values is not None]
        condition = condition | reduce(and_, named, pc.scalar(True))
    return condition


def wanted_messages(
    where: Where, columns: Sequence[str], first_seq: int | None, last_seq: int | None, sent_after: int | None
) -> Wanted:
    """See `MessageFiles.messages`."""
    conditions, bounds = [rows_in(where)], {}
    if first_seq is not None:
        conditions += [pc.field("seq") >= first_seq, pc.field("seq") <= last_seq]
        bounds["seq"] = first_seq, last_seq
    if sent_after is not None:
        since = pa.scalar(sent_after * 1_000, pa.int64()).cast(INSTANT)
        conditions.append(pc.field("sent_at") > since)
        bounds["sent_at"] = since, None
    known = [condition for condition in conditions if condition is not None]
    asked = reduce(and_, known) if known else None
    return Wanted(columns, asked, ("queue", "lane", "segment", "seq", "sent_at"), bounds)


def within(rows: pa.Table, wanted: Wanted) -> pa.Table:
    """What is wanted of rows at hand, which are of the partitions that are named. Ordinals alone are compared without a
    query, which takes longer than all else that is done for a small read."""
    columns = list(wanted.columns)
    if wanted.where is None:
        return rows.select(columns)
    # In one piece: a query asks each piece by itself.
    there = rows.select(list(dict.fromkeys((*columns, *wanted.asks)))).combine_chunks()
    if set(wanted.bounds) == {"seq"}:
        lowest, highest = wanted.bounds["seq"]
        chosen = pc.and_(pc.greater_equal(there["seq"], lowest), pc.less_equal(there["seq"], highest))
    else:
        chosen = wanted.where
    return there.filter(chosen).select(columns)


def dataset_of(loaded: DeltaTable, storage: Any, where: Where, wanted: Wanted | None) -> Any:
    """The files that may hold rows of `where` and what is wanted, as a dataset on Arrow's file system `storage`.

    delta-rs would describe the statistics of each file to Arrow, which takes 0.7 ms a file: longer than to read it.
    """
    actions = pa.table(loaded.get_add_actions(flatten=True))
    chosen = files_of(actions, where, wanted.bounds if wanted else {}) if actions.num_rows else actions
    paths = chosen["path"].to_pylist()
    if loaded.protocol().min_reader_version > READER or not all(map(PLAIN_PATH.fullmatch, paths)):
        return loaded.to_pyarrow_dataset(filesystem=storage, file_pruning_predicate=filters(where))
    partitions = chosen.select([name for name in chosen.column_names if name.startswith(_PARTITION)])
    fragments = [
        _FORMAT.make_fragment(path, storage, reduce(and_, _told(partition), pc.scalar(True)))
        for path, partition in zip(paths, partitions.to_pylist() or [{}] * len(paths))
    ]
    return pads.FileSystemDataset(fragments, pa.schema(loaded.schema().to_arrow()), _FORMAT, storage)


def files_of(actions: pa.Table, where: Where, bounds: Bounds) -> pa.Table:
    """Of a table's files, at least one, as delta-rs lists them, those that may hold rows of `where` within the bounds.
    One without statistics may hold any."""
    parts = []
    for queues, lanes, segments in where.bounded().alternatives():
        named = {"queue": queues, "lane": lanes, "segment": segments}
        columns = {name: (actions[f"{_PARTITION}{name}"], some) for name, some in named.items() if some is not None}
        masks = [pc.is_in(column, pa.array(some, column.type)) for column, some in columns.values()]
        parts.append(reduce(pc.and_, masks, pa.scalar(True)))
    within = reduce(pc.or_, parts)
    chosen = actions.filter(within) if isinstance(within, pa.ChunkedArray) else actions
    for name, (lowest, highest) in bounds.items():
        for column, holds, bound in (
            (f"max.{name}", pc.greater_equal, lowest),
            (f"min.{name}", pc.less_equal, highest),
        ):
            if bound is not None and column in chosen.column_names:
                chosen = chosen.filter(pc.fill_null(holds(chosen[column], bound), True))
    return chosen


def _told(partition: Mapping[str, Any]) -> Iterator[Any]:
    """What the name of a file's partition says about its rows."""
    for name, value in partition.items():
        field = pc.field(name.removeprefix(_PARTITION))
        yield field.is_null() if value is None else field == pc.scalar(value)
