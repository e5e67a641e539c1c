"""Where the logs of tables end, which costs the same however much is in them: nothing is loaded for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ledger.delta_log.followed import Followed
from ledger.delta_log.table_files import CommitFiles
from ledger.threads import map_at_once


class LogEnds:
    """The newest versions of some tables. Threads share it."""

    def __init__(
        self, files: Mapping[str, CommitFiles], logs: Mapping[str, Followed], first: Callable[[str], int], at_once: bool
    ) -> None:
        """`logs`: of the tables, for what is known of them. `first` answers where nothing is; `at_once`: what is asked
        is a request for each table, and they go together."""
        self._files, self._logs, self._first, self._at_once = files, logs, first, at_once
        #: A version that was there, by table and generation. Threads may take turns to write an older one, from which
        #: it is further to the end.
        self._known: dict[tuple[str, int], int] = {}

    def of(self, tables: Sequence[str]) -> dict[str, int]:
        """By name, versions that are no older than the newest before this call. Raises what the storage does."""
        if not self._at_once or len(tables) < 2:
            return {table: self._end(table) for table in tables}
        return dict(zip(tables, map_at_once(self._end, tables, len(tables))))

    def make_durable(self, table: str | None, version: int) -> None:
        """See Tables.make_durable, and `durability` for what it is for (rule 4)."""
        known = {name: log.seen() for name, log in self._logs.items()} if table is None else {table: version}
        for name, seen in known.items():
            if seen is not None:
                self._files[name].make_durable(seen)

    def _end(self, table: str) -> int:
        key = table, self._logs[table].generation()
        known = self._known.get(key, self._logs[table].seen())
        found = None if known is None else self._files[table].newest_from(known)
        self._known[key] = self._first(table) if found is None else found
        return self._known[key]
