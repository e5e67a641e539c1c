"""Outputs effectively once: a message's rows are in as often as it was acknowledged through a write, once if at all."""

from __future__ import annotations

from collections import defaultdict

from ledger.rules.output_doubts import WRITTEN
from tests.simulation.facts import Facts, Key, Recorded
from tests.simulation.log import Change, Storage

#: Verbs that delete a message because its output is in.
FINISHING = ("begin_write", "finish_write", "receive", "redrive")


class OutputJudge:
    """Follows the output tables beside the queues."""

    def __init__(self, before: Storage, moved: int = 0) -> None:
        """`moved`: by how many milliseconds a clock was moved in the run, at most: a fence may have been decided by a
        look at it before."""
        self._moved = moved
        #: By write id: the version that decided it.
        self._decided: dict[str, int] = {}
        #: By message id: the writes whose rows are in.
        self._rows: dict[str, list[str]] = defaultdict(list)
        self._restored: dict[str, int] = defaultdict(int)

    def commit(self, facts: Facts, location: str, change: Change) -> list[str]:
        """Judges a commit to an output table."""
        write, version = change.transaction[0].removeprefix("ledger/"), change.transaction[1]
        problems = []
        if write in self._decided:
            problems.append(f"write {write[:6]} is decided twice")
        self._decided[write] = version
        for _, file in change.added:
            for message in file.rows["message_id"].to_pylist():
                self._rows[message].append(write)
                if len(self._rows[message]) > 1 + self._restored[message]:
                    problems.append(f"the row of {message} is in {len(self._rows[message])} times")
        if version != WRITTEN:
            problems += self._fenced(facts, write, change)
        return problems

    def _fenced(self, facts: Facts, write: str, change: Change) -> list[str]:
        """A write is fenced off while its receiver holds the messages: only it, or its own attempt, may do that."""
        call = change.actor.call
        about = {} if call is None else call.about
        for queue, records in facts.records.items():
            for key, (_, record) in records.items():
                if record.write_id != write or record.deleted_at is not None or record.moved_to is not None:
                    continue
                own = record.receipt_id == about.get("receipt") or (
                    call is not None and call.verb == "receive" and record.attempt_id == about["attempt"] is not None
                )
                left = record.visible_at - max(change.actor.clock, facts.latest.get(queue, 0))
                if not own and left > self._moved and queue in facts.queues:
                    return [f"the write of {key[0][:8]}/{key[1]} is fenced off {left} ms before its lease ends"]
        return []

    def records(
        self, differing: dict[tuple[str, Key], tuple[Recorded | None, Recorded | None]], change: Change
    ) -> list[str]:
        """Judges what a commit to `visibility` says of writes."""
        problems, verb = [], change.metadata.get("verb")
        for (_, key), (before, after) in differing.items():
            old, new = before and before.record, after and after.record
            if old is None or new is None:
                continue
            # The owner's word: what it was is done again. Also of a write that its table cannot tell about.
            doubtful = verb == "restore" and old.write_id is not None and new.write_id is None
            if doubtful or (old.deleted_at is not None and new.deleted_at is None):
                self._restored[f"{key[0]}{key[1]:08x}"] += 1
            ended = old.deleted_at is None and new.deleted_at is not None
            if ended and verb in FINISHING and self._decided.get(new.write_id) != WRITTEN:
                problems.append(f"{key[0][:8]}/{key[1]} is acknowledged by {verb}, and its output is not in")
        return problems

    def end(self, facts: Facts) -> list[str]:
        """What is left in the end: rows of messages that will be received, and written, again."""
        problems = []
        for message, writes in self._rows.items():
            key = message[:28], int(message[28:], 16)
            for queue in facts.counts_in(key) if key in facts.messages else ():
                recorded = facts.records[queue].get(key)
                known = recorded is not None and recorded.record.write_id in writes
                if not known and len(writes) > self._restored[message]:
                    problems.append(f"the row of {message} is in, and nothing in {queue} says so")
        return problems
