"""The work of a bulk send's task: check bodies, and write files, a whole Arrow batch at a time.

**Spark sends this module's code to the executors,** which may lack this package or have another release of it.
Therefore the module imports nothing of the package.

**A task's answer names only files that the task has finished.** No other task or attempt uses their names. The driver
publishes only the files of the successful attempt. A failed attempt removes its files, and upkeep removes those that
are left.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

#: The schema of a task's answer, in Spark's DDL. The answer is one row of JSON: for each file, a list of Written's
#: values.
ANSWER = "files string"
#: The kinds of errors that a task raises itself.
REFUSES, MANY_SEGMENTS, STORAGE_FAILS = "refuses", "many segments", "storage fails"
#: What a refusal begins with if it has its own error or text. Other refusals, which are not of this module, begin with
#: the name of the wrong field.
MISSING, CHARACTER, TOO_LONG = "missing", "character", "too long"
#: What a refusal names in place of a character if a body is not UTF-8.
NO_UTF_8 = "no UTF-8"
#: U+FFFE and U+FFFF (EF BF BE, EF BF BF) are refused, and all controls below 0x20 except _ALLOWED_CONTROLS.
_SPACE, _ASCII, _LEAD, _MIDDLE, _LAST = 0x20, 0x80, 0xEF, 0xBF, 0xBE
_ALLOWED_CONTROLS = (0x09, 0x0A, 0x0D)
#: Longer texts are cut to about this length in the statistics of Delta's log. If a column's maximum is cut,
#: BEHIND_ASCII or BEHIND_ALL is appended, so that the result sorts after the whole text.
MOST_OF_A_TEXT, BEHIND_ASCII, BEHIND_ALL = 32, "\x7f", "\U0010ffff"
#: How many first values decide whether a column gets a dictionary.
LOOKED_AT = 1_024
#: How many parts of 10 MB are sent to an object store at the same time.
PARTS_AT_ONCE = 2
_INSTANT = pa.timestamp("us", "UTC")


class Stop(Exception):
    """An error that ends the task. The driver finds its text in Spark's error."""


class Written(NamedTuple):
    """A finished file."""

    name: str
    #: In bytes.
    size: int
    #: The number of the file's segment in the send.
    ordinal: int
    #: In milliseconds.
    modified_at: int
    #: In JSON.
    statistics: str


class Folder(NamedTuple):
    place: str

    def create(self, name: str) -> Any:
        return open(f"{self.place}/{name}", "xb")  # noqa: PTH123

    def size_and_time(self, name: str) -> tuple[int, int]:
        """Return a file's size in bytes, and when it was modified, in milliseconds."""
        status = os.stat(f"{self.place}/{name}")  # noqa: PTH116
        return status.st_size, status.st_mtime_ns // 1_000_000

    def remove(self, name: str) -> None:
        os.unlink(f"{self.place}/{name}")  # noqa: PTH108


class Upload:
    """A new file of an object store. It exists only after it is closed."""

    def __init__(self, writer: Any) -> None:
        self._writer, self.closed, self.is_abandoned = writer, False, False

    def write(self, content: Any) -> int:
        if not self.is_abandoned:
            self._writer.write(bytes(content))
        return len(content)

    def flush(self) -> None:
        """Do nothing: obstore sends a part once it is large enough."""

    def close(self) -> None:
        """Finish the file, unless it is abandoned."""
        if not self.closed and not self.is_abandoned:
            self._writer.close()
        self.closed = True


class Objects(NamedTuple):
    """A folder on an object store: obstore's class, and its arguments."""

    kind: str
    place: str
    options: Mapping[str, Any]
    folder: str

    def _store(self) -> Any:
        import obstore.store

        return getattr(obstore.store, self.kind).from_url(self.place, **self.options)

    def create(self, name: str) -> Any:
        import obstore

        return Upload(obstore.open_writer(self._store(), f"{self.folder}/{name}", max_concurrency=PARTS_AT_ONCE))

    def size_and_time(self, name: str) -> tuple[int, int]:
        import obstore

        facts = obstore.head(self._store(), f"{self.folder}/{name}")
        return facts["size"], round(facts["last_modified"].timestamp() * 1_000)

    def remove(self, name: str) -> None:
        import obstore

        obstore.delete(self._store(), f"{self.folder}/{name}")


