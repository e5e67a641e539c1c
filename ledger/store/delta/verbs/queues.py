"""The `queues` table: create, look up, change and remove queues."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import pyarrow as pa

from ledger.clock import Clock, milliseconds_of
from ledger.delta_log.protocol import EXPECTED_REVISION, OPERATION
from ledger.errors import LedgerTooNew, QueueDoesNotExist
from ledger.rules import limits as limit_rules
from ledger.rules import redrive
from ledger.rules.attributes import FENCED, limits_of, queue_name_of
from ledger.rules.limits import MILLISECONDS
from ledger.settings import Settings
from ledger.store.delta.commit.transactions import Plan, Transactions, after_commit
from ledger.store.delta.engine import Tables
from ledger.store.delta.model.tables import (
    EXPIRED_BEFORE,
    EXPIRY_NOTED_AT,
    QUEUES,
    Where,
    instant_column,
    sort_distinct,
)
from ledger.store.delta.state.lane_records import Lanes
from ledger.store.delta.state.snapshot import Loaded, OpenTables
from ledger.store.protocol import Change, QueueRecord

EDITS = pa.schema([*QUEUES, (OPERATION, pa.string()), (EXPECTED_REVISION, pa.int64())])


FEW_COMMITS = 20
#: How many low bits of a queue's revision count its changes. The higher bits come from the queue's id.
CHANGES = 20


class Queues:
    def __init__(self, tables: Tables, transactions: Transactions, settings: Settings) -> None:
        self._tables, self._transactions, self._settings = tables, transactions, settings
        #: The table as last read: its version, the queues by name, and the generation.
        self._kept: tuple[int, dict[str, QueueRecord], int] | None = None

    def create(self, name: str, attributes: Mapping[str, str], tags: Mapping[str, str], clock: Clock) -> QueueRecord:
        new_id = f"{name}-{secrets.token_hex(4)}"

        def decide(losses: int) -> Plan[QueueRecord]:
            snapshot, now = self._tables.load("queues", Where()), clock()
            queues = _parse_records(snapshot.rows)
            existing = queues.get(name)
            if existing is not None:
                return Plan(snapshot, Where(), EDITS.empty_table(), [], lambda version: existing, now)
            redrive.require_target(queues.values(), name, attributes, attributes)
            limits, interval = limits_of(attributes), self._settings.deletion_interval
            if limits.has_intervals and interval:
                deleted = self._find_deletion_time(name, snapshot.version, now, interval)
                limit_rules.require_name(name, deleted, limits, interval, now)
            made = QueueRecord(new_id, name, dict(attributes), dict(tags), now, now, _first_revision(new_id))
            return Plan(snapshot, Where(), _edits([("insert", made, None)]), [], lambda version: made, now)

        return self._transactions.run("create_queue", "queues", new_id, decide)

    def get(self, name: str) -> QueueRecord:
        """Return the queue of this name.

        Raises QueueDoesNotExist, and LedgerTooNew if an attribute has a value that this release does not know.
        """
        queues_by_name = self._read_all()
        if name not in queues_by_name:
            raise QueueDoesNotExist(name, queues_by_name)
        return _require_understood(queues_by_name[name])

    def require(self, queue: QueueRecord, others: Sequence[QueueRecord] = ()) -> tuple[int, bool]:
        """Return the table's newest version, in which this very queue exists, and whether all `others` exist.

        Call this after the lanes were read: the queue then still existed when they were. Raises QueueDoesNotExist.
        """
        version, queues_by_name, _ = self._read_newest()

        def is_there(one: QueueRecord) -> bool:
            return one.name in queues_by_name and queues_by_name[one.name].id == one.id

        if not is_there(queue):
            raise QueueDoesNotExist(queue.name, queues_by_name, made_anew=queue.name in queues_by_name)
        return version, all(map(is_there, others))

    def current(self, queue: QueueRecord) -> QueueRecord:
        """Return this very queue as it is now. Raises what `get` and `require` raise."""
        record = self.get(queue.name)
        self.require(queue)
        return record

    def has_read(self, queue: QueueRecord, generation: int) -> bool:
        """Return whether the last read of the table was in this generation and found this very queue."""
        kept = self._kept
        record = kept[1].get(queue.name) if kept is not None and kept[2] == generation else None
        return record is not None and record.id == queue.id

    def all(self) -> list[QueueRecord]:
        queues_by_name = self._read_all()
        return [queues_by_name[name] for name in sorted(queues_by_name)]

    def change(self, queue: QueueRecord, change: Change, clock: Clock) -> QueueRecord:
        changed = self._rewrite(
            "set_attributes",
            [queue],
            lambda known, queues, now: _require_understood(known).changed(*change(known, queues), now),
            clock,
        )
        if not changed:
            raise QueueDoesNotExist(queue.name, self._read_all())
        return changed[0]

    def expire(self, queues: Sequence[QueueRecord], at: int, clock: Clock) -> list[QueueRecord]:
        """Record for good which messages of these queues had expired at the instant `at`.

        No change of the retention brings the expired messages back. Returns the queues that still exist, as changed.
        """
        return self._rewrite("expire", queues, lambda known, others, now: known.expired(at), clock)

    def put_back(self, queue: QueueRecord, clock: Clock) -> None:
        skew = self._settings.skew
        self._rewrite("repair_clock", [queue], lambda known, others, now: known.put_back(now, skew), clock)

    def delete(self, queue: QueueRecord, clock: Clock) -> None:
        """Remove the queue's row. Upkeep drops the messages, which then belong to no queue.

        Before and after the removal, a commit counts up all lanes of the queue. A verb that decided before such a
        commit to move messages here therefore loses. Messages that arrive between the two commits are deleted with the
        queue. If this process ends before the last commit, upkeep completes the deletion (`Tidying.forget`).
        """

        def decide(losses: int) -> Plan[None]:
            snapshot, now = self._tables.load("queues", Where()), clock()
            queues_by_name = _parse_records(snapshot.rows)
            existing = queues_by_name.get(queue.name)
            if existing is None or existing.id != queue.id:
                raise QueueDoesNotExist(queue.name, queues_by_name)
            edits = _edits([("delete", existing, existing.revision)])
            return Plan(snapshot, Where(), edits, [], lambda version: None, now)

        def count_up_lanes(losses: int) -> Plan[None]:
            snapshot, now = self._tables.load("visibility", Where(queue.id)), clock()
            lanes = Lanes(queue.id, snapshot.rows)
            # A lane that was never used gets a head row.
            all_lanes = sort_distinct({*range(int(queue.attributes["Lanes"])), *lanes.heads.revisions})
            at = max(now, lanes.latest)
            edits = lanes.heads.edits(all_lanes, at)
            return Plan(snapshot, Where(queue.id, all_lanes), edits, [], lambda version: None, at)

        self.require(queue)
        self._transactions.run("delete_queue", "visibility", queue.id, count_up_lanes)
        self._transactions.run("delete_queue", "queues", queue.id, decide)
        with after_commit("delete_queue"):
            self._transactions.run("delete_queue", "visibility", queue.id, count_up_lanes)

    def _rewrite(
        self,
        verb: str,
        queues: Sequence[QueueRecord],
        change: Callable[[QueueRecord, Sequence[QueueRecord], int], QueueRecord],
        clock: Clock,
    ) -> list[QueueRecord]:
        """Change the rows of the `queues` that still exist, by id, in one commit, and return the changed queues.

        `change` gets a queue, all queues, and the present instant, at each try of the commit.
        """

        def decide(losses: int) -> Plan[list[QueueRecord]]:
            snapshot, now = self._tables.load("queues", Where()), clock()
            queues_by_name = _parse_records(snapshot.rows)
            named = [one for one in map(queues_by_name.get, (queue.name for queue in queues)) if one is not None]
            current = [one for one in named if one.id in {queue.id for queue in queues}]
            new = [change(one, list(queues_by_name.values()), now) for one in current]
            edits = _edits([("update", to, one.revision) for one, to in zip(current, new) if to is not one])
            return Plan(snapshot, Where(), edits, [], lambda version: new, now)

        return self._transactions.run(verb, "queues", queues[0].id if queues else "", decide)

    def _find_deletion_time(self, name: str, version: int, now: int, interval: int) -> int | None:
        """Return when the last queue of this name was deleted, by the log up to a version.

        The search covers at least the last `interval` seconds of the log. Returns None if no deletion is found, or if
        its instant is too far in the future.
        """
        since = now - interval * MILLISECONDS
        skew, most = self._settings.skew, FEW_COMMITS
        while True:
            behind = max(version - most, -1)
            commits = [commit for commit in self._tables.history("queues", behind) if commit.version <= version]
            for metadata in (commit.metadata for commit in reversed(commits)):
                if metadata.get("verb") == "delete_queue" and queue_name_of(metadata["queue"]) == name:
                    at: int = metadata["at"]
                    return at if at <= now + skew else None
            # The instants are by the committers' clocks.
            if behind < 0 or not commits or commits[0].metadata.get("at", since) < since - skew:
                return None
            most *= 4

    def _read_all(self) -> dict[str, QueueRecord]:
        return self._read_newest()[1]

    def _read_newest(self) -> tuple[int, dict[str, QueueRecord], int]:
        kept = self._kept
        newest = self._tables.version("queues"), self._tables.generation()
        if kept is None or (kept[0], kept[2]) != newest:
            generation, snapshot = self._tables.generation(), self._tables.load("queues", Where())
            kept = self._kept = snapshot.version, _parse_records(snapshot.rows), generation
        return kept


def _require_understood(record: QueueRecord) -> QueueRecord:
    attribute = record.not_understood
    if attribute is not None:
        raise LedgerTooNew(
            f"The queue {record.name} has {attribute}={record.attributes[attribute]!r}, which this version of the "
            "ledger does not know. Upgrade the package, or set the attribute with the version that wrote it"
        )
    return record


def _first_revision(queue_id: str) -> int:
    """Return the first revision of a queue.

    Each queue has its own range of revisions, so a decision about a deleted queue cannot change a new queue of the same
    name.
    """
    return int(queue_id.rpartition("-")[2], 16) << CHANGES


def _parse_records(rows: pa.Table) -> dict[str, QueueRecord]:
    return {row["name"]: _parse_record(**row) for row in rows.to_pylist()}


def _parse_record(
    queue: str,
    name: str,
    attributes: list[tuple[str, str]],
    tags: list[tuple[str, str]] | None,
    created_at: datetime,
    modified_at: datetime,
    revision: int,
) -> QueueRecord:
    shown = {"Receipts": FENCED, **dict(attributes)}
    expiry = (int(shown.pop(hidden, "-1")) for hidden in (EXPIRED_BEFORE, EXPIRY_NOTED_AT))
    instants = milliseconds_of(created_at), milliseconds_of(modified_at)
    return QueueRecord(queue, name, shown, dict(tags or []), *instants, revision, *expiry)


def _edits(changes: Sequence[tuple[str, QueueRecord, int | None]]) -> pa.Table:
    """Return changes (operation, record, expected revision) as EDITS."""
    records = [record for _, record, _ in changes]
    columns = [
        [record.id for record in records],
        [record.name for record in records],
        [_stored_attributes(record) for record in records],
        [list(record.tags.items()) for record in records],
        instant_column(record.created_at for record in records),
        instant_column(record.modified_at for record in records),
        [record.revision for record in records],
        [operation for operation, _, _ in changes],
        [expected for _, _, expected in changes],
    ]
    return pa.table(columns, schema=EDITS)


def _stored_attributes(record: QueueRecord) -> list[tuple[str, str]]:
    noted = {EXPIRED_BEFORE: record.expired_before, EXPIRY_NOTED_AT: record.expiry_noted_at}
    hidden = {name: str(instant) for name, instant in noted.items() if instant >= 0}
    shown = {name: text for name, text in record.attributes.items() if (name, text) != ("Receipts", FENCED)}
    return list({**shown, **hidden}.items())


def dead_letter_queues(queues: Queues, queue: QueueRecord) -> list[QueueRecord]:
    """Return, in a list, the queue that the redrive policy names, if it exists and can take the queue's messages."""
    policy = redrive.policy_of(queue.attributes)
    named = [record for record in queues.all() if record.name == policy.target] if policy else []
    return [record for record in named if redrive.explain_unfit_destination(queue, record) is None]


def load_with_destinations(
    opened: OpenTables,
    queues: Queues,
    queue: QueueRecord,
    clock: Clock,
    others: Callable[[], Sequence[QueueRecord]],
) -> Loaded:
    """Load the lanes of a queue and of the `others` that its messages may move to (`Loaded.targets`).

    `others` is called again if one of its queues no longer exists after the lanes were read. Raises QueueDoesNotExist.
    """
    while True:
        targets = others()
        loaded = opened.load(queue, clock, others=targets)
        loaded.read["queues"], all_exist = queues.require(queue, targets)
        if all_exist:
            return loaded
