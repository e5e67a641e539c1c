"""The first commit that a verb would make, found without making it.

A separate store runs the verb on the ledger's tables. The store takes no file locks and does not read the storage's
clock. The first call that would change a table ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, cast

import pyarrow as pa

from ledger.delta_log.protocol import Snapshot
from ledger.delta_log.statements import SOURCE_VIEW
from ledger.store.delta.commit.locks import NoLock
from ledger.store.delta.commit.transactions import Transactions
from ledger.store.delta.engine import Engine
from ledger.store.delta.model.tables import TABLES, Where
from ledger.store.delta.verbs.store import DeltaStore


class PlannedCommit(NamedTuple):
    """A commit that a verb would make.

    Attributes:
        statement: The statement that makes the commit, if `why_statement` gives a reason.
        rows: The rows that the statement gets (None: the commit has no rows, or it removes rows).
        why_statement: Why the engine would run a statement: a reason of `delta_log.statements`, and a text (empty: it
            would run none).
    """

    table: str
    statement: str
    rows: pa.Table | None
    engine: str
    why_statement: str


class _Planned(Exception):
    def __init__(self, commit: PlannedCommit) -> None:
        super().__init__("the verb ends here")
        self.commit = commit


class _ReadOnlyEngine:
    """An engine whose `merge`, `append`, `mark` and `delete` raise _Planned. Verbs that can be explained commit in no
    other way."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def merge(self, snapshot: Snapshot, table: str, where: Where, edits: pa.Table, *rest: object) -> NoReturn:
        raise self._planned(table, self._engine.statement(table, where, SOURCE_VIEW), edits)

    def append(self, table: str, rows: pa.Table, *rest: object, **options: object) -> NoReturn:
        raise self._planned(table, self._engine.statement(table, None, SOURCE_VIEW), rows)

    def mark(self, table: str, metadata: Mapping[str, Any], *transactions: tuple[str, int]) -> NoReturn:
        raise self._planned(table, f"-- no rows: {', '.join(f'{name} = {version}' for name, version in transactions)}")

    def delete(self, table: str, predicate: str, *rest: object, **options: object) -> NoReturn:
        raise self._planned(table, f"DELETE FROM delta.`{self._engine.place(table)}`\nWHERE {predicate}")

    def make_durable(self, table: str | None = None, version: int = -1) -> None:
        """Do nothing: no commit follows that relies on what was read."""

    def _planned(self, table: str, statement: str, rows: pa.Table | None = None) -> _Planned:
        why = self._engine.why_not_direct(table)
        engine = self._engine.name
        return _Planned(PlannedCommit(table, statement, rows, engine, "" if why is None else f"{why[0]}: {why[1]}"))


def find_planned_commit(store: DeltaStore, run: Callable[[DeltaStore], object]) -> PlannedCommit | None:
    """Return the first commit, if any, that `run` would make through the store that it gets. Raises what `run`
    raises."""
    engine, locks = cast(Engine, _ReadOnlyEngine(store.engine)), dict.fromkeys(TABLES, NoLock())
    transactions = Transactions(engine, locks, False, store.settings, store.transactions.owner)
    looking = DeltaStore(engine, transactions, store.settings, store.outputs.foreign, sender_id=store.sender_id)
    looking.outputs.tables = store.outputs.tables.copy_without_fences()
    try:
        run(looking)
    except _Planned as planned:
        return planned.commit
    return None


def take_some_rows(rows: pa.Table, most: int) -> Sequence[Mapping[str, Any]]:
    """Return the first `most` rows, without columns that are null in every row."""
    columns = [name for name in rows.column_names if rows[name].null_count < rows.num_rows]
    first_rows: list[dict[str, Any]] = rows.select(columns).slice(0, most).to_pylist()
    return first_rows
