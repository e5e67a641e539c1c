"""Copies of a queue's messages: to another queue, and to or from a Parquet file.

Each commit of an import records how many row groups the import has sent. After an import died, another import of the
file into the queue under the same attempt id continues after these row groups.

An export's file is synced before it gets its name, by a hard link, or by a rename where links do not work.

`rules.copies` says why a copy is safe to retry.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ledger.client.access import Access
from ledger.clock import instant, milliseconds_of
from ledger.delta_log import durability
from ledger.errors import InvalidParameterValue, LedgerError, OverLimit, StorageFailed
from ledger.place import locate_here
from ledger.results import Copied, Exported
from ledger.rules import attempts, message_attributes
from ledger.rules import message as message_rules
from ledger.rules.attributes import is_fifo
from ledger.rules.copies import CopyProgress, Position, copy_key
from ledger.rules.limits import NOTHING_SENT
from ledger.rules.message_attributes import Attribute
from ledger.runtime.progress import Meter, choose_report
from ledger.store.protocol import Contents, CopiedMessage, QueueRecord, StoredMessage

#: KEY is the metadata entry that describes the export, as JSON. FORMAT is the format that this release writes.
KEY, FORMAT = b"ledger.export", 1
#: The metadata entry with the number of rows of each row group. It shows whether another program rewrote the file.
GROUPS_KEY = b"ledger.export.rows"
_INSTANT = pa.timestamp("us", "UTC")
_ATTRIBUTE = pa.struct([("data_type", pa.string()), ("string_value", pa.string()), ("binary_value", pa.binary())])
SCHEMA = pa.schema(
    [
        ("message_id", pa.string()),
        ("body", pa.string()),
        ("message_attributes", pa.map_(pa.string(), _ATTRIBUTE)),
        ("message_group_id", pa.string()),
        ("message_deduplication_id", pa.string()),
        ("aws_trace_header", pa.string()),
        ("sender_id", pa.string()),
        ("sequence_number", pa.int64()),  # null except on FIFO queues; an import gives new numbers in the same order
        ("sent_at", _INSTANT),
        ("enqueued_at", _INSTANT),  # when a move began the retention anew
        ("available_at", _INSTANT),
        ("receive_count", pa.int32()),  # an import begins at 0
    ]
)
_PLAIN_FIELDS = ("message_id", "body", "message_group_id", "message_deduplication_id", "aws_trace_header", "sender_id")
_FIX = "Name a file that `ledger export` or queue.export_to wrote. `ledger send` sends the rows of other files."


@dataclass(frozen=True)
class ExportFile:
    """An open export. `groups` is its number of row groups."""

    path: str
    id: str
    fifo: bool
    groups: int
    messages: int
    _file: pq.ParquetFile

    def group(self, number: int, queue: Mapping[str, str]) -> list[CopiedMessage]:
        """Return the messages of one row group, checked by the rules of a queue with the attributes `queue`.

        Raises InvalidParameterValue, which names the row, for a message that the queue would refuse, and StorageFailed.
        """
        before = sum(self._file.metadata.row_group(n).num_rows for n in range(number))
        with _reading(self.path):
            rows = self._file.read_row_group(number).to_pylist()
        return [_make_message(row, queue, self.path, before + place) for place, row in enumerate(rows, 1)]


def require_local_path(path: object) -> Path:
    place = locate_here("path", path)
    if not place.is_local:
        raise InvalidParameterValue("path", path, "Must be a local path", "Copy the file from or to other storage.")
    return Path(place.text)


def write_file(
    path: Path,
    queue: QueueRecord,
    parts: Iterable[Sequence[StoredMessage]],
    now: int,
    on_written: Callable[[int], None],
) -> int:
    """Write an export, with a row group for each part that has messages. Return the number of messages.

    Calls `on_written` with the number so far. Raises InvalidParameterValue if the name is taken or the folder is
    missing, and StorageFailed.
    """
    _require_free(path)
    about = {"format": FORMAT, "id": secrets.token_hex(16), "queue": queue.name, "exported_at": now}
    about |= {"fifo": is_fifo(queue.attributes), "attributes": dict(queue.attributes)}
    schema, written, groups = SCHEMA.with_metadata({KEY: json.dumps(about).encode()}), 0, list[int]()
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with aside.open("xb") as file:
            # Statistics of bodies would repeat bodies in the file's footer.
            with pq.ParquetWriter(
                file, schema, compression="zstd", write_statistics=["sent_at"], write_page_checksum=True
            ) as writer:
                for part in parts:
                    if part:
                        rows = pa.Table.from_pylist([_make_row(message) for message in part], schema)
                        writer.write_table(rows, row_group_size=len(part))
                        written += len(part)
                        on_written(written)
                        groups.append(len(part))
                writer.add_key_value_metadata({GROUPS_KEY: json.dumps(groups)})
            file.flush()
            durability.sync(file.fileno())
        _give_name(aside, path)
    except OSError as error:
        raise StorageFailed(str(path), f"{error.strerror or error}", "export") from error
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()
    return written


def _require_free(path: Path) -> None:
    if path.exists() or path.is_symlink():
        fix = "Name a new file: an export replaces nothing."
        raise InvalidParameterValue("path", str(path), "There is something of that name", fix)
    if not path.parent.is_dir():
        raise InvalidParameterValue("path", str(path), f"There is no folder {path.parent}", "Make the folder.")


def _give_name(aside: Path, path: Path) -> None:
    """Give a written file its name, and sync the folder. Refuse a name that another file has."""
    while True:
        try:
            os.link(aside, path)
        except FileExistsError:
            _require_free(path)
            continue
        except OSError:
            # Most likely the file system has no hard links. A rename may replace a file that got the name after the
            # check.
            _require_free(path)
            aside.rename(path)
        break
    durability.sync_path(path.parent)


@contextmanager
def open_file(given: object) -> Iterator[ExportFile]:
    """Open an export. Raises StorageFailed if the file cannot be read.

    Raises InvalidParameterValue unless `given` is the local path of an unchanged export in a known format.
    """
    path = require_local_path(given)
    if not path.is_file():
        raise InvalidParameterValue("path", str(path), "There is no such file", _FIX)
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
    except pa.ArrowInvalid as error:
        raise InvalidParameterValue("path", str(path), f"It is no whole Parquet file ({error})", _FIX) from None
    except OSError as error:
        raise StorageFailed(str(path), f"{error.strerror or error}", "import") from error
    with file:
        about = _read_description(path, file)
        yield ExportFile(str(path), about["id"], about["fifo"], file.num_row_groups, file.metadata.num_rows, file)


def _read_description(path: Path, file: pq.ParquetFile) -> dict[str, Any]:
    try:
        about = json.loads((file.schema_arrow.metadata or {}).get(KEY) or b"{}")
    except ValueError:
        about = {}
    kinds = {"format": int, "id": str, "fifo": bool}
    if not isinstance(about, dict) or not all(isinstance(about.get(name), kind) for name, kind in kinds.items()):
        raise InvalidParameterValue("path", str(path), f"It does not say that it is an export ({KEY.decode()})", _FIX)
    if isinstance(about["format"], bool) or about["format"] < 1:
        raise InvalidParameterValue("path", str(path), f"There is no format {about['format']} of exports", _FIX)
    if about["format"] > FORMAT:
        bound = f"It has the format {about['format']}, and this release reads formats up to {FORMAT}"
        raise InvalidParameterValue("path", str(path), bound, "Install a newer release.")
    if not file.schema_arrow.remove_metadata().equals(SCHEMA):
        bound = "Its columns are not those of an export: somebody has changed it"
        raise InvalidParameterValue("path", str(path), bound, _FIX)
    groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    if (file.metadata.metadata or {}).get(GROUPS_KEY) != json.dumps(groups).encode():
        # An import that continues after some row groups would skip rows, or import them twice.
        bound = "Its rows are not those of the export: somebody has changed it"
        raise InvalidParameterValue("path", str(path), bound, _FIX)
    return about


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise StorageFailed(path, f"its rows cannot be read ({error})", "import") from error


def _make_row(message: StoredMessage) -> dict[str, Any]:
    attributes = [(name, value._asdict()) for name, value in message.message_attributes.items()]
    moved_at = message.record.enqueued_at
    return {
        **{name: getattr(message, name) for name in _PLAIN_FIELDS},
        "message_attributes": attributes or None,
        "sequence_number": message.sequence_number,
        "sent_at": instant(message.sent_at),
        "enqueued_at": None if moved_at is None else instant(moved_at),
        "available_at": instant(message.available_at),
        "receive_count": message.record.receive_count,
    }


def _make_message(row: Mapping[str, Any], queue: Mapping[str, str], path: str, number: int) -> CopiedMessage:
    attributes = {name: Attribute(**fields) for name, fields in row["message_attributes"] or ()}
    try:
        entry = message_rules.entry(
            row["body"],
            queue,
            message_attributes=attributes,
            message_group_id=row["message_group_id"],
            message_deduplication_id=row["message_deduplication_id"],
            aws_trace_header=row["aws_trace_header"],
        )
        sender = message_attributes.check_sender_id(row["sender_id"])
        for name in ("sent_at", "available_at"):
            if row[name] is None:
                raise InvalidParameterValue(name, None, "Must not be null")
    except LedgerError as error:
        advice = f"{error.advice} Earlier row groups are imported. An import under the same attempt id continues."
        raise InvalidParameterValue(f"row {number}", path, f"It cannot be imported: {error.message}", advice) from error
    kept_since = row["enqueued_at"] or row["sent_at"]
    return CopiedMessage(entry, milliseconds_of(kept_since), milliseconds_of(row["available_at"]), sender)


log = logging.getLogger("ledger.copies")
Say = Callable[[str], None]
_NO_PROGRESS = CopyProgress(0, 0, ())


def copy(source: Access, target: Access, attempt_id: str | None, say: Say | None, bar: bool | None) -> Copied:
    """See Queue.copy_to."""
    attempts.attempt_id(attempt_id, "attempt_id")
    record, target_record = source.record(), target.record()
    if source.store.place == target.store.place and record.id == target_record.id:
        raise InvalidParameterValue("target", target_record.name, "It is the queue itself", "Name another queue.")
    _require_same_kind("target", target_record, is_fifo(record.attributes), f"{record.name} is")
    key = copy_key("queue", record.id, target_record.id, attempt_id)
    before = target.store.copy_progress(target_record, key)
    progress, count = before or _NO_PROGRESS, 0
    while True:
        contents = _read_remaining(source, record, progress)
        until = progress.marks[0] if progress.parts else contents.until
        with Meter("messages", contents.count + count, choose_report(say, log.info), show=bar) as meter:
            for part in contents.parts:
                if not part:
                    continue
                following = _advance_progress(progress, part, until)
                # Somebody may have changed the bounds of the target meanwhile.
                target_record = target.record()
                copied = [_copy_message(message, target_record) for message in part]
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
        progress = target.store.copy_progress(target_record, key) or _NO_PROGRESS


@contextmanager
def _with_progress_in_advice(progress: CopyProgress) -> Iterator[None]:
    try:
        yield
    except OverLimit as error:
        rest = f"Then repeat the call: it continues after the {progress.messages:,} copied messages."
        advice = error.advice.replace(NOTHING_SENT, "")
        raise OverLimit(error.message, f"{advice} {rest}" if progress.messages else error.advice) from None


def _read_remaining(source: Access, record: QueueRecord, progress: CopyProgress) -> Contents:
    """Return the messages left to copy: those behind the copied ones that had arrived when the copy began."""
    if not progress.parts:
        return source.store.contents(record, source.clock)
    until, *place = progress.marks
    return source.store.contents(record, source.clock, Position(*place), until)


def _advance_progress(progress: CopyProgress, part: Sequence[StoredMessage], until: int) -> CopyProgress:
    return CopyProgress(progress.parts + 1, progress.messages + len(part), (until, *part[-1].position))


def _copy_message(message: StoredMessage, target: QueueRecord) -> CopiedMessage:
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
        advice = f"It is the message {message.message_id}. {error.advice} Then copy again: the rest follows."
        raise InvalidParameterValue("target", target.name, error.message, advice) from error
    return CopiedMessage(entry, message.position.arrived_at, message.available_at, message.sender_id)


def export(access: Access, path: object, say: Say | None, bar: bool | None) -> Exported:
    """See Queue.export_to."""
    record, file = access.record(), require_local_path(path)
    contents = access.store.contents(record, access.clock)
    with Meter("messages", contents.count, choose_report(say, log.info), show=bar) as meter:
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
        progress, count = before or _NO_PROGRESS, 0
        with Meter("messages", file.messages, choose_report(say, log.info), show=bar) as meter:
            while (group := progress.marks[0] if progress.parts else 0) < file.groups:
                record = access.record()
                messages = file.group(group, record.attributes)
                following = CopyProgress(progress.parts + 1, progress.messages + len(messages), (group + 1,))
                with _with_progress_in_advice(progress):
                    is_next = access.store.add_copies(record, messages, key, following, access.clock)
                if is_next:
                    progress, count = following, count + len(messages)
                else:
                    progress = access.store.copy_progress(record, key) or _NO_PROGRESS
                meter.update(progress.messages)
    log.info("%d messages of %s were imported to %s", count, file.path, record.name)
    return Copied(count, before.messages if before else 0)


def _require_same_kind(field: str, queue: QueueRecord, fifo: bool, subject: str, given: str | None = None) -> None:
    if is_fifo(queue.attributes) != fifo:
        kinds = {True: "a FIFO queue", False: "a standard queue"}
        bound = f"{subject} {kinds[fifo]}, and {queue.name} is {kinds[not fifo]}"
        raise InvalidParameterValue(field, given or queue.name, bound, f"Name {kinds[fifo]}. Nothing was copied.")
