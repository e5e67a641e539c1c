"""Random programs on random tables: what the client does, and what that means, in plain Python."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from hypothesis import strategies as st

from ledger.delta_log.protocol import Conflict, TableSpec
from tests.delta_log import by_hand as hand
from tests.delta_log.engines import ByDeltaRs
from tests.delta_log.readers import Row, told, told_of
from tests.delta_log.tables import LOT, PLACE, Places, edits_of, opened, rows_of, spec_of

#: Columns that tables are partitioned by, and some values of each.
PARTITIONS: dict[tuple[pa.Field, ...], tuple[tuple[Any, ...], ...]] = {
    (): ((),),
    (PLACE,): (("a",), ("b",), ("c",)),
    (LOT, PLACE): ((1, "a"), (2, "a"), (-1, "b/c d%20=ü")),
    (pa.field("flag_of", pa.bool_()), pa.field("on", pa.date32())): (
        (True, date(2026, 1, 2)),
        (False, date(2026, 1, 2)),
        (True, date(1969, 12, 31)),
    ),
}
_INSTANTS = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1)).map(lambda one: one.replace(tzinfo=timezone.utc))
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_LONGS = st.integers(-(2**63), 2**63 - 1)
#: Values of each column of VALUES.
_OF_COLUMN = {
    "text": _TEXTS,
    "at": _INSTANTS,
    "day": st.dates(date(1, 1, 1), date(9999, 12, 31)),
    "number": st.integers(-(2**31), 2**31 - 1),
    "amount": st.integers(-(10**38) + 1, 10**38 - 1).map(
        lambda one: Decimal((int(one < 0), tuple(map(int, str(abs(one)))), -10))
    ),
    "share": st.floats(allow_nan=True, allow_infinity=True),
    "flag": st.booleans(),
    "blob": st.binary(max_size=8),
    "pair": st.fixed_dictionaries({"a": st.none() | _LONGS, "b": st.none() | _TEXTS}),
    "many": st.lists(st.none() | _LONGS, max_size=3),
    "notes": st.dictionaries(_TEXTS, st.none() | _TEXTS, max_size=2).map(lambda one: sorted(one.items())),
    "ended": st.just(datetime(2026, 1, 1, tzinfo=timezone.utc)),
}
VALUES_OF_A_ROW = st.fixed_dictionaries({name: st.none() | some for name, some in _OF_COLUMN.items()})
STEPS = (
    *("append", "append under a transaction", "append by delta-rs"),
    *("merge", "merge", "merge of a part", "merge by delta-rs", "late merge", "late merge elsewhere"),
    *("delete a partition", "delete rows", "delete by delta-rs", "join", "optimize by delta-rs"),
    *("mark", "properties", "checkpoint by delta-rs", "open anew", "vacuum"),
)
#: A program: the columns that its table is partitioned by, values for its rows, and steps, each with a seed.
PROGRAMS = st.tuples(
    st.sampled_from(sorted(PARTITIONS, key=len)),
    st.lists(VALUES_OF_A_ROW, min_size=1, max_size=6),
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 2**32)), max_size=12),
)
Key = tuple[tuple[Any, ...], int]


class Program:
    """A table, and what has to be in it: the rows by their partitions and ids, now and as of each version."""

    def __init__(self, folder: Path, partitions: tuple[pa.Field, ...], values: list[dict[str, Any]]) -> None:
        self._folder, self._values, self._places = folder, values, PARTITIONS[partitions]
        self.table: TableSpec = spec_of(partitions)
        self.location = f"{folder}/{self.table.name}"
        self.tables = opened(folder, self.table)
        self.rows: dict[Key, dict[str, Any]] = {}
        self.at_version: dict[int, list[Row]] = {0: []}
        self.transactions: dict[str, int] = {}
        self._ids, self.everything = 0, Places(self.table.partitions)
        self._steps: dict[str, Callable[[random.Random], None]] = {
            "append": self._append,
            "append under a transaction": self._append_once,
            "append by delta-rs": lambda dice: ByDeltaRs(self.table, self.location).append(self._new(dice)),
            "merge": self._merge,
            "merge of a part": self._merge_of_a_part,
            "merge by delta-rs": self._merge_by_delta_rs,
            "late merge": self._late_merge,
            "late merge elsewhere": self._late_merge_elsewhere,
            "delete a partition": self._delete_a_partition,
            "delete rows": lambda dice: self.tables.delete("things", self._some_rows(dice), {}),
            "delete by delta-rs": lambda dice: ByDeltaRs(self.table, self.location).delete(self._some_rows(dice)),
            "join": self._join,
            "optimize by delta-rs": lambda dice: ByDeltaRs(self.table, self.location).optimize(self.everything),
            "mark": self._mark,
            "properties": self._properties,
            "checkpoint by delta-rs": lambda dice: DeltaTable(self.location).create_checkpoint(),
            "open anew": lambda dice: self._open(),
            "vacuum": self._vacuum,
        }

    def run(self, step: str, seed: int) -> None:
        """One step; the client reads what has to be there then."""
        self._steps[step](random.Random(seed))
        self.require_rows()

    def require_rows(self) -> None:
        expected = told_of(self.rows.values())
        self.at_version[hand.versions_of(self.location)[-1]] = expected
        assert told(self.tables.load("things", self.everything).rows) == expected
        assert self.tables.transaction_version("things", "app") == self.transactions.get("app")

    def _open(self) -> None:
        self.tables = opened(self._folder, self.table)

    def _row(self, dice: random.Random, place: tuple[Any, ...], number: int, revision: int) -> dict[str, Any]:
        values = {**dice.choice(self._values), "ended": dice.choice(self._values)["ended"]}
        return {**dict(zip(self.table.partitions, place)), "id": number, **values, "revision": revision}

    def _new(self, dice: random.Random, places: tuple[Any, ...] | None = None) -> list[dict[str, Any]]:
        """New rows, which are there from now on."""
        # Now and then so many that they are put apart, or too many to be compared one by one.
        count = dice.choice([1, 2, 3, 3, 5, 300, 1_200])
        made = []
        for _ in range(count):
            place, self._ids = dice.choice(places or self._places), self._ids + 1
            made.append(self._row(dice, place, self._ids, 1))
            self.rows[place, self._ids] = made[-1]
        return made

    def _append(self, dice: random.Random) -> None:
        self.tables.add_rows("things", rows_of(self.table, self._new(dice)), {})

    def _append_once(self, dice: random.Random) -> None:
        version = self.transactions.get("app", 0) + 1
        self.tables.add_rows("things", rows_of(self.table, self._new(dice)), {}, [("app", version)])
        self.transactions["app"] = version
        before = hand.versions_of(self.location)[-1]
        try:
            self.tables.add_rows("things", rows_of(self.table, [*self.rows.values()][:1]), {}, [("app", version)])
            raise AssertionError("the transaction was committed twice")
        except Conflict:
            assert hand.versions_of(self.location)[-1] == before

    def _edits(self, dice: random.Random, places: tuple[Any, ...]) -> list[tuple[str, dict[str, Any]]]:
        """Edits of rows in these partitions, of which `_apply` says what they mean."""
        edits: list[tuple[str, dict[str, Any]]] = []
        there = [key for key in self.rows if key[0] in places]
        for place, number in dice.sample(there, min(len(there), dice.choice([0, 1, 2, 4, len(there)]))):
            before = self.rows[place, number]
            if dice.random() < 0.3:
                edits.append(("delete", before))
            else:
                edits.append(("update", self._row(dice, place, number, before["revision"] + 1)))
        for _ in range(dice.choice([0, 1, 2, 20])):
            self._ids += 1
            edits.append(("insert", self._row(dice, dice.choice(places), self._ids, 1)))
        return edits

    def _apply(self, edits: list[tuple[str, dict[str, Any]]]) -> None:
        for operation, row in edits:
            key = tuple(row[name] for name in self.table.partitions), row["id"]
            if operation == "delete":
                del self.rows[key]
            else:
                self.rows[key] = row

    def _commit(self, edits: list[tuple[str, dict[str, Any]]], where: Places) -> None:
        if edits:
            snapshot = self.tables.load("things", where)
            self.tables.merge(snapshot, "things", where, edits_of(self.table, edits), {"verb": "merge"})
            self._apply(edits)

    def _merge(self, dice: random.Random) -> None:
        """Of what it touches: committed without a statement."""
        edits = self._edits(dice, dice.sample(self._places, dice.randint(1, len(self._places))))
        touched = dict.fromkeys(tuple(row[name] for name in self.table.partitions) for _, row in edits)
        self._commit(edits, Places(self.table.partitions, tuple(touched)))

    def _merge_of_a_part(self, dice: random.Random) -> None:
        """Of less than what was read: committed by a statement of delta-rs's."""
        self._commit(self._edits(dice, (dice.choice(self._places),)), self.everything)

    def _merge_by_delta_rs(self, dice: random.Random) -> None:
        edits = self._edits(dice, self._places)
        if edits:
            ByDeltaRs(self.table, self.location).merge(self.everything, edits)
            self._apply(edits)

    def _late_merge(self, dice: random.Random) -> None:
        """Edits that were decided on before others changed the same partition: nothing comes of them."""
        place = dice.choice(self._places)
        where = Places(self.table.partitions, (place,))
        others = opened(self._folder, self.table)
        snapshot, edits = self.tables.load("things", where), self._edits(dice, (place,))
        if edits:
            others.add_rows("things", rows_of(self.table, self._new(dice, (place,))), {})
            before = hand.versions_of(self.location)[-1]
            try:
                self.tables.merge(snapshot, "things", where, edits_of(self.table, edits), {})
                raise AssertionError("edits were committed that others had come before")
            except Conflict:
                assert hand.versions_of(self.location)[-1] == before

    def _late_merge_elsewhere(self, dice: random.Random) -> None:
        """Edits that were decided on before others changed another partition: they are committed."""
        if len(self._places) < 2:
            return
        place, elsewhere = dice.sample(self._places, 2)
        where = Places(self.table.partitions, (place,))
        if not any(key[0] == place for key in self.rows):
            return
        snapshot, edits = self.tables.load("things", where), self._edits(dice, (place,))
        if edits:
            others = opened(self._folder, self.table)
            others.add_rows("things", rows_of(self.table, self._new(dice, (elsewhere,))), {})
            self.at_version[hand.versions_of(self.location)[-1]] = told_of(self.rows.values())
            self.tables.merge(snapshot, "things", where, edits_of(self.table, edits), {})
            self._apply(edits)

    def _delete_a_partition(self, dice: random.Random) -> None:
        place = dice.choice(self._places)
        self.tables.delete("things", Places(self.table.partitions, (place,)).sql(), {})
        self.rows = {key: row for key, row in self.rows.items() if key[0] != place}

    def _some_rows(self, dice: random.Random) -> str:
        """A predicate on rows, which are gone from now on."""
        bound = dice.randint(0, self._ids)
        self.rows = {key: row for key, row in self.rows.items() if key[1] > bound}
        return f"id <= {bound}"

    def _join(self, dice: random.Random) -> None:
        if self.table.ordinals is not None:
            self.tables.join_files("things", self.everything, growing=dice.random() < 0.5)

    def _mark(self, dice: random.Random) -> None:
        version = self.transactions.get("app", 0) + 1
        self.tables.mark("things", {}, ("app", version), ("other", dice.randint(0, 9)))
        self.transactions["app"] = version

    def _properties(self, dice: random.Random) -> None:
        interval = {"delta.checkpointInterval": str(dice.randint(1, 4)), "ledger.dice": str(dice.random())}
        self.tables.configure("things", interval, {})

    def _vacuum(self, dice: random.Random) -> None:
        at_once = {"delta.deletedFileRetentionDuration": "interval 0 hours"}
        if not at_once.items() <= self.tables.layout("things").properties.items():
            self.tables.configure("things", at_once, {})
        self.tables.vacuum("things")
        # What older versions had is gone.
        self.at_version = {}


def within(rows: list[dict[str, Any]], low: int, high: int, above: datetime) -> list[dict[str, Any]]:
    """What `rows` of the client is asked for, in plain Python."""
    return [row for row in rows if low <= row["id"] <= high and row["at"] is not None and row["at"] > above]


def instant(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=milliseconds)
