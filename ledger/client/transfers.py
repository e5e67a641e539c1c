"""Copies of a queue's messages: to another queue, to a file, and from a file.

`rules.copies` says why a copy is safe to retry.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ledger.client.access import Access
from ledger.client.export_file import local_path, open_file, write_file
from ledger.errors import InvalidParameterValue, LedgerError, OverLimit
from ledger.results import Copied, Exported
from ledger.rules import attempts
from ledger.rules import message as message_rules
from ledger.rules.admission import NOTHING_SENT
from ledger.rules.attributes import is_fifo
from ledger.rules.copies import CopyProgress, Position, copy_key
from ledger.runtime.progress import Meter, report
from ledger.store.protocol import Contents, CopiedMessage, QueueRecord, StoredMessage

log = logging.getLogger("ledger.copies")
Say = Callable[[str], None]
_NOTHING = CopyProgress(0, 0, ())


def copy(source: Access, target: Access, attempt_id: str | None, say: Say | None, bar: bool | None) -> Copied:
    """See Queue.copy_to."""
    attempts.attempt_id(attempt_id, "attempt_id")
    record, target_record = source.record(), target.record()
    if source.store.place == target.store.place and record.id == target_record.id:
        raise InvalidParameterValue("target", target_record.name, "It is the queue itself", "Name another queue.")
    _require_same_kind("target", target_record, is_fifo(record.attributes), f"{record.name} is")
    key = copy_key("queue", record.id, target_record.id, attempt_id)
    before = target.store.copy_progress(target_record, key)
    progress, count = before or _NOTHING, 0
    while True:
        contents = _remaining_contents(source, record, progress)
        until = progress.marks[0] if progress.parts else contents.until
        with Meter("messages", contents.count + count, report(say, log.info), show=bar) as meter:
            for part in contents.parts:
                if not part:
                    continue
                following = _progress_after(progress, part, until)
                # Somebody may have changed the bounds of the target meanwhile.
                target_record = target.record()
                copied = [_copied(message, target_record) for message in part]
                with _with_progress_in_advice(progress):
                    is_next = target.store.add_copies(target_record, copied, key, following, target.clock)
                if not is_next:
                    break
                progress, count = following, count + len(part)
                meter.update(count)
            else:
                log.info("%d messages of %s were copied to %s", count, record.name, target_record.name)
                return Copied(count, before.messages if before else 0)
        # Another process makes the same copy, and has committed this part.
        progress = target.store.copy_progress(target_record, key) or _NOTHING


@contextmanager
def _with_progress_in_advice(progress: CopyProgress) -> Iterator[None]:
    try:
        yield
    except OverLimit as error:
        before = f"{progress.messages:,} messages of this copy are there: copy again then, and the rest follows."
        advice = error.advice.replace(NOTHING_SENT, "")
        raise OverLimit(error.message, f"{advice} {before}" if progress.messages else error.advice) from None


def _remaining_contents(source: Access, record: QueueRecord, progress: CopyProgress) -> Contents:
    """Return the messages left to copy: after the marks of `progress`, and arrived before the copy began."""
    if not progress.parts:
        return source.store.contents(record, source.clock)
    until, *place = progress.marks
    return source.store.contents(record, source.clock, Position(*place), until)


def _progress_after(progress: CopyProgress, part: Sequence[StoredMessage], until: int) -> CopyProgress:
    return CopyProgress(progress.parts + 1, progress.messages + len(part), (until, *part[-1].position))


def _copied(message: StoredMessage, target: QueueRecord) -> CopiedMessage:
    entry = message_rules.Entry(
        message.body,
        0,
        message.message_attributes,
        message.message_group_id,
        message.message_deduplication_id,
        message.aws_trace_header,
    )
    try:
        message_rules.require_size(entry, target.attributes)
    except LedgerError as error:
        advice = f"It is the message {message.message_id}. {error.advice} Copy again then: the rest follows."
        raise InvalidParameterValue("target", target.name, error.message, advice) from error
    return CopiedMessage(entry, message.position.arrived_at, message.available_at, message.sender_id)


def export(access: Access, path: object, say: Say | None, bar: bool | None) -> Exported:
    """See Queue.export_to."""
    record, file = access.record(), local_path(path)
    contents = access.store.contents(record, access.clock)
    with Meter("messages", contents.count, report(say, log.info), show=bar) as meter:
        messages = write_file(file, record, contents.parts, access.clock(), meter.update)
    log.info("%d messages of %s were exported to %s", messages, record.name, file)
    return Exported(str(file), messages, file.stat().st_size)


def import_file(access: Access, path: object, attempt_id: str | None, say: Say | None, bar: bool | None) -> Copied:
    """See Queue.import_from."""
    attempts.attempt_id(attempt_id, "attempt_id")
    record = access.record()
    with open_file(path) as file:
        _require_same_kind("path", record, file.fifo, f"{file.path} is of", file.path)
        key = copy_key("file", file.id, record.id, attempt_id)
        before = access.store.copy_progress(record, key)
        progress, count = before or _NOTHING, 0
        with Meter("messages", file.messages, report(say, log.info), show=bar) as meter:
            while (group := progress.marks[0] if progress.parts else 0) < file.groups:
                record = access.record()
                messages = file.group(group, record.attributes)
                following = CopyProgress(progress.parts + 1, progress.messages + len(messages), (group + 1,))
                with _with_progress_in_advice(progress):
                    is_next = access.store.add_copies(record, messages, key, following, access.clock)
                if is_next:
                    progress, count = following, count + len(messages)
                else:
                    progress = access.store.copy_progress(record, key) or _NOTHING
                meter.update(progress.messages)
    log.info("%d messages of %s were imported to %s", count, file.path, record.name)
    return Copied(count, before.messages if before else 0)


def _require_same_kind(field: str, queue: QueueRecord, fifo: bool, subject: str, given: str | None = None) -> None:
    if is_fifo(queue.attributes) != fifo:
        kinds = {True: "a FIFO queue", False: "a standard queue"}
        bound = f"{subject} {kinds[fifo]}, and {queue.name} is {kinds[not fifo]}"
        raise InvalidParameterValue(field, given or queue.name, bound, f"Name {kinds[fifo]}. Nothing was copied.")
