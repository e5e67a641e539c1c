"""A line with the progress: updated on a terminal, and printed every few seconds into a log."""

from __future__ import annotations

import shutil
import sys
import time
from collections import deque

from ledger.results import Counts

SECONDS_BETWEEN_LINES = 5.0
BAR = 20


class Progress:
    """Shows the counts of a queue. The rate comes from the last ten counts."""

    def __init__(self, total: int) -> None:
        self._total, self._started, self._is_terminal = total, time.monotonic(), sys.stdout.isatty()
        self._deleted: deque[tuple[float, int]] = deque(maxlen=10)
        self._shown, self._is_open = 0.0, False

    def show(self, counts: Counts, workers: str) -> None:
        """Show these counts. In a log, skip them if the last line is not SECONDS_BETWEEN_LINES old."""
        now = time.monotonic()
        self._deleted.append((now, counts.deleted))
        if not self._is_terminal and now - self._shown < SECONDS_BETWEEN_LINES:
            return
        self._shown = now
        text = (
            f"{now - self._started:4.0f} s {self._bar(counts)} stored {counts.stored:>7,}  "
            f"in flight {counts.in_flight:>7,}  deleted {counts.deleted:>7,}  {self._rate():>6,.0f}/s  {workers}"
        )
        if self._is_terminal:
            print(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}", end="", flush=True)
            self._is_open = True
        else:
            print(text, flush=True)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self.close()
        print(text, flush=True)

    def close(self) -> None:
        """End the line that is updated."""
        if self._is_open:
            print()
            self._is_open = False

    def _bar(self, counts: Counts) -> str:
        finished = BAR * counts.deleted // self._total
        begun = min(BAR, -(-BAR * (counts.deleted + counts.in_flight) // self._total))
        return "█" * finished + "▒" * (begun - finished) + "░" * (BAR - begun)

    def _rate(self) -> float:
        (start, before), (end, after) = self._deleted[0], self._deleted[-1]
        return (after - before) / (end - start) if end > start else 0.0
