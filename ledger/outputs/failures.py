"""The table of messages that failed: a row for each failed message of a claim, with the reason."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ledger.client.access import Access
from ledger.delta_log.protocol import CommittedBefore, Conflict, reason
from ledger.errors import OutputNotWritten
from ledger.outputs.writers import make_writer
from ledger.rules import message_id as ids
from ledger.rules.location import is_name
from ledger.rules.receipt_handle import ReceiptHandle, encode
from ledger.store.protocol import Grant, QueueRecord, StoredMessage

log = logging.getLogger("ledger.work")
NO_RESULT = "the function returned neither a result nor a reason"
SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("message_id", "reason", "verdict")),
        pa.field("receive_count", pa.int32()),
        pa.field("receipt_handle", pa.string()),
        pa.field("body", pa.string()),
    ]
)


def make_failed_rows(
    queue: QueueRecord, grant: Grant, stored: Sequence[StoredMessage], reasons: pa.Table | None, verdict: str
) -> pa.Table:
    """Return a row (SCHEMA) for each message of a grant. Bodies come from `stored`.

    `reasons` has the columns message_id and reason; the first row about a message counts. If `stored` is empty,
    `reasons` is not read.
    """
    reason_by_id: dict[str, Any] = {}
    if reasons is not None and stored:
        reason_by_id = dict(zip(reversed(reasons["message_id"].to_pylist()), reversed(reasons["reason"].to_pylist())))
    body = {message.message_id: message.body for message in stored}
    rows = []
    for run in grant.runs.to_pylist():
        for seq in range(run["first_seq"], run["last_seq"] + 1):
            message_id = ids.message_id(run["segment"], seq)
            handle = encode(ReceiptHandle(queue.id, run["lane"], run["segment"], seq, grant.receipt_id))
            message_reason = reason_by_id.get(message_id)
            text = NO_RESULT if message_reason is None else str(message_reason)
            rows.append((message_id, text, verdict, run["receive_count"], handle, body.get(message_id)))
    columns = list(zip(*rows)) if rows else [()] * len(SCHEMA)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA)], schema=SCHEMA)


class Failures:
    """Appends to the table of failures, without Spark if possible."""

    def __init__(self, access: Access, table: Any) -> None:
        self._access, self._table = access, table

    def append(self, rows: pa.Table, receipt_id: str | None, version: int | None) -> None:
        """Append rows about messages of a claim.

        A second call about the same messages, with the same receipt and version, appends nothing.
        """
        outputs = self._access.store.outputs
        alone = outputs.writes_arrow() and not is_name(self._table)
        writer = make_writer(self._access, rows if alone else self._access.spark().of(rows), self._table)
        about = hashlib.sha256("".join(sorted(rows["message_id"].to_pylist())).encode()).hexdigest()[:16]
        with writer.evaluated():
            location = writer.make(lambda: None).text
            metadata = {"queue": self._access.name, "receipt_id": receipt_id, "verb": "failures"}
            try:
                writer.write(location, f"ledger/failures/{receipt_id}/{version}/{about}", metadata)
            except CommittedBefore:
                pass
            except Conflict as conflict:
                raise OutputNotWritten(location, reason(conflict)) from conflict
            except Exception as error:
                raise writer.make_error(location, error) from error
            writer.ended(written=True)
