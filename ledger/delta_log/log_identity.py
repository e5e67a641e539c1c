"""Whether a table's log is still the log that was read, or another one that lies in its place by now.

Somebody may remove a ledger and make it anew, or put a backup in its place, while processes have it open. The new log
has the same file names with other content. So each version that is known is known with its *entry*: the digest of the
file in the log, which no other log has, as each commit names files or an operation of its own.

Where the log is another one, whatever a process knows of the ledger is of the old one. `Generations` counts these
findings for all tables of a ledger: what is kept in memory is kept under the generation that it was read in.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass

from ledger.delta_log.table_files import CommitFiles, Stamp, log_file


class Generations:
    """Counts how often a log of one ledger was found to be another one. Threads share it."""

    def __init__(self) -> None:
        self.current = 0
        self._lock = threading.Lock()

    def end(self, generation: int) -> None:
        """Ends a generation. Threads that find the same replaced log end it once."""
        with self._lock:
            if self.current == generation:
                self.current += 1


@dataclass(frozen=True)
class Entry:
    """What is known of the log's file of one version: the digest of its content, and its stamp (see
    CommitFiles.stamp), by which a file that was not touched is known without reading it."""

    digest: bytes
    stamp: Stamp | None = None


def entry_of(content: bytes, stamp: Stamp | None = None) -> Entry:
    """The entry with this content. A `stamp` must have been taken before the content was read."""
    return Entry(hashlib.sha256(content).digest(), stamp)


def read_entry(stored: CommitFiles, version: int) -> Entry | None:
    """The entry of a version, by reading it; None: there is none."""
    stamp = stored.stamp(log_file(version))
    content = stored.read(log_file(version))
    return None if content is None else entry_of(content, stamp)
