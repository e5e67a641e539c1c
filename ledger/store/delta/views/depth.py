"""The view queue_depth of now, counted: without a message being read."""

from __future__ import annotations

import pyarrow as pa

from ledger.clock import Clock
from ledger.rules.limits import MILLISECONDS
from ledger.rules.state import Status
from ledger.store import Store

DEPTH = pa.schema(
    [
        ("queue", pa.string()),
        *((status.value.replace(" ", "_"), pa.int64()) for status in Status),
        ("oldest_age", pa.float64()),
    ]
)


def queue_depth(store: Store, clock: Clock) -> pa.Table:
    """The rows of the view, a queue each."""
    rows = []
    for record in store.queues():
        counted, now = store.counts(record, clock), clock()
        depth = {status.value.replace(" ", "_"): counted.by_status.get(status, 0) for status in Status}
        oldest = counted.oldest_sent_at
        age = None if oldest is None else (now - oldest) / MILLISECONDS
        rows.append({"queue": record.name, **depth, "oldest_age": age})
    return pa.Table.from_pylist(rows, DEPTH)
