"""Reading messages back, a few at a time, as Python objects."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ledger.errors import MessageDoesNotExist
from ledger.rules import message_id as ids
from ledger.rules.message_attributes import Attribute
from ledger.rules.state import Record, came
from ledger.store import GRANTED_RUNS, RUNS, Grant, QueueRecord, StoredMessage
from ledger.store.delta.engine import Engine, Where
from ledger.store.delta.stock import Stocks
from ledger.store.delta.tables import MESSAGES

COLUMNS = [name for name in MESSAGES.names if name not in ("queue", "lane")]


class Reader:
    """Reads messages where they lie, which for dead letters is in another queue."""

    def __init__(self, engine: Engine, stocks: Stocks) -> None:
        self._engine, self._stocks = engine, stocks

    def message(self, queue: QueueRecord, lane: int, message_id: str, record: Record) -> StoredMessage:
        """One message by its id, which counts in `queue` in that lane."""
        segment, seq = ids.place(message_id)
        rows = self._rows(segment, seq, seq)
        if not rows.num_rows:
            raise MessageDoesNotExist(f"There is no message {message_id} in queue {queue.name}")
        return _stored(rows.to_pylist()[0], lane, record)

    def messages(self, queue: QueueRecord, grant: Grant) -> list[StoredMessage]:
        """The messages of a grant that are not dropped, oldest first, on FIFO queues in order: a read per segment,
        of the span of ordinals that the grant has there."""
        found: list[StoredMessage] = []
        runs = grant.runs
        for segment in runs["segment"].unique().to_pylist():
            mine = runs.filter(pa.compute.equal(runs["segment"], segment)).sort_by("first_seq")
            first, last = mine["first_seq"].to_numpy(), mine["last_seq"].to_numpy()
            rows = self._rows(segment, int(first[0]), int(last[-1]))
            seq = rows["seq"].to_numpy()
            at = np.searchsorted(first, seq, "right") - 1
            inside = seq <= last[at]
            recorded = mine.select(GRANTED_RUNS.names[len(RUNS.names) :]).to_pylist()
            lane = mine["lane"][0].as_py()
            for row, run in zip(rows.filter(pa.array(inside)).to_pylist(), at[inside].tolist()):
                record = Record(
                    **recorded[run],
                    receipt_id=grant.receipt_id,
                    received_at=grant.received_at,
                    visible_at=grant.visible_at,
                )
                found.append(_stored(row, lane, record))
        return sorted(found, key=lambda m: (came(m.record, m.sent_at), m.sequence_number or 0, m.segment, m.seq))

    def _rows(self, segment: str, first_seq: int, last_seq: int) -> pa.Table:
        home = self._stocks.newest().home(segment)
        if home is None:
            return MESSAGES.empty_table().select(COLUMNS)
        return self._engine.messages(Where(home[0], (home[1],), (segment,)), COLUMNS, first_seq, last_seq)


def _stored(row: dict, lane: int, record: Record) -> StoredMessage:
    attributes = {
        name: Attribute(one["data_type"], one["string_value"], one["binary_value"])
        for name, one in row["message_attributes"] or []
    }
    return StoredMessage(
        message_id=ids.message_id(row["segment"], row["seq"]),
        body=row["body"],
        sent_at=_milliseconds(row["sent_at"]),
        available_at=_milliseconds(row["available_at"]),
        lane=lane,
        segment=row["segment"],
        seq=row["seq"],
        record=record,
        message_attributes=attributes,
        message_group_id=row["message_group_id"],
        message_deduplication_id=row["message_deduplication_id"],
        sequence_number=row["sequence_number"],
        trace_header=row["trace_header"],
    )


def _milliseconds(instant: object) -> int:
    return round(instant.timestamp() * 1_000)
