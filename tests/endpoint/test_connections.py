"""Bounds on connections and on the memory of requests: strangers neither keep clients out nor fill the memory."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import re
import socket
import ssl
import struct
import threading
import tracemalloc
import urllib.request
import weakref
from contextlib import ExitStack
from functools import partial

import pytest

from ledger import Ledger
from ledger.endpoint import application, connections
from ledger.endpoint.application import Bounds
from ledger.endpoint.bodies import LargeBodies
from ledger.endpoint.connections import (
    LEAST_CONNECTIONS,
    MOST_CONNECTIONS,
    RESERVED_FILES,
    BoundedProtocol,
    most_connections,
)
from ledger.endpoint.handling import Exchange
from ledger.endpoint.pool import Pool
from ledger.endpoint.wire import Throttled
from tests.clock import FrozenClock
from tests.endpoint.conftest import KEY, served, unsigned
from tests.endpoint.test_command import Process, made_certificate
from tests.endpoint.test_requests import URL, StuckClock, asked, read

FEW = 5


@pytest.fixture
def bounded(query_models):
    """An endpoint that takes few connections."""
    ledger = Ledger.in_memory(FrozenClock())
    ledger.create_queue("q", {"Limits": "SQS"})
    with served(ledger, ledger.clock, query_models, bounds=Bounds(threads=4, connections=FEW)) as found:
        yield found


def opened(endpoint, sent=b""):
    raw = socket.create_connection(("127.0.0.1", endpoint.port), 30)
    raw.sendall(sent)
    return raw


def until(raw, end):
    """Reads until an answer has come that has `end` in it."""
    found = b""
    while end not in found:
        part = raw.recv(65_536)
        assert part, found
        found += part


def is_closed(raw):
    """Whether the server ends the connection."""
    try:
        return raw.recv(1) == b""
    except ConnectionResetError:
        return True


HALF = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nhalf"


@pytest.mark.parametrize("sent", [b"", b"POST / HT", HALF], ids=["nothing", "half a head", "half a body"])
def test_strangers_keep_no_client_out(bounded, sent):
    client = bounded.new_client()
    assert client.send_message(QueueUrl=URL, MessageBody="before")
    with ExitStack() as stack:
        strangers = [stack.enter_context(opened(bounded, sent)) for _ in range(3 * FEW)]
        assert client.send_message(QueueUrl=URL, MessageBody="after")
        # Those that wait longest were closed, and the client's own connection was not.
        assert all(is_closed(one) for one in strangers[: 2 * FEW])
        assert sum(one.is_verified for one in list(bounded.server.server_state.connections)) == 1
    assert bounded.server.application.metrics.disconnects <= 3 * FEW
    said = asked(bounded, method="GET", path="/metrics")[2].decode()
    assert int(re.search(r"^ledger_connections_dropped_total (\d+)$", said, re.MULTILINE)[1]) >= 2 * FEW
    assert "\nledger_connections " in said


def test_a_connection_with_a_whole_request_is_kept_until_its_answer(query_models):
    ledger = Ledger.in_memory(FrozenClock())
    queue = ledger.create_queue("q", {"Limits": "SQS"})
    body = json.dumps({"QueueUrl": URL, "WaitTimeSeconds": 20}).encode()
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\nContent-Length: %d\r\n\r\n"
    bounds = Bounds(threads=4, connections=FEW)
    with served(ledger, ledger.clock, query_models, unsigned, bounds=bounds) as endpoint, ExitStack() as stack:
        polls = [stack.enter_context(opened(endpoint, head % len(body) + body)) for _ in range(FEW)]
        while endpoint.server.application.polls.open != FEW:
            threading.Event().wait(0.01)
        # All connections have requests: a new one is refused.
        assert is_closed(stack.enter_context(opened(endpoint)))
        queue.send([f"{number}" for number in range(FEW)])
        found = b"".join(one.recv(65_536) for one in polls)
        assert found.count(b"HTTP/1.1 200 ") == FEW
        assert asked(endpoint, method="GET", path="/health")[0] == 200


def test_line_ends_after_an_answer_keep_no_connection_open(bounded, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    with opened(bounded, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n") as raw:
        until(raw, b"ok\n")
        raw.sendall(b"\r\n")
        assert is_closed(raw)


def test_an_answer_that_nobody_reads_holds_no_connection(query_models, monkeypatch):
    monkeypatch.setattr(connections, "UNREAD_SECONDS", 0.3)
    ledger = Ledger.in_memory(FrozenClock())
    queue = ledger.create_queue("q")
    queue.send(["x" * 1_000_000] * 10)
    body = json.dumps({"QueueUrl": URL, "MaxNumberOfMessages": 10}).encode()
    head = "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\n"
    with served(ledger, ledger.clock, query_models, unsigned) as endpoint, socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        raw.connect(("127.0.0.1", endpoint.port))
        raw.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        while not queue.counts().in_flight or endpoint.server.server_state.connections:
            threading.Event().wait(0.01)


@pytest.fixture
def encrypted(query_models, tmp_path):
    """An endpoint with TLS that takes few connections, and what its clients trust."""
    certificate, key = made_certificate(tmp_path)
    ledger = Ledger.in_memory(FrozenClock())
    bounds = Bounds(threads=4, connections=FEW)
    with served(ledger, ledger.clock, query_models, bounds=bounds, certificate=certificate, key=key) as found:
        yield found, ssl.create_default_context(cafile=certificate)


def test_strangers_who_begin_no_tls_keep_no_client_out(encrypted):
    endpoint, trusted = encrypted
    with ExitStack() as stack:
        strangers = [stack.enter_context(opened(endpoint)) for _ in range(3 * FEW)]
        with urllib.request.urlopen(f"https://127.0.0.1:{endpoint.port}/health", context=trusted, timeout=30) as said:
            assert said.read() == b"ok\n"
        assert all(is_closed(one) for one in strangers[: 2 * FEW])


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n"], ids=["nothing", "half", "no TLS"])
def test_a_handshake_that_does_not_end_is_ended(encrypted, monkeypatch, sent):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    endpoint, trusted = encrypted
    with ExitStack() as stack:
        assert all(is_closed(stack.enter_context(opened(endpoint, sent))) for _ in range(FEW))
    with urllib.request.urlopen(f"https://127.0.0.1:{endpoint.port}/metrics", context=trusted, timeout=30) as said:
        assert b"\nledger_connections 1\n" in said.read()


def test_a_process_with_few_files_answers_beside_more_connections_than_files(tmp_path):
    files = RESERVED_FILES + 116
    limited = (
        "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]),) * 2); "
        "os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
    )
    keys = {"LEDGER_ACCESS_KEY_ID": KEY, "LEDGER_SECRET_ACCESS_KEY": "a long secret"}
    command = ("-m", "ledger.cli", "serve", str(tmp_path / "ledger"), "--create")
    served = Process("-c", limited, str(files), *command, environment=keys)
    with ExitStack() as stack:
        try:
            port = int(served.url.rpartition(":")[2])
            for _ in range(files + 200):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), 30))
            for path in ("health", "ready"):
                assert urllib.request.urlopen(f"{served.url}/{path}", timeout=30).status == 200
        finally:
            assert served.end() == 0
    assert "takes 116 connections at once" in served.said
    assert "All 116 connections are open" in served.said and len(served.said) < 4_000


def test_the_bound_follows_from_the_limit_of_files():
    assert most_connections(1_024) == 1_024 - RESERVED_FILES
    assert (most_connections(100), most_connections(1 << 20)) == (LEAST_CONNECTIONS, MOST_CONNECTIONS)


def test_large_bodies_of_a_known_keys_id_take_bounded_memory(query_models):
    ledger = Ledger.in_memory(FrozenClock())
    head = (
        f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\nAuthorization: AWS4-HMAC-SHA256 Credential="
        f"{KEY}/20261127/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature={'0' * 64}\r\n\r\n"
    ).encode()
    bounds = Bounds(threads=4, large_bodies_bytes=2_000_000)
    with served(ledger, ledger.clock, query_models, bounds=bounds) as endpoint:
        with opened(endpoint, head + b"x" * 800_000) as first:
            while b"\nledger_large_bodies_bytes 800000\n" not in asked(endpoint, method="GET", path="/metrics")[2]:
                threading.Event().wait(0.01)
            with opened(endpoint, head + b"x" * 900_000) as second:
                assert b"RequestThrottled" in read(second)
            first.sendall(b"x" * 100_000)
            until(first, b"IncompleteSignature")
        with opened(endpoint, head + b"x" * 900_000) as third:
            until(third, b"IncompleteSignature")


def test_a_refused_call_is_freed_at_once():
    """Not at the next garbage collection, which comes seldom."""

    class Request:
        pass

    async def refuse():
        pool, free = Pool(1, 0), threading.Event()
        running = asyncio.ensure_future(pool.run(lambda: free.wait(60)))
        await asyncio.sleep(0)
        request = Request()
        freed = weakref.ref(request)
        with pytest.raises(Throttled):
            await pool.run(partial(id, request))
        request = None
        is_freed = freed() is None
        free.set()
        await running
        await asyncio.get_running_loop().run_in_executor(None, pool.close)
        return is_freed

    gc.disable()
    try:
        assert asyncio.run(refuse())
    finally:
        gc.enable()


def test_refused_requests_that_wait_for_their_answer_hold_no_body(query_models, monkeypatch):
    monkeypatch.setattr(application, "THROTTLED_SECONDS", 2.0)
    freed, free = [], Exchange.free
    monkeypatch.setattr(Exchange, "free", lambda exchange: freed.append(free(exchange)))
    clock = StuckClock()
    ledger = Ledger.in_memory(clock)
    ledger.create_queue("q")
    count, size = 40, 60_000
    body = json.dumps({"QueueUrl": URL, "MessageBody": "x" * size}).encode()
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.SendMessage\r\nContent-Length: %d\r\n\r\n"
    sent = head % len(body) + body
    bounds = Bounds(threads=1, backlog=0)
    with served(ledger, clock, query_models, unsigned, bounds=bounds) as endpoint, ExitStack() as stack:
        clock.free.clear()
        clock.asked.clear()
        stack.enter_context(opened(endpoint, sent))
        assert clock.asked.wait(30)
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        before = tracemalloc.get_traced_memory()[0]
        refused = [stack.enter_context(opened(endpoint, sent)) for _ in range(count)]
        while len(freed) < count:
            threading.Event().wait(0.01)
        assert tracemalloc.get_traced_memory()[0] - before < count * size / 2
        clock.free.set()
        for one in refused:
            until(one, b"RequestThrottled")


SMALL = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n"


def test_requests_without_end_take_no_memory(bounded):
    """A stranger who awaits no answer. A request has 28 bytes, and took some 2,500 bytes of memory."""
    with opened(bounded) as raw, pytest.raises(OSError):
        for _ in range(1_000):
            raw.sendall(SMALL * 1_000)
    assert asked(bounded, method="GET", path="/health")[0] == 200


def test_some_requests_may_come_before_the_answers_to_earlier_ones(bounded):
    with opened(bounded, SMALL * connections.MOST_PIPELINED_REQUESTS + SMALL.replace(b"GET", b"HEAD")) as raw:
        found = b""
        while found.count(b"HTTP/1.1 ") <= connections.MOST_PIPELINED_REQUESTS:
            found += raw.recv(65_536)


def test_strangers_who_read_no_answer_keep_no_client_out(query_models, monkeypatch):
    monkeypatch.setattr(connections, "MOST_PIPELINED_REQUESTS", 100_000)
    ledger = Ledger.in_memory(FrozenClock())
    ledger.create_queue("q", {"Limits": "SQS"})
    with (
        served(ledger, ledger.clock, query_models, bounds=Bounds(threads=4, connections=FEW)) as endpoint,
        ExitStack() as stack,
    ):
        for _ in range(FEW):
            stranger = stack.enter_context(socket.socket())
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            stranger.connect(("127.0.0.1", endpoint.port))
            stranger.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                for _ in range(30):
                    stranger.sendall(SMALL * 1_000)
        # While the strangers' requests are answered, no connection gives way.
        client = endpoint.new_client(retries={"total_max_attempts": 10, "mode": "standard"})
        assert client.send_message(QueueUrl=URL, MessageBody="body")


def test_a_closed_connection_is_freed_at_once(bounded):
    """Not at the next garbage collection, which comes seldom: its head may have 64 KiB."""
    client = bounded.new_client()
    client.send_message(QueueUrl=URL, MessageBody="body")
    client.close()
    with opened(bounded, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n") as raw:
        until(raw, b"ok\n")
    with opened(bounded, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n") as raw:
        until(raw, b"ok\n")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    gc.disable()
    try:
        while bounded.server.server_state.connections:
            threading.Event().wait(0.01)
        gc.collect()
        for _ in range(3):
            with opened(bounded, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n") as raw:
                until(raw, b"ok\n")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for _ in range(500):
            if not any(isinstance(one, BoundedProtocol) for one in gc.get_objects()):
                break
            threading.Event().wait(0.01)
        else:
            pytest.fail("connections are still in memory")
    finally:
        gc.enable()


def test_a_pipelined_request_hides_no_disconnect(query_models):
    ledger = Ledger.in_memory(FrozenClock())
    ledger.create_queue("q", {"Limits": "SQS"})
    body = json.dumps({"QueueUrl": URL, "WaitTimeSeconds": 20}).encode()
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\nContent-Length: %d\r\n\r\n"
    with served(ledger, ledger.clock, query_models, unsigned) as endpoint:
        with opened(endpoint, head % len(body) + body + SMALL):
            while endpoint.server.application.polls.open != 1:
                threading.Event().wait(0.01)
        while endpoint.server.application.polls.open:
            threading.Event().wait(0.01)
        while not (metrics := endpoint.server.application.metrics).disconnects and endpoint.server.server_state.tasks:
            threading.Event().wait(0.01)
        assert metrics.disconnects == 1


def test_those_without_a_verified_request_have_half_of_the_room_of_large_bodies():
    bodies = LargeBodies(100)
    assert bodies.take(50, is_verified=False) and not bodies.take(1, is_verified=False)
    assert bodies.take(50, is_verified=True) and not bodies.take(1, is_verified=True)
