"""The views' SQL for DataFusion, whose dialect differs from Spark's."""

from __future__ import annotations

import re
from collections.abc import Callable

from ledger.rules.message_attributes import SENDER
from ledger.store.delta.dataframes.columns import SENDER_ID, USER_ATTRIBUTES

_CALL = re.compile(r"\b([a-z_]+)\(")
_INSTANT = """'Timestamp(Microsecond, Some("UTC"))'"""
#: The sender's place among the attributes, from 1. Null: no sender.
_PLACE = f"arrow_cast(array_position(map_keys(message_attributes), '{SENDER}'), 'Int64')"
#: These have functions without a twin in DataFusion.
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
    """Return SQL that counts the bits of a word of 64, by halves, so nothing overflows."""

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


def translated(sql: str) -> str:
    for piece, twin in _REPLACED_EXPRESSIONS.items():
        sql = sql.replace(piece, twin)
    return _translated(sql)


def _translated(sql: str) -> str:
    call = _CALL.search(sql)
    while call is not None and call[1] not in _TWINS:
        call = _CALL.search(sql, call.end())
    if call is None:
        return sql
    arguments, end = _arguments(sql, call.end())
    return sql[: call.start()] + _TWINS[call[1]](*map(_translated, arguments)) + _translated(sql[end:])


def _arguments(sql: str, begin: int) -> tuple[list[str], int]:
    """Return the arguments of a call that opens before `begin`, and the place behind its end."""
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
