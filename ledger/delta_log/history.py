"""Entries of a table's log: parsed, named as damage, known again, and what they say of their commits.

**An entry** is one JSON file. Each writer makes it appear whole. The ledger and delta-rs link a finished file; on an
object store they put it in one request. Delta's log stores for local paths and HDFS write a temporary file and rename
it, as their documentation says. So an entry that is empty or torn is no commit in progress. A power cut left it of a
commit that the disk did not have yet, or a copy was cut short. delta-rs and Spark both read an empty entry as a commit
that changes nothing. Another log store may write in place. For it, and for network file systems, `require_whole` reads
a flawed entry again for a second.

An entry of the client's own tables also has a `commitInfo`, by which their user finds its own commits. Delta's
protocol makes it optional, but this client, delta-rs and Spark write one. Spark 4.2 with Delta 4.4 does so even in a
session with spark.databricks.delta.commitInfo.enabled=false (tried). An entry without one is taken for damage. Entries
of other tables need none.

**A listing with a gap.** A folder is listed entry by entry while others commit. So a listing may hold version 6 and
not 5, though 5 was there first. Both engines take that for a damaged log. Another look sees 5; if it is really gone,
no look does.

**Whether it is the same log.** Somebody may remove a table and make it anew, or put a backup in its place, while
processes have it open. The new log has the same file names with other content. So each version that is known is known
with its `LogEntry`: the digest of the file, which no other log has, as each commit names files or an operation of its
own. Where the log is another one, whatever a process knows of the tables is of the old one. `Generations` counts these
findings for tables that belong together: what is kept in memory is kept under the generation that it was read in.

**History.** delta-rs's own history numbers commits backwards from the version that is loaded, but reads the newest
entries that there are when it looks. If others commit meanwhile, each number is too low. So here each commit has the
version that its file is named after.
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

from ledger.delta_log.paths import path_of
from ledger.delta_log.protocol import Commit
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
from ledger.runtime.threads import map_at_once

Read = TypeVar("Read")
#: How delta-rs and Delta on Spark say that the versions that they saw have a gap.
GAPS = ("Expected contiguous commit files", "Gap between checkpoint version", "DELTA_VERSIONS_NOT_CONTIGUOUS")
#: Seconds to wait before each further look: a damaged log is believed after a second.
PAUSES = (0.001, 0.01, 0.05, 0.1, 0.3, 0.5)


def is_gap(error: BaseException) -> bool:
    """Whether an engine's error says that a version of the log is missing."""
    return any(gap in str(error) for gap in GAPS)


def without_gaps(read: Callable[[], Read]) -> Read:
    """What `read` returns, tried again while it meets a gap. Raises what it raises."""
    for pause in PAUSES:
        try:
            return read()
        except Exception as error:
            if not is_gap(error):
                raise
        time.sleep(pause)
    return read()


#: What repairs a log.
REPAIR = (
    "A power cut does this to a ledger that was written without sync, and so does a copy that was cut short. Restore a "
    "backup (`ledger restore-backup BACKUP ROOT --replace`); or stop all that uses the ledger, and `ledger repair "
    "ROOT` cuts it back to its last whole version, or cuts off the past before a checkpoint that has all of it"
)
#: At most so many entries that are missing are told one by one.
MOST_MISSING = 1_000
MISSING = "is missing"
#: What a damaged entry of the ledger's own tables lacks, if it is nothing else.
NO_COMMIT_INFO = "has no commitInfo, which every commit of the ledger has"
CHECKPOINT = re.compile(rf"{LOG}/(\d{{20}})\.checkpoint\..*parquet")
#: A part of one that is several files: its version, its number from 1 on, and how many there are.
_PART = re.compile(rf"{LOG}/(\d{{20}})\.checkpoint\.(\d{{10}})\.(\d{{10}})\.parquet")


class Flawed(ValueError):
    """An entry is no whole commit; the message says what it is."""


def actions_in(content: bytes, *, needs_info: bool = True) -> list[dict[str, Any]]:
    """Return the actions of an entry. Raises Flawed for one that is empty, torn, or lacks the `commitInfo` it needs."""
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
    said = next((action["commitInfo"] for action in actions if "commitInfo" in action), None)
    lines = said.get(LINES) if isinstance(said, dict) else None
    if isinstance(lines, int) and lines > len(actions):
        raise Flawed(f"is torn: it has {len(actions)} of {lines} lines")
    return actions


