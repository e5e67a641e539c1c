"""Whether the table `receipts` tells of the commits of `visibility`, of each once, and of nothing else."""

from __future__ import annotations

from collections import Counter

from tests.simulation.log import Change, File, Storage

#: What an entry says of a commit: its version, what it did to how many messages, under which receipt, and who made it.
Entry = tuple[int, str, int, str | None, str]


class ReceiptsJudge:
    """Follows both tables."""

    def __init__(self, before: Storage) -> None:
        known = before.tables["visibility"]
        #: Of commits that this judge has seen, what is to be filled; and what was filled before.
        self._wanted: Counter[Entry] = Counter(entry for one in known.changes for entry in _said(one))
        state = before.tables["receipts"].changes[-1].state
        self._filled = Counter(entry for files in state.values() for file in files for entry in _entries(file))
        self._first = known.first

    def commit(self, table: str, change: Change) -> list[str]:
        """Judges the next commit to a table."""
        if table == "visibility":
            self._wanted.update(_said(change))
        if table != "receipts" or not change.data:
            return []
        new = Counter(entry for _, file in change.added for entry in _entries(file))
        new.subtract(Counter(entry for _, file in change.removed for entry in _entries(file)))
        self._filled.update({entry: times for entry, times in new.items() if times > 0})
        unknown = [entry for entry, times in new.items() if times > 0 and not self._wanted[entry]]
        problems = [f"{entry} is filled, and no commit did so" for entry in unknown]
        newest = max((entry[0] for entry in new), default=-1)
        for entry, times in self._wanted.items():
            if self._first < entry[0] <= newest and self._filled[entry] != times:
                problems.append(f"{entry} is filled {self._filled[entry]} times")
        return problems


def _said(change: Change) -> list[Entry]:
    events = change.metadata.get("events", ())
    owner = change.metadata.get("owner", "")
    return [(change.version, one["event"], one["messages"], one.get("receipt_id"), owner) for one in events]


def _entries(file: File) -> list[Entry]:
    names = ("version", "event", "messages", "receipt_id", "owner")
    return [tuple(row[name] for name in names) for row in file.rows.select(names).to_pylist()]
