"""The messages that a write acknowledges or releases: all, those that rows name, or all but the failed messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.client.tables import is_spark, is_text, read_arrow_table, require_column, require_list
from ledger.errors import InvalidParameterValue, ReceiptHandleIsInvalid
from ledger.rules import message_id as ids
from ledger.rules import visibility as rule
from ledger.rules.receipt_handle import decode
from ledger.rules.visibility import Verb
from ledger.store.delta.dataframes import columns
from ledger.store.delta.model import message_runs
from ledger.store.delta.model.message_runs import ABSENT, Runs
from ledger.store.protocol import RUNS, Action, Grant, Postponed, QueueRecord, count_messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ID, HANDLE, NOTHING, OTHER = "message id", "receipt handle", "null", "other"
#: The name of a column that is added to the user's columns: the parts of each handle.
_PARTS = "ledger_parts_of_the_handle"


@dataclass(frozen=True)
class Named:
    """The messages that some values name.

    Attributes:
        messages: the messages as runs (segment, first_seq, last_seq), sorted, without duplicates.
        receipts: the receipts of the handles.
        nulls: how many values are null.
        others: how many values are neither null, nor an id, nor a handle of the queue.
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


def resolve_values(values: Iterable[object], queue: str) -> Named:
    """Return the messages that a list of values names. `queue` is the id of the queue whose handles count."""
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


def resolve_ids(values: pa.ChunkedArray) -> Named | None:
    """Return the messages that an array names. Return None if a value is neither a message id nor null."""
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


def resolve_array(values: pa.ChunkedArray, queue: str) -> Named:
    return resolve_ids(values) or resolve_values(values.to_pylist(), queue)


def _dictionary(letters: np.ndarray) -> pa.DictionaryArray:
    text = np.ascontiguousarray(letters)
    values = pa.Array.from_buffers(pa.binary(text.shape[1]), len(text), [None, pa.py_buffer(text)])
    return values.dictionary_encode()


def resolve_column(frame: DataFrame, column: str, queue: str) -> Named:
    """Return the messages that a string column of a DataFrame names.

    The driver gets a bitmap for each block of messages that the column names. Ids, and the handles of each receipt,
    have bitmaps of their own.
    """
    from pyspark.sql import functions as F

    value = F.col(columns.quote_column(column))
    is_id = value.rlike(f"^{ids.MESSAGE_ID.pattern}$") & (F.length(value) == ids.SEGMENT_LENGTH + 8)
    is_handle = columns.is_valid_handle(value, F.col(_PARTS), queue)
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
        _join_bitmaps(ours),
        frozenset(row["receipt_id"] for row in ours if row["kind"] == HANDLE),
        sum(row["rows"] for row in groups if row["kind"] == NOTHING),
        sum(row["rows"] for row in strange),
        min((row["example"] for row in strange), default=None),
    )


def _join_bitmaps(rows: list[dict[str, Any]]) -> pa.Table:
    blocks: dict[tuple[str, int], np.ndarray] = {}
    for row in rows:
        key, bits = (row["segment"], row["bucket"]), np.frombuffer(row["bitmap"], dtype=np.uint8)
        blocks[key] = blocks[key] | bits if key in blocks else bits
    parts = []
    for (segment, bucket), bits in sorted(blocks.items(), key=lambda item: item[0]):
        first, last = (ends + bucket * columns.BITMAP for ends in message_runs.ones(bits.tobytes()))
        parts.append(pa.table([pa.repeat(segment, len(first)), first, last], schema=SEGMENT_RUNS))
    return pa.concat_tables(parts) if parts else SEGMENT_RUNS.empty_table()


