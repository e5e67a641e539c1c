"""What simulated clients change about queues: tags, permissions, and how long messages are kept."""

from __future__ import annotations

from typing import Any

from tests.simulation.clients import Player
from tests.simulation.programs import Step

#: In seconds; the first is the least that there is.
PERIODS = (60, 60, 90, 150, 300)
AGES = (30, 61, 95, 150)
LABELS, KEYS = ("read", "write", "all"), ("team", "cost", "stage")


class Naming(Player):
    """The verbs on a queue's row that the first worlds do without."""

    def _change(self, step: Step, verb: str, do: Any, **about: Any) -> None:
        queue = self._queue(step.which)
        if queue is not None:
            self._call(verb, queue.name, lambda: do(queue), id=queue.id, **about)

    def _tag(self, step: Step) -> None:
        given = dict.fromkeys(self._luck.sample(KEYS, self._luck.choice((1, 2))), f"{self.client.name} {self._number}")
        self._change(step, "tag", lambda queue: queue.tag(given), tags=given)

    def _untag(self, step: Step) -> None:
        keys = self._luck.sample(KEYS, self._luck.choice((1, 2)))
        self._change(step, "untag", lambda queue: queue.untag(keys), tags=dict.fromkeys(keys))

    def _retag(self, step: Step) -> None:
        """Replaces all tags."""
        given = dict.fromkeys(self._luck.sample(KEYS, 1), f"{self.client.name} {self._number} anew")
        about = {**dict.fromkeys(KEYS), **given}
        self._change(step, "retag", lambda queue: queue.set_tags(given), tags=about)

    def _permit(self, step: Step) -> None:
        label = self._luck.choice(LABELS)
        call = lambda queue: queue.add_permission(label, ["123456789012"], ["SendMessage"])  # noqa: E731
        self._change(step, "permit", call, labels={label: True})

    def _forbid(self, step: Step) -> None:
        label = self._luck.choice(LABELS)
        self._change(step, "forbid", lambda queue: queue.remove_permission(label), labels={label: False})

    def _retain(self, step: Step) -> None:
        """Changes how long messages are kept."""
        period = str(self._luck.choice(PERIODS))
        call = lambda queue: queue.set_attributes({"MessageRetentionPeriod": period})  # noqa: E731
        self._change(step, "settings", call, attributes={"MessageRetentionPeriod": period})

    def _age(self, step: Step) -> None:
        """Does nothing for as long as messages are kept, or so."""
        self._run.scheduler.sleep(1_000 * AGES[step.which % len(AGES)])
