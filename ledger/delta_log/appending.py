"""Appends of few rows, written out: no query is planned for rows that are at hand.

delta-rs takes 12 ms for a row where this takes 3, and 30 once the table has some hundred files (2 busy cores).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from ledger.delta_log.distinct_rows import distinct
from ledger.delta_log.followed import Files
from ledger.delta_log.merging import SmallCommits, of_partitions
from ledger.delta_log.spec import Partition, PartitionFilter, TableSpec
from ledger.delta_log.table_files import SMALL
from ledger.delta_log.written_out import FILE, AddedFile, Commit, in_parts, new_path

#: Files that are SMALL are kept, and asked for up to so many bytes in all.
MOST_SMALL = 8 * SMALL
#: Rows of so many partitions are looked for among the small files.
MOST_PARTITIONS = 16


class Appending:
    """Appends to a table, as its other `small` commits are made. What only an engine can do is not done here."""

    def __init__(self, table: TableSpec, small: SmallCommits) -> None:
        self._table = table
        self._log, self._rows = small.log, small.rows
        #: By name: where the log tells of all columns, their statistics are the engine's to make.
        self._statistics = table.statistics

    def append(
        self,
        rows: pa.Table,
        metadata: Mapping[str, Any],
        transaction: tuple[str, int] | None,
        still_valid: Callable[[Files], None],
    ) -> int | None:
        """Commit rows, under a transaction that may be committed next, and return the version.

        None: only the engine can do it, and nothing has happened. Raises what `Log.commit` does.
        """
        if not self._statistics or self._log.followed.newest() is None:
            return None
        partitions = distinct(rows, self._table.partitions)
        # Of a single one without a copy.
        of_partition = [(one, of_partitions(rows, [one]) if len(partitions) > 1 else rows) for one in partitions]
        adds = [AddedFile(new_path(one), one, part) for one, mine in of_partition for part in in_parts(mine, FILE)]
        commit = Commit("WRITE", metadata, adds, transaction=transaction, with_statistics=True)
        return self._log.commit(commit, still_valid)

    def small_rows(self, where: PartitionFilter, above: Mapping[str, int]) -> pa.Table | None:
        """The rows of the partitions that are named, all of them; or, of all with one value in their first column,
        those of the files that may hold some `above` a bound. None where they are not few, or their files not small.

        Small files are kept, mostly, and the log is followed, so that nothing is opened.
        """
        latest = self._log.followed.newest() if self._statistics else None
        found = None if latest is None else self._files_of(latest, where, above)
        if found is None or any(size >= SMALL for _, _, size in found):
            return None
        if sum(size for _, _, size in found) > MOST_SMALL:
            return None
        rows = [self._rows.of(partition, path) for partition, path, _ in found]
        return pa.concat_tables([self._table.nothing, *rows])

    def all_rows(self, where: PartitionFilter) -> pa.Table | None:
        """As `small_rows`, of whatever is named and however much that is."""
        latest = self._log.followed.newest() if self._statistics else None
        if latest is None:
            return None
        named = latest.named(where, self._table.partitions)
        return pa.concat_tables([self._table.nothing, *(self._rows.of(*one) for one in named)])

    def _files_of(
        self, latest: Files, where: PartitionFilter, above: Mapping[str, int]
    ) -> list[tuple[Partition, str, int]] | None:
        """The files of what is named, with their partitions and sizes; None where the log would have to be searched."""
        columns = self._table.partitions
        first, *others = where.alternatives()
        if not others and first.keys() == {columns[0]} and len(first[columns[0]]) == 1 and len(above) == 1:
            if latest.statistics is None:
                return None
            ((column, bound),) = above.items()
            recent = latest.statistics.above(first[columns[0]][0], column, bound)
            return [(partition, path, latest.of(partition)[path]) for partition, path in recent]
        if others or sum(map(len, first.values())) > MOST_PARTITIONS + len(columns):
            return None
        named = where.partitions(columns)
        if named is None or len(named) > MOST_PARTITIONS:
            return None
        return [(one, path, size) for one in named for path, size in latest.of(one).items()]
