"""Which messages the rows of an output are about: read from a column of message ids or receipt handles."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ledger.errors import ReceiptHandleIsInvalid
from ledger.rules import message_id as ids
from ledger.rules.receipt_handle import decode
from ledger.store.delta.dataframes import columns
from ledger.store.delta.model import run_algebra
from ledger.store.delta.model.run_algebra import ABSENT, Runs
from ledger.store.protocol import RUNS, count_messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: What a value of such a column can be.
ID, HANDLE, NOTHING, OTHER = "message id", "receipt handle", "null", "other"


@dataclass(frozen=True)
class Named:
    """What some values name: messages (segment, first_seq, last_seq; sorted, without doubles), the receipts of handles,
    and how many values are null, or are neither an id nor a handle of the queue; `example` is one of those. `row` is
    the number of the first value that is one of both, where the values have an order."""

    messages: pa.Table
    receipts: frozenset[str]
    nulls: int
    others: int
    example: str | None
    row: int | None = None


#: Of a message id.
LENGTH = ids.SEGMENT_LENGTH + 8
#: What a byte is as a hexadecimal digit; -1: none.
_DIGIT = np.full(256, -1, dtype=np.int8)
_DIGIT[list(b"0123456789abcdef")] = range(16)

SEGMENT_RUNS = pa.schema([RUNS.field(name) for name in ("segment", "first_seq", "last_seq")])


def named_by_values(values: Iterable[object], queue: str) -> Named:
    """What a list of values names."""
    places: set[tuple[str, int]] = set()
    receipts, nulls, strange, row = set(), 0, list[str](), None
    for number, value in enumerate(values):
        if value is None:
            nulls += 1
            row = number if row is None else row
            continue
        try:
            if isinstance(value, str) and ids.MESSAGE_ID.fullmatch(value):
                places.add(ids.place(value))
            else:
                handle = decode(value, queue)
                places.add((handle.segment, handle.seq))
                receipts.add(handle.receipt_id)
        except ReceiptHandleIsInvalid:
            strange.append(str(value))
            row = number if row is None else row
    runs: list[list[Any]] = []
    for segment, seq in sorted(places):
        if runs and runs[-1][0] == segment and runs[-1][2] + 1 == seq:
            runs[-1][2] = seq
        else:
            runs.append([segment, seq, seq])
    messages = pa.Table.from_pylist([dict(zip(SEGMENT_RUNS.names, run)) for run in runs], schema=SEGMENT_RUNS)
    return Named(messages, frozenset(receipts), nulls, len(strange), strange[0] if strange else None, row)


def named_by_ids(values: pa.ChunkedArray) -> Named | None:
    """What an array of message ids and nulls names; None where another value is among them: it takes longer to say
    what that is."""
    nulls = values.null_count
    row = pa.compute.index(values.is_null(), True).as_py() if nulls else None
    values = values.drop_null().cast(pa.large_string()).combine_chunks()
    if not len(values):
        return Named(SEGMENT_RUNS.empty_table(), frozenset(), nulls, 0, None, row)
    _, offsets, text = values.buffers()
    starts = np.frombuffer(offsets, dtype=np.int64)[values.offset : values.offset + len(values) + 1]
    if (np.diff(starts) != LENGTH).any():
        return None
    letters = np.frombuffer(text, np.uint8)[starts[0] : starts[-1]].reshape(-1, LENGTH)
    digits = _DIGIT[letters[:, ids.SEGMENT_LENGTH :]]
    segments = _dictionary(letters[:, : ids.SEGMENT_LENGTH])
    known = [name.decode(errors="replace") for name in segments.dictionary.to_pylist()]
    if (digits < 0).any() or not all(map(ids.SEGMENT.fullmatch, known)):
        return None
    names = sorted(known)
    order = {name: number for number, name in enumerate(names)}
    place = np.array([order[name] for name in known], dtype=np.int64)
    seq = np.zeros(len(digits), dtype=np.int64)
    for digit in digits.T:
        seq = seq << 4 | digit
    at = np.sort(place[segments.indices.to_numpy()] * ids.SEQ_BOUND + seq)
    found = at[np.append(True, np.diff(at) != 0)]
    begins = np.append(True, np.diff(found) != 1) | (found % ids.SEQ_BOUND == 0)
    first, last = found[begins], found[np.append(begins[1:], True)]
    columns = [
        pa.array(names, pa.string()).take(pa.array(first // ids.SEQ_BOUND)),
        pa.array(first % ids.SEQ_BOUND),
        pa.array(last % ids.SEQ_BOUND),
    ]
    return Named(pa.table(columns, schema=SEGMENT_RUNS), frozenset(), nulls, 0, None, row)


def named_by_array(values: pa.ChunkedArray, queue: str) -> Named:
    """What an array of texts names."""
    return named_by_ids(values) or named_by_values(values.to_pylist(), queue)


def _dictionary(letters: np.ndarray) -> pa.DictionaryArray:
    """Texts of one length, a row of bytes each, by their distinct values."""
    text = np.ascontiguousarray(letters)
    values = pa.Array.from_buffers(pa.binary(text.shape[1]), len(text), [None, pa.py_buffer(text)])
    return values.dictionary_encode()


def named_by_column(frame: DataFrame, column: str, queue: str) -> Named:
    """What a string column of a DataFrame names. The driver gets a bit per message."""
    from pyspark.sql import functions as F

    value = F.col(columns.quoted(column))
    is_id = value.rlike(f"^{ids.MESSAGE_ID.pattern}$") & (F.length(value) == ids.SEGMENT_LENGTH + 8)
    is_handle = columns.handle_is_valid(value, queue)
    parts = columns.handle_parts(value)
    ordinal = F.conv(F.substring(value, ids.SEGMENT_LENGTH + 1, 8), 16, 10).cast("bigint")
    rows = frame.select(
        value.alias("value"),
        F.when(value.isNull(), NOTHING).when(is_id, ID).when(is_handle, HANDLE).otherwise(OTHER).alias("kind"),
        F.when(is_id, F.substring(value, 1, ids.SEGMENT_LENGTH)).when(is_handle, parts["segment"]).alias("segment"),
        F.when(is_id, ordinal).when(is_handle, parts["seq"]).otherwise(0).alias("seq"),
        F.when(is_handle, parts["receipt_id"]).alias("receipt_id"),
    )
    bucket = F.expr(f"seq div {columns.BITMAP}").alias("bucket")
    bits = F.bitmap_construct_agg(F.bitmap_bit_position(F.expr("seq + 1"))).alias("bitmap")
    counted = F.count("*").alias("rows"), F.min("value").alias("example")
    found = rows.groupBy("kind", "receipt_id", "segment", bucket).agg(bits, *counted).toArrow().to_pylist()
    ours = [row for row in found if row["kind"] in (ID, HANDLE)]
    strange = [row for row in found if row["kind"] == OTHER]
    return Named(
        _joined(ours),
        frozenset(row["receipt_id"] for row in ours if row["kind"] == HANDLE),
        sum(row["rows"] for row in found if row["kind"] == NOTHING),
        sum(row["rows"] for row in strange),
        min((row["example"] for row in strange), default=None),
    )


def _joined(rows: list[dict[str, Any]]) -> pa.Table:
    """Bitmaps as runs; those of one block, named by an id here and by a handle there, laid together."""
    blocks: dict[tuple[str, int], np.ndarray] = {}
    for row in rows:
        key, bits = (row["segment"], row["bucket"]), np.frombuffer(row["bitmap"], dtype=np.uint8)
        blocks[key] = blocks[key] | bits if key in blocks else bits
    parts = []
    for (segment, bucket), bits in sorted(blocks.items(), key=lambda item: item[0]):
        first, last = (ends + bucket * columns.BITMAP for ends in run_algebra.ones(bits.tobytes()))
        parts.append(pa.table([pa.repeat(segment, len(first)), first, last], schema=SEGMENT_RUNS))
    return pa.concat_tables(parts) if parts else SEGMENT_RUNS.empty_table()


def of_claim(claimed: pa.Table, named: pa.Table) -> tuple[pa.Table, int, int]:
    """(the messages of a claim that are named, as RUNS with its lanes; how many named ones are none of the claim's; how
    many of the claim's are not named)."""
    names = sorted({*claimed["segment"].unique().to_pylist(), *named["segment"].unique().to_pylist()})
    lane = claimed["lane"].to_numpy().astype(np.int64)
    held, asked = _laid(claimed, names, lane), _laid(named, names, np.zeros(named.num_rows, dtype=np.int64))
    pieces = held.cut(asked.first, asked.last)
    strange = pieces.code == ABSENT
    mine, seq = pieces.where(~strange), pieces.where(~strange).first_seq
    segments = pa.array(names, pa.string()).take(pa.array(mine.segment, pa.int64()))
    columns = [pa.array(mine.code, pa.int32()), segments, pa.array(seq), pa.array(seq + mine.lengths - 1)]
    runs = pa.table(columns, schema=RUNS)
    strangers = pieces.where(strange).count
    return runs, strangers, count_messages(claimed) - count_messages(runs)


def first_id(runs: pa.Table) -> str:
    """The id of the first message of some runs."""
    return ids.message_id(runs["segment"][0].as_py(), runs["first_seq"][0].as_py())


def others_of_claim(claimed: pa.Table, some: pa.Table) -> pa.Table:
    """What of a claim is in none of `some` of its messages: the same columns."""
    names = claimed["segment"].unique().to_pylist()
    some = some.filter(pa.compute.is_in(some["segment"], pa.array(names, pa.string())))
    taken, all_of_it = _laid(some, names, np.zeros(some.num_rows, dtype=np.int64)), _placed(claimed, names)
    pieces = taken.cut(all_of_it.first, all_of_it.last)
    left = pieces.where(pieces.code == ABSENT)
    rows = claimed.take(pa.array(left.query))
    for name, ordinals in (("first_seq", left.first_seq), ("last_seq", left.first_seq + left.lengths - 1)):
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(place), pa.array(ordinals))
    return rows


def _placed(runs: pa.Table, names: list[str]) -> Runs:
    """Runs in their own order."""
    place = pa.compute.index_in(runs["segment"], pa.array(names, pa.string())).to_numpy().astype(np.int64)
    return Runs.from_arrow(runs, place, np.arange(runs.num_rows))


def _laid(runs: pa.Table, names: list[str], code: np.ndarray) -> Runs:
    place = pa.compute.index_in(runs["segment"], pa.array(names, pa.string())).to_numpy().astype(np.int64)
    return Runs.from_arrow(runs, place, code).in_order()
