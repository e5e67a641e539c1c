"""Reads of messages as Python objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.delta_log.statements import to_milliseconds
from ledger.errors import MessageDoesNotExist
from ledger.rules import fifo
from ledger.rules import message_id as ids
from ledger.rules.attributes import is_fifo
from ledger.rules.message import STORED, Kind
from ledger.rules.message_attributes import SENDER, Attribute
from ledger.rules.visibility import Record, arrived_at
from ledger.store.delta.engine import MessageFiles
from ledger.store.delta.model.message_runs import ABSENT, Runs, positions
from ledger.store.delta.model.tables import MESSAGES, Where, sort_distinct
from ledger.store.delta.state.listing import Listings
from ledger.store.delta.state.sent_messages import GrantedRun, RecentMessages
from ledger.store.protocol import GRANTED_RUNS, RUNS, Grant, QueueRecord, StoredMessage

#: The bounds of one read: its segments, and for several segments, their number times the width of the span of ordinals.
MOST_SEGMENTS, MOST_MESSAGES = 200, 100_000
COLUMNS = [name for name in MESSAGES.names if name not in ("queue", "lane")]
_RECORDED = GRANTED_RUNS.names[len(RUNS.names) :]
_NAMES = [field.name for field in STORED]


class Reader:
    def __init__(self, files: MessageFiles, listings: Listings, recent: RecentMessages) -> None:
        self._files, self._listings, self._recent = files, listings, recent

    def message(self, queue: QueueRecord, lane: int, message_id: str, record: Record) -> StoredMessage:
        """Return one message with this `lane` and `record`. Raises MessageDoesNotExist."""
        segment, seq = ids.place(message_id)
        rows = self._rows(segment, seq, seq)
        if not rows.num_rows:
            raise MessageDoesNotExist(f"There is no message {message_id} in queue {queue.name}")
        return next(_make_messages(rows.slice(0, 1), [lane], [record]))

    def has_row(self, message_id: str) -> bool:
        segment, seq = ids.place(message_id)
        return bool(self._rows(segment, seq, seq).num_rows)

    def find_recent_messages(self, queue: QueueRecord, grant: Grant) -> list[StoredMessage] | None:
        """Return the messages of one grant from memory, if this process sent and keeps all of them.

        The newest listing must have the messages, too (see `state.sent_messages`).
        """
        runs = [GrantedRun(*place, record) for place, record in zip(_places(grant.runs), _records(grant))]
        messages = self._recent.find(self._listings.newest(), runs)
        return (
            None
            if messages is None
            else _order_messages(queue, messages, None if grant.order is None else grant.order.to_pylist())
        )

    def messages(self, queue: QueueRecord, grant: Grant) -> list[StoredMessage]:
        return self.read_grants(queue, [grant])[0]

    def read_grants(self, queue: QueueRecord, grants: Sequence[Grant]) -> list[list[StoredMessage]]:
        """For each grant, return the messages that have rows, in the order of Store.read. One read covers many small
        segments."""
        picked = [_Picked(queue, grant) for grant in grants]
        runs = grants[0].runs if len(grants) == 1 else pa.concat_tables([grant.runs for grant in grants])
        for where, lowest, highest in self._reads(runs):
            rows = self._files.messages(where, COLUMNS, lowest, highest)
            for one in picked:
                one.pick(rows)
        return [one.in_order() for one in picked]

    def _reads(self, runs: pa.Table) -> Iterator[tuple[Where, int, int]]:
        """Yield the reads that cover all runs: the segments of one queue, and the span of ordinals."""
        listing, spans = self._listings.newest(), _spans(runs)
        for queue, places in listing.places(list(spans)).items():
            lanes = dict(places)
            for batch, lowest, highest in _batches(sorted((spans[name], name) for name in lanes)):
                yield Where(queue, sort_distinct(lanes[name] for name in batch), sort_distinct(batch)), lowest, highest

    def _rows(self, segment: str, first_seq: int, last_seq: int) -> pa.Table:
        home = self._listings.newest().home(segment)
        if home is None:
            return MESSAGES.empty_table().select(COLUMNS)
        return self._files.messages(Where(home[0], (home[1],), (segment,)), COLUMNS, first_seq, last_seq)


class _Picked:
    def __init__(self, queue: QueueRecord, grant: Grant) -> None:
        self._queue, self._names = queue, grant.runs["segment"].unique()
        # A run's code is the index of its row in the grant.
        runs = Runs.from_arrow(grant.runs, _segment(grant.runs, self._names), np.arange(grant.runs.num_rows))
        self._begins = np.cumsum(runs.lengths) - runs.lengths
        self._runs = runs.where(np.argsort(runs.first, kind="stable"))
        self._order = None if grant.order is None else grant.order.to_numpy()
        self._lanes = grant.runs["lane"].to_pylist()
        self._recorded = _records(grant)
        self._found: list[StoredMessage] = []
        self._numbers: list[int] = []

    def pick(self, rows: pa.Table) -> None:
        segment = _segment(rows, self._names)
        place = positions(np.maximum(segment, 0), rows["seq"].to_numpy())
        run = np.where(segment < 0, ABSENT, self._runs.find(place))
        granted = run != ABSENT
        runs = self._runs.where(run[granted])
        numbers = runs.code.tolist()
        lanes, records = [self._lanes[number] for number in numbers], [self._recorded[number] for number in numbers]
        self._found += _make_messages(rows.filter(pa.array(granted)), lanes, records)
        if self._order is not None:
            self._numbers += self._order[self._begins[runs.code] + place[granted] - runs.first].tolist()

    def in_order(self) -> list[StoredMessage]:
        return _order_messages(self._queue, self._found, None if self._order is None else self._numbers)


def _order_messages(
    queue: QueueRecord, found: list[StoredMessage], numbers: Sequence[int] | None
) -> list[StoredMessage]:
    """Return messages in the order of their `numbers` (see Grant.order), or without numbers the oldest first (FIFO:
    `fifo.order_by_group`)."""
    if numbers is not None:
        return [found[at] for at in np.argsort(numbers)]
    found.sort(key=lambda m: (arrived_at(m.record, m.sent_at), m.sent_at, m.sequence_number or 0, m.segment, m.seq))
    return fifo.order_by_group(found, lambda m: m.message_group_id) if is_fifo(queue.attributes) else found


def _places(runs: pa.Table) -> Iterator[tuple[int, str, int, int]]:
    return zip(*(runs[name].to_pylist() for name in RUNS.names))


def _records(grant: Grant) -> list[Record]:
    columns = [grant.runs[name].to_pylist() for name in _RECORDED]
    return [
        Record(
            receipt_id=grant.receipt_id,
            received_at=grant.received_at,
            visible_at=grant.visible_at,
            **dict(zip(_RECORDED, row)),
        )
        for row in zip(*columns)
    ]


def _spans(runs: pa.Table) -> dict[str, tuple[int, int]]:
    names = runs["segment"].unique()
    segment, first, last = _segment(runs, names), runs["first_seq"].to_numpy(), runs["last_seq"].to_numpy()
    lowest, highest = np.full(len(names), np.iinfo(np.int64).max), np.full(len(names), -1)
    np.minimum.at(lowest, segment, first)
    np.maximum.at(highest, segment, last)
    return dict(zip(names.to_pylist(), zip(lowest.tolist(), highest.tolist())))


def _batches(spans: list[tuple[tuple[int, int], str]]) -> Iterator[tuple[list[str], int, int]]:
    """Yield batches of sorted segments, each with the span of ordinals that covers them."""
    batch: list[str] = []
    lowest = highest = -1
    for (first, last), name in spans:
        covering = max(highest, last)
        if batch and (len(batch) == MOST_SEGMENTS or (len(batch) + 1) * (covering - lowest + 1) > MOST_MESSAGES):
            yield batch, lowest, highest
            batch, covering = [], last
        if not batch:
            lowest = first
        batch.append(name)
        highest = covering
    if batch:
        yield batch, lowest, highest


def _segment(rows: pa.Table, names: pa.Array) -> np.ndarray:
    """Return the index of each row's segment in `names` (-1: `names` lacks the segment)."""
    numbers: np.ndarray = pc.fill_null(pc.index_in(rows["segment"], names), -1).to_numpy().astype(np.int64)
    return numbers


