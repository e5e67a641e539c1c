"""Partitions named by literals, as delta-rs and Arrow take them: to leave out files, and rows of the others."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Any

import pyarrow.compute as pc

from ledger.store.delta.engines.protocol import Where


def filters(where: Where) -> list[Any] | None:
    """The files that may hold what `where` names, as delta-rs takes it: alternatives of conditions on partitions."""
    alternatives = []
    for queues, lanes, segments in where.bounded().alternatives():
        known = {"queue": queues, "lane": lanes and [str(lane) for lane in lanes], "segment": segments}
        alternatives.append([(name, "in", list(values)) for name, values in known.items() if values is not None])
    if not all(alternatives):
        return None
    return alternatives if len(alternatives) > 1 else alternatives[0]


def rows_in(where: Where) -> Any:
    """What the filter on files leaves to be said about rows, when `where` names too much for it; else None."""
    if where.bounded() is where:
        return None
    condition = pc.scalar(False)
    for part in where.parts():
        known = {"queue": part.queue and (part.queue,), "lane": part.lanes, "segment": part.segments}
        named = [pc.field(name).isin(list(values)) for name, values in known.items() if values is not None]
        condition = condition | reduce(and_, named, pc.scalar(True))
    return condition
