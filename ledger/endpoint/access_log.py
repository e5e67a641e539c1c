"""The access log: a line of JSON for each request that is answered, or whose client disconnects.

GETs of /health, /ready and /metrics without a query get no line, and neither do bytes that are no valid HTTP request. A
line has no body, header, query or key of the request, but the names of its action, queue and caller.
"""

from __future__ import annotations

import json
import logging
from datetime import datetime, timezone

from ledger.endpoint import line_writer
from ledger.endpoint.handling import Exchange
from ledger.endpoint.line_writer import LineWriter
from ledger.endpoint.wire import Request, Response

log = logging.getLogger("ledger.endpoint")
STANDARD_OUTPUT = "-"
#: The outcome if the client disconnected before the end of the body, or during a long poll.
GONE_OUTCOME = "ClientGone"


class AccessLog:
    """Writes the access log. Only the event loop's thread calls `write`."""

    def __init__(self, path: str) -> None:
        """Open the file as a LineWriter does; `-` is the standard output."""
        self._writer = LineWriter(
            line_writer.STANDARD_OUTPUT if path == STANDARD_OUTPUT else path,
            lambda reason: log.error("The access log cannot be written (%s). Its lines are lost", reason),
        )

    def write(
        self, request: Request, client: str, seconds: float, exchange: Exchange | None, response: Response | None
    ) -> None:
        """Let a thread write the line. `exchange` and `response` are None if the client disconnected."""
        call = exchange.call if exchange else None
        line = {
            "at": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            "id": response.headers.get("x-amzn-requestid") if response else None,
            "client": client,
            "caller": call.caller.arn if call else None,
            "method": request.method,
            "path": request.path[:300],
            "action": exchange.action if exchange else None,
            "queue": call.queue_asked if call else None,
            "outcome": GONE_OUTCOME if exchange is None else exchange.refused_for or "ok",
            "status": response.status if response else None,
            "milliseconds": round(seconds * 1_000, 1),
            "bytes_in": exchange.bytes_in if exchange else None,
            "bytes_out": len(response.body) if response else None,
        }
        self._writer.write(json.dumps(line))

    def close(self) -> None:
        self._writer.close()
