"""Forks: a child has a copy of its parent's memory, and none of its other threads, and goes on as another process.

The memory is all that the ledger object refers to, copied at a moment when other threads of the parent may be in the
middle of a verb. Shared with the parent stay the storage, the locks of files, and what plays the simulation. What the
product does in a child it does here: it calls the renewals that are registered in `ledger.runtime.threads`.

A virtual machine whose snapshot is resumed twice is the same, but nobody tells the process. There nothing is renewed
but what belongs to threads, which are in a real twin, and of which only one goes on here.
"""

from __future__ import annotations

import copy
import copyreg
import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import Any
from unittest import mock

import pyarrow as pa

from ledger.ledger import Ledger
from ledger.runtime import threads
from ledger.store.delta.verbs.sending import OpenSegments
from tests.simulation.clients import Player
from tests.simulation.programs import Step
from tests.simulation.run import Slot
from tests.simulation.scheduler import Process

#: How to copy what `copy` does not know. A table is never changed: it stays the same one.
_COPIED = {
    pa.Table: lambda one: "",
    threading.local: lambda one: (threading.local, ()),
    weakref.WeakSet: lambda one: (weakref.WeakSet, (list(one),)),
}


def forked(
    ledger: Ledger, claims: Sequence[Any], parent: Process, child: Process, shared: Iterable[Any], *, is_told: bool
) -> tuple[Ledger, list[Any]]:
    """Return a ledger object, and claims of it, as a child has them.

    Args:
        ledger: The parent's.
        claims: Claims that came from it.
        parent: The process that has them.
        child: The process that is to have the copies.
        shared: What parent and child both see.
        is_told: Whether the product is told of the fork; else it is a twin machine.
    """
    memory: dict[int, Any] = {id(one): one for one in shared}
    memory[id(parent)] = child
    with mock.patch.dict(copyreg.dispatch_table, _COPIED):
        copied, taken = copy.deepcopy((ledger, list(claims)), memory)
    if is_told:
        # As `opening` renews it: the owner has the process's id.
        copied.store.transactions.owner = child.name
    for owner, renew in list(threads._renewals.items()):
        mine = memory.get(id(owner), owner)
        if mine is not owner:
            threads.renew_in_child(mine, renew)
            if is_told or not isinstance(mine, OpenSegments):
                renew(mine)
    return copied, taken


class Forking(Player):
    """The verbs of a world in which processes fork."""

    #: Whether the product is told of twins, too: then they are forks.
    twins_are_told = False

    def _fork(self, step: Step) -> None:
        """This client goes on in a child; the other ones of its process stay where they are."""
        self._go_on_in(self._run.fork(self._slot, is_told=True))

    def _twin(self, step: Step) -> None:
        """As a fork of which nobody tells the process."""
        self._go_on_in(self._run.fork(self._slot, is_told=self.twins_are_told))

    def _small(self, step: Step) -> None:
        """A send without an attempt id, which is appended to an open segment."""
        queue = self._call("look up", "work", lambda: self._slot.ledger.queue("work"))
        bodies = [f"{self.client.name} {self._number}{' again' * self._retry} {n}" for n in range(1 + step.detail % 2)]
        if queue is not None:
            ids = self._call("send", "work", lambda: queue.send(bodies), bodies=bodies, attempt=None)
            self._run.message_ids += [("work", one) for one in ids or ()]

    def _go_on_in(self, slot: Slot) -> None:
        self._slot, self.client.process = slot, slot.process