def flaw_of(content: bytes, *, needs_info: bool = True) -> str | None:
    """Return what is wrong with an entry; None: it is whole."""
    try:
        actions_in(content, needs_info=needs_info)
    except Flawed as flaw:
        return str(flaw)
    return None


def damaged(table: str, version: int, what: str) -> LedgerDamaged:
    """Return the error that names a damaged entry of one of the ledger's tables."""
    return LedgerDamaged(f"Version {version} of the table {table} is damaged: {log_file(version)} {what}", f"{REPAIR}.")


def require_whole(table: str, version: int, content: bytes, stored: Storage) -> list[dict[str, Any]] | None:
    """Return the actions of an entry; None when it is gone by now.

    A network file system may show a new file without its bytes for a moment, so a flawed entry is read again, for a
    second. Raises LedgerDamaged for one that stays so.
    """
    try:
        return actions_in(content)
    except Flawed as flaw:
        last = flaw
    for pause in PAUSES:
        time.sleep(pause)
        again = stored.read(log_file(version))
        if again is None:
            return None
        try:
            return actions_in(again)
        except Flawed as flaw:
            last = flaw
    raise damaged(table, version, str(last)) from last


def flaws_in(stored: Storage, versions: Sequence[int], *, needs_info: bool = True) -> Mapping[int, str]:
    """Return, by version, what is wrong with some entries; those that are gone by now are left out."""
    contents = ((version, stored.read(log_file(version))) for version in versions)
    flaws = ((version, flaw_of(content, needs_info=needs_info)) for version, content in contents if content is not None)
    return {version: flaw for version, flaw in flaws if flaw is not None}


#: The file of a log that names its newest checkpoint.
LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"


def hinted_checkpoint(stored: LogEntries) -> int | None:
    """Return the version of the checkpoint that LAST_CHECKPOINT names; None: there is no such file, or it cannot be
    read."""
    try:
        hinted = json.loads(stored.read(LAST_CHECKPOINT) or b"")["version"]
    except (KeyError, TypeError, ValueError):
        return None
    return hinted if isinstance(hinted, int) else None


def versions_in(paths: Iterable[str]) -> list[int]:
    """Return the versions that have an entry, in order, of the paths of a log."""
    return sorted(version for version in map(version_of, paths) if version is not None)


def checkpointed(paths: Sequence[str]) -> list[int]:
    """Return the versions that have a checkpoint, in order, of the paths of a log. One of several files that lacks a
    part is none: whoever wrote it has ended, or still writes."""
    whole, parts = set[int](), defaultdict[tuple[int, int], set[int]](set)
    for path in paths:
        named, part = CHECKPOINT.fullmatch(path), _PART.fullmatch(path)
        if part is not None:
            parts[int(part[1]), int(part[3])].add(int(part[2]))
        elif named is not None:
            whole.add(int(named[1]))
    return sorted(whole | {version for (version, count), there in parts.items() if len(there) == count})


#: A backup that is restored over a table goes on with versions that are at least so much later. What lies before such a
#: gap, a commit that was on its way meanwhile, is no part of the log.
RESTORED_LATER_BY = 100_000


def first_version(versions: Sequence[int]) -> int:
    """Return the version that a log begins at, by the versions that have an entry, in order; 0 where there is none."""
    begins = versions[0] if versions else 0
    for before, after in pairwise(versions):
        if after - before > RESTORED_LATER_BY:
            begins = after
    return begins


def missing_entries(files: TableStorage, versions: Sequence[int], first: int, newest: int) -> list[int]:
    """Return which versions from the first to the newest have no entry, of those that a listing shows. A listing may
    leave out what comes while it is made, so these are asked for."""
    there = set(versions)
    gaps = (one for one in range(first, newest + 1) if one not in there)
    return [one for one in islice(gaps, MOST_MISSING) if not files.has(log_file(one))]


def find_lost_entries(
    files: TableStorage, versions: Sequence[int], begins: int, last: int, kept_for: Callable[[], float]
) -> list[int]:
    """Return the versions up to `last` whose entries are missing. Gaps before the first entry that the table still has
    to keep do not count: a removal of old entries that is under way, or was stopped, leaves such gaps. `kept_for`
    returns how many seconds the table keeps its log."""
    if {*versions}.issuperset(range(begins, last + 1)):
        return []
    written, longest = {version_of(file.path): file.at for file in files.log_files()}, kept_for()
    kept = [version for version in versions if version >= begins and written.get(version, 0) > time.time() - longest]
    return missing_entries(files, versions, kept[0] + 1, last) if kept else []


