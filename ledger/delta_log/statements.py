"""Statements that commit rows, their literals, and why a commit takes a statement instead of the direct path.

Literals on partition columns narrow the MERGE, so that writers of other partitions do not conflict with it.

**Checks of an edit's assumptions.** delta-rs ignores an update that finds no row. So the client compares the edits with
the rows that they were decided on, and delta-rs runs `plain_merge` on the version of these rows. The commit fails if
others committed to the rows' partitions since. Spark runs `checking_merge` on the newest version.

A *path* here is a way to commit: directly, or by a statement, which mostly takes longer. Both have the same result.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ledger.delta_log.protocol import EXPECTED_REVISION, OPERATION, NotDirect, PartitionFilter, TableSpec
from ledger.runtime.threads import renew_in_child


def literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


INSTANT = pa.timestamp("us", tz="UTC")


def to_milliseconds(instants: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of instants, none of which is before 1970, as milliseconds."""
    # A cast that changes nothing takes as long as any other.
    exact = instants if instants.type.unit == "us" else instants.cast(pa.timestamp("us", instants.type.tz))
    return pc.divide(exact.cast(pa.int64()), 1_000)


def partition_text(value: Any) -> str | None:
    """Return the log's text of a partition's value. Source: Delta's protocol, "Partition Value Serialization"."""
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


def bound_text(value: Any) -> Any:
    """Return a least or greatest value as the statistics of the log have it.

    An instant has microseconds if it needs them. If those of a greatest value were cut off, delta-rs would skip the
    file when a reader looks for that value.
    """
    if isinstance(value, datetime):
        exact = "microseconds" if value.microsecond % 1_000 else "milliseconds"
        return value.replace(tzinfo=None).isoformat(timespec=exact) + "Z"
    return value.isoformat() if isinstance(value, date) else value


#: Spark's MERGE fails with this message if the table is not as its edits suppose.
CHANGED_MEANWHILE = "ledger: the partition changed after it was read"
#: About how many characters a line of columns or values has.
WIDTH = 110
TARGET, SOURCE = "t", "s"
#: The name of the source's view in a statement that is shown or logged.
SOURCE_VIEW = "source"


class Clause(NamedTuple):
    """A clause of a MERGE: DELETE, UPDATE or INSERT, with values by column.

    It applies to source rows that match a row of the table (`is_matched`) or none, under its condition (empty: always).
    """

    is_matched: bool
    condition: str
    action: str
    values: Mapping[str, str]

    def sql(self) -> str:
        condition = f" AND {self.condition}" if self.condition else ""
        what = self.action
        if self.action == "UPDATE":
            what = f"UPDATE SET\n{_lines(f'{column} = {value}' for column, value in self.values.items())}"
        elif self.action == "INSERT":
            what = f"INSERT (\n{_lines(self.values)}\n  ) VALUES (\n{_lines(self.values.values())}\n  )"
        return f"WHEN {'' if self.is_matched else 'NOT '}MATCHED{condition} THEN {what}"


@dataclass(frozen=True)
class Merge:
    """A MERGE of edits. For each row the first clause that applies is used."""

    on: str
    clauses: tuple[Clause, ...]

    def sql(self, place: str, source: str) -> str:
        head = f"MERGE INTO delta.`{place}` AS {TARGET}\nUSING {source} AS {SOURCE}\nON {self.on}"
        return "\n".join([head, *(clause.sql() for clause in self.clauses)])


def plain_merge(table: TableSpec, where: PartitionFilter) -> Merge:
    """Return the MERGE of edits that are known to find the table as they suppose."""
    changes = {column: value for column, value in _sources(table).items() if column not in table.partitions}
    operation = f"{SOURCE}.{OPERATION}"
    return Merge(
        _matches(table, where),
        (
            Clause(True, f"{operation} = 'delete'", "DELETE", {}),
            Clause(True, f"{operation} = 'update'", "UPDATE", changes),
            Clause(False, f"{operation} = 'insert'", "INSERT", _sources(table)),
        ),
    )


def checking_merge(table: TableSpec, where: PartitionFilter) -> Merge:
    """Return the MERGE that fails with CHANGED_MEANWHILE if an edit does not find the table as it supposes."""
    sources = _sources(table)
    changes = {column: value for column, value in sources.items() if column not in table.partitions}
    fail = f"CAST(raise_error('{CHANGED_MEANWHILE}') AS BIGINT)"
    operation, revision = f"{SOURCE}.{OPERATION}", f"{TARGET}.revision <> {SOURCE}.{EXPECTED_REVISION}"
    return Merge(
        _matches(table, where),
        (
            Clause(True, f"({operation} = 'insert' OR {revision})", "UPDATE", {"revision": fail}),
            Clause(True, f"{operation} = 'delete'", "DELETE", {}),
            Clause(True, "", "UPDATE", changes),
            Clause(False, f"{operation} <> 'insert'", "INSERT", {**sources, "revision": fail}),
            Clause(False, "", "INSERT", sources),
        ),
    )


def append_statement(table: TableSpec, place: str, source: str) -> str:
    columns = _lines(table.schema.names)
    return f"INSERT INTO delta.`{place}` (\n{columns}\n) SELECT\n{columns}\nFROM {source}"


def _lines(parts: Iterable[str]) -> str:
    lines, line = list[str](), ""
    for part in parts:
        if line and len(line) + len(part) > WIDTH:
            lines.append(f"{line},")
            line = ""
        line = f"{line}, {part}" if line else f"    {part}"
    return "\n".join([*lines, line])


def _matches(table: TableSpec, where: PartitionFilter) -> str:
    keys = (f"{TARGET}.{column} = {SOURCE}.{column}" for column in (*table.partitions, *table.key))
    return " AND ".join([where.shorten().sql(TARGET), *keys])


def _sources(table: TableSpec) -> dict[str, str]:
    return {column: f"{SOURCE}.{column}" for column in table.schema.names}


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
    """The kind of a commit of rows. `reason` is why a statement made it (empty: direct)."""

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
    """Counts this process's commits of rows by their kinds. Threads share the object."""

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

        If `directly` raises NotDirect, `by_statement` is called with the reason.
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
