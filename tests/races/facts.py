"""A history, sorted by what the checks ask for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from tests.races.history import Operation, name_of

#: What ends a message: acknowledged, alone or with its output.
ENDS = ("delete", "write")


class Facts:
    """The operations of a history by verb, by receipt and by message.

    `policies`: by a queue's name the name of its dead-letter queue, and how often a message is received before it
    goes there. `rows`: the rows of all outputs, as (table, message, receipt, body).
    """

    def __init__(
        self,
        operations: Iterable[Operation],
        policies: Mapping[str, tuple[str, int]] | None = None,
        rows: Iterable[tuple[str, str, str, str]] = (),
    ) -> None:
        self.operations, self.policies, self.rows = list(operations), dict(policies or {}), list(rows)
        self.by_verb: dict[str, list[Operation]] = defaultdict(list)
        self.by_receipt: dict[str | None, list[Operation]] = defaultdict(list)
        for operation in self.operations:
            self.by_verb[operation.verb].append(operation)
            self.by_receipt[operation.receipt].append(operation)
        #: By message: its grants in the order of their commits; what ended it, as far as that is sure.
        self.grants = by_message(self.by_verb["receive"])
        for received in self.grants.values():
            received.sort(key=lambda grant: grant.version)
        self.ends = by_message(one for verb in ENDS for one in self.by_verb[verb])
        self.sends: dict[str, list[Operation]] = defaultdict(list)
        for send in self.by_verb["send"]:
            for message in send.ids:
                self.sends[message].append(send)
        #: When something began that may have ended a message.
        self.may_end: dict[str, int] = {}
        for operation in [*self.by_verb["delete"], *self.by_verb["write"]]:
            for message in operation.ids if not operation.refused else ():
                self.may_end[message] = min(operation.began, self.may_end.get(message, operation.began))
        self.queues = {one.queue for one in self.operations} | {one.to for one in self.by_verb["redrive"] if one.to}

    def restores(self, receipt: str | None) -> list[Operation]:
        """The restores of what was acknowledged under a receipt that did, or may have done, something."""
        return [one for one in self.by_receipt[receipt] if one.verb == "restore" and one.count != 0]

    def policy(self, queue: str) -> tuple[str, int] | None:
        """The name of a queue's dead-letter queue, and its maxReceiveCount."""
        return self.policies.get(name_of(queue))


def by_message(operations: Iterable[Operation]) -> dict[str, list[Operation]]:
    """The answered ones of some operations by the messages that they changed."""
    found: dict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        if operation.ended is not None and not operation.refused:
            for message in operation.ids:
                found[message].append(operation)
    return found
