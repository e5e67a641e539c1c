"""Data files: how they are written without an engine, the log's facts about them, and the actions that name them."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ledger.delta_log.protocol import Fact, Partition, TableSpec
from ledger.delta_log.statements import bound_text, partition_text, to_milliseconds
from ledger.version import __version__

#: Bounds in bytes of rows in memory: of a row group, and of a file of a direct append (see `log`).
ROW_GROUP, FILE = 8 << 20, 64 << 20
#: A column whose values have more bytes on average has no dictionary: long values mostly do not repeat.
LONG = 1_024
#: The most characters of a partition's value in a path. Those that may need an escape become "_".
MOST_IN_PATH, _ODD = 100, re.compile(r"[^A-Za-z0-9_.-]")


class Encoded(Mapping[str, bytes]):
    """Files of rows, by path. Each look-up makes the file anew, so that not all files are in memory together.

    `sizes` has the sizes in bytes of the files that were made so far.
    """

    def __init__(self, rows: Mapping[str, pa.Table], partitions: Sequence[str]) -> None:
        self._rows, self._partitions = rows, partitions
        self.sizes: dict[str, int] = {}

    def __getitem__(self, path: str) -> bytes:
        content = encode_parquet(self._rows[path], self._partitions)
        self.sizes[path] = len(content)
        return content

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def new_path(partition: Mapping[str, Any]) -> str:
    """Return a new path that needs no escapes. Readers take a partition's values from the log, not from a path."""
    folder = "".join(f"{name}={_ODD.sub('_', str(value))[:MOST_IN_PATH]}/" for name, value in partition.items())
    return f"{folder}part-00000-{secrets.token_hex(16)}.snappy.parquet"


def split_rows(rows: pa.Table, most: int) -> Iterator[pa.Table]:
    """Yield rows in parts of at most `most` bytes, or of a single row; at least one part."""
    if rows.nbytes <= most or rows.num_rows < 2:
        yield rows
    else:
        half = rows.num_rows // 2
        yield from split_rows(rows.slice(0, half), most)
        yield from split_rows(rows.slice(half), most)


def encode_parquet(rows: pa.Table, partitions: Sequence[str]) -> bytes:
    sink = pa.BufferOutputStream()
    rows = rows.drop_columns(list(partitions))
    # No reader uses statistics of nested columns.
    statistics_columns = [field.name for field in rows.schema if not pa.types.is_nested(field.type)]
    short = [name for name in statistics_columns if rows[name].nbytes <= LONG * rows.num_rows]
    with pq.ParquetWriter(
        sink, rows.schema, store_schema=False, use_dictionary=short, write_statistics=statistics_columns
    ) as writer:
        for part in split_rows(rows, ROW_GROUP):
            writer.write_table(part)
    content: bytes = sink.getvalue().to_pybytes()
    return content


_PATH = pa.field("path", pa.string())
_IN_STATS = {"min": "minValues", "max": "maxValues"}
_IN_ADD_ACTIONS = {"rows": "num_records", "size": "size_bytes"}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)


