"""The access log: a line of JSON for each request that is answered, or that its client abandons.

GETs of the paths for health, readiness and metrics get no line. A line has no body, no attribute, no header of the
request, and no key. It has no query either: a query may hold a message and a signature.

A thread writes the lines, so a reader of a pipe that does not read stops no request. Lines that find too many before
them are lost, and so are lines that cannot be written.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import threading
import time
from datetime import datetime, timezone
from pathlib import Path

from ledger.endpoint.handling import Exchange
from ledger.endpoint.wire import Request, Response

log = logging.getLogger("ledger.endpoint")
STANDARD_OUTPUT = "-"
#: The outcome of a request whose client disconnected before the answer.
GONE = "ClientGone"
#: How many lines wait to be written at most, and for how many seconds `close` waits for them.
WAITING_LINES, CLOSE_SECONDS = 20_000, 5.0


class AccessLog:
    """Writes lines to a file or to the standard output. Only the event loop's thread calls `write`."""

    def __init__(self, path: str) -> None:
        """Open the file to append to it; `-` is the standard output.

        If the file is renamed (logrotate), the next line makes a new file.

        Raises:
            OSError: The file cannot be opened for writing, or is a pipe that nobody reads.
        """
        self._file = _File(path)
        self._lines: queue.Queue[str | None] = queue.Queue(WAITING_LINES)
        self._has_lost = False
        self._writer = threading.Thread(target=self._write_lines, name="ledger-access-log", daemon=True)
        self._writer.start()

    def write(
        self, request: Request, client: str, seconds: float, exchange: Exchange | None, response: Response | None
    ) -> None:
        """Write the line of a request that took `seconds`, soon.

        `exchange` and `response` are None if the client disconnected.
        """
        call = exchange.call if exchange else None
        line = {
            "at": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            "id": response.headers.get("x-amzn-requestid") if response else None,
            "client": client,
            "caller": call.caller.arn if call else None,
            "method": request.method,
            "path": request.path[:300],
            "action": exchange.action if exchange else None,
            "queue": call.queue_asked if call else None,
            "outcome": GONE if exchange is None else exchange.refused_for or "ok",
            "status": response.status if response else None,
            "milliseconds": round(seconds * 1_000, 1),
            "bytes_in": exchange.bytes_in if exchange else None,
            "bytes_out": len(response.body) if response else None,
        }
        try:
            self._lines.put_nowait(json.dumps(line))
        except queue.Full:
            self._lose(f"{WAITING_LINES} lines wait for a reader that does not read, or for a slow disk")

    def close(self) -> None:
        """Write the lines that wait, and close the file. Lines that are not written in CLOSE_SECONDS are lost."""
        until = time.monotonic() + CLOSE_SECONDS
        with contextlib.suppress(queue.Full):
            self._lines.put(None, timeout=CLOSE_SECONDS)
        self._writer.join(max(0.0, until - time.monotonic()))
        if self._writer.is_alive():
            log.error("The access log's last lines were not written in %s seconds, and are lost", CLOSE_SECONDS)

    def _write_lines(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._file.write(line)
                self._has_lost = False
            except OSError as error:
                self._lose(str(error))
        self._file.close()

    def _lose(self, reason: str) -> None:
        if not self._has_lost:
            log.error("The access log cannot be written (%s); its lines are lost until it can", reason)
        self._has_lost = True


class _File:
    """A file that is opened anew when its path names another file. Only one thread uses it after its start.

    The standard output is written by its descriptor. Python would wait at its end for a thread that holds `sys.stdout`.
    """

    def __init__(self, path: str) -> None:
        self._path = None if path == STANDARD_OUTPUT else path
        self._descriptor: int | None = 1 if self._path is None else _opened(self._path)

    def write(self, line: str) -> None:
        """Append a line. Raises OSError."""
        descriptor, rest = self._current(), f"{line}\n".encode()
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    def close(self) -> None:
        """Close the file. What a full disk does not take is lost."""
        if self._path is not None and self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
        self._descriptor = None

    def _current(self) -> int:
        if self._path is not None:
            if self._descriptor is not None and not _is_file_at(self._path, self._descriptor):
                self.close()
            if self._descriptor is None:
                self._descriptor = _opened(self._path)
        assert self._descriptor is not None, "it is open"
        return self._descriptor


def _opened(path: str) -> int:
    # Without O_NONBLOCK, to open a named pipe would wait for a reader. With it, a pipe without a reader is an error.
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    os.set_blocking(descriptor, True)
    return descriptor


def _is_file_at(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(Path(path).stat(), os.fstat(descriptor))
    except OSError:
        return False