class SendJob(NamedTuple):
    #: The prefix of each error that a task raises itself. It is secret, so no error of a user's function has it.
    token: str
    place: Folder | Objects
    schema: pa.Schema
    statistics: tuple[str, ...]
    #: The maximum number of tasks of the send.
    tasks: int
    #: The numbers of segments are below this bound.
    most_segments: int
    rows_per_segment: int
    rows_per_file: int
    #: The maximum size of a row group in bytes. A row group of one row may be larger.
    row_group_bytes: int
    #: If the values of a column have more bytes than this on average, the column gets no dictionary.
    long: int
    #: The maximum size of a body in bytes.
    most_bytes: int
    #: The maximum number of characters of a refused body that an error has.
    most_shown: int
    #: In milliseconds.
    sent_at: int
    #: In milliseconds. None: the column delay_seconds has each row's delay.
    delay: int | None


def make_task_function(job: SendJob) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that Spark runs over the batches of a task."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        files = TaskFiles(job, context.partitionId())
        try:
            for batch in batches:
                require_sendable(job, batch.column("body"))
                files.add(batch)
            answer = files.finish()
        except BaseException:
            files.remove()
            raise
        yield pa.RecordBatch.from_arrays([_text(json.dumps(answer))], names=["files"])

    return write


def require_sendable(job: SendJob, bodies: pa.Array) -> None:
    """End the task if a body is null, empty or too long, or has a refused character."""
    if not len(bodies):
        return
    if not bodies.null_count:
        lengths = pc.binary_length(bodies)
        shortest, longest = pc.min_max(lengths).as_py().values()
        if shortest and longest <= job.most_bytes and not _has_wrong_character(bodies):
            return
    for body in bodies.cast(pa.large_binary()):
        _require_one(job, body.as_py())


def _has_wrong_character(bodies: pa.Array) -> bool:
    """Return whether one of the bodies has a refused character or is not UTF-8. No body may be null or empty."""
    ends = np.frombuffer(bodies.buffers()[1], np.int64 if pa.types.is_large_string(bodies.type) else np.int32)
    first, last = ends[bodies.offset], ends[bodies.offset + len(bodies)]
    text = np.frombuffer(bodies.buffers()[2], np.uint8)[first:last]
    if text.min() < _SPACE:
        allowed = sum(np.count_nonzero(text == code) for code in _ALLOWED_CONTROLS)
        if np.count_nonzero(text < _SPACE) > allowed:
            return True
    if text.max() < _ASCII:
        return False
    try:
        bodies.validate(full=True)
    except pa.ArrowInvalid:
        return True
    # In valid UTF-8, two more bytes follow a byte EF.
    leads = np.flatnonzero(text == _LEAD)
    return bool(np.any((text[leads + 1] == _MIDDLE) & (text[leads + 2] >= _LAST)))


def _require_one(job: SendJob, body: bytes | None) -> None:
    shown = "null" if body is None else take_characters(body, job.most_shown).hex().upper()
    if not body:
        raise Stop(f"{job.token}{REFUSES}|{MISSING}|MessageBody|{shown}|")
    if len(body) > job.most_bytes:
        raise Stop(f"{job.token}{REFUSES}|{TOO_LONG}||{shown}|")
    name = find_wrong_character(body)
    if name is not None:
        raise Stop(f"{job.token}{REFUSES}|{CHARACTER}|{name}|{shown}|")


