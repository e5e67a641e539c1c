"""What a log says, message by message: the queues, the messages, and what is recorded about each, commit after commit.

Written apart from the product's own reading of its tables, plainly and a message at a time, so that it does not share
its mistakes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ledger.rules.visibility import Record, Status, status
from ledger.store.delta.model.tables import EXPIRED_BEFORE, EXPIRY_NOTED_AT, INSTANT_COLUMNS, RECORD_COLUMNS
from tests.simulation.log import Change, File, Partition, Storage

#: A message: its segment and its ordinal there.
Key = tuple[str, int]


class Message(NamedTuple):
    """What was sent."""

    queue: str
    lane: int
    sent_at: int
    available_at: int
    group: str | None
    number: int | None
    deduplication: str | None
    body: str


class Recorded(NamedTuple):
    """What a row says about one message of a queue."""

    lane: int
    record: Record


class Queue(NamedTuple):
    """A queue's row."""

    name: str
    attributes: dict[str, str]
    tags: dict[str, str]
    #: What came no later has expired, whatever the retention is by now.
    expired_before: int = -1


@dataclass
class Facts:
    """Everything as of one commit of each table."""

    queues: dict[str, Queue] = field(default_factory=dict)
    messages: dict[Key, Message] = field(default_factory=dict)
    #: By queue id, then by message.
    records: dict[str, dict[Key, Recorded]] = field(default_factory=lambda: defaultdict(dict))
    #: By queue id and lane: how many head rows there are.
    heads: dict[tuple[str, int], int] = field(default_factory=dict)
    #: By queue id, the time of its last commit: to who decides later it is never earlier, whatever his clock says.
    latest: dict[str, int] = field(default_factory=dict)
    #: Queues that were ever there.
    known: set[str] = field(default_factory=set)
    #: Messages that were ever there.
    ever: set[Key] = field(default_factory=set)
    #: Since which point this ledger lies in the storage, and until which.
    began: float = 0
    ended: float = float("inf")
    #: The point at which a message that was sent meanwhile was committed.
    landed: dict[Key, int] = field(default_factory=dict)

    def status(self, queue: str, key: Key, now: int) -> Status | None:
        """The state of a message in a queue at an instant; None when it never came to that queue."""
        recorded, message = self.records[queue].get(key), self.messages.get(key)
        if message is None or (recorded is None and message.queue != queue):
            return None
        record = recorded.record if recorded is not None else Record()
        came, ends = self.came(queue, key), 0
        if queue in self.queues and came > self.queues[queue].expired_before:
            ends = came + int(self.queues[queue].attributes["MessageRetentionPeriod"]) * 1_000
        return status(record, message.available_at, now, ends)

    def counts_in(self, key: Key) -> list[str]:
        """The live queues that have a message, whatever its state there, deleted ones left out."""
        found = []
        for queue in self.queues:
            recorded = self.records[queue].get(key)
            if recorded is None:
                if key in self.messages and self.messages[key].queue == queue:
                    found.append(queue)
            elif recorded.record.deleted_at is None and recorded.record.moved_to is None:
                found.append(queue)
        return found

    def came(self, queue: str, key: Key) -> int:
        """When a message came to a queue."""
        recorded = self.records[queue].get(key)
        if recorded is not None and recorded.record.enqueued_at is not None:
            return recorded.record.enqueued_at
        return self.messages[key].sent_at

    def lane(self, queue: str, key: Key) -> int:
        """The lane of a message in a queue."""
        recorded = self.records[queue].get(key)
        return recorded.lane if recorded is not None else self.messages[key].lane


def beginning(storage: Storage) -> Facts:
    """The facts of a storage's newest versions."""
    facts = Facts()
    for table in ("queues", "messages", "visibility"):
        change = storage.tables[table].changes[-1]
        added = [(partition, file) for partition, files in change.state.items() for file in files]
        apply(facts, table, [], added)
    return facts


def later(before: Storage, after: Storage) -> Iterator[tuple[str, Change]]:
    """All commits to the ledger's tables and the output tables (as "output LOCATION") since, in their order."""
    found = []
    for name, table in after.tables.items():
        found += [(change.actor.at_point, name, change) for change in table.changes[len(before.tables[name].changes) :]]
    for location, table in after.outputs.items():
        found += [(change.actor.at_point, f"output {location}", change) for change in table.changes[1:]]
    found.sort(key=lambda one: (one[0], one[1], one[2].version))
    return ((name, change) for _, name, change in found)


