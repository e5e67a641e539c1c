"""Joining the small files of `messages`, written out: a commit that is made only while all the files are there that it
takes out.

delta-rs's own OPTIMIZE is no such commit: made on an older version, it lands beside others that took out the same files
(measured with 1.6.6, of OPTIMIZE and of what is written out here), and every message of them is there twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ledger.delta_log.committing import REBASES
from ledger.delta_log.followed import Files, Partition, segments_named
from ledger.delta_log.merging import SmallCommits
from ledger.delta_log.protocol import Conflict
from ledger.delta_log.where import Where
from ledger.delta_log.written_out import added, new_path, parquet, removed, said
from ledger.rules import message_id as ids
from ledger.rules.limits import MILLISECONDS
from ledger.store.delta.model.tables import TABLES

log = logging.getLogger("ledger.commits")
#: Files are joined up to so many bytes and so many messages: then one is whole. It has to go through memory.
BYTES, ROWS = 16 << 20, 200_000
MESSAGES = TABLES["messages"]
#: Of a whole one, what a file has at least that is left as it is; and where it would be done again and again.
LARGE, LARGE_WHILE_IT_GROWS = 1 / 2, 1 / 16
#: As many whole ones may lie across each other to be made one.
MOST_ACROSS = 16


#: What the log says of messages that had the place of another message.
MOVED = (
    "%d messages of %s had the places of other messages, as two processes gave out the same ones (a fork under an "
    "earlier release). None is lost: they have the segment %s now, and other ids than their senders were told"
)


class File(NamedTuple):
    """A file as the log tells of it: its ordinals from `first` to `last`."""

    path: str
    size: int
    messages: int
    first: int
    last: int

    @property
    def has_doubles(self) -> bool:
        """Whether there are more messages in it than ordinals."""
        return self.messages > self.last - self.first + 1

    @property
    def weight(self) -> float:
        """What it has of a whole one."""
        return max(self.size / BYTES, self.messages / ROWS)


class Joining:
    """Joins files of the table `messages`, as its other `small` commits are made."""

    def __init__(self, small: SmallCommits) -> None:
        self._log, self._rows = small.log, small.rows

    def join(self, where: Where, *, growing: bool) -> bool | None:
        """Makes fewer of the files of the partitions that are named, a commit each; whether there were any. A message
        that is there twice, as OPTIMIZE may have left it, is there once then. Of two messages that differ and have one
        ordinal, the later one is moved to a segment of its own. None: the table is not as the ledger makes it, and
        nothing has happened.

        `growing`: only of the smallest files. Raises Conflict when others took them out first, and what the storage
        does.
        """
        latest = self._log.followed.newest()
        if latest is None or latest.statistics is None:
            return None
        found = False
        for partition in _named(latest, where):
            for files in worth_joining(_files(latest, partition), LARGE_WHILE_IT_GROWS if growing else LARGE):
                self._join(partition, files)
                found = True
        return found

    def _join(self, partition: Partition, files: Sequence[File]) -> None:
        """Makes one of these files, if they are all there."""
        before = pa.concat_tables([self._rows.of(partition, file.path) for file in files])
        rows, others = told_apart(before)
        twice = before.num_rows - rows.num_rows - others.num_rows
        is_change = rows.num_rows < before.num_rows
        named = dict(zip(MESSAGES.partitions, partition))
        parts = [(named, rows), *_moved(named, others)]
        new = {new_path(place): (place, part) for place, part in parts}
        contents = {path: parquet(part, list(place)) for path, (place, part) in new.items()}
        written = self._log.write(contents)
        # As late as can be: from this time on the files that go are kept for the versions that have them.
        now = int(time.time() * MILLISECONDS)
        actions = [
            said("OPTIMIZE", {}, now),
            *(removed(file.path, file.size, named, now, is_change=is_change) for file in files),
            *(
                added(path, len(contents[path]), part, place, now, MESSAGES.statistics, is_change=is_change)
                for path, (place, part) in new.items()
            ),
        ]
        for _ in range(REBASES):
            latest = self._log.newest()
            if not latest.of(partition).keys() >= {file.path for file in files}:
                raise Conflict("others have taken out files of messages since they were listed")
            if self._log.put(latest, actions, written) is not None:
                if twice:
                    log.warning(
                        "%d messages of %s were there twice; one of each stays", twice, "/".join(map(str, partition))
                    )
                for place, part in parts[1:]:
                    log.error(MOVED, part.num_rows, "/".join(map(str, partition)), place["segment"])
                return
        raise Conflict(f"others committed to messages {REBASES} times in the meantime")


def told_apart(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Tells messages apart that have one ordinal: the earliest of each ordinal, in order, and those that differ from it
    in any column, each once."""
    rows = rows.sort_by([("seq", "ascending"), ("sent_at", "ascending")])
    is_first = np.diff(rows["seq"].to_numpy(), prepend=-1) != 0
    firsts, others = rows.filter(pa.array(is_first)), rows.filter(pa.array(~is_first))
    beside = firsts.take(pa.array(np.searchsorted(firsts["seq"].to_numpy(), others["seq"].to_numpy())))
    if beside.equals(others):
        return firsts, others.slice(0, 0)
    known: dict[int, list[dict[str, Any]]] = {}
    differing: list[int] = []
    for number, (first, other) in enumerate(zip(beside.to_pylist(), others.to_pylist())):
        there = known.setdefault(other["seq"], [first])
        if other not in there:
            there.append(other)
            differing.append(number)
    return firsts, others.take(pa.array(differing, pa.int64()))


