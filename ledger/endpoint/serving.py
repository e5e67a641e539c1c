"""The server: uvicorn with bounds on connections, and a stop that waits for the answers to accepted requests."""

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

from ledger.endpoint.access_log import AccessLog
from ledger.endpoint.application import Application, Bounds
from ledger.endpoint.connections import Acceptor, BoundedProtocol, Connections
from ledger.endpoint.handling import Endpoint

log = logging.getLogger("ledger.endpoint")
#: Seconds that an idle connection stays open (longer than a long poll), and that a stop waits for answers.
KEEP_ALIVE, GRACE = 75, 60
#: How many connections the kernel holds until the server accepts them.
LISTEN_BACKLOG = 2_048


class Server(uvicorn.Server):
    """Serves an `application` until SIGTERM or SIGINT in the main thread, or until `stop`."""

    def __init__(self, config: uvicorn.Config, application: Application, connections: Connections) -> None:
        super().__init__(config)
        self.application, self._connections = application, connections

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets and len(sockets) == 1, "the server has one socket"
        await super().startup(sockets=[])
        self._acceptor = Acceptor(sockets[0], self._connections, self._connection, self.config.ssl)
        self._accepting = asyncio.ensure_future(self._acceptor.run())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the long polls, take no new connections, and wait for the answers to accepted requests.

        The wait ends after GRACE seconds, or if `force_exit` is set.
        """
        self.application.stop()
        self._accepting.cancel()
        self._acceptor.close()
        await super().shutdown(sockets)

    def _connection(self) -> BoundedProtocol:
        return BoundedProtocol(self.config, self.server_state, {}, self._connections)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals. Unlike uvicorn, do not raise them again at the end: a requested stop is a success."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # A Ctrl-C after a first signal ends the wait for answers.
        self.force_exit = self.force_exit or (self.should_exit and number == signal.SIGINT)
        self.should_exit = True

    def stop(self) -> None:
        """Ask the server to stop. Any thread may call this."""
        self.should_exit = True


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on a socket that names IPPROTO_TCP. Without TCP_NODELAY, a response's second part
    # waits until the client acknowledges the first part, on Linux some 40 ms.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(LISTEN_BACKLOG)
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
    """Serve an endpoint on a listening socket, with TLS if there is a certificate, until the server is stopped.

    Call `started` when the server begins to serve.
    """

    bounds = bounds or Bounds()

    async def run() -> None:
        connections = Connections(bounds.connections)
        application = Application(endpoint, bounds, connections, open_metrics=open_metrics, access_log=access_log)
        tls: dict[str, Any] = {"ssl_certfile": certificate, "ssl_keyfile": key} if certificate else {}
        config = uvicorn.Config(
            application, http=BoundedProtocol, ws="none", lifespan="off", interface="asgi3", loop="none",
            log_config=None, access_log=False, server_header=False, proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE, timeout_graceful_shutdown=GRACE, **tls,
        )  # fmt: skip
        server = Server(config, application, connections)
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
