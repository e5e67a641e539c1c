"""The flaky front of the model: an HTTP server on loopback that bills each text, and refuses some requests.

A request is a POST of {"worker": pid, "texts": [[text, tokens], ...]}. The answer is 200 where all texts are billed,
429 where there are too many requests at the moment, and 500 where something broke; then nothing is billed. A seed and
the number of a request decide whether it is refused.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

#: The shares of the requests that are refused with 429, and with 500.
SHARE_BUSY, SHARE_BROKEN = 0.08, 0.03
#: How long a client is asked to wait after a 429, in seconds.
RETRY_AFTER_SECONDS = 1


class Billed(NamedTuple):
    """A text that was paid for: by which process, and how many tokens."""

    text: str
    tokens: int
    worker: int


class Front:
    """The server, in a thread of this process, while it is entered. `url` is where it listens."""

    def __init__(self, seed: int = 42, port: int = 0) -> None:
        self._chance, self._lock = random.Random(seed), threading.Lock()
        #: All that was paid for, in this order.
        self.bills: list[Billed] = []
        #: How many requests had which status, and how many texts each status was about.
        self.requests: Counter[int] = Counter()
        self.texts: Counter[int] = Counter()
        #: Called after each answer 200, with the process that has it.
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
        """Bill the texts, or refuse; return the status."""
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
        """How many tokens were paid for."""
        return sum(bill.tokens for bill in self.bills)

    def paid_again(self) -> list[Billed]:
        """Return every bill of a text that had been paid for before."""
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
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status = front.answer(asked["worker"], asked["texts"])
            self.send_response(status)
            if status == 429:
                self.send_header("Retry-After", str(RETRY_AFTER_SECONDS))
            self.send_header("Content-Length", "0")
            self.end_headers()
            self.wfile.flush()
            if status == 200:
                front.on_paid(asked["worker"])

        def log_message(self, *told: object) -> None:
            pass

    return Handler
