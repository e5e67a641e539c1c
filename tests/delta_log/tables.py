"""Tables that are none of the ledger's, for the client of Delta's log: what a TableSpec may ask for, all at once."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from ledger.delta_log.by_delta_rs import DeltaRsTables
from ledger.delta_log.protocol import EXPECTED_REVISION, OPERATION, Fact, Ordinals, Snapshot, TableSpec
from ledger.delta_log.statements import INSTANT

NOON = datetime(2026, 1, 2, 12, tzinfo=timezone.utc)
#: Columns of every type that tables of ours, and those of users, have.
VALUES = pa.schema(
    [
        ("text", pa.string()),
        ("at", INSTANT),
        ("day", pa.date32()),
        ("number", pa.int32()),
        ("amount", pa.decimal128(38, 10)),
        ("share", pa.float64()),
        ("flag", pa.bool_()),
        ("blob", pa.binary()),
        ("pair", pa.struct([("a", pa.int64()), ("b", pa.string())])),
        ("many", pa.list_(pa.field("element", pa.int64()))),
        ("notes", pa.map_(pa.string(), pa.string())),
        ("ended", INSTANT),
        ("revision", pa.int64()),
    ]
)
#: The facts of a table with ordinals in `id`.
FACTS = (
    Fact("rows", pa.int64(), "rows"),
    Fact("first", pa.int64(), "min", "id"),
    Fact("last", pa.int64(), "max", "id"),
)


def _beside(partition: Mapping[str, Any]) -> dict[str, Any]:
    return {**partition, "place": f"{partition['place']}-beside"}


def spec_of(partitions: Sequence[pa.Field] = (), name: str = "things") -> TableSpec:
    """A table of rows with an `id` and VALUES, in partitions of these columns. Where the last one is `place`, a text,
    its files can be joined."""
    columns = tuple(one.name for one in partitions)
    joins = columns[-1:] == ("place",)
    facts = tuple(Fact(one.name, one.type, "partition", one.name) for one in partitions)
    return TableSpec(
        name,
        pa.schema([*partitions, ("id", pa.int64()), *VALUES]),
        columns,
        ("id",),
        statistics=("id", "text", "at", "day"),
        final_columns=("ended",),
        facts=(*facts, *FACTS) if joins else (),
        ordinals=Ordinals("id", "at", _beside) if joins else None,
    )


LOT, PLACE = pa.field("lot", pa.int32()), pa.field("place", pa.string())
THINGS = spec_of([LOT, PLACE])


@dataclass(frozen=True)
class Places:
    """Partitions one by one, by their values; None: all of them."""

    columns: tuple[str, ...]
    named: tuple[tuple[Any, ...], ...] | None = None

    def alternatives(self) -> list[dict[str, tuple[Any, ...]]]:
        if self.named is None:
            return [{}]
        return [{name: (value,) for name, value in zip(self.columns, one)} for one in self.named]

    def shorten(self) -> Places:
        return self

    def sql(self, alias: str = "") -> str:
        prefix = f"{alias}." if alias else ""
        parts = [
            " AND ".join(f"{prefix}{name} = {literal(value)}" for name, value in zip(self.columns, one)) or "true"
            for one in self.named or ()
        ]
        return "true" if self.named is None else f"({' OR '.join(f'({one})' for one in parts)})"

    def covers(self, *values: Any) -> bool:
        return self.named is None or tuple(map(as_text, values)) in self._texts()

    def partitions(self, columns: Sequence[str]) -> list[tuple[str | None, ...]] | None:
        return None if self.named is None else self._texts()

    def _texts(self) -> list[tuple[str | None, ...]]:
        return [tuple(map(as_text, one)) for one in self.named or ()]


def literal(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
    return f"DATE '{value}'" if isinstance(value, date) else as_text(value)


def as_text(value: Any) -> str:
    """A partition's value, as a log has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def thing(number: int, revision: int = 1, **values: Any) -> dict[str, Any]:
    """A row of VALUES with an id; what it has follows from both."""
    mixed = number * 31 + revision
    row = {
        "id": number,
        "text": f"text {mixed} ¶'\"\\",
        "at": NOON + timedelta(milliseconds=mixed),
        "day": date(2026, 1, 1 + mixed % 28),
        "number": -mixed,
        "amount": Decimal(mixed).scaleb(-3) + Decimal("1234567890123456789.0123456789"),
        "share": mixed / 7,
        "flag": mixed % 2 == 0,
        "blob": bytes([0, mixed % 256, 255]),
        "pair": {"a": mixed, "b": None if mixed % 3 else str(mixed)},
        "many": [mixed, None, -mixed][: mixed % 4],
        "notes": [("key", str(mixed))][: mixed % 2],
        "ended": None,
        "revision": revision,
    }
    # Every column is null now and then.
    names = [name for name in row if name not in ("id", "revision", "ended")]
    if mixed % 5 == 0:
        row[names[mixed // 5 % len(names)]] = None
    return {**row, **values}


def rows_of(table: TableSpec, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([dict(one) for one in rows], table.schema)


def edits_of(table: TableSpec, edits: Sequence[tuple[str, Mapping[str, Any]]], expected: bool = True) -> pa.Table:
    """Edits: (insert, update or delete) and the row that is there then; one to delete is named by its old row."""
    rows = rows_of(table, [row for _, row in edits])
    revisions = [
        None if operation == "insert" or not expected else row["revision"] - (operation == "update")
        for operation, row in edits
    ]
    return rows.append_column(OPERATION, pa.array([one for one, _ in edits], pa.string())).append_column(
        EXPECTED_REVISION, pa.array(revisions, pa.int64())
    )


def opened(folder: Path | str, *specs: TableSpec, locations: Mapping[str, str] | None = None) -> DeltaRsTables:
    """The tables below a folder, through the client, or at these locations; made if they are not there."""
    places = locations or {one.name: f"{folder}/{one.name}" for one in specs}
    tables = DeltaRsTables({one.name: one for one in specs}, places, sync=False)
    for one in specs:
        tables.create(one.name)
    return tables


def merge(
    tables: DeltaRsTables, table: TableSpec, where: Places, edits: Sequence[tuple[str, Mapping[str, Any]]]
) -> tuple[Snapshot, int]:
    """Load, decide, commit."""
    snapshot = tables.load(table.name, where)
    return snapshot, tables.merge(snapshot, table.name, where, edits_of(table, edits), {"verb": "merge"})


def copied(location: str, name: str) -> str:
    """A copy of a table, under another name beside it."""
    return str(shutil.copytree(location, Path(location).with_name(name)))
