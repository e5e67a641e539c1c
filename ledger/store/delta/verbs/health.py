"""The health of a ledger: its tables and logs, overdue upkeep, and load."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from ledger.clock import Clock
from ledger.delta_log.alterations import describe_loaded_alterations
from ledger.delta_log.damage import find_damage, find_past_damage, read_checkpoints
from ledger.delta_log.delta_rs_commits import opened
from ledger.delta_log.failures import translating_errors
from ledger.delta_log.history import find_first_commit, list_checkpoints, versions_in
from ledger.delta_log.maintenance import find_unneeded_files
from ledger.delta_log.protocol import StagedFolders
from ledger.delta_log.storage import TableStorage, table_files
from ledger.errors import ClocksDisagree, TableAltered
from ledger.rules.attributes import is_fifo
from ledger.rules.instants import advance_to_last_commit
from ledger.rules.limits import MILLISECONDS
from ledger.rules.redrive import policy_of
from ledger.rules.upkeep import why_overdue
from ledger.store.delta.commit.readiness import APPENDED
from ledger.store.delta.engine import is_of_upkeep, ledger_metadata_in
from ledger.store.delta.model.tables import FORMAT, TABLES
from ledger.store.delta.state.send_history import find_last_send
from ledger.store.delta.verbs.rounds import Look
from ledger.store.delta.verbs.store import DeltaStore
from ledger.store.delta.verbs.upkeep import kept
from ledger.store.delta.verbs.vitals import Vitals
from ledger.store.protocol import QueueRecord


@dataclass(frozen=True)
class TableHealth:
    """The health of one table.

    Attributes:
        version: The newest version.
        files: The number of its data files.
        bytes: The size of its data files.
        log_files: The number of files in its log.
        since_checkpoint: The number of commits after the last checkpoint.
        orphans: The number of files that no kept version needs. The next upkeep with a vacuum removes them.
        damaged: The path and the fault of each data file that is missing, empty, or not as the log says.
        unreadable_checkpoints: The paths of checkpoints that cannot be read. `ledger repair` moves them out if other
            files hold the same facts.
        by_statement: Why verbs commit rows by statements of the engine, with the settings that this ledger was opened
            with (empty: they do not).
        altered: What somebody changed in the table, and what undoes it (empty: nothing).
        refused: Why calls that change the table fail, with the settings that this ledger was opened with (empty: they
            do not).
        refused_fix: What to do about `refused`.
        takes_appends: If `refused` is not empty: whether only upkeep fails, because verbs only append to the table.
        format: The table's format number, see `model.tables` (empty: not recorded).
    """

    version: int
    files: int
    bytes: int
    log_files: int
    since_checkpoint: int
    orphans: int
    damaged: tuple[str, ...] = ()
    unreadable_checkpoints: tuple[str, ...] = ()
    by_statement: str = ""
    altered: str = ""
    refused: str = ""
    refused_fix: str = ""
    takes_appends: bool = False
    format: str = ""


@dataclass(frozen=True)
class Health:
    """The health of a ledger.

    Attributes:
        queues: How many queues it has.
        tables: The health of each table. The keys are the tables' names.
        oldest_without_upkeep: The age in seconds of the oldest commit to `visibility` that is not upkeep's, that no
            round of upkeep processed, and whose events `receipts` lacks (None: there is no such commit).
        log_retention: How many seconds the commits of `visibility` are kept. `receipts` loses the events of commits
            that are not copied within that time.
        commits: How many commits of this process put rows into tables: a mapping for each verb, table, path (the way
            to commit: directly, or by a statement) and reason (see `delta_log.statements`).
        vitals: Signs of load, and of something that hangs (None: an altered table prevents the measurement).
        clocks: For each queue whose verbs raise ClocksDisagree for this machine's clock, the text of that error. The
            keys are the queues' names.
        commits_without_upkeep: The number of commits to `messages` and `visibility` since the last round of upkeep.
        upkeep_overdue: Why a round should have run long ago, see `rules.upkeep` (empty: not overdue).
        lost_dead_letter_queues: For each queue whose RedrivePolicy names a queue that does not exist, the missing
            queue's name. Messages of the queue that has this policy are received without end.
    """

    queues: int
    tables: Mapping[str, TableHealth]
    oldest_without_upkeep: float | None
    log_retention: int
    commits: tuple[Mapping[str, str | int], ...]
    vitals: Vitals | None = None
    clocks: Mapping[str, str] = field(default_factory=dict)
    commits_without_upkeep: int = 0
    upkeep_overdue: str = ""
    lost_dead_letter_queues: Mapping[str, str] = field(default_factory=dict)


def health_of(store: DeltaStore, clock: Clock, *, deep: bool = False) -> Health:
    """Return the health of a ledger that delta-rs can read, from its logs, a list of its files, and its records.

    With `deep`, also read each data file, and each checkpoint (on an object store, only down to an intact one). Raises
    StorageFailed, and LedgerDamaged for a damaged log.
    """
    engine = store.engine
    tables = {name: _table(name, engine.place(name), store.storage_options, deep=deep) for name in TABLES}
    for name in tables:
        why_statement = engine.why_not_direct(name)
        if why_statement is not None:
            reason, text = why_statement
            tables[name] = replace(tables[name], by_statement=f"{reason}: {text}")
        refused = engine.refusal(name, appends=name == "receipts")
        if refused is not None:
            takes_appends = name in APPENDED and engine.refusal(name, appends=True) is None
            problem, fix = refused
            tables[name] = replace(tables[name], refused=problem, refused_fix=fix, takes_appends=takes_appends)
    commits: tuple[Mapping[str, str | int], ...] = tuple(
        {"verb": one.purpose, "table": one.table, "path": one.path, "reason": one.reason, "commits": count}
        for one, count in sorted(engine.paths.counts().items())
    )
    log_retention = kept(engine, "visibility").log_retention
    queues, look = store.queues(), store.rounds.look()
    load = look.load(clock())
    return Health(
        len(queues),
        tables,
        _oldest_without_upkeep(store, look, clock()),
        log_retention,
        commits,
        _vitals(store, clock),
        _clocks(store, queues, clock),
        load.commits,
        why_overdue(load, log_retention) or "",
        _find_lost_dead_letter_queues(queues),
    )


def _find_lost_dead_letter_queues(queues: Sequence[QueueRecord]) -> dict[str, str]:
    names = {queue.name for queue in queues}
    policies = {queue.name: policy_of(queue.attributes) for queue in queues}
    return {
        name: policy.target for name, policy in policies.items() if policy is not None and policy.target not in names
    }


def _oldest_without_upkeep(store: DeltaStore, look: Look, now: int) -> float | None:
    filled = store.engine.greatest("receipts", "version") or 0
    files = table_files(store.engine.place("visibility"), store.storage_options)
    since = max(filled, look.find_processed_version())
    with translating_errors(store.engine.place("visibility")):
        first = find_first_commit(
            files, since, "visibility", ledger_metadata_in, lambda one: not is_of_upkeep(one.metadata)
        )
    return None if first is None else max(0, now - first.timestamp) / MILLISECONDS


def _vitals(store: DeltaStore, clock: Clock) -> Vitals | None:
    try:
        return store.vital_signs.measure(clock)
    except TableAltered:
        return None


def _clocks(store: DeltaStore, queues: Sequence[QueueRecord], clock: Clock) -> dict[str, str]:
    problems = {}
    for queue in queues:
        try:
            store.times.require(queue, clock)
            if is_fifo(queue.attributes):
                now, skew = clock(), store.settings.maximum_clock_skew
                last = find_last_send(
                    store.engine, queue.id, store.listings.newest().find_last_send_time(queue.id), now, skew
                )
                advance_to_last_commit(now, last, skew)
        except ClocksDisagree as error:
            problems[queue.name] = error.message
        except TableAltered:
            return {}
    return problems


def _table(table: str, place: str, storage_options: Mapping[str, str] | None, *, deep: bool) -> TableHealth:
    options = dict(storage_options or {}) or None
    with translating_errors(place, DeltaError, is_open=True):
        damage = find_damage(place, options, deep=deep)
        error = damage.error(table)
        if error is not None and damage.entries:
            raise error
        read = read_checkpoints(place, options) if deep else None
        past = find_past_damage(place, options, read and read.intact).error(table)
        if past is not None:
            raise past
        before = time.time()
        try:
            loaded = opened(place, options)
            health = _examine_table(loaded, table_files(place, options), before, TABLES[table].staged)
        except DeltaError as unreadable:
            raise (error or unreadable) from unreadable
    wrong = tuple(f"{path} {what}" for path, what in damage.files.items())
    altered = describe_loaded_alterations(table, place, loaded)
    checkpoints = (*damage.checkpoints, *(read.old if read else ()))
    return replace(health, damaged=wrong, unreadable_checkpoints=checkpoints, altered=altered)


def _examine_table(
    loaded: DeltaTable, files: TableStorage, loaded_since: float, staged: StagedFolders | None
) -> TableHealth:
    sizes = loaded.get_add_actions(flatten=True).column("size_bytes").to_pylist()
    log = files.log_paths()
    commits = versions_in(log)
    checkpoint = max(list_checkpoints(log), default=-1)
    orphans = find_unneeded_files(loaded, loaded_since, staged)
    since = sum(version > checkpoint for version in commits)
    format_version = loaded.metadata().configuration.get(FORMAT) or ""
    return TableHealth(loaded.version(), len(sizes), sum(sizes), len(log), since, len(orphans), format=format_version)
