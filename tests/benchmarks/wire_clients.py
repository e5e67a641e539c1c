"""Clients of the wire benchmark: boto3's, and a plain one that takes a tenth of the processor time.

On two cores a client takes time that the server could have. The plain client writes the bytes of AWS JSON 1.0 itself,
signs them, and keeps its connection.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import multiprocessing
import socket
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.benchmarks.wire_servers import KEY, SECRET

REGION, BATCH = "us-east-1", 10
VERBS = ("send", "receive", "delete")
BODIES = [{"Id": str(n), "MessageBody": f"a body of some length, number {n}"} for n in range(BATCH)]
#: How long a client that was refused waits before it asks again.
PAUSE_SECONDS = 0.05


class Refused(Exception):
    """The server refused a request: its code."""


class PlainClient:
    """One kept connection. The methods are those of boto3's client that a cycle needs."""

    def __init__(self, url: str) -> None:
        self._host, self._port = urlsplit(url).hostname or "", urlsplit(url).port or 80
        self._sock: socket.socket | None = None
        self._day = ""
        self._signing_key = b""

    def call(self, action: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return a request's result.

        Raises:
            Refused: The server answered with an error.
        """
        body = json.dumps(parameters).encode()
        request = self._signed(action, body) + body
        for is_fresh in (False, True):
            try:
                self._send(request, is_fresh=is_fresh)
                status, answer = self._answer()
                break
            except (ConnectionError, EOFError):
                if is_fresh:
                    raise
        result = json.loads(answer) if answer else {}
        if status != 200:
            raise Refused(result.get("__type", str(status)).rpartition("#")[2])
        return dict(result)

    def begin(self, action: str, parameters: dict[str, Any]) -> None:
        """Send a request whose answer nobody reads: an open long poll."""
        body = json.dumps(parameters).encode()
        self._send(self._signed(action, body) + body, is_fresh=True)

    def _send(self, request: bytes, *, is_fresh: bool) -> None:
        """Send a request on the kept connection, or a fresh one."""
        if self._sock is None or is_fresh:
            self.close()
            self._sock = socket.create_connection((self._host, self._port), 60.0)
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.sendall(request)

    def _answer(self) -> tuple[int, bytes]:
        """Return the status and the body of an answer."""
        data = b""
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._more()
        head = data[:end].lower()
        body = data[end + 4 :]
        at = head.find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0])
        while len(body) < length:
            body += self._more()
        if head.startswith(b"http/1.0") or b"connection: close" in head:
            self.close()
        return int(head[9:12]), body

    def _more(self) -> bytes:
        assert self._sock is not None
        data = self._sock.recv(262_144)
        if not data:
            raise EOFError
        return data

    def _signed(self, action: str, body: bytes) -> bytes:
        """Return the head of a request. Two equal ones of a second differ in their invocation id, as SDKs' do."""
        date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        day, target, host = date[:8], f"AmazonSQS.{action}", f"{self._host}:{self._port}"
        scope, names = f"{day}/{REGION}/sqs/aws4_request", "host;x-amz-date;x-amz-target"
        if day != self._day:
            key = f"AWS4{SECRET}".encode()
            for part in (day, REGION, "sqs", "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._day, self._signing_key = day, key
        digest = hashlib.sha256(body).hexdigest()
        canonical = f"POST\n/\n\nhost:{host}\nx-amz-date:{date}\nx-amz-target:{target}\n\n{names}\n{digest}"
        text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        signature = hmac.digest(self._signing_key, text.encode(), "sha256").hex()
        return (
            f"POST / HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/x-amz-json-1.0\r\n"
            f"Content-Length: {len(body)}\r\nX-Amz-Date: {date}\r\nX-Amz-Target: {target}\r\n"
            f"amz-sdk-invocation-id: {uuid.uuid4()}\r\n"
            f"Authorization: AWS4-HMAC-SHA256 Credential={KEY}/{scope}, SignedHeaders={names}, Signature={signature}"
            "\r\n\r\n"
        ).encode()

    def close(self) -> None:
        """Close the connection."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None


class Boto3Client:
    """An unmodified boto3 client."""

    _METHODS = {
        "SendMessageBatch": "send_message_batch", "SendMessage": "send_message", "DeleteMessage": "delete_message",
        "ReceiveMessage": "receive_message", "DeleteMessageBatch": "delete_message_batch",
        "ChangeMessageVisibility": "change_message_visibility", "CreateQueue": "create_queue",
    }  # fmt: skip

    def __init__(self, url: str) -> None:
        self._client = boto3.client(
            "sqs", region_name=REGION, endpoint_url=url, aws_access_key_id=KEY, aws_secret_access_key=SECRET,
            config=Config(retries={"total_max_attempts": 1, "mode": "standard"}),
        )  # fmt: skip

    def call(self, action: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """As PlainClient's."""
        try:
            return dict(getattr(self._client, self._METHODS[action])(**parameters))
        except ClientError as error:
            raise Refused(error.response["Error"]["Code"].rpartition(".")[2]) from None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


CLIENTS: dict[str, Any] = {"plain": PlainClient, "boto3": Boto3Client}


@dataclass
class Done:
    """What some clients did. Latencies are in seconds; those of "cycle" count from when a cycle was due."""

    latencies: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in (*VERBS, "cycle")})
    messages: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    processor_seconds: float = 0.0
    #: Until the last cycle ended: of a slow server, well behind the end of the load.
    wall_seconds: float = 0.0

    def add(self, other: Done) -> None:
        """Count what others did, too."""
        for name, some in other.latencies.items():
            self.latencies[name] += some
        self.messages += other.messages
        self.refused += other.refused
        self.processor_seconds += other.processor_seconds
        self.wall_seconds = max(self.wall_seconds, other.wall_seconds)


