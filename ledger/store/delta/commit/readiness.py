"""Checks whether a ledger can take commits now, and a trial of an object store for `ledger doctor`."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ledger.clock import Clock, system_clock
from ledger.delta_log.failures import translating_errors
from ledger.errors import InvalidParameterValue, StorageFailed, TableAltered, UnsafeStorage
from ledger.rules.instants import require_alike
from ledger.rules.limits import MILLISECONDS
from ledger.rules.location import name_for_delta_rs
from ledger.store.delta.commit.clocks import RESOLUTION, StorageClock, make_object_probe
from ledger.store.delta.commit.storage_safety import require_conditional_puts
from ledger.store.delta.engine import Engine
from ledger.store.delta.model.tables import TABLES

#: The tables whose rows no verb changes or deletes: verbs need only appends here. Upkeep also deletes rows.
APPENDED = ("messages", "receipts")
#: The seconds between two successful readings of the storage's clock. On an object store a reading takes 3 requests.
INTERVAL_SECONDS = 10.0


class Readiness:
    """Checks whether the tables, the disk and the clocks are fit for commits. Threads may share it.

    Args:
        engine: The engine of the ledger's tables.
        folder: The tables' folder, if it is on this machine.
        clock: This process's clock.
        storage: The storage's clock, or None.
        maximum_skew: The largest allowed difference between two clocks, in seconds.
        passing: A monotonic clock, in seconds.
    """

    def __init__(
        self,
        engine: Engine,
        folder: Path | None,
        clock: Clock,
        storage: Clock | None,
        maximum_skew: float,
        passing: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine, self._folder, self._clock, self._storage = engine, folder, clock, storage
        self._maximum_skew, self._passing = maximum_skew, passing
        self._compared_at: float | None = None

    def require(self, free_bytes: int) -> None:
        """Raise an error if the ledger cannot take commits now. Writes at most a small file, and removes it.

        Raises:
            StorageFailed: A table cannot be read, or the disk has fewer than `free_bytes` free for this user, no free
                inode, or takes no file.
            TableAltered: The engine no longer reads or writes one of the tables.
            ClocksDisagree: This process's clock made a step, or is too far from the storage's clock, or too far behind
                the newest commit to `visibility`.
        """
        for table, refusal in self.refusals().items():
            raise TableAltered(self._engine.place(table), *refusal)
        if self._folder is not None:
            self._require_space(self._folder, free_bytes)
        self._require_no_later_commit()
        if self._compared_at is None or self._passing() - self._compared_at >= INTERVAL_SECONDS:
            self._compared_at = None
            # A new StorageClock compares at once.
            StorageClock(self._clock, self._storage, self._maximum_skew).check()
            self._compared_at = self._passing()

    def refusals(self) -> dict[str, tuple[str, str]]:
        """Return, by table, why the engine no longer reads or writes it, and what to do (see TableAltered)."""
        refusals = {table: self._engine.refusal(table, appends=table in APPENDED) for table in TABLES}
        return {table: refusal for table, refusal in refusals.items() if refusal is not None}

    def _require_space(self, folder: Path, free_bytes: int) -> None:
        with translating_errors(str(folder)):
            disk = os.statvfs(folder)
        free = disk.f_bavail * disk.f_frsize
        if free < free_bytes:
            raise StorageFailed(str(folder), f"the disk has {free:,} bytes free, and {free_bytes:,} are needed")
        # File systems without a fixed number of inodes report zero.
        if disk.f_files and not disk.f_favail:
            raise StorageFailed(str(folder), "the disk has no inode left for another file")

    def _require_no_later_commit(self) -> None:
        """Raise ClocksDisagree if the newest commit is so far ahead that verbs on its lanes fail."""
        newest = self._engine.version("visibility")
        for commit in self._engine.history("visibility", newest - 1):
            at = commit.metadata.get("at")
            if isinstance(at, int):
                require_alike(self._clock(), at, self._maximum_skew, "the last commit is ahead", only_behind=True)


#: The doctor warns if a request takes more seconds than this. A verb that commits makes 7 to 10 requests
#: (docs/explanation/measured.md), mostly one after the other.
SLOW = 0.2
KEYS = (
    "the doctor takes options of the storage only from environment variables. On S3 set AWS_ACCESS_KEY_ID, "
    "AWS_SECRET_ACCESS_KEY and AWS_REGION, or give the machine a role. If the store is not AWS's, also set "
    "AWS_ENDPOINT_URL, and AWS_ALLOW_HTTP=true if that URL begins with http://"
)
NO_BUCKET = "is the bucket's name mistyped? No command of ledger makes a bucket"
#: A pattern of the error code in an answer of S3. The end of the answer may be cut off.
CODE = re.compile(r"<Code>(\w+)</Code>")
REQUESTS = 5


def report(root: str, storage_options: Mapping[str, str] | None = None) -> Iterator[tuple[str, str, str, str]]:
    """Yield (OK, WARN or FAIL; subject; finding; advice) for each thing that a ledger needs of its storage.

    A FAIL comes last, and is not raised. Writes small files, and removes them.
    """
    from ledger.delta_log.object_store import open_checked

    place = name_for_delta_rs(root)
    try:
        files = open_checked(place, storage_options or {}, storage_options or {})
        yield "OK", "credentials", f"{place} can be listed", ""
        require_conditional_puts(files)
        yield "OK", "conditional put", "a second put of a file is refused", ""
        before = system_clock()
        stored, after = make_object_probe(files)(), system_clock()
        # An instant between `before` and `after` is no difference, however slow the requests are.
        seconds_apart = (stored - min(max(stored, before), after)) / MILLISECONDS
        began = time.monotonic()
        for _ in range(REQUESTS):
            files.get("_probes/none")
        seconds_a_request = (time.monotonic() - began) / REQUESTS
    except UnsafeStorage as error:
        yield "FAIL", "conditional put", str(error), "no ledger can lie there"
        return
    except (InvalidParameterValue, StorageFailed) as error:
        cause = error.cause if isinstance(error, StorageFailed) else str(error)
        answered = CODE.search(cause)
        cause = cause if answered is None else f"the store answers {answered[1]}"
        advice = NO_BUCKET if answered is not None and answered[1] == "NoSuchBucket" else KEYS
        yield "FAIL", "credentials", f"{place} cannot be read and written: {cause}", advice
        return
    difference = f"the storage's is {abs(seconds_apart):.1f} s {'ahead' if seconds_apart > 0 else 'behind'}"
    if abs(seconds_apart) > 2 * RESOLUTION:
        yield (
            "WARN",
            "storage clock",
            difference,
            "synchronise this machine's clock (NTP): a deadline is early or late by this difference",
        )
    else:
        yield "OK", "storage clock", difference, ""
    latency = f"{seconds_a_request * MILLISECONDS:.0f} ms a request"
    if seconds_a_request > SLOW:
        yield "WARN", "latency", latency, "a verb is some ten requests: run workers in the bucket's region"
    else:
        yield "OK", "latency", latency, ""
