"""Facts about each data file of a table, read from the log and not from the files."""

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
_OF_A_LINE = {"min": "minValues", "max": "maxValues"}
_LISTED = {"rows": "num_records", "size": "size_bytes"}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)


class FileStatistics:
    """The paths and facts of the files of one version. The object never changes its answers.

    A small append needs only the last ordinal (see `spec.Ordinals`) of its partition. So added files are first kept as
    dicts. They become rows of an Arrow table when a caller needs the table, or when there are MOST_ADDED dicts.
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
            *(_LISTED.get(fact.source, f"{fact.source}.{fact.column}") for fact in spec.facts),
        ]
        columns = [_as_column(listed_column(actions, source), field.type) for source, field in zip(sources, schema)]
        return cls(spec, pa.table(columns, schema=schema))

    @property
    def table(self) -> pa.Table:
        return self._files.drop_columns([_PATH.name])

    def above(self, first: str, column: str, bound: int) -> list[tuple[Partition, str]]:
        """Return the partitions and paths of files that may hold rows with more than `bound` in a column.

        Only partitions with the value `first` in their first column count. A bound of instants is in milliseconds.
        """
        partition = [self._fact("partition", name) for name in self._spec.partitions]
        files_of_first = self._files.filter(pc.equal(self._files[partition[0]], first))
        files_above = files_of_first.filter(
            pc.fill_null(pc.greater(files_of_first[self._fact("max", column)], bound), True)
        )
        values = zip(*(map(_as_text, files_above[name].to_pylist()) for name in partition))
        return list(zip(values, files_above[_PATH.name].to_pylist()))

    def of_last(self, value: str | None) -> list[dict[str, Any]]:
        last = self._fact("partition", self._spec.partitions[-1])
        facts: list[dict[str, Any]] = self._files.filter(pc.equal(self._files[last], value)).to_pylist()
        return facts

    def last_ordinal(self, value: str) -> int | None:
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
            self._spec, files, before + facts_of_added, self._last_ordinals_after(facts_of_added)
        )
        if len(before) + len(facts_of_added) < self.MOST_ADDED:
            return following
        return FileStatistics(self._spec, following._files)

    def _last_ordinals_after(self, added: Iterable[Mapping[str, Any]]) -> dict[str, int]:
        ends = dict(self._last_ordinals)
        if not ends:
            return ends
        partition_fact, ordinal = self._fact("partition", self._spec.partitions[-1]), self._last_ordinal_fact()
        for file_facts in added:
            before, last = ends.pop(file_facts[partition_fact], None), file_facts[ordinal]
            if before is not None and last is not None:
                ends[file_facts[partition_fact]] = max(before, last)
        return ends


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
            value = (added["partitionValues"] if source == "partition" else stats.get(_OF_A_LINE[source]) or {}).get(
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


def listed_column(actions: pa.Table, name: str) -> pa.ChunkedArray:
    """Return a column of delta-rs's listing, all null if no file has these statistics."""
    return actions[name] if name in actions.column_names else pa.chunked_array([pa.nulls(actions.num_rows)])


def _as_column(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return milliseconds(column) if pa.types.is_timestamp(column.type) else column.cast(kind)