def find_wrong_character(body: bytes) -> str | None:
    """Return the name of the first refused character (like #xB), or NO_UTF_8, or None."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return NO_UTF_8
    for character in text:
        code = ord(character)
        if (code < _SPACE and code not in _ALLOWED_CONTROLS) or code in (0xFFFE, 0xFFFF):
            return f"#x{code:X}"
    return None


def take_characters(body: bytes, characters: int) -> bytes:
    """Return the first characters of a text as Spark counts them: by their first bytes, even if a text is not UTF-8."""
    end = 0
    for _ in range(characters):
        if end >= len(body):
            break
        first = body[end]
        end += 2 if 0xC2 <= first <= 0xDF else 3 if 0xE0 <= first <= 0xEF else 4 if 0xF0 <= first <= 0xF4 else 1
    return body[:end]


class TaskFiles:
    """The files of one attempt of a task. All files except the last are full."""

    def __init__(self, job: SendJob, task: int) -> None:
        self._job, self._task = job, task
        #: The number of written rows. Further rows wait until their row group is full.
        self._row = 0
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._file: TaskFile | None = None
        self._answers = list[Written]()
        self._begun = list[str]()

    def add(self, batch: pa.RecordBatch) -> None:
        while batch.num_rows:
            room = self._job.rows_per_file - (self._row + self._waiting_rows) % self._job.rows_per_file
            for part in _split_batch(batch.slice(0, room), self._job.row_group_bytes):
                if self._waiting_bytes + part.nbytes > self._job.row_group_bytes:
                    self._write()
                self._waiting.append(part)
                self._waiting_rows += part.num_rows
                self._waiting_bytes += part.nbytes
            batch = batch.slice(room)
            if (self._row + self._waiting_rows) % self._job.rows_per_file == 0:
                self._close()

    def finish(self) -> list[Written]:
        self._close()
        return self._answers

    def remove(self) -> None:
        if self._file is not None:
            self._file.abandon()
        for name in self._begun:
            with contextlib.suppress(Exception):
                self._job.place.remove(name)

    def _write(self) -> None:
        if not self._waiting_rows:
            return
        seq = self._row % self._job.rows_per_segment
        rows = _columns(self._job, pa.Table.from_batches(self._waiting), seq)
        with self._naming_errors():
            if self._file is None:
                name = f"part-{self._task:05d}-{secrets.token_hex(16)}.snappy.parquet"
                self._begun.append(name)
                self._file = TaskFile(self._job, name, self._ordinal(), rows)
            self._file.write(rows)
        self._row += self._waiting_rows
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0

    def _close(self) -> None:
        self._write()
        if self._file is not None:
            with self._naming_errors():
                self._answers.append(self._file.close())
            self._file = None

    def _ordinal(self) -> int:
        """Return the number of the next row's segment in the send: n * tasks + task for the task's segment n."""
        ordinal = self._row // self._job.rows_per_segment * self._job.tasks + self._task
        if ordinal >= self._job.most_segments:
            raise Stop(f"{self._job.token}{MANY_SEGMENTS}|")
        return ordinal

    @contextlib.contextmanager
    def _naming_errors(self) -> Iterator[None]:
        try:
            yield
        except (Stop, ImportError, MemoryError):
            # These are no errors of the storage. After ImportError or MemoryError, Spark's writer writes the files.
            raise
        except Exception as error:
            number = error.errno if isinstance(error, OSError) else None
            text = f"{type(error).__name__}: {error}" if number is None else os.strerror(number)
            raise Stop(f"{self._job.token}{STORAGE_FAILS}|{text.encode('utf-8', 'replace')[:1_000].hex()}|") from error


class TaskFile:
    def __init__(self, job: SendJob, name: str, ordinal: int, rows: pa.Table) -> None:
        """Begin the file. The first row group decides which columns get a dictionary."""
        self._job, self._name, self._ordinal = job, name, ordinal
        self._rows, self._bounds = 0, dict[str, list[tuple[Any, Any]]]()
        self._nulls = dict.fromkeys(job.statistics, 0)
        self._sink = job.place.create(name)
        self._writer = pq.ParquetWriter(
            self._sink,
            job.schema,
            store_schema=False,
            use_dictionary=[
                path for field in job.schema for path in _find_dictionary_paths(job, field, rows[field.name])
            ],
            write_statistics=list(job.statistics),
        )

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._rows += rows.num_rows
        for name in self._job.statistics:
            self._nulls[name] += rows[name].null_count
            values = rows[name]
            if pa.types.is_timestamp(values.type):
                # pyarrow would need pandas to make Python values of instants.
                values = values.cast(pa.int64())
            lowest, highest = pc.min_max(values).as_py().values()
            if lowest is not None:
                self._bounds.setdefault(name, []).append((lowest, highest))

    def close(self) -> Written:
        self._writer.close()
        self._sink.close()
        size, modified_at = self._job.place.size_and_time(self._name)
        statistics = {
            "numRecords": self._rows,
            "minValues": {
                name: self._bound(name, min(low for low, _ in bounds)) for name, bounds in self._bounds.items()
            },
            "maxValues": {
                name: self._bound(name, max(high for _, high in bounds), is_highest=True)
                for name, bounds in self._bounds.items()
            },
            "nullCount": self._nulls,
        }
        return Written(self._name, size, self._ordinal, modified_at, json.dumps(statistics))

    def _bound(self, name: str, value: Any, *, is_highest: bool = False) -> Any:
        """Return a bound for Delta's log.

        A long maximum is cut before a character that sorts before the appended one. If there is no such character, the
        maximum stays whole.
        """
        if pa.types.is_timestamp(self._job.schema.field(name).type):
            seconds, micros = divmod(value, 1_000_000)
            return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S}.{micros // 1_000:03d}Z"
        if not isinstance(value, str) or len(value) <= MOST_OF_A_TEXT:
            return value
        if not is_highest:
            return value[:MOST_OF_A_TEXT]
        behind = BEHIND_ASCII if value.isascii() else BEHIND_ALL
        cut = next((at for at in range(MOST_OF_A_TEXT, len(value)) if value[at] < behind), None)
        return value if cut is None else value[:cut] + behind

    def abandon(self) -> None:
        if isinstance(self._sink, Upload):
            self._sink.is_abandoned = True
        for output in (self._writer, self._sink):
            with contextlib.suppress(Exception):
                output.close()


def _columns(job: SendJob, rows: pa.Table, first_seq: int) -> pa.Table:
    count = rows.num_rows
    sent_at = np.full(count, job.sent_at * 1_000, np.int64)
    if job.delay is None:
        available_at = sent_at + rows["delay_seconds"].to_numpy() * 1_000_000
    else:
        available_at = sent_at + job.delay * 1_000
    computed = {
        "seq": _numbers(np.arange(first_seq, first_seq + count, dtype=np.int64)),
        "sent_at": _numbers(sent_at).view(_INSTANT),
        "available_at": _numbers(available_at).view(_INSTANT),
    }
    columns = [
        computed[field.name] if field.name in computed else rows[field.name].cast(field.type) for field in job.schema
    ]
    return pa.Table.from_arrays(columns, schema=job.schema)


def _find_dictionary_paths(job: SendJob, field: pa.Field, values: pa.ChunkedArray) -> list[str]:
    """Return the paths that get a dictionary."""
    if pa.types.is_map(field.type):
        return [f"{field.name}.key_value.{path}" for path in ("key", "value.data_type")]
    if field.name == "seq" or values.nbytes > job.long * len(values):
        return []
    first_values = values.slice(0, LOOKED_AT)
    return [field.name] if pc.count_distinct(first_values, mode="all").as_py() * 2 <= len(first_values) else []


def _numbers(values: Any) -> pa.Array:
    """Convert without `pa.array`, which would import pandas and slow a new worker's first send."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _text(value: str) -> pa.Array:
    """Convert without `pa.array`, as `_numbers` does."""
    content = value.encode()
    ends = np.array([0, len(content)], np.int32)
    return pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(ends), pa.py_buffer(content)])


def _split_batch(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    if batch.nbytes <= most or batch.num_rows < 2:
        yield batch
    else:
        half = batch.num_rows // 2
        yield from _split_batch(batch.slice(0, half), most)
        yield from _split_batch(batch.slice(half), most)
