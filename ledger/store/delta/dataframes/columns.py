"""The rules of `ledger.rules` again, as Spark expressions on columns.

Tests compare them with their twins there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.rules.message import SHOWN
from ledger.rules.message_attributes import SENDER
from ledger.rules.message_id import ORDINAL_BOUND, SEQ_BOUND, segment
from ledger.rules.receipt_handle import PATTERN
from ledger.store.delta.model.message_runs import WORD_SHIFT
from ledger.store.delta.model.tables import EXPIRED_BEFORE

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Messages are joined with runs and sets by blocks of 1,024 ordinals, so each row is compared with few others. A set
#: has a block of 32,768 (see `model.message_runs`).
BLOCK_SHIFT = 10
#: BLOCKS repeats a row for each block that its run or set touches. WORD is the number, in the segment, of the row's
#: first word (64 ordinals) in the block. BITS_OF_BLOCK are the row's words there.
BLOCKS = f"explode(sequence(shiftright(first_seq, {BLOCK_SHIFT}), shiftright(last_seq, {BLOCK_SHIFT}))) AS block"
WORD = f"greatest(block * {1 << BLOCK_SHIFT - WORD_SHIFT}, shiftright(first_seq, {WORD_SHIFT}))"
BITS_OF_BLOCK = (
    f"slice(bits, CAST({WORD} - shiftright(first_seq, {WORD_SHIFT}) + 1 AS INT), {1 << BLOCK_SHIFT - WORD_SHIFT})"
)
#: The bits of a bitmap of Spark's bitmap_construct_agg.
BITMAP = 32_768


def quote_column(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


#: Twin of rules.visibility.status, on a message with its record and `expires_at` (null: none).
STATUS = """CASE
    WHEN deleted_at IS NOT NULL THEN 'deleted'
    WHEN moved_to IS NOT NULL THEN 'moved'
    WHEN expires_at <= {now} THEN 'expired'
    WHEN visible_at > {now} AND receipt_id IS NOT NULL THEN 'in flight'
    WHEN visible_at > {now} THEN 'locked'
    WHEN available_at > {now} THEN 'delayed'
    ELSE 'visible' END"""

#: The attribute SENDER is the ledger's own.
USER_ATTRIBUTES = f"""CASE WHEN exists(map_keys(message_attributes), name -> name <> '{SENDER}')
    THEN map_filter(message_attributes, (name, value) -> name <> '{SENDER}') END"""
SENDER_ID = f"try_element_at(message_attributes, '{SENDER}').string_value"
_SHOWN_AS = {"message_attributes": USER_ATTRIBUTES, "sender_id": SENDER_ID}
SHOWN_COLUMNS = tuple(f"{_SHOWN_AS.get(field.name, field.column)} AS {field.name}" for field in SHOWN)

#: Twin of rules.visibility.expires_at, on a message with its record and its row of `queues`.
EXPIRES_AT = """timestamp_millis(CASE
    WHEN unix_millis(greatest(enqueued_at, sent_at)) <= {expired_before}
        THEN least(unix_millis(greatest(enqueued_at, sent_at)) + {period}, {expired_before})
    ELSE unix_millis(greatest(enqueued_at, sent_at)) + {period} END)""".format(
    period="1000 * CAST(queues.attributes['MessageRetentionPeriod'] AS BIGINT)",
    expired_before=f"CAST(coalesce(try_element_at(queues.attributes, '{EXPIRED_BEFORE}'), '-1') AS BIGINT)",
)


def message_id(segment_name: Column, seq: Column) -> Column:
    from pyspark.sql import functions as F

    return F.concat(segment_name, F.lpad(F.lower(F.hex(seq)), 8, "0"))


def receipt_handle(queue: Column, lane: Column, segment_name: Column, seq: Column, receipt_id: Column) -> Column:
    from pyspark.sql import functions as F

    text = F.concat_ws(".", queue, lane.cast("string"), segment_name, seq.cast("string"), receipt_id)
    return F.concat(text, F.lit("."), _checksum(text))


def split_handle(handle: Column) -> Column:
    """Return the parts of a handle, for `is_valid_handle` and `handle_parts`.

    Make them a column. Otherwise Spark splits the handle again in each branch that uses them.
    """
    from pyspark.sql import functions as F

    return F.split(handle, r"\.")


def is_valid_handle(handle: Column, parts: Column, queue: str) -> Column:
    """Return whether a text is a handle of the queue with this id. Twin of rules.receipt_handle.decode."""
    from pyspark.sql import functions as F

    checksum = F.element_at(parts, -1)
    body = F.substr(handle, F.lit(1), F.length(handle) - F.lit(9))
    has_form = handle.rlike(PATTERN) & (checksum == _checksum(body)) & F.startswith(handle, F.lit(queue + "."))
    # Only a text in this form has an ordinal to compare.
    return F.coalesce(F.when(has_form, handle_parts(parts)["seq"] < SEQ_BOUND), F.lit(False))


def handle_parts(parts: Column) -> dict[str, Column]:
    """Return lane, segment, seq and receipt_id of a valid handle, from `split_handle`."""
    from pyspark.sql import functions as F

    return {
        "lane": F.element_at(parts, -5).cast("int"),
        "segment": F.element_at(parts, -4),
        "seq": F.element_at(parts, -3).cast("bigint"),
        "receipt_id": F.element_at(parts, -2),
    }


def segment_of_send(key: str, ordinal: Column) -> Column:
    """Twin of rules.message_id.segment."""
    from pyspark.sql import functions as F

    first = segment(key, 0)
    high = (int(key[14:18], 16) & 0x3FFF) << (ORDINAL_BOUND.bit_length() - 1)
    low = F.lpad(F.lower(F.hex(F.lit(high) + ordinal)), 8, "0")
    return F.concat(
        F.lit(first[:17]),
        F.substring(low, 1, 1),
        F.lit("-8"),
        F.substring(low, 2, 3),
        F.lit("-"),
        F.substring(low, 5, 4),
    )


def block(seq: str) -> str:
    return f"shiftright({seq}, {BLOCK_SHIFT})"


def is_member(seq: str, row: str = "") -> str:
    """Return SQL for whether a row is about the message with the ordinal `seq`, in the row's block.

    The row is one of `handle_frames.split_into_blocks`, or of `recorded` in the views.
    """
    word = f"CAST(shiftright({seq}, {WORD_SHIFT}) - {row}word AS INT)"
    bit = f"getbit(get({row}bits, {word}), CAST({seq} & {(1 << WORD_SHIFT) - 1} AS INT))"
    return f"({seq} BETWEEN {row}first_seq AND {row}last_seq AND ({row}bits IS NULL OR {bit} = 1))"


def status(now: str) -> Column:
    """Twin of rules.visibility.status. `now` is an SQL expression."""
    from pyspark.sql import functions as F

    return F.expr(STATUS.format(now=now))


def instant_literal(milliseconds: int) -> str:
    return f"timestamp_millis({milliseconds})"


def _checksum(text: Column) -> Column:
    from pyspark.sql import functions as F

    return F.lpad(F.lower(F.hex(F.crc32(text.cast("binary")))), 8, "0")
