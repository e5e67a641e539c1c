"""Purges: the deletion of all messages of a queue, or of its old messages."""

from __future__ import annotations

import secrets
from functools import partial

import numpy as np

from ledger.clock import Clock
from ledger.rules import fifo, visibility
from ledger.rules import limits as limit_rules
from ledger.rules.attributes import is_fifo, limits_of
from ledger.rules.visibility import UNTOUCHED
from ledger.runtime.threads import uses_arrow
from ledger.store.delta.commit.locks import releasing
from ledger.store.delta.commit.transactions import Attempts, Plan
from ledger.store.delta.model.message_runs import Pieces, Runs
from ledger.store.delta.state.listing import GONE_STATES
from ledger.store.delta.state.snapshot import Events, Loaded, OpenTables
from ledger.store.protocol import QueueRecord


class Purger:
    def __init__(self, opened: OpenTables) -> None:
        self._opened, self._transactions, self._settings = opened, opened.transactions, opened.settings

    @uses_arrow
    @releasing
    def purge(self, queue: QueueRecord, clock: Clock, older_than: int | None = None) -> int:
        """See Store.purge.

        On a FIFO queue a purge of all messages is up to three commits. The first deletes the messages. The second makes
        deduplication forget the sends until now, and counts as a send. The third records the instant for a purge
        interval. If a send comes between the first two commits, both are made again: each send is wholly before or
        wholly after the purge. If this process ends between the first two, the queue still remembers its sends.
        """
        if older_than is not None:
            return self._empty_by_age(queue, clock, older_than)
        if not is_fifo(queue.attributes):
            return self._empty(queue, clock, whole=True)
        attempts, purged = self._transactions.attempts("purge"), 0
        for losses in attempts:
            with self._transactions.turn("messages", queue.id, losses):
                sent = self._opened.tables.transaction_version("messages", fifo.sends_application(queue.id)) or 0
                purged += self._empty(queue, clock, whole=False)
                if self._forget(queue, sent, clock, attempts):
                    if self._has_interval(queue):
                        self._note(queue, clock)
                    return purged
        raise attempts.give_up()

    def _empty(self, queue: QueueRecord, clock: Clock, *, whole: bool) -> int:
        """Delete all messages of one listing of `messages`, and return how many.

        Two purges conflict, because each counts up lane 0. `whole`: also note the instant for the purge interval, if
        there is one.
        """
        limits, interval = limits_of(queue.attributes), self._settings.purge_interval
        noted = whole and self._has_interval(queue)

        def decide(losses: int) -> Plan[int]:
            loaded, events = self._opened.load(queue, clock), Events()
            lanes = loaded.lanes
            limit_rules.require_purge(queue.name, lanes.heads.purged_at, limits, interval, loaded.now)
            _, _, pieces, state = loaded.classify(self._opened.listings)
            replacement = _purged(loaded, pieces.where(~np.isin(state, GONE_STATES)), events)
            if noted:
                lanes.heads.purged_at = loaded.now
            return loaded.plan(replacement, events, lambda version: replacement.count, (0,), always=noted)

        return self._transactions.run("purge", "visibility", queue.id, decide)

    def _empty_by_age(self, queue: QueueRecord, clock: Clock, older_than: int) -> int:
        """Delete the messages sent more than `older_than` milliseconds before this call, and return how many."""
        border = clock() - older_than - 1

        def decide(losses: int) -> Plan[int]:
            loaded, events = self._opened.load(queue, clock), Events()
            _, files, pieces, state = loaded.classify(self._opened.listings, border)
            is_old = files.sent_at[pieces.query] <= border
            replacement = _purged(loaded, pieces.where(is_old & ~np.isin(state, GONE_STATES)), events)
            return loaded.plan(replacement, events, lambda version: replacement.count)

        return self._transactions.run("purge", "visibility", queue.id, decide)

    def _note(self, queue: QueueRecord, clock: Clock) -> None:
        def decide(losses: int) -> Plan[None]:
            loaded = self._opened.load(queue, clock, (0,))
            loaded.lanes.heads.purged_at = loaded.now
            return loaded.plan(Runs.empty(), Events(), lambda version: None, (0,), always=True)

        self._transactions.run("purge", "visibility", queue.id, decide)

    def _has_interval(self, queue: QueueRecord) -> bool:
        return limits_of(queue.attributes).has_intervals and self._settings.purge_interval > 0

    def _forget(self, queue: QueueRecord, sent: int, clock: Clock, attempts: Attempts) -> bool:
        """Make the queue forget its first `sent` sends. Return False if another send was committed after them."""
        purges, since = fifo.purges_application(queue.id), self._opened.tables.version("messages")
        forgotten = self._opened.tables.transaction_version("messages", purges)
        if sent == 0 or (forgotten is not None and sent == forgotten + 1):
            # There was no send, or none since the last purge, which counts as a send, too.
            return (self._opened.tables.transaction_version("messages", fifo.sends_application(queue.id)) or 0) == sent
        metadata = self._transactions.metadata(secrets.token_hex(8), "purge", queue.id, clock(), [], attempts.losses)
        self._transactions.step("chosen")
        marks = (fifo.sends_application(queue.id), sent + 1), (purges, sent)
        mark = partial(self._opened.tables.mark, "messages", metadata, *marks)
        if self._transactions.commit("messages", metadata, since, mark, attempts) is None:
            return False
        self._transactions.step("committed")
        return True


def _purged(loaded: Loaded, alive: Pieces, events: Events) -> Runs:
    lanes = loaded.lanes
    code = lanes.per_code(alive.code, lambda r: lanes.code(visibility.purge(r, loaded.now)), np.int64)
    replacement = alive.recode(code).in_order()
    events.add("purged", UNTOUCHED, replacement)
    return replacement
