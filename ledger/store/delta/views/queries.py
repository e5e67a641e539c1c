"""SQL on the views without Spark, by DataFusion, which is part of delta-rs."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from ledger.clock import Clock
from ledger.delta_log import failures
from ledger.delta_log.damage import find_past_damage_error
from ledger.delta_log.delta_rs_commits import opened
from ledger.delta_log.history import retry_while_gap
from ledger.delta_log.protocol import reason
from ledger.errors import InvalidParameterValue, LedgerDamaged, StorageFailed, show_value
from ledger.rules.location import name_for_delta_rs
from ledger.rules.message_attributes import SENDER
from ledger.runtime import threads
from ledger.store.delta.dataframes.columns import SENDER_ID, USER_ATTRIBUTES, instant_literal
from ledger.store.delta.model.tables import TABLES
from ledger.store.delta.verbs.receipts import find_unfilled
from ledger.store.delta.verbs.store import AllCounts, DeltaStore
from ledger.store.delta.views.past import VERSIONED, PastMoment, find_moment
from ledger.store.delta.views.statements import VIEWS, list_comments, queue_depth, tables_of, view_statement

_CALL = re.compile(r"\b([a-z_]+)\(")
_INSTANT = """'Timestamp(Microsecond, Some("UTC"))'"""
#: The sender's place among the attributes, from 1. Null: no sender.
_PLACE = f"arrow_cast(array_position(map_keys(message_attributes), '{SENDER}'), 'Int64')"
#: Expressions with functions that DataFusion lacks.
_REPLACED_EXPRESSIONS = {
    USER_ATTRIBUTES: f"""CASE
        WHEN map_keys(message_attributes) = make_array('{SENDER}') THEN NULL
        WHEN {_PLACE} IS NULL THEN message_attributes
        ELSE map(array_remove(map_keys(message_attributes), '{SENDER}'), array_concat(
            array_slice(map_values(message_attributes), 1, {_PLACE} - 1),
            array_slice(map_values(message_attributes), {_PLACE} + 1,
                arrow_cast(array_length(map_keys(message_attributes)), 'Int64')))) END""",
    SENDER_ID: f"message_attributes['{SENDER}']['string_value']",
}


def _ones(word: str) -> str:
    """Return SQL that counts the ones in a 64-bit word, half by half, so that nothing overflows."""

    def half(of: str) -> str:
        pairs = f"({of} - (({of} >> 1) & 1431655765))"
        nibbles = f"(({pairs} & 858993459) + (({pairs} >> 2) & 858993459))"
        octets = f"(({nibbles} + ({nibbles} >> 4)) & 252645135)"
        return f"((({octets} * 16843009) >> 24) & 255)"

    return f"({half(f'({word} & 4294967295)')} + {half(f'(({word} >> 32) & 4294967295)')})"


#: Spark's functions that DataFusion lacks, or has under another name.
_TWINS: dict[str, Callable[..., str]] = {
    "bit_count": _ones,
    "count_if": lambda condition: f"count(*) FILTER (WHERE {condition})",
    "explode": lambda values: f"unnest({values})",
    "get": lambda values, place: f"array_element({values}, {place} + 1)",
    "getbit": lambda word, place: f"(({word} >> {place}) & 1)",
    "hex": lambda number: f"to_hex({number})",
    "sequence": lambda first, last: f"generate_series({first}, {last})",
    "shiftright": lambda number, places: f"({number} >> {places})",
    "slice": lambda values, first, count: f"array_slice({values}, {first}, {first} + {count} - 1)",
    "timestamp_millis": lambda number: f"arrow_cast(({number}) * 1000, {_INSTANT})",
    "try_element_at": lambda values, key: f"{values}[{key}]",
    "unix_millis": lambda at: f"(arrow_cast({at}, 'Int64') / 1000)",
}


def translate_statement(sql: str) -> str:
    for piece, twin in _REPLACED_EXPRESSIONS.items():
        sql = sql.replace(piece, twin)
    return _translate_calls(sql)


def _translate_calls(sql: str) -> str:
    call = _CALL.search(sql)
    while call is not None and call[1] not in _TWINS:
        call = _CALL.search(sql, call.end())
    if call is None:
        return sql
    arguments, end = _arguments(sql, call.end())
    return sql[: call.start()] + _TWINS[call[1]](*map(_translate_calls, arguments)) + _translate_calls(sql[end:])


def _arguments(sql: str, begin: int) -> tuple[list[str], int]:
    """Return the arguments of a call whose parenthesis opens right before `begin`, and the place after the call."""
    arguments, depth, since = [], 0, begin
    for at in range(begin, len(sql)):
        character = sql[at]
        if character == "," and not depth:
            arguments.append(sql[since:at].strip())
            since = at + 1
        elif character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
            if depth < 0:
                return [*arguments, sql[since:at].strip()], at + 1
    raise ValueError(f"a call does not end: {sql[begin:]}")


#: This optimizer rule confuses a field of a map with a column that both sides of a join have.
_SESSION = {"datafusion.optimizer.enable_leaf_expression_pushdown": "false"}
_COMMENTS = "comments"
#: Other statements could write files, as COPY does, even behind EXPLAIN ANALYZE.
_FIRST_WORDS = ("select", "with", "values", "describe", "explain")
#: The group has a name or a query.
_EXPLAINED = re.compile(r"\s*(?:explain|describe)(?:\s+(?:analyze|verbose|format\s+\w+))*\s(.*)", re.DOTALL | re.I)
_NAME = re.compile(r"\s*\w+\s*;?\s*")
#: A view may not have two columns of the same name, but a query may.
_DUPLICATE_COLUMN_ERROR = "Schema error: Schema contains duplicate"
#: Only the beginning counts: later words may come from the query.
_STORAGE_ERROR = re.compile(
    r"(?:External error: |Arrow error: |Shared error: )*(?:Parquet|Object Store|IO) error", re.I
)


class Queries:
    def __init__(self, store: DeltaStore, clock: Clock) -> None:
        self._store, self._engine, self._clock = store, store.engine, clock

    def answer(self, query: str, version: int | None = None, timestamp: datetime | str | None = None) -> pa.Table:
        """Return the result of a query on the views, as of now, a version or an instant (see `past.find_moment`).

        Raises:
            InvalidParameterValue: The query, version or instant is refused.
            LedgerDamaged: A table is damaged, which may explain the failure.
            StorageFailed: The storage failed.
        """
        _require_reading(query)
        try:
            return self._answer(query, version, timestamp)
        except StorageFailed as failed:
            table = failed.place.rstrip("/").rpartition("/")[2]
            damage = self._engine.damage(table) if table in TABLES else None
            damage = damage or self._past_damage(query, version, timestamp)
            if damage is None:
                raise
            raise damage from failed
        except InvalidParameterValue as refused:
            past = self._past_damage(query, version, timestamp) if refused.field in ("version", "timestamp") else None
            if past is not None:
                raise past from refused
            # DataFusion's errors about damaged bytes name Arrow or Parquet.
            if "Arrow" not in str(refused) and "Parquet" not in str(refused):
                raise
            needed = {table for view in _views_in(query) for table in tables_of(view)}
            damages = (self._engine.damage(table) for table in sorted(needed))
            damage = next((table_damage for table_damage in damages if table_damage is not None), None)
            if damage is None:
                raise
            raise damage from refused

    def _past_damage(self, query: str, version: int | None, timestamp: datetime | str | None) -> LedgerDamaged | None:
        if version is None and timestamp is None:
            return None
        tables = {*VERSIONED, *(table for view in _views_in(query) for table in tables_of(view))}
        damages = (
            find_past_damage_error(table, self._engine.place(table), self._store.storage_options)
            for table in sorted(tables)
        )
        return next((damage for damage in damages if damage is not None), None)

    def _answer(self, query: str, version: int | None, timestamp: datetime | str | None) -> pa.Table:
        words_of_query = _words(query)
        depth = None
        if version is None and timestamp is None:
            depth = self._store.all_counts(self._clock) if "queue_depth" in words_of_query else None
            at = self._find_present(depth)
        else:
            at = find_moment(self._engine, self._clock(), version, timestamp)
        with failures.translating_errors(tempfile.gettempdir()):
            temporary = tempfile.TemporaryDirectory(prefix="ledger-sql-")
        with temporary as folder:
            session = _Session(Path(folder))
            for view in _views_in(query):
                if view == "queue_depth" and depth is not None:
                    session.show(view, queue_depth(depth))
                else:
                    self._make(session, view, at)
            if _COMMENTS in words_of_query:
                session.show(_COMMENTS, list_comments())
            try:
                session.require_query(query)
                return _plain(pa.table(session.builder.execute(query)))
            except (DeltaError, OSError, ValueError) as error:
                if isinstance(error, OSError) or _STORAGE_ERROR.match(str(error)):
                    raise StorageFailed(self._place_in(str(error)), failures.message_of(error)) from error
                fix = (
                    f"Write DataFusion's SQL, on the views {', '.join(VIEWS)}. Other tables, OUTPUT_failed "
                    "of a worker for one, are read with deltalake's DeltaTable(PATH).to_pandas(), or with Spark."
                )
                raise InvalidParameterValue("query", query, " ".join(reason(error).split()), fix) from error

    def _find_present(self, depth: AllCounts | None) -> PastMoment:
        """Return the present moment.

        The version of `visibility` is read first, so the other versions are no older than those that its commits note.
        """
        visibility = self._engine.version("visibility") if depth is None else depth.version
        messages = self._engine.version("messages") if depth is None else depth.messages
        versions = {"visibility": visibility, "messages": messages, "queues": self._engine.version("queues")}
        return PastMoment(self._clock() if depth is None else depth.now, versions)

    def _place_in(self, text: str) -> str:
        tables_named = re.findall(rf"/({'|'.join(TABLES)})/", text)
        return self._engine.place(tables_named[-1] if tables_named else "messages")

    def _make(self, session: _Session, view: str, at: PastMoment) -> None:
        needed = sorted(tables_of(view))
        for table in needed:
            self._add(session, table, at)
        names = {table: f"table_{table}" for table in needed}
        statement = translate_statement(view_statement(view, names, instant_literal(at.now)))
        session.builder.execute(f"CREATE VIEW {view} AS {statement}")

    def _add(self, session: _Session, table: str, at: PastMoment) -> None:
        """Make a table, as of a moment, readable as `table_TABLE`."""
        if table in session.tables:
            return
        session.tables.add(table)
        if table == "receipts":
            filled, rows = find_unfilled(self._engine)
        options = dict(self._store.storage_options or {}) or None
        place = name_for_delta_rs(self._engine.place(table))
        with failures.translating_errors(place, DeltaError, is_open=True):
            version = (at.versions or {}).get(table)
            if version is None:
                loaded = opened(place, options)
            else:
                loaded = retry_while_gap(partial(DeltaTable, place, version, storage_options=options))
            session.builder.register(f"stored_{table}", loaded)
        text = f"SELECT * FROM stored_{table}"
        if table == "receipts":
            # Upkeep may copy pending events to `receipts` meanwhile.
            session.show("pending", rows)
            names = ", ".join(rows.column_names)
            text = f"SELECT {names} FROM ({text}) WHERE version <= {filled} UNION ALL SELECT {names} FROM pending"
            if at.until is not None:
                text = f"SELECT * FROM ({text}) WHERE version <= {at.until}"
        session.builder.execute(f"CREATE VIEW table_{table} AS {text}")


class _Session:
    """The tables of one query. delta-rs reads only files, so rows are written to `folder`."""

    def __init__(self, folder: Path) -> None:
        threads.require_own("delta-rs")
        self.builder, self.tables, self._folder = QueryBuilder(_SESSION), set[str](), folder

    def show(self, name: str, rows: pa.Table) -> None:
        file = self._folder / f"{name}.parquet"
        with failures.translating_errors(str(self._folder), DeltaError):
            pq.write_table(rows, file)
            self.builder.execute(f"CREATE EXTERNAL TABLE {name} STORED AS PARQUET LOCATION '{file}'")

    def require_query(self, text: str) -> None:
        """Raise DeltaError for a statement that is no query. DataFusion makes views only of queries, and does not run
        them."""
        explained = _EXPLAINED.fullmatch(text)
        query = explained[1] if explained else text
        if explained and _NAME.fullmatch(query):
            return
        try:
            self.builder.execute(f"CREATE VIEW query_to_be AS {query}")
        except DeltaError as error:
            if not str(error).startswith(_DUPLICATE_COLUMN_ERROR):
                raise


def _words(query: str) -> set[str]:
    return set(re.findall(r"\w+", query.lower()))


def _views_in(query: str) -> list[str]:
    return sorted(_words(query).intersection(VIEWS))


def _require_reading(query: object) -> None:
    first = re.match(r"(?:\s|\(|--[^\n]*\n|/\*.*?\*/)*(\w+)", query, re.DOTALL) if isinstance(query, str) else None
    if first is None or first[1].lower() not in _FIRST_WORDS:
        bound = f"Must be one that reads: {', '.join(_FIRST_WORDS)}"
        raise InvalidParameterValue(
            "query", show_value(query), bound, f"The views are {', '.join(VIEWS)}; the table comments describes them."
        )


def _plain(table: pa.Table) -> pa.Table:
    """Convert types that some readers do not know."""
    return pa.table(
        {name: column.cast(_plain_type(column.type)) for name, column in zip(table.column_names, table.columns)}
    )


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    return kind