class FileStatistics:
    """The paths and facts of the files of one version. The object never changes its answers.

    A small append needs only the last ordinal (see `protocol.Ordinals`) of its partition. So added files are first kept
    as dicts. Dicts become rows of an Arrow table when a caller needs the table, when a later commit removes files, or
    when appends have left MOST_ADDED dicts.
    """

    MOST_PIECES = 8
    MOST_ADDED = 64
    #: The most partitions whose last ordinals are passed on to the next version.
    MOST_ENDS = 16

    def __init__(
        self,
        spec: TableSpec,
        files: pa.Table,
        added: tuple[dict[str, Any], ...] = (),
        last_ordinals: Mapping[str, int] | None = None,
    ) -> None:
        self._spec, self._parts, self._last_ordinals = spec, (files, added), dict(last_ordinals or {})

    @property
    def _files(self) -> pa.Table:
        files, added = self._parts
        if added:
            files = pa.concat_tables([files, pa.Table.from_pylist(list(added), files.schema)])
            files = files.combine_chunks() if files[_PATH.name].num_chunks > self.MOST_PIECES else files
            # Assign both parts at once: threads share this object.
            self._parts = files, ()
        return files

    @classmethod
    def listed(cls, actions: pa.Table, spec: TableSpec) -> FileStatistics:
        schema = schema_of_facts(spec)
        if not actions.num_rows:
            return cls(spec, schema.empty_table())
        sources = [
            "path",
            *(_IN_ADD_ACTIONS.get(fact.source, f"{fact.source}.{fact.column}") for fact in spec.facts),
        ]
        columns = [
            _as_column(find_listed_column(actions, source), field.type) for source, field in zip(sources, schema)
        ]
        return cls(spec, pa.table(columns, schema=schema))

    @property
    def table(self) -> pa.Table:
        return self._files.drop_columns([_PATH.name])

    def above(self, first: str, column: str, bound: int) -> list[tuple[Partition, str]]:
        """Return the partitions and paths of files that may hold rows with more than `bound` in a column.

        Only partitions whose first column has the value `first` are looked at. A bound of instants is in milliseconds.
        """
        partition = [self._fact("partition", name) for name in self._spec.partitions]
        files_of_first = self._files.filter(pc.equal(self._files[partition[0]], first))
        files_above = files_of_first.filter(
            pc.fill_null(pc.greater(files_of_first[self._fact("max", column)], bound), True)
        )
        values = zip(*(map(_as_text, files_above[name].to_pylist()) for name in partition))
        return list(zip(values, files_above[_PATH.name].to_pylist()))

    def list_facts_of_last(self, value: str | None) -> list[dict[str, Any]]:
        last = self._fact("partition", self._spec.partitions[-1])
        facts: list[dict[str, Any]] = self._files.filter(pc.equal(self._files[last], value)).to_pylist()
        return facts

    def find_last_ordinal(self, value: str) -> int | None:
        """Return the last ordinal of the partition with this value in its last column; None: the log does not show
        it."""
        if value in self._last_ordinals:
            return self._last_ordinals[value]
        partition, ordinal = self._fact("partition", self._spec.partitions[-1]), self._last_ordinal_fact()
        files = self._files
        last: int | None = pc.max(files[ordinal].filter(pc.equal(files[partition], value)), skip_nulls=False).as_py()
        if last is not None and len(self._last_ordinals) < self.MOST_ENDS:
            self._last_ordinals[value] = last
        return last

    def _last_ordinal_fact(self) -> str:
        assert self._spec.ordinals is not None
        return self._fact("max", self._spec.ordinals.column)

    def _fact(self, source: str, column: str) -> str:
        return next(fact.name for fact in self._spec.facts if (fact.source, fact.column) == (source, column))

    def after(self, added: Sequence[Mapping[str, Any]], removed: Sequence[str]) -> FileStatistics:
        """Return the facts of the next version, by `add` actions and the paths of removed files.

        Raises AttributeError, KeyError, TypeError and ValueError for an action that is not understood.
        """
        facts_of_added = tuple(_facts_of_add(fields, self._spec.facts) for fields in added)
        if removed:
            files = self._files
            gone = pc.is_in(files[_PATH.name], pa.array(removed, pa.string()))
            return FileStatistics(self._spec, files.filter(pc.invert(gone)), facts_of_added)
        files, before = self._parts
        following = FileStatistics(
            self._spec, files, before + facts_of_added, self._advance_last_ordinals(facts_of_added)
        )
        if len(before) + len(facts_of_added) < self.MOST_ADDED:
            return following
        return FileStatistics(self._spec, following._files)

    def _advance_last_ordinals(self, added: Iterable[Mapping[str, Any]]) -> dict[str, int]:
        ordinals = dict(self._last_ordinals)
        if not ordinals:
            return ordinals
        partition_fact, ordinal = self._fact("partition", self._spec.partitions[-1]), self._last_ordinal_fact()
        for file_facts in added:
            before, last = ordinals.pop(file_facts[partition_fact], None), file_facts[ordinal]
            if before is not None and last is not None:
                ordinals[file_facts[partition_fact]] = max(before, last)
        return ordinals


def schema_of_facts(spec: TableSpec) -> pa.Schema:
    return pa.schema([_PATH, *((fact.name, fact.type) for fact in spec.facts)])


