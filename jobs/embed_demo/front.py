"""The front of the model: a local HTTP server that bills texts and refuses some requests.

A request is a POST of {"worker": pid, "texts": [[text, tokens], ...]}. The answer 200 bills all texts. The answers 429
(too many requests at the moment) and 500 (a failure) bill nothing. A seed and the number of the request decide whether
the request is refused.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

#: The shares of requests that are refused with 429 and with 500.
SHARE_BUSY, SHARE_BROKEN = 0.08, 0.03
#: Seconds that a client is asked to wait after a 429.
RETRY_AFTER_SECONDS = 1


class Billed(NamedTuple):
    """A text that was paid for: its tokens, and the process that paid."""

    text: str
    tokens: int
    worker: int


class Front:
    """The server. It runs in a thread of this process, inside a `with` block. `url` is its address."""

    def __init__(self, seed: int = 42, port: int = 0) -> None:
        self._chance, self._lock = random.Random(seed), threading.Lock()
        #: All bills, the first one first.
        self.bills: list[Billed] = []
        #: The number of requests by status, and of texts by the status of their requests.
        self.requests: Counter[int] = Counter()
        self.texts: Counter[int] = Counter()
        #: Called after each answer 200, with the id of the process that got this answer.
        self.on_paid: Callable[[int], None] = lambda worker: None
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler_of(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/embed"

    def __enter__(self) -> Front:
        threading.Thread(target=self._server.serve_forever, name="front", daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, worker: int, texts: list[tuple[str, int]]) -> int:
        """Bill the texts, or refuse them. Return the status."""
        with self._lock:
            chance = self._chance.random()
            status = 429 if chance < SHARE_BUSY else 500 if chance < SHARE_BUSY + SHARE_BROKEN else 200
            self.requests[status] += 1
            self.texts[status] += len(texts)
            if status == 200:
                self.bills += [Billed(text, tokens, worker) for text, tokens in texts]
        return status

    @property
    def paid(self) -> int:
        """The number of tokens that were paid for."""
        return sum(bill.tokens for bill in self.bills)

    def paid_again(self) -> list[Billed]:
        """Return every bill of a text that was already paid for."""
        seen: set[str] = set()
        again = []
        for bill in self.bills:
            if bill.text in seen:
                again.append(bill)
            seen.add(bill.text)
        return again


def _handler_of(front: Front) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status = front.answer(request["worker"], request["texts"])
            self.send_response(status)
            if status == 429:
                self.send_header("Retry-After", str(RETRY_AFTER_SECONDS))
            self.send_header("Content-Length", "0")
            self.end_headers()
            self.wfile.flush()
            if status == 200:
                front.on_paid(request["worker"])

        def log_message(self, *told: object) -> None:
            pass

    return Handler
