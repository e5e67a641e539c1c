"""The view queue_depth of the present, made from `DeltaStore.all_counts`.

Unlike in the view's SQL, `age_of_oldest` may be that of a message that is gone (see `Classified.oldest_sent_at`).
"""

from __future__ import annotations

import pyarrow as pa

from ledger.rules.limits import MILLISECONDS
from ledger.rules.state import Status
from ledger.store.delta.verbs.store import AllCounts

DEPTH = pa.schema(
    [
        ("queue", pa.string()),
        *((status.value.replace(" ", "_"), pa.int64()) for status in Status),
        ("age_of_oldest", pa.float64()),
    ]
)


def queue_depth(counts: AllCounts) -> pa.Table:
    rows = []
    for name, counted in counts.counts.items():
        depth = {status.value.replace(" ", "_"): counted.by_status.get(status, 0) for status in Status}
        oldest = counted.oldest_sent_at
        age = None if oldest is None else (counts.now - oldest) / MILLISECONDS
        rows.append({"queue": name, **depth, "age_of_oldest": age})
    return pa.Table.from_pylist(rows, DEPTH)
