"""The partitions that a read or a commit names: queues, lanes, segments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ledger.delta_log.values import literal

#: The most queues and segments, and the most `alternatives`, in a predicate.
MOST_NAMED, MOST_ALTERNATIVES = 1_000, 20


@dataclass(frozen=True)
class Where:
    """Partitions named by literals. Only such predicates narrow a Delta transaction."""

    queue: str | None = None
    lanes: tuple[int, ...] | None = None
    segments: tuple[str, ...] | None = None
    #: Further partitions, such as those of the queue to which messages move.
    also: Where | None = None

    def parts(self) -> list[Where]:
        parts: list[Where] = []
        part: Where | None = self
        while part is not None:
            parts.append(replace(part, also=None))
            part = part.also
        return parts

    def alternatives(self) -> list[dict[str, tuple[Any, ...]]]:
        """See PartitionFilter. Parts with equal lanes and segments become one alternative, with all their queues."""
        queues: dict[Any, list[str | None]] = {}
        for part in self.parts():
            queues.setdefault((part.lanes, part.segments), []).append(part.queue)
        alternatives = []
        for (lanes, segments), named in queues.items():
            values_by_column = {"queue": None if None in named else tuple_of(named), "lane": lanes, "segment": segments}
            alternatives.append({column: values for column, values in values_by_column.items() if values is not None})
        return alternatives

    def bounded(self) -> Where:
        """Return this filter, or a wider one: the planning of a long predicate may overflow the stack."""
        parts, alternatives = self.parts(), self.alternatives()
        named = sum(len(alternative.get("segment", ())) for alternative in alternatives)
        if len(alternatives) <= MOST_ALTERNATIVES and len(parts) + named <= MOST_NAMED:
            return self
        all_lanes = [part.lanes for part in parts if part.lanes is not None]
        lanes = (
            tuple_of(lane for part_lanes in all_lanes for lane in part_lanes) if len(all_lanes) == len(parts) else None
        )
        if len(parts) > MOST_NAMED:
            return Where(None, lanes)
        wide = Where(parts[0].queue, lanes)
        for part in parts[1:]:
            wide = Where(part.queue, lanes, also=wide)
        return wide

    def sql(self, alias: str = "") -> str:
        prefix = f"{alias}." if alias else ""
        conditions = []
        for alternative in self.alternatives():
            parts = [f"{prefix}{column} {_one_of(column, values)}" for column, values in alternative.items()]
            conditions.append(" AND ".join(parts) or "true")
        return (
            conditions[0] if len(conditions) == 1 else f"({' OR '.join(f'({condition})' for condition in conditions)})"
        )

    def partitions(self, columns: Sequence[str]) -> list[tuple[str | None, ...]] | None:
        """See PartitionFilter."""
        partitions: dict[tuple[str | None, ...], None] = {}
        part: Where | None = self
        while part is not None:
            if part.queue is None or part.lanes is None:
                return None
            if "segment" not in columns:
                partitions.update(dict.fromkeys((part.queue, str(lane)) for lane in part.lanes))
            elif part.segments is None:
                return None
            else:
                partitions.update(
                    dict.fromkeys((part.queue, str(lane), segment) for lane in part.lanes for segment in part.segments)
                )
            part = part.also
        return list(partitions)

    def covers(self, queue: str | None = None, lane: int | str | None = None, segment: str | None = None) -> bool:
        """See PartitionFilter. This runs for every partition of a ledger, so it makes no lists."""
        if isinstance(lane, str):
            # `receipts` has days in place of lanes, and no filter names days.
            lane = int(lane) if lane.isdecimal() else None
        part: Where | None = self
        while part is not None:
            in_lane = part.queue in (None, queue) and (part.lanes is None or lane in part.lanes)
            if in_lane and (part.segments is None or segment in part.segments):
                return True
            part = part.also
        return False


def _one_of(column: str, values: Sequence[Any]) -> str:
    literals = [literal(value) if isinstance(value, str) else str(value) for value in values]
    return f"= {literals[0]}" if len(literals) == 1 and column == "queue" else f"IN ({', '.join(literals)})"


def tuple_of(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return values sorted and without duplicates."""
    return tuple(sorted(set(values)))