@dataclass(frozen=True)
class Load:
    """What clients do: each sends ten messages, receives ten, deletes ten, and again, for so many seconds. With
    `cycles_a_second` each client begins a cycle so often, whether the server keeps up or not; else one after the other.
    """

    kind: str
    url: str
    queue_urls: tuple[str, ...]
    clients: int
    seconds: float
    cycles_a_second: float | None = None


def run_load(load: Load, processes: int) -> Done:
    """Run the clients in some processes; return what they did together, once all of them have begun."""
    context = multiprocessing.get_context("spawn")
    processes = min(processes, load.clients)
    barrier, results = context.Barrier(processes), context.Queue()
    runs = [context.Process(target=_process, args=(load, n, processes, barrier, results)) for n in range(processes)]
    for run in runs:
        run.start()
    total = Done()
    for _ in runs:
        total.add(results.get())
    for run in runs:
        run.join()
    return total


def _process(load: Load, number: int, processes: int, barrier: Any, results: Any) -> None:
    """The clients of one process, a thread each."""
    mine = range(number, load.clients, processes)
    clients = [CLIENTS[load.kind](load.url) for _ in mine]
    done = [Done() for _ in mine]
    barrier.wait()
    used, began = time.process_time(), time.monotonic()
    workers = [threading.Thread(target=_cycles, args=(load, n, began, *one)) for n, *one in zip(mine, clients, done)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    total = Done(processor_seconds=time.process_time() - used, wall_seconds=time.monotonic() - began)
    for one in done:
        total.add(one)
    results.put(total)


def _cycles(load: Load, number: int, began: float, client: Any, done: Done) -> None:
    queue_url = load.queue_urls[number % len(load.queue_urls)]
    period = 1 / load.cycles_a_second if load.cycles_a_second else 0.0
    # Clients begin one after the other.
    due = began + period * number / load.clients
    while (now := time.monotonic()) < began + load.seconds:
        if due > now:
            time.sleep(due - now)
        start = due if period else now
        due += period
        try:
            _cycle(client, queue_url, done)
        except Refused as refused:
            done.refused[str(refused)] += 1
            time.sleep(PAUSE_SECONDS)
        else:
            done.latencies["cycle"].append(time.monotonic() - start)
    with contextlib.suppress(OSError):
        client.close()


def _cycle(client: Any, queue_url: str, done: Done) -> None:
    _timed(client, "send", "SendMessageBatch", {"QueueUrl": queue_url, "Entries": BODIES}, done)
    wanted = {"QueueUrl": queue_url, "MaxNumberOfMessages": BATCH}
    found = _timed(client, "receive", "ReceiveMessage", wanted, done).get("Messages", [])
    if found:
        handles = [{"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate(found)]
        gone = _timed(client, "delete", "DeleteMessageBatch", {"QueueUrl": queue_url, "Entries": handles}, done)
        done.messages += len(gone.get("Successful", []))


def _timed(client: Any, verb: str, action: str, parameters: dict[str, Any], done: Done) -> dict[str, Any]:
    began = time.perf_counter()
    result = client.call(action, parameters)
    done.latencies[verb].append(time.perf_counter() - began)
    return dict(result)
