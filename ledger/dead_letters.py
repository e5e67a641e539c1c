"""What a Queue can do as a dead-letter queue, and for one (D1, D2)."""

from __future__ import annotations

from typing import Any

from ledger.errors import InvalidParameterValue
from ledger.handles import listed, runs_of_ids
from ledger.queue_settings import QueueSettings
from ledger.rules import limits as bounds
from ledger.rules import redrive as redrive_rules


class DeadLetters(QueueSettings):
    """The part of a Queue that is about dead letters."""

    def dead_letter_source_queues(self) -> list[str]:
        """The names of the queues whose RedrivePolicy names this one, as SQS's ListDeadLetterSourceQueues."""
        policies = {record.name: redrive_rules.policy_of(record.attributes) for record in self._store.queues()}
        return [name for name, known in policies.items() if known is not None and known.target == self.name]

    def redrive(
        self, where: Any = None, destination: str | None = None, max_messages: int | None = None
    ) -> int:
        """D2: moves visible messages of this (dead-letter) queue back to where each came from, or to the queue
        `destination`, in one commit; answers how many. There they are new: never received, kept from now on.

        `where` chooses: a SQL predicate on the view `messages` (such as "receive_count > 3 AND body LIKE '%late%'";
        needs Spark), or a list of message ids. `max_messages` is a bound. A message whose origin is gone stays.
        """
        record, now = self._record(), self._clock()
        maximum = bounds.maximum_messages(max_messages, bounds.UNBOUNDED)
        target = None if destination is None else self._store.queue(destination)
        if target is not None:
            bound = redrive_rules.broken_bound(record, target)
            if bound is not None:
                raise InvalidParameterValue("destination", destination, bound)
        chosen = None
        if isinstance(where, str):
            chosen = self._spark().chosen(record, where, now)
        elif where is not None:
            chosen = runs_of_ids(listed("where", where))
        return self._store.redrive(record, target, maximum, chosen, now)
