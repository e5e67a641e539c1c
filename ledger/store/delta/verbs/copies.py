"""Commits of the parts of a copy to its target queue: each part is one append to `messages` (see `rules.copies`)."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from itertools import count

import pyarrow as pa

from ledger.clock import Clock
from ledger.rules import copies, fifo, instants
from ledger.rules import message_id as ids
from ledger.rules.attributes import is_fifo
from ledger.rules.copies import CopyProgress
from ledger.runtime.forks import uses_arrow
from ledger.store.delta.commit.holdings import releasing
from ledger.store.delta.engine import Engine
from ledger.store.delta.state.open_tables import OpenTables
from ledger.store.delta.state.record_rows import copied_rows
from ledger.store.delta.state.send_history import last_send
from ledger.store.delta.verbs.queues import Queues
from ledger.store.delta.verbs.quotas import Quotas, size_of_messages
from ledger.store.protocol import CopiedMessage, QueueRecord


class Copies:
    def __init__(self, opened: OpenTables, engine: Engine, queues: Queues) -> None:
        self._opened, self._engine, self._queues = opened, engine, queues
        self._transactions, self._settings, self._quotas = opened.transactions, opened.settings, Quotas(opened)

    def progress(self, queue: QueueRecord, key: str) -> CopyProgress | None:
        """Return the progress of a copy (see Store.copy_progress).

        The number of parts is read first: if another process then commits a part, `add` refuses the next part.
        """
        parts = self._version(copies.application(key))
        if parts is None:
            return None
        marks: list[int] = []
        for number in count():
            mark = self._version(copies.mark_application(key, number))
            if mark is None:
                break
            marks.append(mark)
        messages = self._version(copies.messages_application(key)) or 0
        # The caller goes on behind these parts: they must survive a power cut.
        self._opened.tables.make_durable("messages", self._opened.tables.version("messages"))
        return CopyProgress(parts, messages, tuple(marks))

    @uses_arrow
    @releasing
    def add(
        self, queue: QueueRecord, messages: Sequence[CopiedMessage], key: str, progress: CopyProgress, clock: Clock
    ) -> bool:
        """Append a part. Return False if this part is not the next one of the copy (see Store.add_copies).

        On a FIFO queue a part takes the next number of the queue's sends, and is decided again if another send is
        first. Raises ClocksDisagree, OverLimit, QueueDoesNotExist, StorageFailed and ContentionOutlastedRetries.
        """
        self._opened.times.require(queue, clock)
        in_order = is_fifo(queue.attributes)
        first, *further_transactions = progress.transactions(key)
        attempts = self._transactions.attempts("send")
        for losses in attempts:
            with self._transactions.turn("messages", queue.id if in_order else None, losses):
                # A copy takes long, so its queue may have other bounds by now.
                queue = self._queues.current(queue)
                sends, bounded = self._version(fifo.sends(queue.id)) or 0, self._quotas.next_send(queue)
                if (self._version(first[0]) or 0) != progress.parts - 1:
                    return False
                size = size_of_messages(message.entry for message in messages)
                self._quotas.require_room(queue, len(messages), size, clock)
                since, now = self._opened.tables.version("messages"), clock()
                generation = self._opened.tables.generation()
                if in_order:
                    now = self._not_before_last_send(queue, now)
                    rows, counted = _rows_in_order(queue, messages, sends + 1, now), [(fifo.sends(queue.id), sends + 1)]
                else:
                    rows, counted = _rows(queue, messages, progress, key, now), [] if bounded is None else [bounded]
                metadata = self._transactions.metadata(secrets.token_hex(8), "send", queue.id, now, [])
                self._transactions.step("chosen")
                append = partial(self._opened.tables.append, "messages", rows, metadata, [first, *counted])
                write = partial(append, generation=generation, beside=further_transactions)
                if self._transactions.commit("messages", metadata, since, write, attempts) is not None:
                    self._transactions.step("committed")
                    return True
        raise attempts.outlasted()

    def _not_before_last_send(self, queue: QueueRecord, now: int) -> int:
        skew = self._settings.maximum_clock_skew
        last = last_send(self._engine, queue.id, self._opened.listings.newest().last_sent(queue.id), now, skew)
        return instants.not_before(now, last, skew)

    def _version(self, application: str) -> int | None:
        return self._opened.tables.transaction_version("messages", application)


def _rows(
    queue: QueueRecord, messages: Sequence[CopiedMessage], progress: CopyProgress, key: str, now: int
) -> pa.Table:
    segment = ids.segment(ids.new_send_key(), 0)
    lane = (progress.parts + int(key[:8], 16)) % int(queue.attributes["Lanes"])
    return copied_rows(queue, lane, segment, messages, now)


def _rows_in_order(queue: QueueRecord, messages: Sequence[CopiedMessage], send: int, now: int) -> pa.Table:
    """Return the rows of a part for a FIFO queue, with sequence numbers in the order of the messages.

    `send` is the part's number among the queue's sends.
    """
    key, by_lane = ids.new_send_key(), dict[int, list[int]]()
    for ordinal, message in enumerate(messages):
        by_lane.setdefault(fifo.lane(message.entry.group, int(queue.attributes["Lanes"])), []).append(ordinal)
    tables = [
        copied_rows(
            queue,
            lane,
            ids.segment(key, lane),
            [messages[ordinal] for ordinal in ordinals],
            now,
            [fifo.sequence_number(send, ordinal) for ordinal in ordinals],
        )
        for lane, ordinals in by_lane.items()
    ]
    return pa.concat_tables(tables)
