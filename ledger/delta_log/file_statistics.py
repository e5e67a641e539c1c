"""What a log tells of each data file of `messages`, none of which is read: as delta-rs lists them, or a commit does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ledger.delta_log.protocol import SEGMENT_FILES
from ledger.store.delta.model.tables import milliseconds

#: By column: what is told of which column of the rows.
_TOLD = {
    "queue": ("partition", "queue"),
    "lane": ("partition", "lane"),
    "segment": ("partition", "segment"),
    "first_seq": ("min", "seq"),
    "last_seq": ("max", "seq"),
    "first_sent_at": ("min", "sent_at"),
    "last_sent_at": ("max", "sent_at"),
    "first_available_at": ("min", "available_at"),
    "last_available_at": ("max", "available_at"),
}
_PATH = pa.field("path", pa.string())
#: What is known of each.
FILES = pa.schema([_PATH, *SEGMENT_FILES])
#: How a log's line names what is told.
_OF_A_LINE = {"min": "minValues", "max": "maxValues"}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)


class FileStatistics:
    """The files of one version, as SEGMENT_FILES and by their paths. What it answers never changes.

    A small send asks for nothing but the end of its segment. So the files that commits have added since are kept as
    they are, and become rows of the table when somebody asks for the table, or when there are MOST_ADDED of them.
    """

    #: A table of more pieces is made one of a single piece.
    MOST_PIECES = 8
    MOST_ADDED = 64
    #: The ends of so many segments are carried on to the next version.
    MOST_ENDS = 16

    def __init__(
        self, files: pa.Table, added: tuple[dict[str, Any], ...] = (), ends: Mapping[str, int] | None = None
    ) -> None:
        self._parts, self._ends = (files, added), dict(ends or {})

    @property
    def _files(self) -> pa.Table:
        files, added = self._parts
        if added:
            files = pa.concat_tables([files, pa.Table.from_pylist(list(added), FILES)])
            files = files.combine_chunks() if files[_PATH.name].num_chunks > self.MOST_PIECES else files
            # One assignment: threads share this.
            self._parts = files, ()
        return files

    @classmethod
    def listed(cls, actions: pa.Table) -> FileStatistics:
        """Those that delta-rs lists, flattened."""
        if not actions.num_rows:
            return cls(FILES.empty_table())
        sources = {"path": "path", "messages": "num_records"}
        sources.update({name: ".".join(source) for name, source in _TOLD.items()})
        columns = [_as_column(actions[sources[field.name]], field.type) for field in FILES]
        return cls(pa.table(columns, schema=FILES))

    @property
    def table(self) -> pa.Table:
        """As SEGMENT_FILES."""
        return self._files.drop_columns([_PATH.name])

    def sent_after(self, queue: str, instant: int) -> list[tuple[tuple[str, str, str], str]]:
        """The files of a queue that may hold messages sent after an instant: their partitions and paths."""
        mine = self._files.filter(pc.equal(self._files["queue"], queue))
        recent = mine.filter(pc.fill_null(pc.greater(mine["last_sent_at"], instant), True))
        partitions = zip(recent["queue"].to_pylist(), recent["lane"].to_pylist(), recent["segment"].to_pylist())
        paths = recent[_PATH.name].to_pylist()
        return [((queue, str(lane), segment), path) for (queue, lane, segment), path in zip(partitions, paths)]

    def of_segment(self, segment: str | None) -> list[dict[str, Any]]:
        """What is told of each file of a segment."""
        told: list[dict[str, Any]] = self._files.filter(pc.equal(self._files["segment"], segment)).to_pylist()
        return told

    def last_ordinal(self, segment: str) -> int | None:
        """The last ordinal of a segment that has files; None where the log does not tell it of all of them."""
        if segment in self._ends:
            return self._ends[segment]
        mine = self._files["last_seq"].filter(pc.equal(self._files["segment"], segment))
        last: int | None = pc.max(mine, skip_nulls=False).as_py()
        if last is not None and len(self._ends) < self.MOST_ENDS:
            self._ends[segment] = last
        return last

    def after(self, added: Sequence[Mapping[str, Any]], removed: Sequence[str]) -> FileStatistics:
        """Those of the next version, which removes files by their paths and then adds some, as its log has them.

        Raises AttributeError, KeyError, TypeError and ValueError for what is not understood.
        """
        told = tuple(_told_by(one) for one in added)
        if removed:
            files = self._files
            gone = pc.is_in(files[_PATH.name], pa.array(removed, pa.string()))
            return FileStatistics(files.filter(pc.invert(gone)), told)
        files, before = self._parts
        following = FileStatistics(files, before + told, self._ends_after(told))
        return following if len(before) + len(told) < self.MOST_ADDED else FileStatistics(following._files)

    def _ends_after(self, added: Iterable[Mapping[str, Any]]) -> dict[str, int]:
        ends = dict(self._ends)
        for one in added:
            before, last = ends.pop(one["segment"], None), one["last_seq"]
            if before is not None and last is not None:
                ends[one["segment"]] = max(before, last)
        return ends


def _told_by(added: Mapping[str, Any]) -> dict[str, Any]:
    """What a line of the log tells of a file that it adds."""
    known = json.loads(added.get("stats") or "{}")
    messages = _value(known.get("numRecords"), SEGMENT_FILES.field("messages").type, is_instant=False)
    told: dict[str, Any] = {"path": added["path"], "messages": messages}
    for name, (kind, column) in _TOLD.items():
        values = added["partitionValues"] if kind == "partition" else known.get(_OF_A_LINE[kind]) or {}
        told[name] = _value(values.get(column), SEGMENT_FILES.field(name).type, is_instant=column.endswith("_at"))
    return told


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