def compare_with_claim(claimed: pa.Table, named: pa.Table) -> tuple[pa.Table, int, int]:
    """Return the messages that are both claimed and named (RUNS), and two counts.

    The first counts the named messages that are not claimed, the second the claimed messages that are not named.
    """
    names = sorted({*claimed["segment"].unique().to_pylist(), *named["segment"].unique().to_pylist()})
    lane = claimed["lane"].to_numpy().astype(np.int64)
    held, wanted_runs = (
        _sort_runs(claimed, names, lane),
        _sort_runs(named, names, np.zeros(named.num_rows, dtype=np.int64)),
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


def find_other_messages(claimed: pa.Table, runs_left_out: pa.Table) -> pa.Table:
    """Return the messages of a claim that are not in `runs_left_out`."""
    names = claimed["segment"].unique().to_pylist()
    runs_left_out = runs_left_out.filter(pa.compute.is_in(runs_left_out["segment"], pa.array(names, pa.string())))
    taken, claimed_runs = (
        _sort_runs(runs_left_out, names, np.zeros(runs_left_out.num_rows, dtype=np.int64)),
        _make_runs(claimed, names),
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


def _make_runs(runs: pa.Table, names: list[str]) -> Runs:
    """Return runs in the order of the table. Each run's code is its row number."""
    place = pa.compute.index_in(runs["segment"], pa.array(names, pa.string())).to_numpy().astype(np.int64)
    return Runs.from_arrow(runs, place, np.arange(runs.num_rows))


def _sort_runs(runs: pa.Table, names: list[str], code: np.ndarray) -> Runs:
    place = pa.compute.index_in(runs["segment"], pa.array(names, pa.string())).to_numpy().astype(np.int64)
    return Runs.from_arrow(runs, place, code).in_order()


#: CARRIED are the columns that name the messages of rows, even if the caller names no column.
HANDLE_COLUMN = "receipt_handle"
CARRIED = ("message_id", HANDLE_COLUMN)
TEXT = ("string", "large_string", "string_view")


class OutputRows(Protocol):
    """Rows that are to be written, and the messages that their columns name (see `writers.Writer`)."""

    @property
    def columns(self) -> Mapping[str, str]:
        """See Writer."""

    def named(self, column: str, queue: str) -> Named:
        """See Writer."""

    def find_named_failed(self, column: str, queue: str) -> Named:
        """See Writer."""


class Chosen(NamedTuple):
    """Messages as RUNS: those that are acknowledged, and those that are not."""

    done: pa.Table
    failed: pa.Table


def choose_messages(queue: QueueRecord, grant: Grant, rows: OutputRows, messages: Any) -> pa.Table:
    """Return the messages to acknowledge, as RUNS. `messages` is as in Claim.write.

    Each value of `messages` must name a message of the claim. If `messages` is None, the columns of CARRIED may name
    only messages of the claim. If `messages` is a list or a table, each of these columns must name exactly the
    acknowledged messages, or no message. If `messages` is a column of the rows, these columns are not checked.
    """
    claimed = grant.runs.select(RUNS.names)
    if isinstance(messages, str):
        return _require_in_claim(
            grant, claimed, _resolve_named_column(queue, rows, messages), "messages", f"column {messages} of rows"
        )
    chosen, what = claimed, "the claim"
    if messages is not None:
        chosen, what = (
            _require_in_claim(grant, claimed, _resolve_given(queue, messages, "messages"), "messages", "messages"),
            "messages",
        )
    # If the caller names the messages, a column of CARRIED that names no message has another meaning.
    columns = _resolve_id_columns(queue, rows)
    for column, named in _columns_with_messages(columns) if messages is not None else columns:
        _require_agreement(grant, chosen, named, column, what, exactly=messages is not None)
    return chosen


def choose_all_but(queue: QueueRecord, grant: Grant, rows: OutputRows, failed: Any) -> Chosen:
    """Choose all messages of a claim except those that `failed` names, as in Claim.write.

    If the rows have ids or handles, the rows to be written must name each message that did not fail, and no failed
    message. Without ids and handles, `failed` may not be a DataFrame.
    """
    claimed = grant.runs.select(RUNS.names)
    if isinstance(failed, str):
        named, what = rows.find_named_failed(find_id_column(rows), queue.id), f"rows with a value in {failed}"
    else:
        named, what = _resolve_given(queue, failed, "failed"), "failed"
    exceptions = _require_in_claim(grant, claimed, named, "failed", what)
    others = find_other_messages(claimed, exceptions).select(RUNS.names)
    by = find_id_column(rows) if isinstance(failed, str) else None
    columns = _resolve_id_columns(queue, rows)
    # If no column names a message, the first column that has only nulls, has no rows, or is `by` (which identifies the
    # failed rows) says that no message has a row. Any other column has another meaning.
    carried = (
        _columns_with_messages(columns)
        or [(column, named_by) for column, named_by in columns if column == by or not named_by.others][:1]
    )
    if not carried and is_spark(failed):
        raise InvalidParameterValue(
            "failed",
            "a DataFrame",
            "The rows have no message ids and are computed separately, so nothing shows whether they agree with "
            "the DataFrame of failed messages",
            "Give the rows a column message_id, or name a column of the rows that says which messages failed.",
        )
    for column, about in carried:
        what = "the claim without the failed messages"
        # Never advise messages=: if the rows name failed messages, it would acknowledge these.
        fix = (
            f"Give each message either rows without a value in {failed} or, if it failed, rows with one."
            if isinstance(failed, str)
            else "Leave out the rows of failed messages, and name each message without a row in failed=, too."
        )
        _require_agreement(grant, others, about, column, what, exactly=True, fix=fix)
    return Chosen(others, exceptions)


def find_id_column(rows: OutputRows) -> str:
    carried = next((column for column in CARRIED if rows.columns.get(column) in TEXT), None)
    if carried is None:
        raise InvalidParameterValue(
            "rows", ", ".join(rows.columns), f"They have no column {' or '.join(CARRIED)} of texts"
        )
    return carried


def require_failed(failed: str | None, columns: Sequence[str]) -> None:
    if failed is not None and failed not in columns:
        raise InvalidParameterValue(
            "failed", failed, f"The rows have no such column; they have {', '.join(columns)}", "Name one of them."
        )


def _columns_with_messages(columns: list[tuple[str, Named]]) -> list[tuple[str, Named]]:
    return [(column, named) for column, named in columns if named.messages.num_rows]


def _resolve_id_columns(queue: QueueRecord, rows: OutputRows) -> list[tuple[str, Named]]:
    columns = [column for column in CARRIED if rows.columns.get(column) in TEXT]
    return [(column, rows.named(column, queue.id)) for column in columns]


def _resolve_named_column(queue: QueueRecord, rows: OutputRows, column: str) -> Named:
    kinds = rows.columns
    if column not in kinds:
        raise InvalidParameterValue(
            "messages", column, f"The rows have no such column; they have {', '.join(kinds)}", "Name one of them."
        )
    if kinds[column] not in TEXT:
        raise InvalidParameterValue("messages", column, f"The column is {kinds[column]} and must be string", "Cast it.")
    return rows.named(column, queue.id)


def _resolve_given(queue: QueueRecord, messages: Any, field: str) -> Named:
    if is_spark(messages):
        from ledger.store.delta.dataframes.frames import require_column as require_column_of_frame

        column = _choose_naming_column(messages.columns)
        require_column_of_frame(messages, column, "string")
        return resolve_column(messages, column, queue.id)
    table = read_arrow_table(field, messages)
    if table is None:
        return resolve_values(require_list(field, messages), queue.id)
    return resolve_array(require_column(table, _choose_naming_column(table.column_names), is_text, "string"), queue.id)


def _choose_naming_column(columns: Sequence[str]) -> str:
    return CARRIED[0] if CARRIED[0] in columns and HANDLE_COLUMN not in columns else HANDLE_COLUMN


def _require_in_claim(grant: Grant, claimed: pa.Table, named: Named, field: str, what: str) -> pa.Table:
    if named.nulls or named.others:
        raise InvalidParameterValue(
            field,
            named.example,
            f"In {what}, {named.nulls + named.others:,} are neither a message id nor a receipt handle of the queue"
            f"{_describe_row(named)}",
            "Leave these values out.",
        )
    runs, strangers, _ = compare_with_claim(claimed, named.messages)
    if strangers or named.receipts - {grant.receipt_id}:
        raise InvalidParameterValue(
            field,
            what,
            f"Must be messages of the claim {grant.receipt_id}; "
            + (
                f"{strangers:,} are not, message {first_id(find_other_messages(named.messages, claimed))} for one"
                if strangers
                else "the handles are of another receipt"
            ),
        )
    return runs


def _describe_row(named: Named) -> str:
    if named.row is not None:
        return f" (row {named.row} for one)"
    return "" if named.example is None else f" ({named.example!r} for one)"


def _require_agreement(
    grant: Grant, chosen: pa.Table, named: Named, column: str, what: str, *, exactly: bool, fix: str | None = None
) -> None:
    _, strangers, missing = compare_with_claim(chosen, named.messages)
    wrong = []
    if strangers:
        example = first_id(find_other_messages(named.messages, chosen))
        wrong.append(f"there are rows about {strangers:,} messages that are not in {what} (message {example} for one)")
    if named.receipts - {grant.receipt_id}:
        wrong.append("there are handles of another receipt")
    if exactly and missing:
        example = first_id(find_other_messages(chosen, named.messages))
        wrong.append(f"{missing:,} of the messages have no row (message {example} for one)")
    # Without `exactly`, some rows may have null in the column. If all have null, a join has probably found nothing.
    if named.others or (named.nulls and (exactly or not named.messages.num_rows)):
        wrong.append(f"{named.others + named.nulls:,} rows name no message of the queue{_describe_row(named)}")
    if wrong:
        raise InvalidParameterValue(
            "rows",
            column,
            f"By their column {column}, {' and '.join(wrong)}",
            (fix or f'Give messages="{column}" to acknowledge only the messages that have rows.')
            + " If the column means something else, rename it"
            + ("." if exactly else ", or name the messages by messages=."),
        )


def give_back_each(
    queue: str,
    grant: Grant,
    runs: pa.Table,
    timeout: int,
    reasons: pa.Table | None = None,
    without: str | None = None,
    postponed: Postponed = Postponed.RETRY,
    mark: int = 0,
    *,
    counted: bool = True,
) -> list[Action]:
    """Return the actions that release messages, or release them and hide them for `timeout` seconds.

    Args:
        queue: the queue's id.
        runs: messages of the claim.
        reasons: a column of message ids or receipt handles, and a column of reasons. Of several rows with the same id
            or handle, the first counts.
        without: the reason of messages that get none from `reasons`.
        postponed: why the messages are hidden, if they are.
        mark: the mark of the first action (see `rules.visibility.change`). Each further action has the next number.
        counted: False subtracts this receive from each message's receive count.
    """
    hidden = postponed if timeout else None
    return [
        Action(
            *(Verb.CHANGE, grant.receipt_id, part, timeout, True),
            reason=why,
            counted=counted,
            postponed=hidden,
            mark=mark + number,
        )
        for number, (why, part) in enumerate(_group_by_reason(queue, runs.select(RUNS.names), reasons, without))
    ]


def _group_by_reason(
    queue: str, runs: pa.Table, reasons: pa.Table | None, without: str | None
) -> Iterator[tuple[str | None, pa.Table]]:
    """Yield pairs of a reason and its messages: the most frequent reasons, then FURTHER, then `without`."""
    remaining = runs
    if reasons is not None and reasons.num_rows and remaining.num_rows:
        first = _keep_first_of_each(reasons)
        texts_kept = [rule.clean_any_reason(text) for text in first.column(1).to_pylist()]
        texts, names = pa.array(texts_kept, pa.string()), rule.list_frequent_reasons(texts_kept)
        for why in names:
            part, remaining = _split_named(queue, remaining, first.column(0).filter(pc.equal(texts, why)))
            yield from ((why, part),) if part.num_rows else ()
        further = pc.and_(pc.is_valid(texts), pc.invert(pc.is_in(texts, pa.array(names, pa.string()))))
        part, remaining = _split_named(queue, remaining, first.column(0).filter(further))
        yield from ((rule.FURTHER, part),) if part.num_rows else ()
    if remaining.num_rows:
        yield without, remaining


def _keep_first_of_each(reasons: pa.Table) -> pa.Table:
    named = reasons.filter(pc.is_valid(reasons.column(0)))
    codes = named.column(0).combine_chunks().cast(pa.large_string()).dictionary_encode().indices.to_numpy()
    return named.take(pa.array(np.sort(np.unique(codes, return_index=True)[1])))


def _split_named(queue: str, runs: pa.Table, named: pa.ChunkedArray) -> tuple[pa.Table, pa.Table]:
    if not len(named):
        return runs.slice(0, 0), runs
    named_runs = compare_with_claim(runs, resolve_array(named, queue).messages)[0]
    return named_runs, find_other_messages(runs, named_runs).select(RUNS.names)
