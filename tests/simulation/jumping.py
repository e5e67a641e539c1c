"""Clients whose clock jumps, by hours and days, for one verb or for one upkeep, and is right again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.simulation.clients import Player
from tests.simulation.programs import Step
from tests.simulation.scheduler import Process

#: By so many milliseconds.
JUMPS = (7_200_000, 432_000_000, 432_000_000, -7_200_000, -432_000_000)
VERBS = ("receive", "send", "upkeep", "receive", "delete", "restore")


class Jumping(Player):
    """The verbs of a world whose clocks jump."""

    def _jump(self, step: Step) -> None:
        """The clock of a running process, for one verb."""
        with _set(self.client.process, JUMPS[step.which % len(JUMPS)]):
            getattr(self, f"_{VERBS[step.detail % len(VERBS)]}")(step)

    def _upkeep_ahead(self, step: Step) -> None:
        """The clock of a process that has just started, for one upkeep, as a timer starts it. One in a run is wrong: of
        two in a row that agree nothing tells that they are."""
        mine, ahead = self.client.process, 0 if self._run.jumped else JUMPS[step.which % 3]
        self._run.jumped = True
        self.client.process = Process(f"upkeep of {self.client.name} {self._number}", ahead)
        # By the clock of this machine, or of another one.
        self.client.process.boot = ("simulated", "another")[step.detail % 2]
        try:
            ledger = self._run.open_ahead(self.client.process)
            self._call("upkeep", "", lambda: ledger.upkeep(vacuum=False), ahead=ahead)
        finally:
            self.client.process = mine


@contextmanager
def _set(process: Process, by: int) -> Iterator[None]:
    process.skew += by
    process.least_skew = min(process.least_skew, process.skew)
    try:
        yield
    finally:
        process.skew -= by
