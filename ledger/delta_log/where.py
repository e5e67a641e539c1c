"""Where in a table a read or a commit looks: partitions named by literals, and the SQL that names them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

#: A predicate names at most so many segments and queues, in so many different combinations.
MOST_NAMED, MOST_ALTERNATIVES = 1_000, 20


@dataclass(frozen=True)
class Where:
    """Partitions named by literals: the only predicates that narrow a Delta transaction."""

    queue: str | None = None
    lanes: tuple[int, ...] | None = None
    segments: tuple[str, ...] | None = None
    #: Or these: for a commit that moves messages from one queue to another.
    also: Where | None = None

    def parts(self) -> list[Where]:
        """This and what `also` names, one by one."""
        parts: list[Where] = []
        rest: Where | None = self
        while rest is not None:
            parts.append(replace(rest, also=None))
            rest = rest.also
        return parts

    def alternatives(self) -> list[tuple[tuple[str, ...] | None, tuple[int, ...] | None, tuple[str, ...] | None]]:
        """The parts as (queues, lanes, segments), with the queues together of which the same is named."""
        queues: dict[Any, list[str | None]] = {}
        for part in self.parts():
            queues.setdefault((part.lanes, part.segments), []).append(part.queue)
        return [(None if None in named else tuple_of(named), *same) for same, named in queues.items()]

    def bounded(self) -> Where:
        """This, or where it names very much, what covers it and names less: planning a predicate takes a stack that
        grows with it, and processes have died of that."""
        parts, alternatives = self.parts(), self.alternatives()
        named = sum(len(segments or ()) for _, _, segments in alternatives)
        if len(alternatives) <= MOST_ALTERNATIVES and len(parts) + named <= MOST_NAMED:
            return self
        some = [part.lanes for part in parts if part.lanes is not None]
        lanes = tuple_of(lane for one in some for lane in one) if len(some) == len(parts) else None
        if len(parts) > MOST_NAMED:
            return Where(None, lanes)
        wide = Where(parts[0].queue, lanes)
        for part in parts[1:]:
            wide = Where(part.queue, lanes, also=wide)
        return wide

    def sql(self, alias: str = "") -> str:
        """As a SQL predicate on columns of `alias`."""
        prefix = f"{alias}." if alias else ""
        conditions = []
        for queues, lanes, segments in self.alternatives():
            parts = []
            if queues is not None:
                parts.append(f"{prefix}queue {_one_of(map(literal, queues))}")
            if lanes is not None:
                parts.append(f"{prefix}lane IN ({', '.join(map(str, lanes))})")
            if segments is not None:
                parts.append(f"{prefix}segment IN ({', '.join(map(literal, segments))})")
            conditions.append(" AND ".join(parts) or "true")
        return conditions[0] if len(conditions) == 1 else f"({' OR '.join(f'({one})' for one in conditions)})"

    def covers(self, queue: str | None = None, lane: int | None = None) -> bool:
        """Whether it names all of a partition. Asked of every partition of a ledger: it makes nothing."""
        part: Where | None = self
        while part is not None:
            if part.queue in (None, queue) and (part.lanes is None or lane in part.lanes) and part.segments is None:
                return True
            part = part.also
        return False


def _one_of(literals: Iterable[str]) -> str:
    known = list(literals)
    return f"= {known[0]}" if len(known) == 1 else f"IN ({', '.join(known)})"


def literal(text: str) -> str:
    """A SQL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def tuple_of(values: Iterable[Any]) -> tuple[Any, ...]:
    """Sorted and without doubles."""
    return tuple(sorted(set(values)))
