"""What a log tells of each data file of a table, none of which is read: as delta-rs lists them, or a commit does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ledger.delta_log.spec import Fact, Partition, TableSpec
from ledger.delta_log.values import milliseconds

_PATH = pa.field("path", pa.string())
#: How a log's line names what is told, and how delta-rs does.
_OF_A_LINE = {"min": "minValues", "max": "maxValues"}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)


class FileStatistics:
    """The files of one version: the facts of `spec`, and their paths. What it answers never changes.

    A small append asks for nothing but the last ordinal of its partition. So the files that commits have added since
    are kept as they are, and become rows of the table when somebody asks for the table, or when there are MOST_ADDED of
    them.
    """

    #: A table of more pieces is made one of a single piece.
    MOST_PIECES = 8
    MOST_ADDED = 64
    #: The last ordinals of so many partitions are carried on to the next version.
    MOST_ENDS = 16

    def __init__(
        self,
        spec: TableSpec,
        files: pa.Table,
        added: tuple[dict[str, Any], ...] = (),
        ends: Mapping[str, int] | None = None,
    ) -> None:
        self._spec, self._parts, self._ends = spec, (files, added), dict(ends or {})

    @property
    def _files(self) -> pa.Table:
        files, added = self._parts
        if added:
            files = pa.concat_tables([files, pa.Table.from_pylist(list(added), files.schema)])
            files = files.combine_chunks() if files[_PATH.name].num_chunks > self.MOST_PIECES else files
            # One assignment: threads share this.
            self._parts = files, ()
        return files

    @classmethod
    def listed(cls, actions: pa.Table, spec: TableSpec) -> FileStatistics:
        """Those that delta-rs lists, flattened."""
        schema = schema_of_facts(spec)
        if not actions.num_rows:
            return cls(spec, schema.empty_table())
        sources = [
            "path",
            *("num_records" if one.source == "rows" else f"{one.source}.{one.column}" for one in spec.facts),
        ]
        columns = [_as_column(actions[source], field.type) for source, field in zip(sources, schema)]
        return cls(spec, pa.table(columns, schema=schema))

    @property
    def table(self) -> pa.Table:
        """The facts, a row for each file."""
        return self._files.drop_columns([_PATH.name])

    def above(self, first: str, column: str, bound: int) -> list[tuple[Partition, str]]:
        """The files of partitions with a `first` value that may hold rows with more than `bound` in a column, with
        their partitions. Instants are milliseconds."""
        partition = [self._fact("partition", name) for name in self._spec.partitions]
        mine = self._files.filter(pc.equal(self._files[partition[0]], first))
        found = mine.filter(pc.fill_null(pc.greater(mine[self._fact("max", column)], bound), True))
        values = zip(*(map(_as_text, found[name].to_pylist()) for name in partition))
        return list(zip(values, found[_PATH.name].to_pylist()))

    def of_last(self, value: str | None) -> list[dict[str, Any]]:
        """What is told of each file of the partitions with a value in their last column."""
        last = self._fact("partition", self._spec.partitions[-1])
        told: list[dict[str, Any]] = self._files.filter(pc.equal(self._files[last], value)).to_pylist()
        return told

    def last_ordinal(self, value: str) -> int | None:
        """The last ordinal of the partition with a value in its last column, which has files; None where the log does
        not tell it of all of them."""
        if value in self._ends:
            return self._ends[value]
        mine, ordinal = self._fact("partition", self._spec.partitions[-1]), self._last_ordinal_fact()
        files = self._files
        last: int | None = pc.max(files[ordinal].filter(pc.equal(files[mine], value)), skip_nulls=False).as_py()
        if last is not None and len(self._ends) < self.MOST_ENDS:
            self._ends[value] = last
        return last

    def _last_ordinal_fact(self) -> str:
        assert self._spec.ordinals is not None
        return self._fact("max", self._spec.ordinals.column)

    def _fact(self, source: str, column: str) -> str:
        """The name of a fact."""
        return next(one.name for one in self._spec.facts if (one.source, one.column) == (source, column))

    def after(self, added: Sequence[Mapping[str, Any]], removed: Sequence[str]) -> FileStatistics:
        """Those of the next version, which removes files by their paths and then adds some, as its log has them.

        Raises AttributeError, KeyError, TypeError and ValueError for what is not understood.
        """
        told = tuple(_told_by(one, self._spec.facts) for one in added)
        if removed:
            files = self._files
            gone = pc.is_in(files[_PATH.name], pa.array(removed, pa.string()))
            return FileStatistics(self._spec, files.filter(pc.invert(gone)), told)
        files, before = self._parts
        following = FileStatistics(self._spec, files, before + told, self._ends_after(told))
        if len(before) + len(told) < self.MOST_ADDED:
            return following
        return FileStatistics(self._spec, following._files)

    def _ends_after(self, added: Iterable[Mapping[str, Any]]) -> dict[str, int]:
        ends = dict(self._ends)
        if not ends:
            return ends
        mine, ordinal = self._fact("partition", self._spec.partitions[-1]), self._last_ordinal_fact()
        for one in added:
            before, last = ends.pop(one[mine], None), one[ordinal]
            if before is not None and last is not None:
                ends[one[mine]] = max(before, last)
        return ends


def schema_of_facts(spec: TableSpec) -> pa.Schema:
    """The columns of what is kept of each file: its path, and the facts."""
    return pa.schema([_PATH, *((one.name, one.type) for one in spec.facts)])


def _told_by(added: Mapping[str, Any], facts: Iterable[Fact]) -> dict[str, Any]:
    """What a line of the log tells of a file that it adds."""
    known = json.loads(added.get("stats") or "{}")
    told: dict[str, Any] = {"path": added["path"]}
    for name, kind, source, column, is_instant in facts:
        if source == "rows":
            value = known.get("numRecords")
        else:
            value = (added["partitionValues"] if source == "partition" else known.get(_OF_A_LINE[source]) or {}).get(
                column
            )
        told[name] = _value(value, kind, is_instant=is_instant)
    return told


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
    # Statistics without an offset are in UTC.
    known = instant if instant.tzinfo else instant.replace(tzinfo=timezone.utc)
    return (known - _EPOCH) // _MILLISECOND


def _as_column(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return milliseconds(column) if pa.types.is_timestamp(column.type) else column.cast(kind)
