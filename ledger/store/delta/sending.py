"""Sending a few messages: appended to this writer's own open segment of a lane, one blind append a call."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence

import pyarrow as pa

from ledger.errors import ContentionOutlastedRetries
from ledger.rules import message_id as ids
from ledger.rules.limits import MILLISECONDS
from ledger.settings import Settings
from ledger.store import QueueRecord
from ledger.store.delta.engine import Conflict, Engine
from ledger.store.delta.lanes import instants
from ledger.store.delta.stock import Stocks
from ledger.store.delta.tables import MESSAGES
from ledger.store.delta.transaction import Transactions, pause


class Sender:
    """Appends small sends. A segment has exactly one writer: this object, which numbers its messages itself."""

    def __init__(self, engine: Engine, transactions: Transactions, stocks: Stocks, settings: Settings) -> None:
        self._engine, self._transactions, self._stocks, self._settings = engine, transactions, stocks, settings
        self._lock = threading.Lock()
        self._open: dict[tuple[str, int], tuple[str, int, int]] = {}
        self._turn = secrets.randbelow(1 << 16)

    def send(self, queue: QueueRecord, bodies: Sequence[str], now: int, attempt_id: str | None) -> list[str]:
        """Ids in the order of `bodies`. Under an attempt id committed before, sends nothing: the ids of then."""
        if not bodies:
            return []
        if attempt_id is None:
            lane, segment, first = self._next(queue, len(bodies), now)
            transaction = None
        else:
            key = ids.send_key("send", queue.id, attempt_id)
            lane, segment, first = int(key[:8], 16) % int(queue.attributes["Lanes"]), ids.segment(key, 0), 0
            transaction = f"send/{queue.id}/{attempt_id}", 1
        rows = message_rows(queue, lane, segment, first, bodies, now)
        operation = secrets.token_hex(8)
        metadata = self._transactions.metadata(operation, "send", queue.id, now, [])
        for losses in range(self._settings.maximum_attempts):
            with self._transactions.turn("messages"):
                since = self._engine.version("messages")
                if transaction and self._engine.transaction_version("messages", transaction[0]) is not None:
                    stock = self._stocks.of(queue.id)
                    # Finished long ago, upkeep dropped them; then the retry itself says how many there were.
                    count = len(bodies) if stock.lane_of(segment) is None else stock.last_of(segment) + 1
                    return [ids.message_id(segment, seq) for seq in range(count)]
                try:
                    self._engine.append("messages", rows, metadata, transaction)
                    sent = True
                except Conflict:
                    sent = self._transactions.landed("messages", operation, since) is not None
            if sent:
                return [ids.message_id(segment, first + n) for n in range(len(bodies))]
            pause(losses)
        raise ContentionOutlastedRetries("send", self._settings.maximum_attempts, 0.0)

    def _next(self, queue: QueueRecord, count: int, now: int) -> tuple[int, str, int]:
        """The lane, the open segment and the first of `count` ordinals in it, never given out again."""
        with self._lock:
            self._turn += 1
            lane = self._turn % int(queue.attributes["Lanes"])
            segment, following, opened_at = self._open.get((queue.id, lane), ("", 0, 0))
            if not segment or not 0 <= now - opened_at < self._settings.open_segment_seconds * MILLISECONDS:
                segment, following, opened_at = ids.segment(ids.new_send_key(), 0, is_open=True), 0, now
            self._open[queue.id, lane] = segment, following + count, opened_at
            return lane, segment, following


def message_rows(queue: QueueRecord, lane: int, segment: str, first: int, bodies: Sequence[str], now: int) -> pa.Table:
    """Rows of `messages` for bodies that take the ordinals from `first` on."""
    count = len(bodies)
    columns = {
        "queue": pa.array([queue.id] * count),
        "lane": pa.array([lane] * count, pa.int32()),
        "segment": pa.array([segment] * count),
        "seq": pa.array(range(first, first + count), pa.int64()),
        "sent_at": instants([now] * count),
        "available_at": instants([now] * count),
        "body": pa.array(list(bodies), pa.string()),
    }
    for field in MESSAGES:
        columns.setdefault(field.name, pa.nulls(count, field.type))
    return pa.table({name: columns[name] for name in MESSAGES.names}, schema=MESSAGES)
