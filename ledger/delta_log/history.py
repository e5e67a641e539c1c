"""The log of a table: how to read its entries, find damage, notice a replaced log, and list the commits.

**An entry** is a file of JSON lines. Most writers make it appear whole. An empty or torn entry is then the trace of a
power cut, or of a copy that was cut short. But some storages show a file before all of its bytes. So `require_whole`
reads a flawed entry again for a second.

**A listing with a gap.** If others commit while a folder is listed, the listing may have version 6 and not 5. Both
engines take the listing for a damaged log. A later listing has version 5, unless that version is really gone.

**Whether the log is the same.** Somebody may make a table anew while it is in use, or put a backup in its place. So a
process remembers the digest of a version's file. A commit names files of its own, or has a random id, so only a copy of
the same log has a file with this digest.

**History.** delta-rs's own history numbers commits wrongly if others commit meanwhile. So a commit's version here is
that in its file's name.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, TypeVar

from ledger.delta_log.protocol import Commit
from ledger.delta_log.statements import path_of
from ledger.delta_log.storage import (
    AT_ONCE,
    LINES,
    LOG,
    LogEntries,
    Stamp,
    Storage,
    TableStorage,
    log_file,
    version_of,
)
from ledger.errors import LedgerDamaged
from ledger.runtime.threads import map_at_once, renew_in_child

Read = TypeVar("Read")
GAPS = ("Expected contiguous commit files", "Gap between checkpoint version", "DELTA_VERSIONS_NOT_CONTIGUOUS")
#: In seconds, together about one.
PAUSES = (0.001, 0.01, 0.05, 0.1, 0.3, 0.5)


def is_gap(error: BaseException) -> bool:
    return any(gap in str(error) for gap in GAPS)


def retry_while_gap(read: Callable[[], Read]) -> Read:
    for pause in PAUSES:
        try:
            return read()
        except Exception as error:
            if not is_gap(error):
                raise
        time.sleep(pause)
    return read()


REPAIR = (
    "Likely causes: a power cut while the ledger was written without sync, or a copy that was cut short. Restore a "
    "backup (`ledger restore-backup BACKUP ROOT --replace`). Or stop all that uses the ledger, and run `ledger repair "
    "ROOT`: it cuts the ledger back to its last whole version, or cuts off the past that a checkpoint sums up"
)
MOST_MISSING = 1_000
MISSING = "is missing"
NO_COMMIT_INFO = "has no commitInfo, which every commit of the ledger has"
CHECKPOINT = re.compile(rf"{LOG}/(\d{{20}})\.checkpoint\..*parquet")
#: A part of a checkpoint: its version, its number, and the number of parts.
_PART = re.compile(rf"{LOG}/(\d{{20}})\.checkpoint\.(\d{{10}})\.(\d{{10}})\.parquet")


class Flawed(ValueError):
    """An entry is not a whole commit. The message describes the flaw."""


def parse_actions(content: bytes, *, needs_info: bool = True) -> list[dict[str, Any]]:
    """Return an entry's actions. Raises Flawed if the entry is empty or torn, or lacks a needed `commitInfo`."""
    if not content.strip(b" \t\r\n\0"):
        raise Flawed("has no bytes" if not content else "has nothing but blanks")
    try:
        actions = [json.loads(line) for line in content.splitlines() if line.strip()]
    except ValueError as error:
        raise Flawed(f"is torn: {error}") from error
    if not all(isinstance(action, dict) for action in actions):
        raise Flawed("is torn: a line is no JSON object")
    if needs_info and not any("commitInfo" in action for action in actions):
        raise Flawed(NO_COMMIT_INFO)
    info = next((action["commitInfo"] for action in actions if "commitInfo" in action), None)
    lines = info.get(LINES) if isinstance(info, dict) else None
    if isinstance(lines, int) and lines > len(actions):
        raise Flawed(f"is torn: it has {len(actions)} of {lines} lines")
    return actions


def flaw_of(content: bytes, *, needs_info: bool = True) -> str | None:
    try:
        parse_actions(content, needs_info=needs_info)
    except Flawed as flaw:
        return str(flaw)
    return None


