"""What a Queue can do as a dead-letter queue, and for one (D1, D2)."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.handles import runs_of_ids
from ledger.move_tasks import MoveTasks
from ledger.queue_settings import QueueSettings
from ledger.rules import limits as bounds
from ledger.rules import move_task
from ledger.rules import redrive as redrive_rules
from ledger.rules.arns import queue_of
from ledger.rules.move_task import MoveTask
from ledger.tabular import listed


class DeadLetters(QueueSettings):
    """The part of a Queue that is about dead letters."""

    def dead_letter_source_queues(self, after: str = "", max_results: int | None = None) -> list[str]:
        """The names of the queues whose RedrivePolicy names this one, in order, as SQS's ListDeadLetterSourceQueues;
        for paging, at most `max_results` behind the name `after` (SQS's NextToken: the last name of the page before).
        """
        most = bounds.maximum_messages(max_results, bounds.UNBOUNDED, "MaxResults")
        policies = {record.name: redrive_rules.policy_of(record.attributes) for record in self._store.queues()}
        named = [name for name, known in policies.items() if known is not None and known.target == self.name]
        return [name for name in sorted(named) if name > after][:most]

    def redrive(
        self, where: str | Sequence[str] | None = None, destination: str | None = None, max_messages: int | None = None
    ) -> int:
        """D2: moves visible messages of this (dead-letter) queue back to where each came from, or to the queue
        `destination` (its name or ARN), in one commit; answers how many. There they are new: never received, kept from
        now on.

        `where` chooses: a SQL predicate on the view `messages` (such as "receive_count >= 3 AND body LIKE '%late%'";
        needs Spark), or a list of message ids. `max_messages` is a bound. A message whose origin is gone stays.
        Raises InvalidParameterValue for what is no predicate, in the parser's words, and moves nothing.
        """
        record = self._record()
        maximum = bounds.maximum_messages(max_messages, bounds.UNBOUNDED, "max_messages")
        target = None if destination is None else self._store.queue(queue_of(destination) or destination)
        chosen = None
        if isinstance(where, str):
            what = "A predicate, unlike a list of message ids,"
            chosen = self._spark(what).chosen(record, where, self._clock())
        elif where is not None:
            chosen = runs_of_ids(listed("where", where))
        return self._store.redrive(record, target, maximum, chosen, self._clock)

    def start_message_move_task(
        self, destination: str | None = None, max_messages_per_second: int | None = None
    ) -> str:
        """Starts moving the messages of this dead-letter queue back to where they came from, or to `destination`, as
        SQS's StartMessageMoveTask; answers the task's handle, which like the service's tells the queue's ARN.

        Without a rate all of them move in one commit, before this answers. With one, this process moves that many a
        second in the background; should it end, `Ledger.upkeep` in any process carries the task on.
        Raises InvalidParameterValue when no queue names this one in its RedrivePolicy, or a task is running already;
        ResourceNotFound when there is no queue `destination`.
        """
        task = self._move_tasks().start(destination, max_messages_per_second, self.dead_letter_source_queues())
        return move_task.handle_of(task, self.arn)

    def list_message_move_tasks(self, max_results: int = 1) -> list[MoveTask]:
        """The latest message move tasks of this queue, the latest first; `task` is each one's handle."""
        most = bounds.maximum_messages(max_results, bounds.UNBOUNDED, "MaxResults")
        return [task._replace(task=move_task.handle_of(task, self.arn)) for task in self._move_tasks().all()[:most]]

    def cancel_message_move_task(self, task_handle: str) -> int:
        """Cancels a running task; answers about how many messages it had moved, which stay moved.

        Raises InvalidParameterValue for what is no handle, ResourceNotFound when no such task is running.
        """
        return self._move_tasks().cancel(task_handle)

    def _move_tasks(self) -> MoveTasks:
        return MoveTasks(self._store, self._record(), self._clock)