def apply(
    facts: Facts, table: str, removed: Iterable[tuple[Partition, File]], added: Iterable[tuple[Partition, File]]
) -> tuple[dict[Any, Any], dict[Any, Any], list[str]]:
    """Brings the facts up to date with a commit. Answers what the rows of the files said before, and what they say
    now, each by queue and message; and what no table may hold."""
    problems: list[str] = []
    if table == "queues":
        old, new = _queues(removed), _queues(added)
        for identifier in old:
            facts.queues.pop(identifier, None)
        facts.queues.update(new)
        facts.known.update(new)
        return old, new, problems
    if table == "messages":
        old, new = _messages(removed, problems), _messages(added, problems)
        for key in old:
            facts.messages.pop(key, None)
        for key in new:
            if key in facts.messages:
                problems.append(f"message {key} is stored twice")
        facts.messages.update(new)
        facts.ever.update(new)
        return old, new, problems
    if table == "visibility":
        ignored: list[str] = []
        old, new = recorded_in(facts, removed, ignored, -1), recorded_in(facts, added, problems, 1)
        for queue, key in old:
            facts.records[queue].pop(key, None)
        for (queue, key), recorded in new.items():
            if key in facts.records[queue]:
                problems.append(f"message {key} is recorded twice in {queue}")
            facts.records[queue][key] = recorded
        return old, new, problems
    return {}, {}, problems


def _queues(files: Iterable[tuple[Partition, File]]) -> dict[str, Queue]:
    found = {}
    for _, file in files:
        for row in file.rows.to_pylist():
            attributes = dict(row["attributes"])
            expired_before, _ = (int(attributes.pop(name, -1)) for name in (EXPIRED_BEFORE, EXPIRY_NOTED_AT))
            found[row["queue"]] = Queue(row["name"], attributes, dict(row["tags"] or []), expired_before)
    return found


def _messages(files: Iterable[tuple[Partition, File]], problems: list[str]) -> dict[Key, Message]:
    found: dict[Key, Message] = {}
    names = ("queue", "lane", "segment", "seq", "sent_at", "available_at", "message_group_id", "sequence_number")
    for _, file in files:
        for values in _tuples(file, (*names, "message_deduplication_id", "body")):
            queue, lane, segment, seq, *rest, group, number, deduplication, body = values
            if (segment, seq) in found:
                problems.append(f"message {(segment, seq)} is stored twice")
            found[segment, seq] = Message(queue, lane, *rest, group, number, deduplication, body)
    return found


def recorded_in(
    facts: Facts, files: Iterable[tuple[Partition, File]], problems: list[str], step: int
) -> dict[tuple[str, Key], Recorded]:
    """What files of `visibility` say about each message; `step`: 1 or -1, for the heads that the facts count."""
    found: dict[tuple[str, Key], Recorded] = {}
    for (queue, lane), file in files:
        names = ("segment", "first_seq", "last_seq", "bits", *RECORD_COLUMNS)
        for segment, first, last, bits, *values in _tuples(file, names):
            if segment == "":
                facts.heads[queue, lane] = heads = facts.heads.get((queue, lane), 0) + step
                facts.latest[queue] = max(facts.latest.get(queue, 0), Record(*values).received_at)
                if heads > 1:
                    problems.append(f"lane {lane} of {queue} has {heads} head rows")
                continue
            record = Recorded(lane, Record(*values))
            for seq in range(first, last + 1):
                # A word of bits is of 64 ordinals, from a multiple of 64 on.
                if bits is not None and not bits[seq // 64 - first // 64] >> seq % 64 & 1:
                    continue
                if (queue, (segment, seq)) in found:
                    problems.append(f"message {(segment, seq)} is recorded twice in {queue}")
                found[queue, (segment, seq)] = record
    return found


def _tuples(file: File, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    values = []
    for name in columns:
        column = file.rows[name]
        if name in INSTANT_COLUMNS or name in ("sent_at", "available_at"):
            micros = column.cast("int64").to_pylist()
            values.append([None if one is None else one // 1_000 for one in micros])
        else:
            values.append(column.to_pylist())
    return list(zip(*values))
