"""Appends of few rows, written out: no query is planned for rows that are at hand.

delta-rs takes 12 ms for a row where this takes 3, and 30 once the table has some hundred files (2 busy cores).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ledger.delta_log.committing import REBASES
from ledger.delta_log.distinct_rows import distinct
from ledger.delta_log.followed import Files, Partition, segments_named
from ledger.delta_log.merging import SmallCommits, of_partitions
from ledger.delta_log.protocol import Conflict, SegmentEnd
from ledger.delta_log.segment_ends import require_ends
from ledger.delta_log.table_files import SMALL
from ledger.delta_log.where import Where
from ledger.delta_log.written_out import (
    FILE,
    Action,
    Encoded,
    added,
    carried,
    in_parts,
    new_path,
    said,
)
from ledger.rules.limits import MILLISECONDS
from ledger.store.delta.model.tables import Table

#: Files that are SMALL are kept, and asked for up to so many bytes in all.
MOST_SMALL = 8 * SMALL
#: Rows of so many partitions are looked for among the small files.
MOST_PARTITIONS = 16


class Appending:
    """Appends to a table, as its other `small` commits are made. What only an engine can do is not done here."""

    def __init__(self, table: Table, small: SmallCommits) -> None:
        self._table = table
        self._log, self._rows = small.log, small.rows
        #: By name: where the log tells of all columns, their statistics are the engine's to make.
        self._statistics = table.statistics

    def append(
        self,
        rows: pa.Table,
        metadata: Mapping[str, Any],
        transaction: tuple[str, int] | None,
        ends: Sequence[SegmentEnd] = (),
    ) -> int | None:
        """Commits rows, under a transaction that may be committed next; returns the version. None: only the engine can
        do it, and nothing has happened. Raises SegmentTaken where a segment does not end as `ends` says, Conflict, and
        what the storage does."""
        latest = self._log.followed.newest() if self._statistics else None
        if latest is None:
            return None
        now, columns = int(time.time() * MILLISECONDS), list(self._table.partitions)
        actions: list[Action] = [said("WRITE", metadata, now)]
        if transaction is not None:
            actions.append(carried(transaction, now))
        partitions = distinct(rows, columns)
        # Of a single one without a copy.
        of_partition = [(one, of_partitions(rows, [one]) if len(partitions) > 1 else rows) for one in partitions]
        parts = {new_path(one): (one, part) for one, mine in of_partition for part in in_parts(mine, FILE)}
        files = Encoded({path: part for path, (_, part) in parts.items()}, columns)
        there = self._log.write(files)
        for path, (partition, mine) in parts.items():
            actions.append(added(path, files.sizes[path], mine, partition, now, self._statistics))
            # Of several parts each is the memory of all.
            if len(parts) == len(of_partition):
                self._rows.keep(path, mine)
        for _ in range(REBASES):
            # Who stood still while the files were written lists the log, if that was long.
            latest = self._log.newest() if transaction is None else self._log.newest_before(transaction)
            # The commit is the version after this one, or none: what is true of this one is true of the table.
            require_ends(latest, ends)
            version = self._log.put(latest, actions, there)
            if version is not None:
                return version
        raise Conflict(f"others committed to {self._table.name} {REBASES} times in the meantime")

    def small_rows(self, where: Where, sent_after: int | None = None) -> pa.Table | None:
        """The rows of the partitions that are named, all of them, or of a whole queue, of the files that may hold some
        sent after an instant; where they are few and their files small: these are kept, mostly, and the log is
        followed, so that nothing is opened. None where they are not."""
        latest = self._log.followed.newest() if self._statistics else None
        found = None if latest is None else _files_of(latest, where, sent_after)
        if found is None or any(size >= SMALL for _, _, size in found):
            return None
        if sum(size for _, _, size in found) > MOST_SMALL:
            return None
        rows = [self._rows.of(partition, path) for partition, path, _ in found]
        return pa.concat_tables([self._table.nothing, *rows])

    def all_rows(self, where: Where) -> pa.Table | None:
        """As `small_rows`, of whatever is named and however much that is."""
        latest = self._log.followed.newest() if self._statistics else None
        if latest is None:
            return None
        named = [one for one in latest.by_partition if any(_covers(part, one) for part in where.parts())]
        rows = [self._rows.of(partition, path) for partition in named for path in latest.of(partition)]
        return pa.concat_tables([self._table.nothing, *rows])


def _covers(part: Where, partition: Partition) -> bool:
    queue, lane, segment = partition
    in_lane = part.lanes is None or int(lane or -1) in part.lanes
    return part.queue in (None, queue) and in_lane and (part.segments is None or segment in part.segments)


def _files_of(latest: Files, where: Where, sent_after: int | None) -> list[tuple[Partition, str, int]] | None:
    """The files of what is named, with their partitions and sizes; None where the log would have to be searched."""
    if where.also or where.queue is None:
        return None
    if where.lanes is None and where.segments is None and sent_after is not None and latest.statistics is not None:
        recent = latest.statistics.sent_after(where.queue, sent_after)
        return [(partition, path, latest.of(partition)[path]) for partition, path in recent]
    if where.lanes is None or where.segments is None or len(where.lanes) * len(where.segments) > MOST_PARTITIONS:
        return None
    return [(one, path, size) for one in segments_named(where) for path, size in latest.of(one).items()]
