"""The `queues` table: create, look up, change and remove queues."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import pyarrow as pa

from ledger.clock import Clock, milliseconds_of
from ledger.delta_log.protocol import EXPECTED_REVISION, OPERATION
from ledger.errors import LedgerTooNew, QueueDoesNotExist
from ledger.rules import intervals, redrive
from ledger.rules.attribute_kinds import FENCED
from ledger.rules.attributes import limits_of, queue_name_of
from ledger.rules.limits import MILLISECONDS
from ledger.settings import Settings
from ledger.store.delta.commit.transactions import Plan, Transactions
from ledger.store.delta.engine import Tables
from ledger.store.delta.model.tables import EXPIRED_BEFORE, EXPIRY_NOTED_AT, QUEUES, instant_column
from ledger.store.delta.model.where import Where, tuple_of
from ledger.store.delta.state.lane_records import Lanes
from ledger.store.protocol import Change, QueueRecord

EDITS = pa.schema([*QUEUES, (OPERATION, pa.string()), (EXPECTED_REVISION, pa.int64())])


#: So many commits are looked at first for a deletion of late.
FEW_COMMITS = 20
#: The lower bits of a queue's revision count its changes, those above are of its id.
CHANGES = 20


class Queues:
    """The queues of a ledger; what was read is kept until the table's version moves on."""

    def __init__(self, tables: Tables, transactions: Transactions, settings: Settings) -> None:
        self._tables, self._transactions, self._settings = tables, transactions, settings
        #: With the generation that they were read in.
        self._kept: tuple[int, dict[str, QueueRecord], int] | None = None

    def create(self, name: str, attributes: Mapping[str, str], tags: Mapping[str, str], clock: Clock) -> QueueRecord:
        """See Store.create_queue."""
        new_id = f"{name}-{secrets.token_hex(4)}"

        def decide(losses: int) -> Plan[QueueRecord]:
            snapshot, now = self._tables.load("queues", Where()), clock()
            queues = _records(snapshot.rows)
            known = queues.get(name)
            if known is not None:
                return Plan(snapshot, Where(), EDITS.empty_table(), [], lambda version: known, now)
            redrive.require_target(queues.values(), name, attributes, attributes)
            limits, interval = limits_of(attributes), self._settings.deletion_interval
            if limits.has_intervals and interval:
                deleted = self._deleted_at(name, snapshot.version, now, interval)
                intervals.require_name(name, deleted, limits, interval, now)
            made = QueueRecord(new_id, name, dict(attributes), dict(tags), now, now, _first_revision(new_id))
            return Plan(snapshot, Where(), _edits([("insert", made, None)]), [], lambda version: made, now)

        return self._transactions.run("create_queue", "queues", new_id, decide)

    def get(self, name: str) -> QueueRecord:
        """The queue of this name; raises QueueDoesNotExist, and LedgerTooNew for one whose attributes a newer release
        has set to what this one does not know."""
        known = self._all()
        if name not in known:
            raise QueueDoesNotExist(name, known)
        return _understood(known[name])

    def require(self, queue: QueueRecord, others: Sequence[QueueRecord] = ()) -> tuple[int, bool]:
        """The version of the table in which this very queue is still there, and whether all the `others` are, too;
        raises QueueDoesNotExist for the queue itself.

        A decision that moves or grants messages asks once it has read its lanes: when the queue is deleted after that,
        upkeep makes it decide again before it drops a message of the queue.
        """
        version, known, _ = self._newest()

        def is_there(one: QueueRecord) -> bool:
            return one.name in known and known[one.name].id == one.id

        if not is_there(queue):
            raise QueueDoesNotExist(queue.name, known, made_anew=queue.name in known)
        return version, all(map(is_there, others))

    def has_read(self, queue: QueueRecord, generation: int) -> bool:
        """Whether this very queue was there when the table was read last, and that was in this generation."""
        kept = self._kept
        known = kept[1].get(queue.name) if kept is not None and kept[2] == generation else None
        return known is not None and known.id == queue.id

    def all(self) -> list[QueueRecord]:
        """All queues, by name."""
        known = self._all()
        return [known[name] for name in sorted(known)]

    def change(self, queue: QueueRecord, change: Change, clock: Clock) -> QueueRecord:
        """See Store.change_queue."""
        changed = self._rewrite(
            "set_attributes",
            [queue],
            lambda known, queues, now: _understood(known).changed(*change(known, queues), now),
            clock,
        )
        if not changed:
            raise QueueDoesNotExist(queue.name, self._all())
        return changed[0]

    def expire(self, queues: Sequence[QueueRecord], at: int, clock: Clock) -> list[QueueRecord]:
        """Notes for good what had expired in these queues at the instant `at`, in one commit; returns them as they are
        then, without those deleted meanwhile. From then on no change of the retention brings it back: not one that is
        under way either, for it has to decide again."""
        return self._rewrite("expire", queues, lambda known, others, now: known.expired(at), clock)

    def put_back(self, queue: QueueRecord, clock: Clock) -> None:
        """See QueueRecord.put_back."""
        skew = self._settings.skew
        self._rewrite("repair_clock", [queue], lambda known, others, now: known.put_back(now, skew), clock)

    def delete(self, queue: QueueRecord, clock: Clock) -> None:
        """Removes the queue's row: from then on its messages belong to no queue, and upkeep drops them. Before and
        after that it counts up all its lanes: whoever decided earlier to move messages there, and did not commit yet,
        decides again.

        Whoever decides after the last commit finds no queue, whoever decided before it trips over it. What comes there
        in between, while the queue is being deleted, goes with it. Should this process end before the last one, who
        decided before it began still trips, and upkeep finds the lanes, and does what is left (`Tidying.forget`).
        """

        def decide(losses: int) -> Plan[None]:
            snapshot, now = self._tables.load("queues", Where()), clock()
            names = _records(snapshot.rows)
            known = names.get(queue.name)
            if known is None or known.id != queue.id:
                raise QueueDoesNotExist(queue.name, names)
            edits = _edits([("delete", known, known.revision)])
            return Plan(snapshot, Where(), edits, [], lambda version: None, now)

        def close(losses: int) -> Plan[None]:
            snapshot, now = self._tables.load("visibility", Where(queue.id)), clock()
            lanes = Lanes(queue.id, snapshot.rows)
            # A lane that was never used has no head row yet: then there is one to be met.
            all_lanes = tuple_of({*range(int(queue.attributes["Lanes"])), *lanes.heads.revisions})
            at = max(now, lanes.latest)
            edits = lanes.heads.edits(all_lanes, at)
            return Plan(snapshot, Where(queue.id, all_lanes), edits, [], lambda version: None, at)

        self.require(queue)
        self._transactions.run("delete_queue", "visibility", queue.id, close)
        self._transactions.run("delete_queue", "queues", queue.id, decide)
        self._transactions.run("delete_queue", "visibility", queue.id, close)

    def _rewrite(
        self,
        verb: str,
        queues: Sequence[QueueRecord],
        change: Callable[[QueueRecord, Sequence[QueueRecord], int], QueueRecord],
        clock: Clock,
    ) -> list[QueueRecord]:
        """What `change` makes of those of `queues` that are there, by their ids, in one commit. It is asked in the
        decision: after any other commit to the table since, it is asked again about what is there then."""

        def decide(losses: int) -> Plan[list[QueueRecord]]:
            snapshot, now = self._tables.load("queues", Where()), clock()
            known = _records(snapshot.rows)
            there = [one for one in map(known.get, (queue.name for queue in queues)) if one is not None]
            mine = [one for one in there if one.id in {queue.id for queue in queues}]
            new = [change(one, list(known.values()), now) for one in mine]
            edits = _edits([("update", to, one.revision) for one, to in zip(mine, new) if to is not one])
            return Plan(snapshot, Where(), edits, [], lambda version: new, now)

        return self._transactions.run(verb, "queues", queues[0].id if queues else "", decide)

    def _deleted_at(self, name: str, version: int, now: int, interval: int) -> int | None:
        """When the last queue of this name was deleted, if the log up to a version tells of it; None when that is
        longer ago than `interval` seconds."""
        since = now - interval * MILLISECONDS
        skew, most = self._settings.skew, FEW_COMMITS
        while True:
            behind = max(version - most, -1)
            commits = [commit for commit in self._tables.history("queues", behind) if commit.version <= version]
            for said in (commit.metadata for commit in reversed(commits)):
                if said.get("verb") == "delete_queue" and queue_name_of(said["queue"]) == name:
                    at: int = said["at"]
                    # When that was by a clock that was ahead, nobody knows.
                    return at if at <= now + skew else None
            # By the clocks of whoever committed.
            if behind < 0 or not commits or commits[0].metadata.get("at", since) < since - skew:
                return None
            most *= 4

    def _all(self) -> dict[str, QueueRecord]:
        return self._newest()[1]

    def _newest(self) -> tuple[int, dict[str, QueueRecord], int]:
        kept = self._kept
        newest = self._tables.version("queues"), self._tables.generation()
        if kept is None or (kept[0], kept[2]) != newest:
            generation, snapshot = self._tables.generation(), self._tables.load("queues", Where())
            kept = self._kept = snapshot.version, _records(snapshot.rows), generation
        return kept


