"""The messages that rows name, in a column of message ids or receipt handles."""

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

ID, HANDLE, NOTHING, OTHER = "message id", "receipt handle", "null", "other"
#: The name of a column that we add to the user's: the parts of the values.
_PARTS = "ledger_parts_of_the_handle"


@dataclass(frozen=True)
class Named:
    """The messages that some values name.

    Attributes:
        messages: the messages as runs (segment, first_seq, last_seq), sorted, without duplicates.
        receipts: the receipts of the handles.
        nulls: how many values are null.
        others: how many other values are neither an id nor a handle of the queue.
        example: one of the `others`.
        row: the number, from 0, of the first value that is null or one of the `others`, if it is known.
    """

    messages: pa.Table
    receipts: frozenset[str]
    nulls: int
    others: int
    example: str | None
    row: int | None = None


LENGTH = ids.SEGMENT_LENGTH + 8
#: For each byte, its value as a hexadecimal digit in lower case, or -1.
_DIGIT = np.full(256, -1, dtype=np.int8)
_DIGIT[list(b"0123456789abcdef")] = range(16)

SEGMENT_RUNS = pa.schema([RUNS.field(name) for name in ("segment", "first_seq", "last_seq")])


def named_by_values(values: Iterable[object], queue: str) -> Named:
    """Return what a list of values names. `queue` is the id of the queue whose handles count."""
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
    """Return what an array of message ids and nulls names; None if the array has any other value."""
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
    segment_names = [name.decode(errors="replace") for name in segments.dictionary.to_pylist()]
    if (digits < 0).any() or not all(map(ids.SEGMENT.fullmatch, segment_names)):
        return None
    names = sorted(segment_names)
    order = {name: number for number, name in enumerate(names)}
    place = np.array([order[name] for name in segment_names], dtype=np.int64)
    seq = np.zeros(len(digits), dtype=np.int64)
    for digit in digits.T:
        seq = seq << 4 | digit
    positions = np.sort(place[segments.indices.to_numpy()] * ids.SEQ_BOUND + seq)
    distinct = positions[np.append(True, np.diff(positions) != 0)]
    begins = np.append(True, np.diff(distinct) != 1) | (distinct % ids.SEQ_BOUND == 0)
    first, last = distinct[begins], distinct[np.append(begins[1:], True)]
    columns = [
        pa.array(names, pa.string()).take(pa.array(first // ids.SEQ_BOUND)),
        pa.array(first % ids.SEQ_BOUND),
        pa.array(last % ids.SEQ_BOUND),
    ]
    return Named(pa.table(columns, schema=SEGMENT_RUNS), frozenset(), nulls, 0, None, row)


def named_by_array(values: pa.ChunkedArray, queue: str) -> Named:
    return named_by_ids(values) or named_by_values(values.to_pylist(), queue)


def _dictionary(letters: np.ndarray) -> pa.DictionaryArray:
    text = np.ascontiguousarray(letters)
    values = pa.Array.from_buffers(pa.binary(text.shape[1]), len(text), [None, pa.py_buffer(text)])
    return values.dictionary_encode()


def named_by_column(frame: DataFrame, column: str, queue: str) -> Named:
    """Return what a string column of a DataFrame names.

    The driver gets a bitmap for each block of messages that the column names. Ids, and the handles of each receipt,
    have bitmaps of their own.
    """
    from pyspark.sql import functions as F

    value = F.col(columns.quoted(column))
    is_id = value.rlike(f"^{ids.MESSAGE_ID.pattern}$") & (F.length(value) == ids.SEGMENT_LENGTH + 8)
    is_handle = columns.handle_is_valid(value, F.col(_PARTS), queue)
    parts = columns.handle_parts(F.col(_PARTS))
    ordinal = F.conv(F.substring(value, ids.SEGMENT_LENGTH + 1, 8), 16, 10).cast("bigint")
    rows = frame.withColumn(_PARTS, columns.split_handle(value)).select(
        value.alias("value"),
        F.when(value.isNull(), NOTHING).when(is_id, ID).when(is_handle, HANDLE).otherwise(OTHER).alias("kind"),
        F.when(is_id, F.substring(value, 1, ids.SEGMENT_LENGTH)).when(is_handle, parts["segment"]).alias("segment"),
        F.when(is_id, ordinal).when(is_handle, parts["seq"]).otherwise(0).alias("seq"),
        F.when(is_handle, parts["receipt_id"]).alias("receipt_id"),
    )
    bucket = F.expr(f"seq div {columns.BITMAP}").alias("bucket")
    bits = F.bitmap_construct_agg(F.bitmap_bit_position(F.expr("seq + 1"))).alias("bitmap")
    counted = F.count("*").alias("rows"), F.min("value").alias("example")
    groups = rows.groupBy("kind", "receipt_id", "segment", bucket).agg(bits, *counted).toArrow().to_pylist()
    ours = [row for row in groups if row["kind"] in (ID, HANDLE)]
    strange = [row for row in groups if row["kind"] == OTHER]
    return Named(
        _joined(ours),
        frozenset(row["receipt_id"] for row in ours if row["kind"] == HANDLE),
        sum(row["rows"] for row in groups if row["kind"] == NOTHING),
        sum(row["rows"] for row in strange),
        min((row["example"] for row in strange), default=None),
    )


def _joined(rows: list[dict[str, Any]]) -> pa.Table:
    blocks: dict[tuple[str, int], np.ndarray] = {}
    for row in rows:
        key, bits = (row["segment"], row["bucket"]), np.frombuffer(row["bitmap"], dtype=np.uint8)
        blocks[key] = blocks[key] | bits if key in blocks else bits
    parts = []
    for (segment, bucket), bits in sorted(blocks.items(), key=lambda item: item[0]):
        first, last = (ends + bucket * columns.BITMAP for ends in run_algebra.ones(bits.tobytes()))
        parts.append(pa.table([pa.repeat(segment, len(first)), first, last], schema=SEGMENT_RUNS))
    return pa.concat_tables(parts) if parts else SEGMENT_RUNS.empty_table()


def compare_with_claim(claimed: pa.Table, named: pa.Table) -> tuple[pa.Table, int, int]:
    """Return the claim's named messages (RUNS), the number of other named messages, and that of messages not named."""
    names = sorted({*claimed["segment"].unique().to_pylist(), *named["segment"].unique().to_pylist()})
    lane = claimed["lane"].to_numpy().astype(np.int64)
    held, wanted_runs = (
        _sorted_runs(claimed, names, lane),
        _sorted_runs(named, names, np.zeros(named.num_rows, dtype=np.int64)),
    )
    pieces = held.cut(wanted_runs.first, wanted_runs.last)
    is_strange = pieces.code == ABSENT
    claimed_pieces, seq = pieces.where(~is_strange), pieces.where(~is_strange).first_seq
    segments = pa.array(names, pa.string()).take(pa.array(claimed_pieces.segment, pa.int64()))
    columns = [
        pa.array(claimed_pieces.code, pa.int32()),
        segments,
        pa.array(seq),
        pa.array(seq + claimed_pieces.lengths - 1),
    ]
    runs = pa.table(columns, schema=RUNS)
    strangers = pieces.where(is_strange).count
    return runs, strangers, count_messages(claimed) - count_messages(runs)


def first_id(runs: pa.Table) -> str:
    return ids.message_id(runs["segment"][0].as_py(), runs["first_seq"][0].as_py())


def others_of_claim(claimed: pa.Table, runs_left_out: pa.Table) -> pa.Table:
    """Return the messages of a claim that are not in `runs_left_out`."""
    names = claimed["segment"].unique().to_pylist()
    runs_left_out = runs_left_out.filter(pa.compute.is_in(runs_left_out["segment"], pa.array(names, pa.string())))
    taken, claimed_runs = (
        _sorted_runs(runs_left_out, names, np.zeros(runs_left_out.num_rows, dtype=np.int64)),
        _placed(claimed, names),
    )
    pieces = taken.cut(claimed_runs.first, claimed_runs.last)
    remaining = pieces.where(pieces.code == ABSENT)
    rows = claimed.take(pa.array(remaining.query))
    for name, ordinals in (
        ("first_seq", remaining.first_seq),
        ("last_seq", remaining.first_seq + remaining.lengths - 1),
    ):
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(place), pa.array(ordinals))
    return rows


def _placed(runs: pa.Table, names: list[str]) -> Runs:
    """Return runs in the order of the table. Each run's code is its row number."""
    place = pa.compute.index_in(runs["segment"], pa.array(names, pa.string())).to_numpy().astype(np.int64)
    return Runs.from_arrow(runs, place, np.arange(runs.num_rows))


def _sorted_runs(runs: pa.Table, names: list[str], code: np.ndarray) -> Runs:
    place = pa.compute.index_in(runs["segment"], pa.array(names, pa.string())).to_numpy().astype(np.int64)
    return Runs.from_arrow(runs, place, code).in_order()
