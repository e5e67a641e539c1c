"""Messages as rows of the `messages` table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ledger.rules.copies import instants_in_target
from ledger.rules.limits import MILLISECONDS
from ledger.rules.message import Entry
from ledger.rules.message_attributes import SENDER, Attribute
from ledger.rules.message_fields import STORED
from ledger.store.delta.model.tables import MESSAGES, instant_column
from ledger.store.protocol import CopiedMessage, QueueRecord


def message_rows(
    queue: QueueRecord,
    lane: int,
    segment: str,
    first: int,
    entries: Sequence[Entry],
    now: int,
    sequence_numbers: Sequence[int] | None = None,
    sender: str | None = None,
) -> pa.Table:
    """Return the rows of `messages` for messages that `sender` sends, with ordinals from `first`."""
    count = len(entries)
    columns: dict[str, Any] = {
        "queue": [queue.id] * count,
        "lane": [lane] * count,
        "segment": [segment] * count,
        "seq": range(first, first + count),
        "sent_at": instant_column([now] * count),
        "available_at": instant_column([now + entry.delay_seconds * MILLISECONDS for entry in entries]),
        "sequence_number": sequence_numbers or [None] * count,
        **{field.column: [getattr(entry, field.name) for entry in entries] for field in STORED if field.is_given},
        "message_attributes": [_attributes(entry, sender) for entry in entries],
    }
    kinds = {field.name: field.type for field in MESSAGES}
    arrays = {name: v if isinstance(v, pa.Array) else pa.array(v, kinds[name]) for name, v in columns.items()}
    return pa.table({name: arrays[name] for name in MESSAGES.names}, schema=MESSAGES)


def copied_rows(
    queue: QueueRecord,
    lane: int,
    segment: str,
    copies: Sequence[CopiedMessage],
    now: int,
    sequence_numbers: Sequence[int] | None = None,
) -> pa.Table:
    """Return the rows of `messages` for messages that are copied at `now`, with ordinals from 0."""
    in_order = sequence_numbers is not None
    instants = [
        instants_in_target(one.kept_since, one.available_at, now, queue.retention, fifo=in_order) for one in copies
    ]
    rows = message_rows(queue, lane, segment, 0, [one.entry for one in copies], now, sequence_numbers)
    kind = MESSAGES.field("message_attributes").type
    own = {
        "sent_at": instant_column([sent_at for sent_at, _ in instants]),
        "available_at": instant_column([available_at for _, available_at in instants]),
        "message_attributes": pa.array([_attributes(one.entry, one.sender_id) for one in copies], kind),
    }
    return pa.table([own.get(name, rows[name]) for name in MESSAGES.names], schema=MESSAGES)


def _attributes(entry: Entry, sender: str | None) -> list[tuple[str, dict[str, object]]] | None:
    names = ("data_type", "string_value", "binary_value")
    attributes = dict(entry.message_attributes)
    if sender is not None:
        attributes[SENDER] = Attribute("String", sender, None)
    return [(name, dict(zip(names, one))) for name, one in attributes.items()] or None
