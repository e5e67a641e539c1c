"""The table of messages that failed: a row for each failed receive, with its reason."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ledger.access import Access
from ledger.errors import OutputNotWritten
from ledger.output_writers import writer_of
from ledger.rules import message_id as ids
from ledger.rules.location import is_name
from ledger.rules.receipt_handle import ReceiptHandle, encode
from ledger.store import Grant, QueueRecord
from ledger.store.delta.engines.protocol import Conflict, reason

NO_RESULT = "the function returned neither a result nor a reason"
SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("message_id", "reason", "verdict")),
        pa.field("receive_count", pa.int32()),
        pa.field("receipt_handle", pa.string()),
    ]
)


def failed_messages(
    queue: QueueRecord, grant: Grant | None, runs: pa.Table, reasons: pa.Table | None, verdict: str
) -> pa.Table:
    """SCHEMA for messages of a grant (GRANTED_RUNS); `reasons`: message_id and reason, of which the first counts."""
    known: dict[str, Any] = {}
    if reasons is not None and runs.num_rows:
        known = dict(zip(reversed(reasons["message_id"].to_pylist()), reversed(reasons["reason"].to_pylist())))
    receipt = grant.receipt_id if grant else ""
    rows = []
    for run in runs.to_pylist():
        for seq in range(run["first_seq"], run["last_seq"] + 1):
            named = ids.message_id(run["segment"], seq)
            handle = encode(ReceiptHandle(queue.id, run["lane"], run["segment"], seq, receipt))
            why = known.get(named)
            rows.append((named, NO_RESULT if why is None else str(why), verdict, run["receive_count"], handle))
    columns = list(zip(*rows)) if rows else [()] * len(SCHEMA)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA)], schema=SCHEMA)


class Failures:
    """Appends to the table, without Spark where the ledger can."""

    def __init__(self, access: Access, table: Any) -> None:
        self._access, self._table = access, table

    def append(self, rows: pa.Table, receipt_id: str | None, version: int | None) -> None:
        """Appends the rows of a claim; done again for the same claim it does nothing. Raises OutputNotWritten."""
        alone = self._access.store.outputs.writes_arrow() and not is_name(self._table)
        writer = writer_of(self._access, rows if alone else self._access.spark().of(rows), self._table)
        with writer.evaluated():
            location = writer.make().text
            said = {"queue": self._access.name, "receipt_id": receipt_id, "verb": "failures"}
            try:
                writer.write(location, f"ledger/failures/{receipt_id}/{version}", said)
            except Conflict as conflict:
                if "committed before" not in str(conflict):
                    raise OutputNotWritten(location, reason(conflict)) from conflict
            except Exception as error:
                raise OutputNotWritten(location, reason(error) + writer.mismatch(location, error)) from error
            writer.ended(written=True)
