"""The rules of `ledger.rules` again, as Spark expressions on columns.

Tests compare expressions with their twins in `ledger.rules`. A message's *ordinal* is its place in its segment (`seq`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.rules.message_attributes import SENDER
from ledger.rules.message_fields import SHOWN
from ledger.rules.message_id import ORDINAL_BOUND, SEQ_BOUND, segment
from ledger.rules.receipt_handle import PATTERN
from ledger.store.delta.model.run_sets import WORD_SHIFT
from ledger.store.delta.model.tables import EXPIRED_BEFORE

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Messages are joined with runs and sets by blocks of 2**BLOCK_SHIFT (1,024) ordinals, so that each row is compared
#: with few others. These are not the blocks of 32,768 ordinals of sets (see `model.run_sets`).
BLOCK_SHIFT = 10
#: BLOCKS repeats a row about a run or a set for each block that the run or set touches. The column `block` has the
#: block's number. A word has the bits of 64 ordinals, and the words of a segment are numbered from 0. WORD is the
#: number of the row's first word in the block, and BITS_OF_BLOCK has the row's words in the block.
BLOCKS = f"explode(sequence(shiftright(first_seq, {BLOCK_SHIFT}), shiftright(last_seq, {BLOCK_SHIFT}))) AS block"
WORD = f"greatest(block * {1 << BLOCK_SHIFT - WORD_SHIFT}, shiftright(first_seq, {WORD_SHIFT}))"
BITS_OF_BLOCK = (
    f"slice(bits, CAST({WORD} - shiftright(first_seq, {WORD_SHIFT}) + 1 AS INT), {1 << BLOCK_SHIFT - WORD_SHIFT})"
)
#: The number of bits (a bucket) in a bitmap of Spark's function bitmap_construct_agg.
BITMAP = 32_768


def quoted(column: str) -> str:
    """Return the name of a column in backticks, so that Spark takes any name: with dots, spaces or backticks."""
    return "`" + column.replace("`", "``") + "`"


#: Twin of rules.state.status. It needs the columns of a message joined with its record, and `expires_at` (null: expiry
#: does not count). `{now}` is the instant.
STATUS = """CASE
    WHEN deleted_at IS NOT NULL THEN 'deleted'
    WHEN moved_to IS NOT NULL THEN 'moved'
    WHEN expires_at <= {now} THEN 'expired'
    WHEN visible_at > {now} AND receipt_id IS NOT NULL THEN 'in flight'
    WHEN visible_at > {now} THEN 'locked'
    WHEN available_at > {now} THEN 'delayed'
    ELSE 'visible' END"""

#: The attributes that the sender gave a message, without the ledger's own entry SENDER. Null if the sender gave none.
USER_ATTRIBUTES = f"""CASE WHEN exists(map_keys(message_attributes), name -> name <> '{SENDER}')
    THEN map_filter(message_attributes, (name, value) -> name <> '{SENDER}') END"""
SENDER_ID = f"try_element_at(message_attributes, '{SENDER}').string_value"
_SHOWN_AS = {"message_attributes": USER_ATTRIBUTES, "sender_id": SENDER_ID}
#: The fields of a message that users see, as expressions on its row of `messages`, each under its field's name.
SHOWN_COLUMNS = tuple(f"{_SHOWN_AS.get(field.name, field.column)} AS {field.name}" for field in SHOWN)

#: Twin of rules.state.expires_at. It needs the columns of a message joined with its record, and those of its queue's
#: row as `queues`.
EXPIRES_AT = """timestamp_millis(CASE
    WHEN unix_millis(greatest(enqueued_at, sent_at)) <= {expired_before}
        THEN least(unix_millis(greatest(enqueued_at, sent_at)) + {period}, {expired_before})
    ELSE unix_millis(greatest(enqueued_at, sent_at)) + {period} END)""".format(
    period="1000 * CAST(queues.attributes['MessageRetentionPeriod'] AS BIGINT)",
    expired_before=f"CAST(coalesce(try_element_at(queues.attributes, '{EXPIRED_BEFORE}'), '-1') AS BIGINT)",
)


def message_id(segment_name: Column, seq: Column) -> Column:
    """Return the message id. Twin of rules.message_id.message_id."""
    from pyspark.sql import functions as F

    return F.concat(segment_name, F.lpad(F.lower(F.hex(seq)), 8, "0"))


def receipt_handle(queue: Column, lane: Column, segment_name: Column, seq: Column, receipt_id: Column) -> Column:
    """Return the receipt handle. Twin of rules.receipt_handle.encode."""
    from pyspark.sql import functions as F

    text = F.concat_ws(".", queue, lane.cast("string"), segment_name, seq.cast("string"), receipt_id)
    return F.concat(text, F.lit("."), _checksum(text))


def split_handle(handle: Column) -> Column:
    """Return the parts of a handle, for `handle_is_valid` and `handle_parts`.

    Make the parts a column of their own. Otherwise Spark splits the handle again in each branch that uses the parts.
    """
    from pyspark.sql import functions as F

    return F.split(handle, r"\.")


def handle_is_valid(handle: Column, parts: Column, queue: str) -> Column:
    """Return whether a text is a receipt handle of the queue with this id. Twin of rules.receipt_handle.decode.

    `parts` is a column of `split_handle`.
    """
    from pyspark.sql import functions as F

    checksum = F.element_at(parts, -1)
    body = F.substr(handle, F.lit(1), F.length(handle) - F.lit(9))
    has_form = handle.rlike(PATTERN) & (checksum == _checksum(body)) & F.startswith(handle, F.lit(queue + "."))
    # Only a text in the form of a handle has an ordinal to compare with the bound.
    return F.coalesce(F.when(has_form, handle_parts(parts)["seq"] < SEQ_BOUND), F.lit(False))


def handle_parts(parts: Column) -> dict[str, Column]:
    """Return lane, segment, seq and receipt_id of a valid handle. `parts` is a column of `split_handle`."""
    from pyspark.sql import functions as F

    return {
        "lane": F.element_at(parts, -5).cast("int"),
        "segment": F.element_at(parts, -4),
        "seq": F.element_at(parts, -3).cast("bigint"),
        "receipt_id": F.element_at(parts, -2),
    }


def segment_of_send(key: str, ordinal: Column) -> Column:
    """Return the name of the segment with the number `ordinal` of a send. Twin of rules.message_id.segment."""
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
    """Return SQL for the block (of 1,024 ordinals) of an ordinal."""
    return f"shiftright({seq}, {BLOCK_SHIFT})"


def is_member(seq: str, row: str = "") -> str:
    """Return SQL for whether a row is about the message with the ordinal `seq`, which must be in the row's block.

    The row is one of `frame_runs.in_blocks`, or of `recorded` in the views. `row` is the prefix of its columns' names.
    """
    word = f"CAST(shiftright({seq}, {WORD_SHIFT}) - {row}word AS INT)"
    bit = f"getbit(get({row}bits, {word}), CAST({seq} & {(1 << WORD_SHIFT) - 1} AS INT))"
    return f"({seq} BETWEEN {row}first_seq AND {row}last_seq AND ({row}bits IS NULL OR {bit} = 1))"


def status(now: str) -> Column:
    """Return the status of a message at the instant `now`, an SQL expression. Twin of rules.state.status."""
    from pyspark.sql import functions as F

    return F.expr(STATUS.format(now=now))


def instant_literal(milliseconds: int) -> str:
    """Return SQL for an instant."""
    return f"timestamp_millis({milliseconds})"


def _checksum(text: Column) -> Column:
    from pyspark.sql import functions as F

    return F.lpad(F.lower(F.hex(F.crc32(text.cast("binary")))), 8, "0")
