"""Keys that are read anew when the process is sent SIGHUP, while it goes on serving.

A key that is in the file holds; a key that is no longer there is refused from then on. To change a key without a break:
add the new one, send SIGHUP, give it to the clients, remove the old one, send SIGHUP.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from ledger.endpoint.keys import Keys
from ledger.endpoint.signatures import Signatures
from ledger.errors import LedgerError

log = logging.getLogger("ledger.endpoint")


class KeyRotation:
    """From its start to its end SIGHUP is for the keys. Of the main thread; elsewhere it does nothing.

    It starts before the process serves, so that no SIGHUP ends a process that is about to.
    """

    def __init__(self) -> None:
        self._before: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._apply: Callable[[], None] | None = None
        self._is_asked = False

    def __enter__(self) -> KeyRotation:
        if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGHUP, self._asked)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGHUP, self._before)

    def start(self, read: Callable[[], Keys], signatures: Signatures, say: Callable[[str], None]) -> None:
        """Give what `read` returns to `signatures` at each SIGHUP from now on, and now where one came before.

        Called in the event loop. Keys that cannot be read change nothing, and are an error in the log.
        """

        def apply() -> None:
            try:
                keys = read()
            except LedgerError as error:
                log.error("SIGHUP: the keys stay as they were: %s", error)
                return
            signatures.replace(keys)
            say(f"the keys were read anew: there are {len(keys.known)}")

        self._loop, self._apply = asyncio.get_running_loop(), apply
        if self._is_asked:
            apply()

    def _asked(self, number: int, frame: FrameType | None) -> None:
        # Not here: a signal may come in the middle of a write to the log.
        self._is_asked = True
        if self._loop is not None and self._apply is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._apply)
