"""The endpoint as an ASGI application: requests read within their limits, done by the pool, answered, counted."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ledger.endpoint import metrics
from ledger.endpoint.actions import Result
from ledger.endpoint.actions.call import Call
from ledger.endpoint.actions.messages import Waiting
from ledger.endpoint.handling import Endpoint, Exchange
from ledger.endpoint.metrics import Metrics
from ledger.endpoint.polls import Polls
from ledger.endpoint.pool import Pool
from ledger.endpoint.refusals import Refusal
from ledger.endpoint.statuses import NOT_FOUND, NOT_READY, OK
from ledger.endpoint.wire import Request, Response
from ledger.errors import LedgerError

Event: TypeAlias = "MutableMapping[str, Any]"
Receive: TypeAlias = "Callable[[], Awaitable[Event]]"
Send: TypeAlias = "Callable[[Event], Awaitable[None]]"
HEALTH, READY, METRICS = "/health", "/ready", "/metrics"
LOOPBACK = ("127.0.0.1", "::1", "::ffff:127.0.0.1")
#: Actions that give no message to receive: polls are not told of them.
_QUIET = ("DeleteMessage", "DeleteMessageBatch", "GetQueueAttributes", "GetQueueUrl", "ListQueues", "ListQueueTags")


@dataclass(frozen=True)
class Bounds:
    """What the endpoint takes at once. Bytes and seconds of one request, and how many requests and long polls."""

    #: A batch of 1 MiB, every byte of it written as three in a form.
    request_bytes: int = 4 << 20
    request_seconds: float = 30.0
    threads: int = 32
    backlog: int = 256
    long_polls: int = 2_000


class Gone(Exception):
    """The client went away."""


class Application:
    """Serves an Endpoint. Made in the event loop that it runs in."""

    def __init__(self, endpoint: Endpoint, bounds: Bounds, *, open_metrics: bool = False) -> None:
        self._endpoint, self._bounds, self._open_metrics = endpoint, bounds, open_metrics
        self._store = endpoint.ledger.store
        self.pool = Pool(bounds.threads, bounds.backlog)
        interval = endpoint.ledger.settings.poll_interval
        self.polls = Polls(self.pool, self._store.change_token, interval, bounds.long_polls)
        self.metrics, self.stopping = Metrics(), False

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        """One request, by the rules of ASGI."""
        if scope["type"] != "http":
            return
        began = time.monotonic()
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
        if scope["method"] == "GET" and path in (HEALTH, READY, METRICS) and not query:
            await _send(send, await self._told(path, scope.get("client")))
            return
        request = Request(scope["method"], path, query, headers, b"", scope["scheme"])
        try:
            exchange, response = await self._exchange(request, receive)
        except Gone:
            self.metrics.disconnects += 1
            return
        self.metrics.answered(exchange.action, exchange.refused_for, time.monotonic() - began)
        await _send(send, response)

    def stop(self) -> None:
        """Answers long polls, and says that it is not ready any more; what was accepted goes on."""
        self.stopping = True
        self.polls.stop()

    async def _exchange(self, request: Request, receive: Receive) -> tuple[Exchange, Response]:
        try:
            body = await asyncio.wait_for(self._body(request.headers, receive), self._bounds.request_seconds)
        except asyncio.TimeoutError:
            exchange = Exchange(self._endpoint, request)
            said = f"The request did not arrive within {self._bounds.request_seconds} seconds."
            return exchange, _last(exchange.refused(Refusal("RequestTimeout", said)))
        except Refusal as error:
            exchange = Exchange(self._endpoint, request)
            return exchange, _last(exchange.refused(error))
        exchange = Exchange(
            self._endpoint, Request(request.method, request.path, request.query, request.headers, body, request.scheme)
        )
        try:
            call = exchange.begun()
            return exchange, exchange.written(await self._done(exchange, call, receive))
        except Gone:
            raise
        except Exception as error:
            return exchange, exchange.refused(error)

    async def _body(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        most, body = self._bounds.request_bytes, bytearray()
        said = headers.get("content-length", "0")
        more = True
        while more:
            if len(body) > most or (said.isdecimal() and int(said) > most):
                raise Refusal("RequestEntityTooLarge", f"A request has at most {most} bytes.")
            event = await receive()
            if event["type"] == "http.disconnect":
                raise Gone
            body += event.get("body", b"")
            more = event.get("more_body", False)
        return bytes(body)

    async def _done(self, exchange: Exchange, call: Call, receive: Receive) -> Result:
        result = await self.pool.run(functools.partial(exchange.done, call))
        if isinstance(result, Waiting):
            return {} if self.stopping else await self._polled(result, receive)
        if call.action not in _QUIET:
            await self._tell(call)
        return result

    async def _tell(self, call: Call) -> None:
        """Polls of the queue are told that there may be something. Of other queues they learn by the tables."""
        if self.polls.open and call.get("QueueUrl") is not None:
            queue = call.known_queue
            if queue is not None:
                self.polls.changed(queue)

    async def _polled(self, waiting: Waiting, receive: Receive) -> Result:
        """The answer of a long poll. Raises Gone when its client goes away before it: what a look has granted by then
        is in flight until its visibility timeout ends."""
        gone, answer = asyncio.ensure_future(_disconnected(receive)), asyncio.ensure_future(self.polls.wait(waiting))
        try:
            await asyncio.wait((gone, answer), return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            raise Gone
        finally:
            gone.cancel()
            answer.cancel()

    async def _told(self, path: str, client: Any) -> Response:
        if path == HEALTH:
            return _text(OK, "ok")
        if path == READY:
            return await self._ready()
        if not self._open_metrics and (client is None or client[0] not in LOOPBACK):
            return _text(NOT_FOUND, "not found")
        return Response(
            OK, "\n".join([*self._lines(), *await self._queues(), ""]).encode(), {"content-type": metrics.CONTENT_TYPE}
        )

    async def _ready(self) -> Response:
        if self.stopping:
            return _text(NOT_READY, "stopping")
        try:
            await asyncio.wait_for(self.pool.run(self._store.change_token), 5.0)
        except (LedgerError, asyncio.TimeoutError):
            return _text(NOT_READY, "the ledger's tables cannot be read")
        return _text(OK, "ready")

    def _lines(self) -> Iterator[str]:
        yield from self.metrics.lines()
        yield from metrics.family("ledger_long_polls", "gauge", "Open long polls.", [({}, self.polls.open)])
        yield from metrics.family("ledger_workers_busy", "gauge", "Threads at work.", [({}, self.pool.busy)])
        yield from metrics.family("ledger_backlog", "gauge", "Requests without a thread.", [({}, self.pool.waiting)])

    async def _queues(self) -> list[str]:
        def counted() -> list[tuple[str, Any]]:
            return [(queue.name, queue.counts()) for queue in self._endpoint.ledger.list_queues(max_results=200)]

        try:
            known = await self.pool.run(counted)
        except LedgerError:
            return []
        states = ("visible", "delayed", "in_flight")
        depth = [({"queue": name, "state": state}, getattr(c, state)) for name, c in known for state in states]
        ages = [({"queue": name}, c.age_of_oldest) for name, c in known if c.age_of_oldest is not None]
        return [
            *metrics.family("ledger_queue_messages", "gauge", "Messages of a queue, by state.", depth),
            *metrics.family("ledger_queue_oldest_seconds", "gauge", "Age of the oldest message still there.", ages),
        ]


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _text(status: int, text: str) -> Response:
    return Response(status, f"{text}\n".encode(), {"content-type": "text/plain; charset=utf-8"})


def _last(response: Response) -> Response:
    """What is left of the request is not read: the connection ends with the response."""
    return Response(response.status, response.body, {**response.headers, "connection": "close"})


async def _send(send: Send, response: Response) -> None:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in response.headers.items()]
    headers.append((b"content-length", str(len(response.body)).encode()))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})
