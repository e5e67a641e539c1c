"""Joins of a table's small files, as the client's own commits.

A join commits only while the table has all the files that the commit removes. (delta-rs's OPTIMIZE may double the rows:
see the package.) A join also repairs rows with the same ordinal.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ledger.delta_log.data_files import new_path
from ledger.delta_log.log import AddedFile, DirectTable, NewCommit, RemovedFile
from ledger.delta_log.protocol import Conflict, Ordinals, Partition, PartitionFilter, TableSpec
from ledger.delta_log.replay import Files

log = logging.getLogger("ledger.commits")
#: The target size of a joined file.
BYTES, ROWS = 16 << 20, 200_000
#: Above this share of the target size, a file is large and stays as it is.
LARGE_SHARE, LARGE_SHARE_WHILE_GROWING = 1 / 2, 1 / 16
MOST_OVERLAPPING = 16


MOVED = (
    "%d rows of %s in %s had the places of other rows, because two processes gave out the same places (a fork under "
    "an earlier release). None is lost: these rows are in %s now, and have other ids than their senders got"
)


class File(NamedTuple):
    """A file as the log describes it: its ordinals from `first` to `last`."""

    path: str
    size: int
    rows: int
    first: int
    last: int

    @property
    def has_doubles(self) -> bool:
        return self.rows > self.last - self.first + 1

    @property
    def share(self) -> float:
        """The share of the target size, by bytes or by rows, whichever is larger."""
        return max(self.size / BYTES, self.rows / ROWS)


class Joining:
    def __init__(self, table: TableSpec, direct: DirectTable) -> None:
        assert table.ordinals is not None
        self._table, self._ordinals = table, table.ordinals
        self._writer, self._rows = direct.writer, direct.rows

    def join(self, where: PartitionFilter, *, growing: bool) -> bool | None:
        """Join files of some partitions, a commit for each join. Return whether any were joined.

        Returns None, and does nothing, if the table is altered, or its files' facts are not known. Raises what
        `LogWriter.commit` raises.
        """
        latest = self._writer.followed.newest()
        if latest is None or latest.statistics is None:
            return None
        has_joined, large = False, LARGE_SHARE_WHILE_GROWING if growing else LARGE_SHARE
        for partition in latest.partitions(where, self._table.partitions):
            for files in group_for_joining(self._files(latest, partition), large):
                self._join(partition, files)
                has_joined = True
        return has_joined

    def _join(self, partition: Partition, files: Sequence[File]) -> None:
        before = pa.concat_tables([self._rows.of(partition, file.path) for file in files])
        rows, moved_rows = split_by_ordinal(before, self._ordinals)
        twice = before.num_rows - rows.num_rows - moved_rows.num_rows
        named = dict(zip(self._table.partitions, partition))
        parts = [(named, rows), *_move_rows(named, moved_rows, self._ordinals)]
        gone = {file.path for file in files}

        def still_valid(latest: Files) -> None:
            if not latest.of(partition).keys() >= gone:
                raise Conflict(f"others have removed files of {self._table.name} since they were listed")

        commit = NewCommit(
            "OPTIMIZE",
            {},
            [AddedFile(new_path(place), place, part) for place, part in parts],
            [RemovedFile(file.path, file.size, named) for file in files],
            is_change=rows.num_rows < before.num_rows,
            with_statistics=True,
        )
        self._writer.commit(commit, still_valid)
        partition_shown = "/".join(map(str, partition))
        if twice:
            log.warning(
                "%d rows of %s in %s were there twice; one of each stays", twice, self._table.name, partition_shown
            )
        for place, part in parts[1:]:
            log.error(MOVED, part.num_rows, self._table.name, partition_shown, "/".join(map(str, place.values())))

    def _files(self, latest: Files, partition: Partition) -> Iterator[File]:
        sizes, facts = latest.of(partition), self._table.facts
        rows = next(fact.name for fact in facts if fact.source == "rows")
        first, last = (
            next(fact.name for fact in facts if (fact.source, fact.column) == (source, self._ordinals.column))
            for source in ("min", "max")
        )
        for file_facts in latest.statistics.list_facts_of_last(partition[-1]) if latest.statistics is not None else ():
            row_facts = file_facts[rows], file_facts[first], file_facts[last]
            if file_facts["path"] in sizes and None not in row_facts:
                yield File(file_facts["path"], sizes[file_facts["path"]], *row_facts)


def split_by_ordinal(rows: pa.Table, ordinals: Ordinals) -> tuple[pa.Table, pa.Table]:
    """Return the earliest row of each ordinal, in order, and the other rows that differ from it, each once."""
    rows = rows.sort_by([(ordinals.column, "ascending"), (ordinals.earliest, "ascending")])
    is_first = np.diff(rows[ordinals.column].to_numpy(), prepend=-1) != 0
    firsts, others = rows.filter(pa.array(is_first)), rows.filter(pa.array(~is_first))
    beside = firsts.take(
        pa.array(np.searchsorted(firsts[ordinals.column].to_numpy(), others[ordinals.column].to_numpy()))
    )
    if beside.equals(others):
        return firsts, others.slice(0, 0)
    rows_by_ordinal: dict[int, list[dict[str, Any]]] = {}
    differing: list[int] = []
    for number, (first, row) in enumerate(zip(beside.to_pylist(), others.to_pylist())):
        seen_rows = rows_by_ordinal.setdefault(row[ordinals.column], [first])
        if row not in seen_rows:
            seen_rows.append(row)
            differing.append(number)
    return firsts, others.take(pa.array(differing, pa.int64()))


def _move_rows(
    partition: Mapping[str, Any], rows: pa.Table, ordinals: Ordinals
) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    if rows.num_rows:
        place = ordinals.new_partition(partition)
        columns = {name: pa.array([value] * rows.num_rows) for name, value in place.items() if value != partition[name]}
        columns[ordinals.column] = pa.array(np.arange(rows.num_rows))
        for name, values in columns.items():
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, rows.schema.field(at), values.cast(rows.schema.field(at).type))
        yield place, rows


def group_for_joining(files: Iterable[File], large: float) -> list[list[File]]:
    """Return groups of files with neighbouring ordinals. Each group is to become one file.

    A group has files up to the share `large` each, and up to the target size together. Files with faults (overlapping
    ordinals, or more rows than ordinals) are joined up to MOST_OVERLAPPING times the target size.
    """
    groups: list[list[File]] = [[]]
    share = 0.0
    for together in _group_overlapping(files):
        group_share = sum(file.share for file in together)
        is_wrong = len(together) > 1 or together[0].has_doubles
        fits = group_share <= (MOST_OVERLAPPING if is_wrong else large)
        if not fits or share + group_share > 1:
            groups.append([])
            share = 0.0
        if fits:
            groups[-1] += together
            share += group_share
        elif is_wrong:
            log.warning("%d files may have rows twice, and are too large to be joined", len(together))
    return [group for group in groups if len(group) > 1 or any(file.has_doubles for file in group)]


def _group_overlapping(files: Iterable[File]) -> Iterator[list[File]]:
    together: list[File] = []
    for file in sorted(files, key=lambda one: one.first):
        if together and file.first > max(one.last for one in together):
            yield together
            together = []
        together.append(file)
    if together:
        yield together