def make_damage_error(table: str, version: int, what: str) -> LedgerDamaged:
    return LedgerDamaged(f"Version {version} of the table {table} is damaged: {log_file(version)} {what}", f"{REPAIR}.")


def require_whole(table: str, version: int, content: bytes, stored: Storage) -> list[dict[str, Any]] | None:
    """Return the actions of an entry; None: the entry is gone by now. Raises LedgerDamaged if it stays flawed."""
    try:
        return parse_actions(content)
    except Flawed as flaw:
        last = flaw
    for pause in PAUSES:
        time.sleep(pause)
        again = stored.read(log_file(version))
        if again is None:
            return None
        try:
            return parse_actions(again)
        except Flawed as flaw:
            last = flaw
    raise make_damage_error(table, version, str(last)) from last


def flaws_in(stored: Storage, versions: Sequence[int], *, needs_info: bool = True) -> Mapping[int, str]:
    contents = ((version, stored.read(log_file(version))) for version in versions)
    flaws = ((version, flaw_of(content, needs_info=needs_info)) for version, content in contents if content is not None)
    return {version: flaw for version, flaw in flaws if flaw is not None}


LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"


def read_hinted_checkpoint(stored: LogEntries) -> int | None:
    try:
        hinted = json.loads(stored.read(LAST_CHECKPOINT) or b"")["version"]
    except (KeyError, TypeError, ValueError):
        return None
    return hinted if isinstance(hinted, int) else None


def versions_in(paths: Iterable[str]) -> list[int]:
    return sorted(version for version in map(version_of, paths) if version is not None)


def list_checkpoints(paths: Sequence[str]) -> list[int]:
    """Return the sorted versions that have a checkpoint with all of its parts."""
    whole, parts = set[int](), defaultdict[tuple[int, int], set[int]](set)
    for path in paths:
        named, part = CHECKPOINT.fullmatch(path), _PART.fullmatch(path)
        if part is not None:
            parts[int(part[1]), int(part[3])].add(int(part[2]))
        elif named is not None:
            whole.add(int(named[1]))
    return sorted(whole | {version for (version, count), numbers in parts.items() if len(numbers) == count})


#: If versions jump by more than this, a backup was restored there. Entries before the jump are no part of the log: a
#: process may have written them during the restore.
RESTORED_LATER_BY = 100_000


def first_version(versions: Sequence[int]) -> int:
    """Return the version at which a log begins, by its sorted `versions`; 0: there are no entries."""
    begins = versions[0] if versions else 0
    for before, after in pairwise(versions):
        if after - before > RESTORED_LATER_BY:
            begins = after
    return begins


def find_missing_entries(files: TableStorage, versions: Sequence[int], first: int, newest: int) -> list[int]:
    """Return the versions from `first` to `newest` without an entry. At most MOST_MISSING are looked for.

    The listing `versions` may lack entries that were committed meanwhile.
    """
    listed = set(versions)
    gaps = (version for version in range(first, newest + 1) if version not in listed)
    return [version for version in islice(gaps, MOST_MISSING) if not files.has(log_file(version))]


def find_lost_entries(
    files: TableStorage, versions: Sequence[int], begins: int, last: int, kept_for: Callable[[], float]
) -> list[int]:
    """Return the versions up to `last` whose entries are missing. A listing has shown `versions`.

    A removal of old entries leaves gaps, so only entries count that the table has to keep. `kept_for` returns the
    retention in seconds.
    """
    if {*versions}.issuperset(range(begins, last + 1)):
        return []
    written, longest = {version_of(file.path): file.at for file in files.log_files()}, kept_for()
    kept = [version for version in versions if version >= begins and written.get(version, 0) > time.time() - longest]
    return find_missing_entries(files, versions, kept[0] + 1, last) if kept else []