def _moved(partition: Mapping[str, Any], rows: pa.Table) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    """Rows in a segment of their own, with its partition; nothing where there are none."""
    if rows.num_rows:
        place = {**partition, "segment": ids.segment(ids.new_send_key(), 0)}
        columns = {"segment": pa.array([place["segment"]] * rows.num_rows), "seq": pa.array(np.arange(rows.num_rows))}
        for name, values in columns.items():
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, rows.schema.field(at), values.cast(rows.schema.field(at).type))
        yield place, rows


def worth_joining(files: Iterable[File], large: float) -> list[list[File]]:
    """Neighbours of which one file is to be made: of those that are not `large`, as much as a whole one has; and
    of those that lie across each other or have more messages than ordinals, which no sender's do."""
    found: list[list[File]] = [[]]
    weight = 0.0
    for together in _across(files):
        mine = sum(file.weight for file in together)
        is_wrong = len(together) > 1 or together[0].has_doubles
        fits = mine <= (MOST_ACROSS if is_wrong else large)
        if not fits or weight + mine > 1:
            found.append([])
            weight = 0.0
        if fits:
            found[-1] += together
            weight += mine
        elif is_wrong:
            log.warning("messages may be twice in %d files, which are too large to be made one", len(together))
    return [some for some in found if len(some) > 1 or any(file.has_doubles for file in some)]


def _across(files: Iterable[File]) -> Iterator[list[File]]:
    """Files in the order of their ordinals, those together that lie across each other."""
    together: list[File] = []
    for file in sorted(files, key=lambda one: one.first):
        if together and file.first > max(one.last for one in together):
            yield together
            together = []
        together.append(file)
    if together:
        yield together


def _files(latest: Files, partition: Partition) -> Iterator[File]:
    """The files of a partition; not those of which the log does not tell what is in them."""
    sizes = latest.of(partition)
    for known in latest.statistics.of_segment(partition[-1]) if latest.statistics is not None else ():
        told = known["messages"], known["first_seq"], known["last_seq"]
        if known["path"] in sizes and None not in told:
            yield File(known["path"], sizes[known["path"]], *told)


def _named(latest: Files, where: Where) -> list[Partition]:
    if where.queue is not None and where.lanes and where.segments:
        return [one for one in segments_named(where) if one in latest.by_partition]
    return [one for one in latest.by_partition if where.covers(one[0], int(one[1] or -1))]
