"""The accident: kills a process after it has paid, before it writes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time

from jobs.embed_demo.front import Front


class Accident:
    """Kills a child process once the front has billed `after` texts. The kill happens in a thread of the front."""

    def __init__(self, front: Front, after: int) -> None:
        self._front, self._after, self._lock = front, after, threading.Lock()
        self.victim: int | None = None
        self.killed_at: float | None = None
        front.on_paid = self._look

    def _look(self, worker: int) -> None:
        """Kill the process that has just paid, once enough texts are billed and another process is alive."""
        with self._lock:
            others = [child for child in multiprocessing.active_children() if child.pid != worker]
            if self.victim is None and len(self._front.bills) >= self._after and others:
                os.kill(worker, signal.SIGKILL)
                self.victim, self.killed_at = worker, time.time()