def _facts_of_add(added: Mapping[str, Any], facts: Iterable[Fact]) -> dict[str, Any]:
    stats = json.loads(added.get("stats") or "{}")
    file_facts: dict[str, Any] = {"path": added["path"]}
    for name, kind, source, column, is_instant in facts:
        if source == "rows":
            value = stats.get("numRecords")
        elif source == "size":
            value = added["size"]
        else:
            value = (added["partitionValues"] if source == "partition" else stats.get(_IN_STATS[source]) or {}).get(
                column
            )
        file_facts[name] = _value(value, kind, is_instant=is_instant)
    return file_facts


def _as_text(value: Any) -> str | None:
    return None if value is None else str(value)


def _value(value: Any, kind: pa.DataType, *, is_instant: bool) -> Any:
    if value is None:
        return value
    if pa.types.is_string(kind):
        if not isinstance(value, str):
            raise TypeError(f"{value!r} is not a text")
        return value
    if not is_instant:
        number = int(value)
        if not -(1 << kind.bit_width - 1) <= number < 1 << kind.bit_width - 1:
            raise ValueError(f"{value} has more than {kind.bit_width} bits")
        return number
    instant = datetime.fromisoformat(value.replace("Z", "+00:00"))
    instant_in_utc = instant if instant.tzinfo else instant.replace(tzinfo=timezone.utc)
    return (instant_in_utc - _EPOCH) // _MILLISECOND


def find_listed_column(actions: pa.Table, name: str) -> pa.ChunkedArray:
    """Return a column of the add actions that delta-rs returns; all null if they lack the column."""
    return actions[name] if name in actions.column_names else pa.chunked_array([pa.nulls(actions.num_rows)])


def _as_column(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return to_milliseconds(column) if pa.types.is_timestamp(column.type) else column.cast(kind)


#: A line of a log file.
Action = dict[str, Any]
ENGINE = f"ledger/{__version__}"
#: The `operationParameters` of a commit that only appends.
APPENDED = {"mode": "Append"}
NO_PARAMETERS: Mapping[str, str] = MappingProxyType({})


def commit_info(
    operation: str, metadata: Mapping[str, Any], now: int, parameters: Mapping[str, str] = NO_PARAMETERS
) -> Action:
    """Return the `commitInfo` of a commit. A random `txnId` makes each entry unique."""
    info = {"timestamp": now, "operation": operation, "operationParameters": dict(parameters), "engineInfo": ENGINE}
    return {"commitInfo": {**info, "txnId": secrets.token_hex(16), "userMetadata": json.dumps(metadata)}}


def txn_action(transaction: tuple[str, int], now: int) -> Action:
    return {"txn": {"appId": transaction[0], "version": transaction[1], "lastUpdated": now}}


def remove_action(path: str, size: int, partition: Mapping[str, Any], now: int, *, is_change: bool = True) -> Action:
    """Return the `remove` action of a file. `is_change` is False if the commit adds the same rows."""
    remove = {"path": path, "deletionTimestamp": now, "dataChange": is_change, "extendedFileMetadata": True}
    return {"remove": {**remove, "partitionValues": _values(partition), "size": size}}


def add_action(
    path: str,
    size: int,
    rows: pa.Table,
    partition: Mapping[str, Any],
    now: int,
    statistics: Sequence[str] = (),
    *,
    is_change: bool = True,
) -> Action:
    """Return the `add` action of a file. `is_change` is False if the rows were in the table before.

    The action has the number of nulls, the minimum and the maximum of each column in `statistics`.
    """
    add = {"path": path, "partitionValues": _values(partition), "size": size, "modificationTime": now}
    stats: dict[str, Any] = {"numRecords": rows.num_rows}
    if statistics:
        extremes = {name: pc.min_max(rows[name]).as_py() for name in statistics}
        stats["minValues"] = {
            name: bound_text(extreme["min"]) for name, extreme in extremes.items() if extreme["min"] is not None
        }
        stats["maxValues"] = {
            name: bound_text(extreme["max"]) for name, extreme in extremes.items() if extreme["max"] is not None
        }
        stats["nullCount"] = {name: rows[name].null_count for name in statistics}
    return {"add": {**add, "dataChange": is_change, "stats": json.dumps(stats)}}


def _values(partition: Mapping[str, Any]) -> dict[str, str | None]:
    return {name: partition_text(value) for name, value in partition.items()}
