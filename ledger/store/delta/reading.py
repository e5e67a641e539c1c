"""Reading messages back, a few at a time, as Python objects."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ledger.errors import MessageDoesNotExist
from ledger.rules import message_id as ids
from ledger.rules.state import Record
from ledger.store import Grant, QueueRecord, StoredMessage
from ledger.store.delta.engine import Engine, Where, tuple_of

COLUMNS = ["lane", "segment", "seq", "sent_at", "available_at", "message_attributes", "body"]


def read_message(engine: Engine, queue: QueueRecord, lane: int, message_id: str, record: Record) -> StoredMessage:
    """One message by its id."""
    segment, seq = ids.place(message_id)
    rows = engine.messages(Where(queue.id, (lane,), (segment,)), COLUMNS, seq, seq)
    if not rows.num_rows:
        raise MessageDoesNotExist(f"There is no message {message_id} in queue {queue.name}")
    return _stored(rows.to_pylist()[0], record)


def read_messages(engine: Engine, queue: QueueRecord, grant: Grant) -> list[StoredMessage]:
    """The messages of a grant, oldest first: a read per segment, of the span of ordinals that the grant has there."""
    found: list[StoredMessage] = []
    runs = grant.runs
    for segment in runs["segment"].unique().to_pylist():
        mine = runs.filter(pa.compute.equal(runs["segment"], segment)).sort_by("first_seq")
        first, last = mine["first_seq"].to_numpy(), mine["last_seq"].to_numpy()
        lane = mine["lane"][0].as_py()
        rows = engine.messages(Where(queue.id, (lane,), tuple_of([segment])), COLUMNS, int(first[0]), int(last[-1]))
        seq = rows["seq"].to_numpy()
        at = np.searchsorted(first, seq, "right") - 1
        inside = seq <= last[at]
        counts, received = mine["receive_count"].to_pylist(), mine["first_received_at"].to_pylist()
        for row, run in zip(rows.filter(pa.array(inside)).to_pylist(), at[inside].tolist()):
            record = Record(
                receipt_id=grant.receipt_id,
                receive_count=counts[run],
                first_received_at=received[run],
                received_at=grant.received_at,
                visible_at=grant.visible_at,
            )
            found.append(_stored(row, record))
    return sorted(found, key=lambda message: (message.sent_at, message.segment, message.seq))


def _stored(row: dict, record: Record) -> StoredMessage:
    return StoredMessage(
        ids.message_id(row["segment"], row["seq"]),
        row["body"],
        _milliseconds(row["sent_at"]),
        _milliseconds(row["available_at"]),
        row["lane"],
        row["segment"],
        row["seq"],
        record,
        dict(row["message_attributes"] or []),
    )


def _milliseconds(instant: object) -> int:
    return round(instant.timestamp() * 1_000)
