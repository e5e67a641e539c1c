"""Conditions of SQL about what lies inside a value of a DataFrame: fields, elements, keys and values, at any depth.

A type is one as Delta's log writes it, and a value an expression of SQL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ledger.store.delta.dataframes.columns import quoted


def of_inner(value: str, kind: Any, depth: int, conditions: Callable[[str, Any, int], list[str]]) -> list[str]:
    """Return what `conditions` says of the values inside a value; `depth` tells names of variables apart."""
    if kind["type"] == "struct":
        fields = [(f"{value}.{quoted(one['name'])}", one["type"]) for one in kind["fields"]]
        return [condition for field, inner in fields for condition in conditions(field, inner, depth)]
    each = f"e{depth}"
    parts = {
        "array": [(value, "elementType")],
        "map": [(f"map_keys({value})", "keyType"), (f"map_values({value})", "valueType")],
    }.get(kind["type"], [])
    return [
        f"exists({values}, {each} -> {condition})"
        for values, part in parts
        for condition in conditions(each, kind[part], depth + 1)
    ]


def not_utf8(value: str, kind: Any, depth: int) -> list[str]:
    """Return conditions, one of which is true for a value with a text, at any depth, that is no UTF-8: a cast of bytes
    makes such ones."""
    if isinstance(kind, str):
        return [f"NOT is_valid_utf8({value})"] if kind == "string" else []
    return of_inner(value, kind, depth, not_utf8)
