"""The server: uvicorn with bounds on heads, and a stop that waits for the answers to accepted requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ledger.endpoint.access_log import AccessLog
from ledger.endpoint.application import Application, Bounds
from ledger.endpoint.handling import Endpoint

log = logging.getLogger("ledger.endpoint")
#: The most bytes of a request's head, and the most seconds until a head is whole.
HEAD_BYTES, HEAD_SECONDS = 65_536, 20.0
#: A request may have this many bytes of framing for each byte of its body: as many as a chunk of a single byte has.
FRAMING_BYTES_PER_BODY_BYTE = 5
#: Seconds that an idle connection stays open (longer than a long poll), and that a stop waits for answers.
KEEP_ALIVE, GRACE = 75, 60


class BoundedProtocol(HttpToolsProtocol):
    """Ends connections whose head is too long or takes too long, or that send too much beside a body.

    Chunk framing and trailers count as beside a body. The application bounds the body.
    """

    _timer: asyncio.TimerHandle | None = None
    #: Counts of the request that is being read.
    _body_bytes = _other_bytes = 0
    _ended = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer of a head."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data, and bound all bytes that are not a body."""
        self._ended, before = False, self._body_bytes
        super().data_received(data)
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
        super().on_message_complete()

    def on_message_begin(self) -> None:
        """Restart the timer for a new head."""
        self._end_head()
        self._await_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Stop the timer: the head is whole, and the body has its own bounds."""
        self._end_head()
        super().on_headers_complete()

    def shutdown(self) -> None:
        """Close the connection: at once if it is idle, else after the answer to its request.

        Abort an idle TLS connection: a clean close would wait for the client's close_notify.
        """
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self.scheme == "https":
            self.transport.abort()
        else:
            super().shutdown()

    def _await_head(self) -> None:
        self._timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _end_head(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.close()


class Server(uvicorn.Server):
    """Serves an `application` until SIGTERM or SIGINT in the main thread, or until `stop`."""

    def __init__(self, config: uvicorn.Config, application: Application) -> None:
        super().__init__(config)
        self.application = application

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the waits of long polls, take no new connections, and wait for the answers to accepted requests.

        After GRACE seconds, or if `force_exit` is set, the server does not wait any longer. `serve` returns only when
        all calls in the pool have ended.
        """
        self.application.stop()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture signals as uvicorn does, but do not raise them again at the end: a requested stop is a success."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._asked) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        # At a Ctrl-C after a first signal, the server stops waiting for answers.
        self.force_exit = self.force_exit or (self.should_exit and number == signal.SIGINT)
        self.should_exit = True

    def stop(self) -> None:
        """Ask the server to stop. Any thread may call this."""
        self.should_exit = True


def listening(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on a socket that names IPPROTO_TCP. Without TCP_NODELAY, a response's second part
    # waits until the client acknowledges the first part, on Linux some 40 ms.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(2_048)
    except OSError:
        sock.close()
        raise
    return sock


def serve(
    endpoint: Endpoint,
    sock: socket.socket,
    bounds: Bounds | None = None,
    *,
    certificate: str | None = None,
    key: str | None = None,
    open_metrics: bool = False,
    access_log: AccessLog | None = None,
    started: Callable[[Server], None] | None = None,
) -> None:
    """Serve an endpoint on a listening socket until the server is stopped, with TLS if there is a certificate.

    Call `started` when the server begins to serve.
    """

    async def run() -> None:
        application = Application(endpoint, bounds or Bounds(), open_metrics=open_metrics, access_log=access_log)
        tls: dict[str, Any] = {"ssl_certfile": certificate, "ssl_keyfile": key} if certificate else {}
        config = uvicorn.Config(
            application, http=BoundedProtocol, ws="none", lifespan="off", interface="asgi3", loop="none",
            log_config=None, access_log=False, server_header=False, proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE, timeout_graceful_shutdown=GRACE, **tls,
        )  # fmt: skip
        server = Server(config, application)
        serving = asyncio.ensure_future(server.serve(sockets=[sock]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.005)
        if started is not None and server.started:
            started(server)
        try:
            await serving
        finally:
            await asyncio.get_running_loop().run_in_executor(None, application.pool.close)

    asyncio.run(run())
