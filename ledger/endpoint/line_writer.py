"""Lines that a thread writes, so that a slow disk or reader stops nobody."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

#: How many lines wait at most, and for how many seconds `close` waits for them.
WAITING_LINES, CLOSE_SECONDS = 20_000, 5.0
STANDARD_OUTPUT, STANDARD_ERROR = 1, 2
SECONDS_BETWEEN_WARNINGS = 60.0


class Seldom:
    """Lets a line be logged once in SECONDS_BETWEEN_WARNINGS."""

    def __init__(self) -> None:
        self._last: float | None = None

    def is_due(self) -> bool:
        now = time.monotonic()
        if self._last is not None and now - self._last < SECONDS_BETWEEN_WARNINGS:
            return False
        self._last = now
        return True


class LineWriter:
    """Writes lines to a file or to a descriptor of the process. Threads may share a LineWriter."""

    def __init__(self, target: str | int, report: Callable[[str], None]) -> None:
        """Open the file with the path `target` to append to it, or use the descriptor `target`.

        If the file is renamed (logrotate) or removed, the next line makes a new file. When lines are lost, `report`
        gets a reason, but not for each line. Raises OSError if the file cannot be opened, or is a pipe that nobody
        reads.
        """
        self._file, self._report, self._seldom = _File(target), report, Seldom()
        self._lines: queue.Queue[str | None] = queue.Queue(WAITING_LINES)
        self._thread = threading.Thread(target=self._write_lines, name="ledger-lines", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        """Write a line soon. The line is lost if too many lines wait, or if writing fails."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._lose(f"{WAITING_LINES} lines wait for a reader that does not read, or for a slow disk")

    def close(self) -> None:
        """Write the lines that wait, for at most CLOSE_SECONDS, and close the file."""
        until = time.monotonic() + CLOSE_SECONDS
        with contextlib.suppress(queue.Full):
            self._lines.put(None, timeout=CLOSE_SECONDS)
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            self._report(f"the last lines were not written in {CLOSE_SECONDS} seconds")

    def _write_lines(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._file.write(line)
            except OSError as error:
                self._lose(str(error))
        self._file.close()

    def _lose(self, reason: str) -> None:
        if self._seldom.is_due():
            self._report(reason)


class _File:
    """A descriptor, or a file that is opened anew when its path names another file.

    At its end Python would wait for a thread that holds `sys.stdout` or `sys.stderr`. So the thread writes to their
    descriptors.
    """

    def __init__(self, target: str | int) -> None:
        self._path = target if isinstance(target, str) else None
        self._descriptor: int | None = target if isinstance(target, int) else _open_to_append(target)
        #: Whether the file ends with a part of a line.
        self._is_torn = False

    def write(self, line: str) -> None:
        descriptor, rest = self._open_current(), f"{line}\n".encode()
        if self._is_torn:
            rest = b"\n" + rest
        while rest:
            written = os.write(descriptor, rest)
            rest = rest[written:]
            self._is_torn = bool(rest)

    def close(self) -> None:
        if self._path is not None and self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
        self._descriptor, self._is_torn = None, False

    def _open_current(self) -> int:
        if self._path is not None:
            if self._descriptor is not None and not _is_file_at(self._path, self._descriptor):
                self.close()
            if self._descriptor is None:
                self._descriptor = _open_to_append(self._path)
        assert self._descriptor is not None, "it is open"
        return self._descriptor


class _Handler(logging.Handler):
    def __init__(self, writer: LineWriter, before: logging.Handler) -> None:
        super().__init__(before.level)
        self.setFormatter(before.formatter)
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._writer.write(self.format(record))
        except Exception:
            self.handleError(record)


@contextlib.contextmanager
def log_in_background() -> Iterator[None]:
    """Until the block ends, let a thread write what the process's log writes to the standard error."""
    root = logging.getLogger()
    before = [one for one in root.handlers if _is_standard_error(one)]
    # Without a handler, Python writes warnings by `logging.lastResort`.
    replaced = before or ([] if root.handlers or logging.lastResort is None else [logging.lastResort])
    if not replaced:
        yield
        return
    writer = LineWriter(STANDARD_ERROR, lambda reason: None)
    now = [_Handler(writer, one) for one in replaced]
    for one in before:
        root.removeHandler(one)
    for one in now:
        root.addHandler(one)
    try:
        yield
    finally:
        for one in now:
            root.removeHandler(one)
        for one in before:
            root.addHandler(one)
        writer.close()


def _is_standard_error(handler: logging.Handler) -> bool:
    try:
        return handler.stream.fileno() == STANDARD_ERROR  # type: ignore[attr-defined, no-any-return]
    except (AttributeError, OSError, ValueError):
        return False


def _open_to_append(path: str) -> int:
    # With O_NONBLOCK, a named pipe without a reader is an error. Without it, `open` would wait for a reader.
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    os.set_blocking(descriptor, True)
    return descriptor


def _is_file_at(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(Path(path).stat(), os.fstat(descriptor))
    except OSError:
        return False
