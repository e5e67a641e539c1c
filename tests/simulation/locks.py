"""File locks between processes, simulated: shared or alone, in the order of asking, free when their holder ends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.simulation.scheduler import Scheduler


class _File:
    """What flock does to one file."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self._sharers, self._alone = scheduler, 0, False

    @contextlib.contextmanager
    def locked(self, alone: bool) -> Iterator[None]:
        self._scheduler.wait_for(self, lambda: not self._alone and not (alone and self._sharers))
        if alone:
            self._alone = True
        else:
            self._sharers += 1
        try:
            yield
        finally:
            if alone:
                self._alone = False
            else:
                self._sharers -= 1
            self._scheduler.wake(self)


class SimulatedLock:
    """As TableLock: who asks to have the table alone holds the gate, so that newcomers queue behind it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self._gate, self._turn = scheduler, _File(scheduler), _File(scheduler)

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Beside other sharers."""
        self._scheduler.point("lock")
        with contextlib.ExitStack() as held:
            with self._gate.locked(alone=True):
                held.enter_context(self._turn.locked(alone=False))
            yield

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Alone."""
        self._scheduler.point("lock")
        with self._gate.locked(alone=True), self._turn.locked(alone=True):
            yield

    def prefer_exclusive(self, seconds: float) -> contextlib.AbstractContextManager[None]:
        """Alone: here nobody who is stopped is so for ever."""
        return self.exclusive()
