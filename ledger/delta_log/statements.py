"""Statements that commit rows: the MERGE of edits, the INSERT of appends.

Literals on partition columns narrow the MERGE, so that writers of other partitions do not conflict with it.

**Checks of an edit's assumptions.** delta-rs ignores an update that finds no row. So the client compares the edits with
the rows that they were decided on, and delta-rs runs `plain_merge` on the version of these rows. Its commit fails if
others committed to these partitions since. Spark runs `checking_merge` on the newest version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ledger.delta_log.protocol import EXPECTED_REVISION, OPERATION
from ledger.delta_log.spec import PartitionFilter, TableSpec

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
    return " AND ".join([where.bounded().sql(TARGET), *keys])


def _sources(table: TableSpec) -> dict[str, str]:
    return {column: f"{SOURCE}.{column}" for column in table.schema.names}
