"""Rejections: messages that their holder sends to the dead-letter queue now, however seldom they were received."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ledger.clock import Clock
from ledger.rules import redrive, visibility
from ledger.rules.attributes import is_fifo
from ledger.rules.state import Record
from ledger.store.delta.model.run_algebra import ABSENT, Runs
from ledger.store.delta.state.journal import Events
from ledger.store.delta.state.open_tables import OpenTables
from ledger.store.delta.state.snapshot import Decision, Loaded
from ledger.store.delta.verbs.granting import require_apart
from ledger.store.delta.verbs.moving import dead_letter_queues, move
from ledger.store.delta.verbs.queues import Queues
from ledger.store.delta.verbs.sharing import GroupedCall, SharedVerbs
from ledger.store.protocol import Action, QueueRecord


class Rejecter:
    """The reject of a store. In one commit the messages are given back, for their reasons, and moved: what is recorded
    of their last receive is what a release and a receive that buries them would have left."""

    def __init__(self, opened: OpenTables, queues: Queues, shared: SharedVerbs) -> None:
        self._opened, self._queues, self._shared = opened, queues, shared

    def reject(self, queue: QueueRecord, actions: Sequence[Action], clock: Clock) -> int | None:
        """See Store.reject."""

        def targets() -> list[QueueRecord]:
            return [target for target in dead_letter_queues(self._queues, queue) if target.id != queue.id]

        def decide(loaded: Loaded, losses: int) -> Decision[int | None]:
            events = Events()
            if not loaded.targets:
                return Decision(Runs.empty(), events, lambda version: None)
            given_back = [self._given_back(loaded, action, events) for action in actions]
            runs = Runs.concatenated([Runs.empty(), *given_back]).in_order()
            if not len(runs):
                return Decision(Runs.empty(), events, lambda version: 0)
            listing, target = loaded.classify(self._opened.listings).listing, loaded.targets[0]
            require_apart(loaded.lanes, runs, listing.doubled(queue.id))
            fifo, origin = is_fifo(queue.attributes), queue.id
            arrives = partial(redrive.dead_letter, origin=origin, now=loaded.now, fifo=fifo, target=target.id)
            sides = move(loaded, listing, target, runs, arrives, events)
            arriving = {target.id: sides.arriving}
            return Decision(sides.leaving, events, lambda version: runs.count, arriving=arriving)

        return self._shared.run(GroupedCall("reject", queue, clock, decide, targets=targets))

    @staticmethod
    def _given_back(loaded: Loaded, action: Action, events: Events) -> Runs:
        """The messages of an action that its receipt holds, as they are once it has given them back."""
        lanes = loaded.lanes
        pieces = lanes.cut(action.runs)

        def released(record: Record) -> int:
            given_back = visibility.reject(record, action.receipt_id, loaded.now, action.mark)
            return ABSENT if given_back is None else lanes.code(given_back)

        code = lanes.per_code(pieces.code, released, np.int64)
        runs = pieces.coded(code).where(code != ABSENT).in_order()
        events.applied(action, lanes, runs)
        return runs