class Generations:
    """Counts how often one of some tables was found to be replaced: its log is another one than was read. `current` is
    the number of the generation. Threads share it."""

    def __init__(self) -> None:
        self.current = 0
        self._lock = threading.Lock()

    def end(self, generation: int) -> None:
        """Ends a generation. Threads that find the same replaced log end it once."""
        with self._lock:
            if self.current == generation:
                self.current += 1


@dataclass(frozen=True)
class LogEntry:
    """What is known of the log's file of one version: the digest of its content, and its stamp (see
    Storage.stamp), by which a file that was not touched is known without reading it."""

    digest: bytes
    stamp: Stamp | None = None


def entry_of(content: bytes, stamp: Stamp | None = None) -> LogEntry:
    """The entry with this content. A `stamp` must have been taken before the content was read."""
    return LogEntry(hashlib.sha256(content).digest(), stamp)


def read_entry(stored: Storage, version: int) -> LogEntry | None:
    """The entry of a version, by reading it; None: there is none."""
    stamp = stored.stamp(log_file(version))
    content = stored.read(log_file(version))
    return None if content is None else entry_of(content, stamp)


#: Up to so many commits are looked for by their names; for more the log is listed.
MOST_BY_NAME = 20
ReadMetadata = Callable[[str | None], dict[str, Any]]


def parse_metadata(text: str | None) -> dict[str, Any]:
    """Return the JSON object in a commit's userMetadata; {} where others have written something else."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def history(
    stored: TableStorage,
    since: int,
    newest: int,
    table: str,
    read_metadata: ReadMetadata,
    kept_for: Callable[[], float],
) -> list[Commit]:
    """Return the commits of one of the ledger's tables with a version > `since` that its log still has, oldest first.
    `newest`: a version that the table is known to have come to; `kept_for`: how long it keeps its log, in seconds.

    Raises what the storage does, and LedgerDamaged for an entry that is empty or torn.
    """
    found = _following(stored, table, read_metadata, since + 1, MOST_BY_NAME)
    if 0 < len(found) < MOST_BY_NAME and found[-1].version >= newest:
        return found
    # There are more, or none, or the next one was removed with old ones.
    last = found[-1].version if found else since
    there = versions_in(stored.log_paths())
    begins = first_version(there)
    later = [version for version in there if version > last and version >= begins]
    if later:
        # All between, and before: a listing may leave out what comes while it is made.
        first = last + 1 if stored.has(log_file(last + 1)) else min(later)
        versions = range(first, max(later) + 1)
        read = list(map_at_once(lambda version: _commit(stored, version, table, read_metadata), versions, AT_ONCE))
        known = [commit for commit in read if commit is not None]
        if first > last + 1 or len(known) < len(read):
            # Old entries were removed, perhaps meanwhile. What is missing between others is another thing.
            for version in find_lost_entries(stored, there, begins, max(later), kept_for):
                if version > last:
                    raise damaged(table, version, MISSING)
        found += known
        found += _following(stored, table, read_metadata, max(later) + 1)
    return found


def find_first_commit(
    stored: TableStorage, since: int, table: str, read_metadata: ReadMetadata, is_wanted: Callable[[Commit], bool]
) -> Commit | None:
    """Return the first commit with a version > `since` that the log still has and that is wanted; None: there is none.
    Reads the commits up to it, and no later one. Raises as `history` does, but not for entries that are missing."""
    there = versions_in(stored.log_paths())
    begins = max(since + 1, first_version(there))
    for version in there[bisect_left(there, begins) :]:
        commit = _commit(stored, version, table, read_metadata)
        if commit is not None and is_wanted(commit):
            return commit
    return None


def _following(
    stored: TableStorage, table: str, read: ReadMetadata, first: int, most: int | None = None
) -> list[Commit]:
    """The commits from a version on up to the first that is not there."""
    found: list[Commit] = []
    while len(found) != most:
        commit = _commit(stored, first + len(found), table, read)
        if commit is None:
            break
        found.append(commit)
    return found


def _commit(stored: TableStorage, version: int, table: str, read: ReadMetadata) -> Commit | None:
    content = stored.read(log_file(version))
    actions = None if content is None else require_whole(table, version, content, stored)
    if actions is None:
        return None
    said = next(action["commitInfo"] for action in actions if "commitInfo" in action)
    if not isinstance(said, dict):
        raise damaged(table, version, "has a commitInfo that is no JSON object")
    return Commit(version, said.get("timestamp", 0), read(said.get("userMetadata")), path_of(said))
