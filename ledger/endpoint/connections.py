"""Connections: bounds on how many are open, on their heads, and on the time of each of their states.

Each connection takes one of the process's files. If too many are open, the server closes one that waits for a request:
the longest wait without a verified request, or else the longest wait. If none waits, the server closes the new one. So
a client without a key cannot keep clients with a key out. A connection with a whole request stays open until its
answer.

Each wait has an end:

- for the TLS handshake, for the first head, or for the rest of a head: HEAD_SECONDS;
- for the body of a request: the application's bound;
- for the next request: the server's `timeout_keep_alive`;
- for the client to read answers: UNREAD_SECONDS from the close, or from a full write buffer.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import Callable
from itertools import chain
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ledger.endpoint.line_writer import Seldom

log = logging.getLogger("ledger.endpoint")
#: Drops uvicorn's warnings: each line that is no HTTP causes a warning.
_HTTP_LOG = logging.getLogger("ledger.endpoint.http")
_HTTP_LOG.setLevel(logging.ERROR)
HEAD_BYTES, HEAD_SECONDS = 65_536, 20.0
#: The framing of a chunk with one byte of body has this many bytes.
FRAMING_BYTES_PER_BODY_BYTE = 5
UNREAD_SECONDS = 30.0
#: Bounds the memory: a connection may take HEAD_BYTES for a head, and as much for a body without a known key.
MOST_CONNECTIONS, LEAST_CONNECTIONS = 4_096, 64
#: Files for the tables, the logs, and connections that are about to close.
RESERVED_FILES = 384
ACCEPT_PAUSE_SECONDS = 0.1
MOST_PIPELINED_REQUESTS = 8


def raise_limit_of_files() -> int:
    """Raise the soft limit of open files as far as connections need. Return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = MOST_CONNECTIONS + RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return needed if soft == resource.RLIM_INFINITY else soft


def most_connections(files: int) -> int:
    return max(LEAST_CONNECTIONS, min(MOST_CONNECTIONS, files - RESERVED_FILES))


class Connections:
    """At most `most` open connections. Only the event loop's thread uses them."""

    def __init__(self, most: int) -> None:
        self.most, self.dropped = most, 0
        self._open = set[BoundedProtocol]()
        #: Connections that wait for a request, the longest wait first.
        self._unverified: dict[BoundedProtocol, None] = {}
        self._verified: dict[BoundedProtocol, None] = {}
        self._warn = Seldom()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: BoundedProtocol) -> None:
        self._open.add(connection)
        if len(self._open) > self.most:
            self._drop(next(chain(self._unverified, self._verified, [connection])))
        self.wait(connection)

    def wait(self, connection: BoundedProtocol) -> None:
        if connection in self._open:
            (self._verified if connection.is_verified else self._unverified)[connection] = None

    def begin(self, connection: BoundedProtocol) -> None:
        self._unverified.pop(connection, None)
        self._verified.pop(connection, None)

    def remove(self, connection: BoundedProtocol) -> None:
        self.begin(connection)
        self._open.discard(connection)

    def _drop(self, connection: BoundedProtocol) -> None:
        self.remove(connection)
        self.dropped += 1
        if connection.handshake is not None:
            connection.handshake.cancel()
        else:
            connection.transport.abort()
        if self._warn.is_due():
            log.warning(
                "All %d connections are open: for each new connection the server closes one that waits for a request, "
                "or the new one",
                self.most,
            )


