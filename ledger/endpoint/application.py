"""The endpoint as an ASGI application."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ledger.endpoint import metrics
from ledger.endpoint.access_log import AccessLog
from ledger.endpoint.actions import Result
from ledger.endpoint.actions.call import Call
from ledger.endpoint.actions.messages import Waiting
from ledger.endpoint.bodies import LARGE_BODY_BYTES, Body, Event, Gone, LargeBodies, Receive, read_within
from ledger.endpoint.connections import MOST_CONNECTIONS, BoundedProtocol, Connections
from ledger.endpoint.handling import Endpoint, Exchange, is_loopback_named
from ledger.endpoint.metrics import Metrics
from ledger.endpoint.polls import Polls
from ledger.endpoint.pool import Pool
from ledger.endpoint.statuses import NOT_FOUND, NOT_READY, OK, told
from ledger.endpoint.wire import THROTTLED, Refusal, Request, Response, Throttled
from ledger.errors import ClocksDisagree, LedgerError, StorageFailed, TableAltered
from ledger.rules.limits import LEAST_FREE_BYTES
from ledger.rules.redrive import dead_letter_names
from ledger.rules.upkeep import why_overdue

log = logging.getLogger("ledger.endpoint")
Send: TypeAlias = "Callable[[Event], Awaitable[None]]"
HEALTH, READY, METRICS = "/health", "/ready", "/metrics"
#: The longest body of a request without a known key, and the longest body that the event loop parses.
UNKNOWN_KEY_BODY_BYTES = PARSED_IN_LOOP_BYTES = LARGE_BODY_BYTES
#: How long a throttled answer is held back: clients that retry at once would take the processor's time.
THROTTLED_SECONDS = 1.0
SCRAPE_SECONDS = 1.0
#: How long a measurement of the vital signs is reused: each measurement lists all files.
VITALS_SECONDS = 60.0
#: On object stores, each 1,000 listed files cost one paid request.
VITALS_SECONDS_OF_OBJECT_STORES = 600.0
LOOPBACK_ADDRESSES = ("127.0.0.1", "::1", "::ffff:127.0.0.1")
#: A proxy on this machine sends one of these headers with the requests of other machines.
_FORWARDING_HEADERS = ("forwarded", "via", "x-forwarded-for", "x-real-ip")
#: Actions that wake no long polls of the queue.
_QUIET_ACTIONS = (
    "DeleteMessage",
    "DeleteMessageBatch",
    "GetQueueAttributes",
    "GetQueueUrl",
    "ListQueues",
    "ListQueueTags",
)


@dataclass(frozen=True)
class Bounds:
    #: A batch of 1 MiB fits, even if a form writes each byte as three (%0A).
    request_bytes: int = 4 << 20
    request_seconds: float = 30.0
    #: All bodies above LARGE_BODY_BYTES together.
    large_bodies_bytes: int = 256 << 20
    connections: int = MOST_CONNECTIONS
    threads: int = 36
    backlog: int = 256
    free_bytes: int = LEAST_FREE_BYTES
    long_polls: int = 2_000


class Application:
    """Serves an Endpoint. Must be made in the event loop that calls it."""

    def __init__(
        self,
        endpoint: Endpoint,
        bounds: Bounds,
        connections: Connections,
        *,
        open_metrics: bool = False,
        access_log: AccessLog | None = None,
    ) -> None:
        self._access_log, self._connections = access_log, connections
        self._large_bodies = LargeBodies(bounds.large_bodies_bytes)
        self._endpoint, self._bounds, self._open_metrics = endpoint, bounds, open_metrics
        self._store = endpoint.ledger.store
        self.pool = Pool(bounds.threads, bounds.backlog)
        interval = endpoint.ledger.settings.poll_interval
        self.polls = Polls(self.pool, self._store.change_token, interval, bounds.long_polls)
        self.metrics, self.stopping = Metrics(), False
        #: The time of the last measurement, for how many seconds it is reused, and its lines.
        self._measured: tuple[float, float, list[str]] | None = None
        self._scraped: tuple[float, list[str]] = (0.0, [])
        self._scraping = asyncio.Lock()

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        began = time.monotonic()
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
        client = (scope.get("client") or ("",))[0]
        request = Request(scope["method"], path, query, headers, b"", scope["scheme"])
        if scope["method"] == "GET" and path in (HEALTH, READY, METRICS) and not query:
            # DNS rebinding: a foreign page's host name can have a loopback address, to which this machine's browser
            # then sends.
            here = (
                client in LOOPBACK_ADDRESSES
                and not any(name in headers for name in _FORWARDING_HEADERS)
                and is_loopback_named(request)
            )
            await _send(send, await self._answer_check(path, here))
            return
        try:
            exchange, response = await self._read_and_answer(request, receive, scope["state"]["connection"])
        except Gone:
            self.metrics.disconnects += 1
            if self._access_log is not None:
                self._access_log.write(request, client, time.monotonic() - began, None, None)
            return
        exchange.free()
        if exchange.refused_for == THROTTLED:
            await asyncio.sleep(THROTTLED_SECONDS)
        seconds = time.monotonic() - began
        self.metrics.answered(exchange.action, exchange.refused_for, seconds)
        if self._access_log is not None:
            self._access_log.write(request, client, seconds, exchange, response)
        await _send(send, response)

    def stop(self) -> None:
        self.stopping = True
        self.polls.stop()

    async def _read_and_answer(
        self, request: Request, receive: Receive, connection: BoundedProtocol
    ) -> tuple[Exchange, Response]:
        body = Body(self._body_bound(request), self._large_bodies, is_verified=connection.is_verified)
        try:
            try:
                await read_within(self._bounds.request_seconds, body.read(receive))
                late = None
            except asyncio.TimeoutError:
                sentence = f"The request did not arrive within {self._bounds.request_seconds} seconds."
                late = Refusal("RequestTimeout", sentence)
            exchange = Exchange(self._endpoint, replace(request, body=bytes(body.found)))
            refusal = body.refusal or late
            if refusal is not None:
                return exchange, _with_close_header(exchange.refused(refusal))
            return exchange, await self._answer(exchange, len(body.found), receive, connection)
        finally:
            body.free()

    async def _answer(self, exchange: Exchange, length: int, receive: Receive, connection: BoundedProtocol) -> Response:
        try:
            call = exchange.begun() if length <= PARSED_IN_LOOP_BYTES else await self.pool.run(exchange.begun)
            connection.is_verified = True
            return await self._do_call(exchange, call, receive)
        except Gone:
            raise
        except Exception as error:
            return exchange.refused(error)

    def _body_bound(self, request: Request) -> int:
        signatures = self._endpoint.signatures
        if signatures is None or signatures.knows(request):
            return self._bounds.request_bytes
        # The body of a request without a known key takes memory until the refusal.
        return min(self._bounds.request_bytes, UNKNOWN_KEY_BODY_BYTES)

    async def _do_call(self, exchange: Exchange, call: Call, receive: Receive) -> Response:
        done = await self.pool.run(functools.partial(_do_and_write, exchange, call), call.queue_named)
        if isinstance(done, Waiting):
            return exchange.written({} if self.stopping else await self._await_poll(done, receive))
        if call.action not in _QUIET_ACTIONS and call.known_queue is not None:
            # The polls of other queues that the action changed learn of the change from the tables.
            self.polls.changed(call.known_queue)
        return done

    async def _await_poll(self, waiting: Waiting, receive: Receive) -> Result:
        gone, answer = (
            asyncio.ensure_future(_wait_for_disconnect(receive)),
            asyncio.ensure_future(self.polls.wait(waiting)),
        )
        try:
            await asyncio.wait((gone, answer), return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            raise Gone
        finally:
            gone.cancel()
            answer.cancel()

    async def _answer_check(self, path: str, here: bool) -> Response:
        try:
            return await self._check(path, here)
        except Exception as error:
            return _make_text_response(told(error).known.status, "it could not be found out")

    async def _check(self, path: str, here: bool) -> Response:
        if path == HEALTH:
            return _make_text_response(OK, "ok")
        if path == READY:
            return await self._check_ready()
        if not self._open_metrics and not here:
            return _make_text_response(NOT_FOUND, "not found")
        lines = [*self._list_own_metrics(), *await self._read_ledger_metrics()]
        return Response(OK, "\n".join([*lines, ""]).encode(), {"content-type": metrics.CONTENT_TYPE})

    async def _read_ledger_metrics(self) -> list[str]:
        async with self._scraping:
            scraped_at, lines = self._scraped
            if not lines or time.monotonic() >= scraped_at + SCRAPE_SECONDS:
                parts = (self._list_table_metrics, self._upkeep, self._measure_vitals, self._queues)
                lines = [line for part in parts for line in await part()]
                self._scraped = time.monotonic(), lines
            return lines

    async def _check_ready(self) -> Response:
        if self.stopping:
            return _make_text_response(NOT_READY, "stopping")
        try:
            reason = await asyncio.wait_for(self.pool.run(self._find_reason_against), 5.0)
        except Throttled:
            reason = "too many requests run or wait"
        except (LedgerError, asyncio.TimeoutError) as error:
            log.warning("not ready: %s", str(error) or "the tables were not read within 5 seconds")
            reason = "the ledger's tables cannot be read"
        return _make_text_response(OK, "ready") if reason is None else _make_text_response(NOT_READY, reason)

    def _find_reason_against(self) -> str | None:
        """Return why the ledger takes no commits now, or None. The reason names no path."""
        try:
            self._store.require_tables()
            self._store.change_token()
            return self._find_machine_reason()
        except TableAltered as error:
            log.warning("not ready: %s", error)
            return f"{error.what}; `ledger doctor` says what takes it back"

    def _find_machine_reason(self) -> str | None:
        try:
            self._store.require_ready(self._bounds.free_bytes)
        except TableAltered:
            raise
        except ClocksDisagree as error:
            log.warning("not ready: %s", error)
            return "the clocks disagree"
        except StorageFailed as error:
            log.warning("not ready: %s", error)
            return "the storage is full, or cannot be read or written"
        return None

    def _list_own_metrics(self) -> Iterator[str]:
        yield from self.metrics.lines()
        transactions = getattr(self._store, "transactions", None)
        if transactions is not None:
            yield from metrics.format_transactions(transactions.tally)
        engine = getattr(self._store, "engine", None)
        if engine is not None:
            yield from metrics.format_commit_paths(engine.paths.counts())
        text = "Open connections."
        yield from metrics.format_family("ledger_connections", "gauge", text, [({}, len(self._connections))])
        text = "Connections that were closed because too many were open."
        yield from metrics.format_family(
            "ledger_connections_dropped_total", "counter", text, [({}, self._connections.dropped)]
        )
        text = f"What request bodies above {LARGE_BODY_BYTES} bytes take."
        yield from metrics.format_family("ledger_large_bodies_bytes", "gauge", text, [({}, self._large_bodies.taken)])
        yield from metrics.format_family("ledger_long_polls", "gauge", "Open long polls.", [({}, self.polls.open)])
        yield from metrics.format_family(
            "ledger_workers_busy", "gauge", "Calls that have a thread.", [({}, self.pool.busy)]
        )
        yield from metrics.format_family(
            "ledger_backlog", "gauge", "Calls that wait for a thread.", [({}, self.pool.waiting)]
        )

    async def _list_table_metrics(self) -> list[str]:
        try:
            refusals = await self.pool.run(self._store.refusals)
        except TableAltered as error:
            refusals = {"": (error.what, error.fix)}
        except LedgerError:
            return []
        return [*metrics.format_refused_tables({table: reason for table, (reason, _) in refusals.items()})]

    async def _upkeep(self) -> list[str]:
        rounds = getattr(self._store, "rounds", None)
        if rounds is None:
            return []

        def measured() -> list[str]:
            load = rounds.look().load(self._endpoint.ledger.clock())
            return [*metrics.format_upkeep(load.commits, why_overdue(load, rounds.log_retention()) is not None)]

        try:
            return await self.pool.run(measured)
        except LedgerError:
            return []

    async def _measure_vitals(self) -> list[str]:
        # A ledger in memory has no vital signs.
        signs = getattr(self._store, "vital_signs", None)
        if signs is None:
            return []
        measurement = self._measured
        if measurement is None or time.monotonic() - measurement[0] >= measurement[1]:
            began = time.monotonic()
            try:
                measured = await self.pool.run(functools.partial(signs.measure, self._endpoint.ledger.clock))
            except LedgerError:
                return []
            is_local = measured.disk.free is not None
            lasts = VITALS_SECONDS if is_local else VITALS_SECONDS_OF_OBJECT_STORES
            measurement = self._measured = began, lasts, [*metrics.format_vitals(measured)]
        return measurement[2]

    async def _queues(self) -> list[str]:
        def counted() -> tuple[dict[str, Any], set[str]]:
            counts = {}
            for queue in self._endpoint.ledger.list_queues(max_results=200):
                with contextlib.suppress(ClocksDisagree):
                    counts[queue.name] = queue.counts()
            return counts, dead_letter_names(record.attributes for record in self._endpoint.ledger.store.queues())

        try:
            counts_by_name, targets = await self.pool.run(counted)
        except LedgerError:
            return []
        states = ("visible", "delayed", "in_flight")
        counted_queues = counts_by_name.items()
        depth = [({"queue": name, "state": state}, getattr(c, state)) for name, c in counted_queues for state in states]
        ages = [({"queue": name}, c.age_of_oldest) for name, c in counted_queues if c.age_of_oldest is not None]
        return [
            *metrics.format_family("ledger_queue_messages", "gauge", "Messages of a queue, by state.", depth),
            *metrics.format_family(
                "ledger_queue_age_of_oldest_seconds", "gauge", "Age of the oldest message still there.", ages
            ),
            *metrics.format_dead_letters(counts_by_name, targets),
        ]


def _do_and_write(exchange: Exchange, call: Call) -> Response | Waiting:
    done = exchange.done(call)
    return done if isinstance(done, Waiting) else exchange.written(done)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _make_text_response(status: int, text: str) -> Response:
    return Response(status, f"{text}\n".encode(), {"content-type": "text/plain; charset=utf-8"})


def _with_close_header(response: Response) -> Response:
    """Let the response close the connection: the rest of the request may be unread."""
    return Response(response.status, response.body, {**response.headers, "connection": "close"})


async def _send(send: Send, response: Response) -> None:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in response.headers.items()]
    headers.append((b"content-length", str(len(response.body)).encode()))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})