def _understood(record: QueueRecord) -> QueueRecord:
    """The queue itself. Raises LedgerTooNew where an attribute has a value that this release does not know."""
    attribute = record.not_understood
    if attribute is not None:
        raise LedgerTooNew(
            f"The queue {record.name} has {attribute}={record.attributes[attribute]!r}, which this version of the "
            "ledger does not know. Upgrade the package, or set the attribute by the version that wrote it"
        )
    return record


def _first_revision(queue_id: str) -> int:
    """Where a queue's revisions begin. A MERGE finds the row by the queue's name: so no revision is one that another
    queue of the name had, and what was decided about that one before it was deleted is not done to this one."""
    return int(queue_id.rpartition("-")[2], 16) << CHANGES


def _records(rows: pa.Table) -> dict[str, QueueRecord]:
    return {row["name"]: _record(**row) for row in rows.to_pylist()}


def _record(
    queue: str,
    name: str,
    attributes: list[tuple[str, str]],
    tags: list[tuple[str, str]] | None,
    created_at: datetime,
    modified_at: datetime,
    revision: int,
) -> QueueRecord:
    # The default is not written.
    shown = {"Receipts": FENCED, **dict(attributes)}
    expiry = (int(shown.pop(hidden, "-1")) for hidden in (EXPIRED_BEFORE, EXPIRY_NOTED_AT))
    instants = milliseconds_of(created_at), milliseconds_of(modified_at)
    return QueueRecord(queue, name, shown, dict(tags or []), *instants, revision, *expiry)


def _edits(changes: Sequence[tuple[str, QueueRecord, int | None]]) -> pa.Table:
    """(operation, record, expected revision) as EDITS."""
    records = [record for _, record, _ in changes]
    columns = [
        [record.id for record in records],
        [record.name for record in records],
        [_kept(record) for record in records],
        [list(record.tags.items()) for record in records],
        instant_column(record.created_at for record in records),
        instant_column(record.modified_at for record in records),
        [record.revision for record in records],
        [operation for operation, _, _ in changes],
        [expected for _, _, expected in changes],
    ]
    return pa.table(columns, schema=EDITS)


def _kept(record: QueueRecord) -> list[tuple[str, str]]:
    noted = {EXPIRED_BEFORE: record.expired_before, EXPIRY_NOTED_AT: record.expiry_noted_at}
    hidden = {name: str(instant) for name, instant in noted.items() if instant >= 0}
    shown = {name: text for name, text in record.attributes.items() if (name, text) != ("Receipts", FENCED)}
    return list({**shown, **hidden}.items())
