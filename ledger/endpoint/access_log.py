"""The access log: a line of JSON for each request that is answered, or that its client abandons.

GETs of the paths for health, readiness and metrics get no line. A line has no body, no attribute, no header of the
request, and no key. It has no query either: a query may hold a message and a signature.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from datetime import datetime, timezone
from logging.handlers import WatchedFileHandler
from typing import Any

from ledger.endpoint.handling import Exchange
from ledger.endpoint.wire import Request, Response

log = logging.getLogger("ledger.endpoint")
STANDARD_OUTPUT = "-"
#: The outcome of a request whose client disconnected before the answer.
GONE = "ClientGone"


class AccessLog:
    """Writes lines to a file or to the standard output. Only the event loop's thread uses it."""

    def __init__(self, path: str) -> None:
        """Open the file to append to it; `-` is the standard output.

        If the file is renamed (logrotate), the next line makes a new file.

        Raises:
            OSError: The file cannot be opened for writing.
        """
        self._handler: logging.StreamHandler[Any] = (
            logging.StreamHandler(sys.stdout) if path == STANDARD_OUTPUT else WatchedFileHandler(path, encoding="utf-8")
        )
        self._handler.handleError = self._failed  # type: ignore[method-assign]
        self._has_failed = False

    def write(
        self, request: Request, client: str, seconds: float, exchange: Exchange | None, response: Response | None
    ) -> None:
        """Write the line of a request that took `seconds`.

        `exchange` and `response` are None if the client disconnected. A line that cannot be written is lost.
        """
        call = exchange.call if exchange else None
        line = {
            "at": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            "id": response.headers.get("x-amzn-requestid") if response else None,
            "client": client,
            "caller": call.caller.arn if call else None,
            "method": request.method,
            "path": request.path[:300],
            "action": exchange.action if exchange else None,
            "queue": (call.known_name or call.parameters.get("QueueName")) if call else None,
            "outcome": GONE if exchange is None else exchange.refused_for or "ok",
            "status": response.status if response else None,
            "milliseconds": round(seconds * 1_000, 1),
            "bytes_in": exchange.bytes_in if exchange else None,
            "bytes_out": len(response.body) if response else None,
        }
        text = json.dumps(line)
        record = logging.LogRecord("ledger.client.access", logging.INFO, "", 0, text, None, None)
        try:
            self._handler.handle(record)
        except OSError:
            # The file was renamed, and a new one cannot be made.
            self._failed(record)

    def close(self) -> None:
        """Close the file. Lines that a full disk does not take are lost."""
        with contextlib.suppress(OSError):
            self._handler.close()

    def _failed(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not self._has_failed:
            log.error("The access log cannot be written (%s); its lines are lost until it can", error)
        self._has_failed = True
