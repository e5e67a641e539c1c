"""The server: uvicorn's, with limits on what it reads before there is a request, and a stop that answers what it took.

Uvicorn with httptools, without a framework: two small packages that are kept well, a parser in C, TLS, and no more than
the endpoint needs, which routes by itself.
"""

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
#: The head of a request: how long it may be, and how long it may take.
HEAD_BYTES, HEAD_SECONDS = 65_536, 20.0
#: A byte of a body that comes as a chunk of its own has five of framing; so much more is taken for each.
FRAMING = 5
#: Clients keep connections; this is longer than a long poll.
KEEP_ALIVE, GRACE = 75, 60


class BoundedProtocol(HttpToolsProtocol):
    """Gives up on a head that is too long or takes too long, and on what is too much beside a body: how its chunks are
    framed, and the trailers behind them. Uvicorn itself bounds none of it; the body is for the application to bound."""

    _timer: asyncio.TimerHandle | None = None
    #: Of the request that is being read.
    _body_bytes = _other_bytes = 0
    _ended = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A head is awaited."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is awaited any more."""
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """All that is no body, within its bounds."""
        self._ended, before = False, self._body_bytes
        super().data_received(data)
        if self._ended:
            # What follows a request in the same piece of data is not counted: it is short.
            self._body_bytes = self._other_bytes = 0
            return
        self._other_bytes += len(data) - (self._body_bytes - before)
        if self._other_bytes > HEAD_BYTES + FRAMING * self._body_bytes and not self.transport.is_closing():
            self.send_400_response("The request has too much beside its body.")

    def on_body(self, body: bytes) -> None:
        """A part of a body."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request has ended."""
        self._ended = True
        super().on_message_complete()

    def on_message_begin(self) -> None:
        """A head has begun."""
        self._end_head()
        self._await_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is whole: the body has bounds of its own."""
        self._end_head()
        super().on_headers_complete()

    def shutdown(self) -> None:
        """The server stops. A TLS connection without a request is cut: its end would wait for the client's goodbye."""
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
    """Serves an `application` until it is told to stop: by SIGTERM or SIGINT in the main thread, or by `stop`."""

    def __init__(self, config: uvicorn.Config, application: Application) -> None:
        super().__init__(config)
        self.application = application

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """No new connections; long polls are answered, and what was accepted is done and answered."""
        self.application.stop()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn does, but that a stop that was asked for is a success."""
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
        # Asked for again by Ctrl-C, it waits for nobody.
        self.force_exit = self.force_exit or (self.should_exit and number == signal.SIGINT)
        self.should_exit = True

    def stop(self) -> None:
        """Asks it to stop; from any thread."""
        self.should_exit = True


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # By its protocol asyncio knows that it may send small parts at once. Else a response waits 40 ms for its second
    # part: so late the client acknowledges the first.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(2_048)
    except OSError:
        made.close()
        raise
    return made


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
    """Serves an endpoint on a listening socket, with TLS when there is a certificate, until it is stopped. `started` is
    called once it serves."""

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
