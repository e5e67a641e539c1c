"""Clients that back up the ledger, put a backup in its place, or remove it and make it anew, while others use it."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.clients import Player
from tests.simulation.log import Storage
from tests.simulation.programs import Step

#: For so many milliseconds there is no ledger at all.
GAPS = (0, 0, 3_000)


class Replacing(Player):
    """The verbs of a world whose ledger is replaced."""

    def _back_up(self, step: Step) -> None:
        """As `back_up` does: the receipts are filled first."""
        self._call("back up", "", self._slot.ledger.fill_receipts)
        if not self._run.storage.is_gone:
            self._run.backups.append(self._run.storage.copy(self._run.storage.clock))

    def _put_back(self, step: Step) -> None:
        """Puts a backup in the place of the ledger."""
        if self._run.backups:
            backup = self._run.backups[step.which % len(self._run.backups)]
            self._replace(step, lambda: self._run.restored(backup))

    def _finish(self, step: Step) -> None:
        """Deletes all that can be received, and later drops it."""
        queue = self._queue(step.which)
        held = queue and self._receive_as(queue, None, 30, None)
        if held:
            self._call("delete", held.queue, held.claim.delete, receipt=held.receipt)
            self._run.scheduler.sleep(22_000)
            self._upkeep(step)

    def _make_anew(self, step: Step) -> None:
        """Removes the ledger, and makes one with queues of the same names in its place."""
        self._replace(step, self._run.made_anew)

    def _replace(self, step: Step, make: Callable[[], Storage]) -> None:
        if self._run.storage.is_gone or len(self._run.past) >= 3:
            return
        self._run.remove()
        try:
            gap = GAPS[step.detail % len(GAPS)]
            if gap:
                self._run.scheduler.sleep(gap)
        finally:
            self._run.put(make())
