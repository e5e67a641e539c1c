"""Connections: bounds on how many are open, on their heads, and on the time of each of their states.

A server has a bounded number of files, and each connection is one. So `Connections` has a bound. If one more comes, the
server closes a connection that waits for a request: of those whose requests nobody verified the one that waits longest,
or else of all. If none waits, the server closes the new one. A client without a key can therefore not keep clients with
a key out, and a connection with a whole request keeps until its answer.

A connection waits for a request in these states, and each has an end:

- for the head of its first request, or for the rest of a head: HEAD_SECONDS;
- for the body of a request: the application's bound;
- for its next request: the server's `timeout_keep_alive`;
- for its client to read the last answer: UNREAD_SECONDS after the server has closed it.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

log = logging.getLogger("ledger.endpoint")
#: The most bytes of a request's head, and the most seconds until a head is whole.
HEAD_BYTES, HEAD_SECONDS = 65_536, 20.0
#: A request may have this many bytes of framing for each byte of its body: as many as a chunk of a single byte has.
FRAMING_BYTES_PER_BODY_BYTE = 5
#: Seconds after the close of a connection until the server drops what its client has not read.
UNREAD_SECONDS = 30.0
#: The most connections, and the least. Each may take HEAD_BYTES for a head, and as many for a body without a known key.
MOST_CONNECTIONS, LEAST_CONNECTIONS = 4_096, 64
#: Open files that are left for the tables, the logs, and connections that the server is about to close.
OTHER_FILES = 384
#: The server accepts this many connections before it looks at the others again.
ACCEPTED_AT_ONCE = 64
#: The log has at most one line about too many connections, and one about too many files, in so many seconds.
SECONDS_BETWEEN_WARNINGS = 60.0


def raise_limit_of_files() -> int:
    """Raise the process's soft limit of open files to its hard limit, as far as connections need. Return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = MOST_CONNECTIONS + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return needed if soft == resource.RLIM_INFINITY else soft


def most_connections(files: int) -> int:
    """Return how many connections a process may have that may have `files` open files."""
    return max(LEAST_CONNECTIONS, min(MOST_CONNECTIONS, files - OTHER_FILES))


class Connections:
    """The open connections of a server, at most `most` (see the module). Only the event loop's thread uses them."""

    def __init__(self, most: int) -> None:
        self.most, self.dropped = most, 0
        self._open = set[BoundedProtocol]()
        #: Connections that wait for a request, the longest wait first. Each value tells nothing.
        self._unverified: dict[BoundedProtocol, None] = {}
        self._verified: dict[BoundedProtocol, None] = {}
        self._warn = _Seldom()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: BoundedProtocol) -> None:
        """Add a new connection, which waits for a request. If there are too many now, drop one."""
        self._open.add(connection)
        if len(self._open) > self.most:
            for line in (self._unverified, self._verified):
                if line:
                    self._drop(next(iter(line)))
                    break
            else:
                self._drop(connection)
                return
        self.wait(connection)

    def wait(self, connection: BoundedProtocol) -> None:
        """Note that a connection waits for a request from now on."""
        if connection in self._open:
            (self._verified if connection.is_verified else self._unverified)[connection] = None

    def begin(self, connection: BoundedProtocol) -> None:
        """Note that a connection has a whole request."""
        self._unverified.pop(connection, None)
        self._verified.pop(connection, None)

    def remove(self, connection: BoundedProtocol) -> None:
        """Remove a closed connection, if it was not dropped."""
        self.begin(connection)
        self._open.discard(connection)

    def _drop(self, connection: BoundedProtocol) -> None:
        self.remove(connection)
        self.dropped += 1
        connection.transport.abort()
        if self._warn.is_due():
            log.warning(
                "All %d connections are open (--threads and long polls need some, idle clients the rest): those that "
                "wait longest without a verified request are closed",
                self.most,
            )


class BoundedProtocol(HttpToolsProtocol):
    """Ends connections whose head is too long or takes too long, or that send too much beside a body.

    Chunk framing and trailers count as beside a body. The application bounds the body. It sets `is_verified` when it
    has verified a request of the connection.
    """

    bound: ClassVar[Connections]
    is_verified = False
    _timer: asyncio.TimerHandle | None = None
    #: Counts of the request that is being read.
    _body_bytes = _other_bytes = 0
    _ended = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer of a head."""
        super().connection_made(transport)
        self._await_head()
        self.bound.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._end_head()
        self.bound.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data, and bound all bytes that are not a body."""
        self._ended, before = False, self._body_bytes
        super().data_received(data)
        if self._timer is None and self.timeout_keep_alive_task is None and self._is_idle():
            # Line ends between requests stop the timer of an idle connection, and begin no head.
            self._await_head()
        if self._ended:
            # The data in which a request ends are not counted.
            self._body_bytes = self._other_bytes = 0
            return
        self._other_bytes += len(data) - (self._body_bytes - before)
        if (
            self._other_bytes > HEAD_BYTES + FRAMING_BYTES_PER_BODY_BYTE * self._body_bytes
            and not self.transport.is_closing()
        ):
            self.send_400_response("The request has too much beside its body.")

    def on_body(self, body: bytes) -> None:
        """Count a part of a body."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that a request has ended."""
        self._ended = True
        if not self.cycle.response_complete:
            self.bound.begin(self)
        super().on_message_complete()

    def on_message_begin(self) -> None:
        """Restart the timer for a new head."""
        self._end_head()
        self._await_head()
        super().on_message_begin()
        self.scope["state"]["connection"] = self

    def on_headers_complete(self) -> None:
        """Stop the timer: the head is whole, and the body has its own bounds."""
        self._end_head()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the client to read the last answer."""
        super().on_response_complete()
        if self.cycle.response_complete or self.cycle.more_body:
            self.bound.wait(self)
        if self.transport.is_closing():
            self._close()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection."""
        self._close()

    def shutdown(self) -> None:
        """Close the connection: at once if it is idle, else after the answer to its request.

        Abort an idle TLS connection: a clean close would wait for the client's close_notify.
        """
        if not self._is_idle():
            super().shutdown()
        elif self.scheme == "https":
            self.transport.abort()
        else:
            self._close()

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _await_head(self) -> None:
        self._timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _end_head(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        self._close()

    def _close(self) -> None:
        """Close the connection when its client has read all, or in UNREAD_SECONDS."""
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.loop.call_later(UNREAD_SECONDS, self.transport.abort)


@contextmanager
def seldom_told() -> Iterator[None]:
    """Within the block, log seldom that the process has no file for a new connection. Must run in the event loop.

    The event loop itself logs a traceback for each connection.
    """
    loop, warn = asyncio.get_running_loop(), _Seldom()
    before = loop.get_exception_handler()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "socket" not in context or not isinstance(context.get("exception"), OSError):
            (before or type(loop).default_exception_handler)(loop, context)
        elif warn.is_due():
            log.error(
                "No connection can be accepted for a second (%s). Raise the limit of open files: `ulimit -n`, or "
                "LimitNOFILE= of the service",
                context["exception"],
            )

    loop.set_exception_handler(handle)
    try:
        yield
    finally:
        loop.set_exception_handler(before)


class _Seldom:
    """Tells whether a line may be logged again."""

    def __init__(self) -> None:
        self._last: float | None = None

    def is_due(self) -> bool:
        now = time.monotonic()
        if self._last is not None and now - self._last < SECONDS_BETWEEN_WARNINGS:
            return False
        self._last = now
        return True