class Generations:
    """Counts how often a process found that tables of a ledger were replaced. Threads may share the object.

    Data in memory is kept under the generation in which it was read.
    """

    def __init__(self) -> None:
        self.current = 0
        self._lock = threading.Lock()
        renew_in_child(self, Generations._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def end(self, generation: int) -> None:
        """End a generation, unless another thread has done so."""
        with self._lock:
            if self.current == generation:
                self.current += 1


@dataclass(frozen=True)
class LogEntry:
    """The identity of an entry's file. A file with the same stamp (see `Storage.stamp`) need not be read."""

    digest: bytes
    stamp: Stamp | None = None


def identify_entry(content: bytes, stamp: Stamp | None = None) -> LogEntry:
    """Return the identity of an entry. A `stamp` was taken before the content was read."""
    return LogEntry(hashlib.sha256(content).digest(), stamp)


def read_entry(stored: Storage, version: int) -> LogEntry | None:
    stamp = stored.stamp(log_file(version))
    content = stored.read(log_file(version))
    return None if content is None else identify_entry(content, stamp)


#: The most commits that `history` looks up before it lists the log.
MOST_BY_NAME = 20
ReadMetadata = Callable[[str | None], dict[str, Any]]


def parse_metadata(text: str | None) -> dict[str, Any]:
    """Return the JSON object in a commit's userMetadata; {} if others wrote something else."""
    try:
        parsed = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def history(
    stored: TableStorage,
    since: int,
    newest: int,
    table: str,
    read_metadata: ReadMetadata,
    kept_for: Callable[[], float],
) -> list[Commit]:
    """Return the commits of a table with a version > `since` that its log still has, oldest first.

    `newest` is a version that the table has reached. Raises LedgerDamaged for an entry that stays flawed or is lost.
    """
    commits = _consecutive_commits(stored, table, read_metadata, since + 1, MOST_BY_NAME)
    if 0 < len(commits) < MOST_BY_NAME and commits[-1].version >= newest:
        return commits
    last = commits[-1].version if commits else since
    versions_there = versions_in(stored.log_paths())
    begins = first_version(versions_there)
    later = [version for version in versions_there if version > last and version >= begins]
    if later:
        # A listing may lack entries, so read all versions up to the last.
        first = last + 1 if stored.has(log_file(last + 1)) else min(later)
        versions = range(first, max(later) + 1)
        read = list(map_at_once(lambda version: _read_commit(stored, version, table, read_metadata), versions, AT_ONCE))
        existing = [commit for commit in read if commit is not None]
        if first > last + 1 or len(existing) < len(read):
            # Old entries may have been removed. Any other missing entry is damage.
            for version in find_lost_entries(stored, versions_there, begins, max(later), kept_for):
                if version > last:
                    raise make_damage_error(table, version, MISSING)
        commits += existing
        commits += _consecutive_commits(stored, table, read_metadata, max(later) + 1)
    return commits


def find_first_commit(
    stored: TableStorage, since: int, table: str, read_metadata: ReadMetadata, is_wanted: Callable[[Commit], bool]
) -> Commit | None:
    """Return the first wanted commit with a version > `since` in one listing. Missing entries are passed over."""
    versions_there = versions_in(stored.log_paths())
    begins = max(since + 1, first_version(versions_there))
    for version in versions_there[bisect_left(versions_there, begins) :]:
        commit = _read_commit(stored, version, table, read_metadata)
        if commit is not None and is_wanted(commit):
            return commit
    return None


def _consecutive_commits(
    stored: TableStorage, table: str, read: ReadMetadata, first: int, most: int | None = None
) -> list[Commit]:
    commits: list[Commit] = []
    while len(commits) != most:
        commit = _read_commit(stored, first + len(commits), table, read)
        if commit is None:
            break
        commits.append(commit)
    return commits


def _read_commit(stored: TableStorage, version: int, table: str, read: ReadMetadata) -> Commit | None:
    content = stored.read(log_file(version))
    actions = None if content is None else require_whole(table, version, content, stored)
    if actions is None:
        return None
    info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
    if not isinstance(info, dict):
        raise make_damage_error(table, version, "has a commitInfo that is no JSON object")
    return Commit(version, info.get("timestamp", 0), read(info.get("userMetadata")), path_of(info))
