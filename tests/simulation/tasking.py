"""What simulated clients do with message move tasks."""

from __future__ import annotations

from tests.simulation.clients import Player
from tests.simulation.programs import Step


class Tasking(Player):
    """The verbs on message move tasks."""

    def _start_task(self, step: Step) -> None:
        """Of the dead-letter queue; with a rate a thread of this process carries it on."""
        luck, names = self._luck, self._run.names
        queue = self._call("look up", "dead", lambda: self._slot.ledger.queue("dead"))
        if queue is None:
            return
        destination = names[step.detail % len(names)] if luck.random() < 0.4 else None
        rate = luck.choice((None, 1, 1, 2))
        call = lambda: queue.start_message_move_task(destination, rate)  # noqa: E731
        handle = self._call("start_task", "dead", call, destination=destination, rate=rate, id=queue.id)
        if handle is not None:
            self._run.tasks.append(("dead", handle))

    def _cancel_task(self, step: Step) -> None:
        if self._run.tasks:
            name, handle = self._run.tasks[-1 - step.which % len(self._run.tasks)]
            queue = self._call("look up", name, lambda: self._slot.ledger.queue(name))
            if queue is not None:
                self._call("cancel_task", name, lambda: queue.cancel_message_move_task(handle), handle=handle)

    def _list_tasks(self, step: Step) -> None:
        queue = self._call("look up", "dead", lambda: self._slot.ledger.queue("dead"))
        if queue is not None:
            self._call("list_tasks", "dead", lambda: queue.list_message_move_tasks(10))
