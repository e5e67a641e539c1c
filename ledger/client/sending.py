"""The sends of a text, an entry, a list of entries, or a table.

An entry is one message that a call sends: a body, or a mapping with SQS's field names. Each entry of a list has its own
outcome. Some errors of an entry refuse the whole call (`fails_the_batch`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from ledger.client.access import Access
from ledger.client.arrow_rows import (
    SentTable,
    make_sent_table,
    read_entries,
    select_typed_columns,
    with_attributes_as_maps,
    with_dicts_as_maps,
)
from ledger.client.tables import convert_for_spark, is_spark, read_arrow_table, require_batch, require_list
from ledger.errors import InvalidParameterValue, LedgerError
from ledger.results import OutcomeList, SendOutcome
from ledger.rules import attempts
from ledger.rules import message as message_rules
from ledger.rules.attributes import is_fifo
from ledger.rules.message import Entry, fails_the_batch, parse_entry
from ledger.store.protocol import QueueRecord, StoredSend

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from ledger.store.delta.dataframes.bulk_send import Sent

log = logging.getLogger("ledger.send")
NOTHING_SENT = "Nothing was sent."


def entry_advice(number: int) -> str:
    return f"It is entry {number}. {NOTHING_SENT}"


class EntryList:
    """The entries of a send: those that can be sent, and the outcomes of all.

    A LedgerError in place of an entry is its outcome. `queue` has the queue's attributes, and `common` the fields for
    entries that lack them.
    """

    def __init__(
        self, given: Sequence[object], queue: Mapping[str, str], common: Mapping[str, object], *, in_batch: bool
    ) -> None:
        self._read = [_read_entry(message, queue, common, in_batch) for message in given]
        self.entries = [entry for entry in self._read if isinstance(entry, Entry)]

    def require(self, *, every: bool) -> None:
        """Raise the first refused entry's error. Unless `every`, raise only an error that fails the whole call."""
        for number, entry in enumerate(self._read):
            if isinstance(entry, LedgerError) and (every or fails_the_batch(entry)):
                entry.entry = number
                raise entry if len(self._read) == 1 else entry.advised(entry_advice(number))

    def outcomes(self, sent: Sequence[StoredSend], name: str) -> list[SendOutcome]:
        """Return one outcome per entry, in order, from the store's answers for `entries`."""
        answers = iter(sent)
        outcomes = [
            SendOutcome.of(entry, None if isinstance(entry, LedgerError) else next(answers)) for entry in self._read
        ]
        refused = [entry for entry in self._read if isinstance(entry, LedgerError)]
        if refused:
            first = next(number for number, entry in enumerate(self._read) if isinstance(entry, LedgerError))
            # Do not log the error's text: it may show the body.
            error = refused[0]
            why = [getattr(error, part) for part in ("field", "bound") if hasattr(error, part)]
            reason = ": ".join(why if len(why) > 1 else [error.code, *why])
            fix = getattr(error, "fix", "")
            reason += f". {fix}" if fix else ""
            log.warning(
                "%d of %d entries for %s were refused and not sent, the first is entry %d: %s",
                *(len(refused), len(outcomes), name, first, reason),
            )
        return OutcomeList(outcomes)


def _read_entry(
    message: object, queue: Mapping[str, str], common: Mapping[str, object], in_batch: bool
) -> Entry | LedgerError:
    if isinstance(message, LedgerError):
        return message
    try:
        return parse_entry(message, queue, common, in_batch=in_batch)
    except LedgerError as error:
        return error


def send(
    access: Access,
    messages: Any,
    body: str | None,
    attempt_id: str | None,
    common: Mapping[str, object],
    *,
    all_or_nothing: bool,
) -> Sent | SentTable | list[SendOutcome]:
    """See Queue.send. `common` has, by name, the arguments that hold for all messages of a list.

    A list may have a LedgerError in place of an entry that could not be read.
    """
    attempts.attempt_id(attempt_id, "attempt_id")
    record = access.record()
    message_rules.require_no_attempt(attempt_id, record.attributes)
    messages = with_dicts_as_maps(messages, body)
    table = read_arrow_table("messages", messages)
    if is_spark(messages) or table is not None:
        named = [name for name, value in common.items() if value is not None]
        if named:
            bound, fix = "A DataFrame has it as a column", "Add the column."
            raise InvalidParameterValue(named[0], common[named[0]], bound, fix)
        require_batch("messages", messages, "queue.send(batch)")
        return _send_table(access, record, messages if table is None else table, body, attempt_id)
    if body is not None:
        raise InvalidParameterValue("body", body, "It names a column, and a list has none", "Leave it out.")
    message_rules.require_common(record.attributes, **common)
    single = isinstance(messages, (str, Mapping))
    entries = EntryList(
        [messages] if single else require_list("messages", messages), record.attributes, common, in_batch=not single
    )
    entries.require(every=single or all_or_nothing)
    return entries.outcomes(access.store.send(record, entries.entries, access.clock, attempt_id), access.name)


@lru_cache(maxsize=1_000)
def _warn_of_columns(queue: str, names: tuple[str, ...], body: str | None, *, fifo: bool) -> None:
    """Warn of columns that are not sent or not applied, or whose names resemble a field's name."""
    left_out = message_rules.list_unsent_columns(names, body)
    if left_out:
        log.warning("to %s the column %s is sent; left out: %s", queue, body or "body", ", ".join(left_out))
    mistaken = message_rules.list_mistaken_columns(names, body, fifo=fifo)
    if mistaken:
        log.warning("to %s each row is sent whole, as JSON, with its columns: %s", queue, ", ".join(mistaken))


def _send_table(
    access: Access, record: QueueRecord, table: DataFrame | pa.Table, body: str | None, attempt_id: str | None
) -> Sent | SentTable:
    sent: Sent | SentTable
    with access.named_jobs("send"):
        if is_spark(table):
            sent, names = access.spark().send(record, table, body, access.clock, attempt_id), table.columns
        elif access.frames is not None:
            typed = with_attributes_as_maps(select_typed_columns(table, record.attributes, body), body)
            frame = access.frames.of(convert_for_spark(typed))
            of_frame = access.frames.send(record, frame, body, access.clock, attempt_id)
            sent, names = SentTable(table.num_rows, cache(lambda: of_frame.ids().toArrow())), table.column_names
        else:
            entries = read_entries(table, record.attributes, body)
            sent = make_sent_table(entries, access.store.send(record, entries, access.clock, attempt_id))
            names = table.column_names
    _warn_of_columns(access.name, tuple(names), body, fifo=is_fifo(record.attributes))
    return sent
