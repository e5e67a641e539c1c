"""The paths of commits of rows: direct, or by a statement of the engine, and why.

A *path* here is a way to commit, not that of a file. Both ways have the same result. Statements mostly take longer.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ledger.delta_log.protocol import NotDirect
from ledger.runtime.forks import renew_in_child

log = logging.getLogger("ledger.commits")
DIRECT, STATEMENT = "direct", "statement"
#: Why a commit of rows takes a statement.
SETTING, ALTERED, LARGE, WIDER, NEW_PARTITION = "setting", "altered", "large", "wider", "new partition"
STATISTICS = "statistics"
REASONS = {
    SETTING: "the user asks for statements",
    ALTERED: "the table differs from its spec",
    LARGE: "it would write many rows anew, and a statement leaves alone the files that it does not change",
    WIDER: "it relies on partitions that it does not change",
    STATISTICS: "the engine collects the table's statistics",
    NEW_PARTITION: "others committed meanwhile, and a partition without files does not show whether they changed it",
}

#: The `operationParameters` of a commit that replaced files without a statement.
REWRITTEN = {"rewrittenDirectly": "true"}


class CommitKind(NamedTuple):
    """A kind of commits of rows. `reason` is why a statement made them (empty: direct)."""

    purpose: str
    table: str
    path: str
    reason: str = ""


def path_of(info: Mapping[str, Any]) -> str:
    """Return the path of a MERGE by its `commitInfo`, or an empty text for other commits."""
    if info.get("operation") != "MERGE":
        return ""
    parameters = info.get("operationParameters")
    return DIRECT if isinstance(parameters, Mapping) and REWRITTEN.items() <= parameters.items() else STATEMENT


def no_purpose(metadata: Mapping[str, Any]) -> str:
    return ""


class Paths:
    """Counts the commits of rows of this process by their paths. Threads share the object."""

    def __init__(self, engine: str, purpose_of: Callable[[Mapping[str, Any]], str]) -> None:
        self._engine, self._purpose_of = engine, purpose_of
        self._counts: Counter[CommitKind] = Counter()
        self._logged: set[tuple[str, str]] = set()
        self._lock = threading.Lock()
        renew_in_child(self, Paths._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def counts(self) -> dict[CommitKind, int]:
        with self._lock:
            return dict(self._counts)

    def commit(
        self,
        table: str,
        metadata: Mapping[str, Any],
        directly: Callable[[], int],
        by_statement: Callable[[str], int],
    ) -> int:
        """Commit rows, count the commit, and return its version.

        `by_statement` gets the reason for a statement, if `directly` raises NotDirect.
        """
        try:
            version, kind = directly(), CommitKind(self._purpose_of(metadata), table, DIRECT)
        except NotDirect as why:
            version = by_statement(why.reason)
            kind = CommitKind(self._purpose_of(metadata), table, STATEMENT, why.reason)
        with self._lock:
            self._counts[kind] += 1
        return version

    def log_statement(self, table: str, metadata: Mapping[str, Any], reason: str, text: str, rows: int) -> None:
        """Log a statement that is about to be run: at INFO once for each table and reason, at DEBUG always."""
        if (table, reason) not in self._logged:
            self._logged.add((table, reason))
            log.info("%s runs statements on the table %s: %s (%s)", self._engine, table, reason, REASONS[reason])
        purpose = self._purpose_of(metadata)
        log.debug("%s through %s (%s), %d source rows: %s", purpose, self._engine, reason, rows, text)
