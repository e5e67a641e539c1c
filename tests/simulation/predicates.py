"""The SQL predicates of the ledger's deletes, as Python: columns, literals, =, <, <=, >, >=, IN, BETWEEN, AND, OR."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

_TOKEN = re.compile(r"\s*('(?:[^'\\]|''|\\.)*'|<=|>=|<>|[=<>(),]|-?\d+|\w+)")
_WORDS = {"AND": "and", "OR": "or", "NOT": "not", "=": "==", "<>": "!=", "true": "True", "false": "False"}


class Whatever:
    """A value of which nothing is known but that it may be anything: every comparison may be true."""

    def _may_be(self, other: object) -> bool:
        return True

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _may_be
    __hash__ = None  # type: ignore[assignment]


def compiled(sql: str) -> tuple[Callable[[Mapping[str, Any]], bool], set[str]]:
    """The predicate as a function of a row, and the columns that it is about."""
    tokens, at = [], 0
    while at < len(sql.rstrip()):
        match = _TOKEN.match(sql, at)
        if match is None:
            raise ValueError(f"no such predicate is known here: {sql[at:]!r}")
        tokens.append(match[1])
        at = match.end()
    names: set[str] = set()
    parts: list[str] = []
    closing: list[int] = []
    depth = 0
    while tokens:
        token = tokens.pop(0)
        if token == "IN":
            parts.append("in")
            closing.append(depth)
        elif token == "BETWEEN":
            low, _, high = (tokens.pop(0) for _ in range(3))
            parts.append(f"in Range({low}, {high})")
        elif token == "(":
            parts.append("[" if closing and closing[-1] == depth and parts[-1] == "in" else "(")
            depth += 1
        elif token == ")":
            depth -= 1
            parts.append("]" if closing and closing[-1] == depth else ")")
            if parts[-1] == "]":
                closing.pop()
        elif token.startswith("'"):
            parts.append(repr(token[1:-1].replace("''", "'").replace("\\\\", "\\")))
        elif token in _WORDS or re.fullmatch(r"-?\d+|[<>,]|<=|>=", token):
            parts.append(_WORDS.get(token, token))
        else:
            names.add(token)
            parts.append(f"row[{token!r}]")
    code = compile(" ".join(parts), "predicate", "eval")
    return lambda row: bool(eval(code, {"row": row, "Range": _Range})), names


class _Range:
    """The numbers from `low` to `high`."""

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high

    def __contains__(self, value: Any) -> bool:
        return value >= self._low and value <= self._high