def _make_messages(rows: pa.Table, lanes: Sequence[int], records: Sequence[Record]) -> Iterator[StoredMessage]:
    places = zip(rows["segment"].to_pylist(), rows["seq"].to_pylist(), lanes, records)
    columns = [_values(rows[field.column], field.kind) for field in STORED]
    for (segment, seq, lane, record), values in zip(places, zip(*columns)):
        fields = dict(zip(_NAMES, values))
        sender = fields["message_attributes"].pop(SENDER, None)
        yield StoredMessage(
            message_id=ids.message_id(segment, seq),
            lane=lane,
            segment=segment,
            seq=seq,
            record=record,
            sender_id=sender and sender.string_value,
            **fields,
        )


def _values(column: pa.ChunkedArray, kind: Kind) -> list[Any]:
    if kind is Kind.INSTANT:
        # A datetime for each instant would take most of a read's time.
        numbers: list[Any] = to_milliseconds(column).to_pylist()
        return numbers
    if kind is Kind.ATTRIBUTES:
        return [_attributes(value) for value in column.to_pylist()]
    values: list[Any] = column.to_pylist()
    return values


def _attributes(stored: Iterable[tuple[str, dict[str, Any]]] | None) -> dict[str, Attribute]:
    return {name: Attribute(one["data_type"], one["string_value"], one["binary_value"]) for name, one in stored or ()}
