"""Repairs taken out again that the worlds with names are about: of retention, of move tasks, and of holders."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

from ledger.claim import Claim
from ledger.client import move_tasks, queue_settings
from ledger.heartbeat import Beat
from ledger.rules import redrive
from ledger.rules.visibility import Retention
from ledger.store.delta.verbs.queues import Queues
from tests.simulation.patching import Secrets

Patches = Callable[[contextlib.ExitStack], None]


def _patch(stack: contextlib.ExitStack, where: Any, name: str, broken: Any) -> None:
    stack.enter_context(mock.patch.object(where, name, broken))


def expired_comes_back(stack: contextlib.ExitStack) -> None:
    """A longer retention brought back what had expired by the shorter one."""
    _patch(stack, Retention, "changed", lambda self, period, now: Retention(period, self.expired_before))


def tasks_of_any_id(stack: contextlib.ExitStack) -> None:
    """A task's id was drawn: two that began at once were both inserted by a MERGE of Spark's."""
    right = redrive.new_task

    def broken(*arguments: Any) -> Any:
        return right(*arguments)._replace(task=Secrets.token_hex(16))

    _patch(stack, move_tasks.redrive, "new_task", broken)


def source_known_from_before(stack: contextlib.ExitStack) -> None:
    """A task went by what its process knew of the source when it began."""
    _patch(stack, move_tasks.MoveTasks, "_read_source", lambda self: self._source)


def tags_read_before(stack: contextlib.ExitStack) -> None:
    """A change of tags started from what was read before its commit."""

    def broken(access: Any, changed: Any) -> None:
        known = changed(access.record().tags)
        access.store.change_queue(access.made, lambda there, queues: (there.attributes, known), access.clock)

    _patch(stack, queue_settings, "change_tags", broken)


def gone_is_not_looked_for(stack: contextlib.ExitStack) -> None:
    """A receive did not look whether its queue was still there."""
    right = Queues.require

    def broken(self: Any, queue: Any, others: Any = ()) -> Any:
        return (self._read_newest()[0], True) if not others else right(self, queue, others)

    _patch(stack, Queues, "require", broken)


def beats_end_holds(stack: contextlib.ExitStack) -> None:
    """A heartbeat gave every message its own deadline, also those that were held for longer."""

    def broken(self: Any, timeout: int) -> Beat:
        return Beat(self.extend(timeout).lost, at_ceiling=False)

    _patch(stack, Claim, "_beat", broken)


def late_is_held(stack: contextlib.ExitStack) -> None:
    """A check went by the receipt alone, and not by the deadline."""

    def broken(self: Any) -> None:
        if self.grant is not None:
            self.access.store.held(self.access.record(), self.receipt_id)

    _patch(stack, Claim, "check", broken)


#: As those of `broken.REPAIRS`.
REPAIRS: dict[str, tuple[Patches, str, str]] = {
    "what has expired stays expired": (expired_comes_back, "had expired", "retention"),
    "one task runs on a source": (tasks_of_any_id, "2 tasks run on", "tasks"),
    "a task asks its source anew": (source_known_from_before, "is moved by redrive, and had expired", "tasks"),
    "changes of tags are not lost": (tags_read_before, "unasked", "named"),
    "a receive looks whether its queue is there": (gone_is_not_looked_for, "its queue was deleted before", "waiting"),
    "a heartbeat ends no hold": (beats_end_holds, "a heartbeat ends its hold", "handles"),
    "a check goes by the deadline": (late_is_held, "not lost, it says", "handles"),
}