class BoundedProtocol(HttpToolsProtocol):
    """Ends connections whose head takes too long, or that send too many bytes outside bodies.

    Heads, chunk framing and trailers are outside bodies. The application bounds the bodies, and sets `is_verified`.
    """

    handshake: asyncio.Task[Any] | None = None
    is_verified = False
    _timer: asyncio.TimerHandle | None = None
    _body_bytes = _other_bytes = 0
    _ended = False

    def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any], connections: Connections) -> None:
        super().__init__(config, server_state, app_state)
        self._bound, self.logger = connections, _HTTP_LOG
        self._running: Any = None
        self._unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        self._end_unread()
        self._bound.remove(self)
        super().connection_lost(exc)
        # After a reset, uvicorn does not cancel the keep-alive timer, and only the newest request learns of the reset.
        self._unset_keepalive_if_required()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        # These objects refer back to the connection, and garbage collections are rare.
        self.pipeline.clear()
        self.scope = self.headers = self.cycle = self._running = None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
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
            self.send_400_response("The request has too many bytes outside its body.")

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._ended = True
        if not self.cycle.response_complete and self._unread_timer is None:
            self._bound.begin(self)
        super().on_message_complete()

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MOST_PIPELINED_REQUESTS:
            raise _TooManyRequests
        self._end_head()
        self._await_head()
        super().on_message_begin()
        self.scope["state"]["connection"] = self

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle is None:
            return
        if self.pipeline:
            # uvicorn reads on, although requests wait.
            self.flow.pause_reading()
        if self.cycle.response_complete or self.cycle.more_body:
            self._bound.wait(self)
        if self.transport.is_closing():
            self._close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._bound.wait(self)
        self._await_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._end_unread()
        if not self._is_idle() and not self.cycle.more_body:
            self._bound.begin(self)

    def timeout_keep_alive_handler(self) -> None:
        self._close()

    def shutdown(self) -> None:
        """Close the connection after the answer to its request; at once if it is idle.

        A clean close of idle TLS would wait for the client's close_notify.
        """
        if not self._is_idle():
            super().shutdown()
        elif self.scheme == "https":
            self.transport.abort()
        else:
            self._close()

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _await_reading(self) -> None:
        if self._unread_timer is None:
            self._unread_timer = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def _end_unread(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

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
        """Close the connection when its client has read all, or after UNREAD_SECONDS."""
        self.transport.close()
        if self.scheme == "https" or self.transport.get_write_buffer_size():
            self._await_reading()


class _TooManyRequests(Exception):
    """A client sends more than MOST_PIPELINED_REQUESTS requests ahead."""


class Acceptor:
    """Accepts connections on a listening socket, with TLS if there is a context.

    asyncio's own server tells of a connection only after its TLS handshake. It also tries to accept all connections
    that wait, even when the process has no files for them.
    """

    def __init__(
        self, sock: socket.socket, connections: Connections, make: Callable[[], BoundedProtocol], tls: Any
    ) -> None:
        self._sock, self._connections, self._make, self._tls = sock, connections, make, tls
        self._handshakes = set[asyncio.Task[Any]]()
        self._warn = Seldom()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        self._sock.setblocking(False)
        while True:
            try:
                sock, _ = await loop.sock_accept(self._sock)
            except ConnectionAbortedError:
                continue
            except OSError as error:
                if self._warn.is_due():
                    log.error(
                        "No connection can be accepted (%s). If the process has too many open files, raise the limit: "
                        "`ulimit -Hn`, or LimitNOFILE= of the service",
                        error.strerror,
                    )
                await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
                continue
            self._begin(sock)
            # Let the loop close the dropped connections: the next accept can return without a pause.
            await asyncio.sleep(0)

    def close(self) -> None:
        for handshake in self._handshakes:
            handshake.cancel()

    def _begin(self, sock: socket.socket) -> None:
        connection, loop = self._make(), asyncio.get_running_loop()
        seconds = HEAD_SECONDS if self._tls else None
        connecting = loop.connect_accepted_socket(
            lambda: connection, sock, ssl=self._tls, ssl_handshake_timeout=seconds
        )
        connection.handshake = handshake = loop.create_task(connecting)
        self._handshakes.add(handshake)

        def end(task: asyncio.Task[Any]) -> None:
            self._handshakes.discard(task)
            connection.handshake = None
            if task.cancelled() or task.exception() is not None:
                self._connections.remove(connection)
                sock.close()

        handshake.add_done_callback(end)
        self._connections.add(connection)
