"""Repair of a local ledger after a power cut or a partial copy.

The repair cuts each table back to its last whole version. A version is whole if all log entries up to it are readable,
from the newest intact checkpoint (or version 0) on. For every table but `messages`, its data files must be whole, too.
Each later entry is replaced by an entry that changes nothing and records the loss, so version numbers stay valid. The
newest entry is replaced first, so a stopped repair can be continued.

The tables are still consistent, because a message exists if its row in `messages` exists. If an acknowledgement is
lost, the message is received again.

A damaged entry that a checkpoint sums up costs no row, but the versions from the entry to before the checkpoint are
lost. With the entry replaced, both engines would read these versions wrongly. The repair therefore first moves away the
files from which a read of these versions starts.

If a data file of `messages` is missing or damaged, its messages are lost, and a commit removes the file. Another table
with such a file is cut to the version before the file was added. That fails if the newest intact checkpoint or version
0 has the file.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from ledger.backup_folder import require_no_backup
from ledger.delta_log.damage import (
    find_faulty_files,
    find_past_damage,
    lost_folder,
    mend_checkpoints,
    read_checkpoints,
    set_aside,
)
from ledger.delta_log.data_files import commit_info, remove_action
from ledger.delta_log.failures import translating_errors
from ledger.delta_log.history import CHECKPOINT, MISSING, Flawed, flaw_of, parse_actions, versions_in
from ledger.delta_log.storage import LocalFiles, log_entry, log_file, table_files, version_of
from ledger.errors import InvalidParameterValue, LedgerDamaged, LedgerDoesNotExist
from ledger.place import locate_here, require_open_above
from ledger.rules.location import recorded
from ledger.store.delta.commit.locks import all_locked
from ledger.store.delta.engine import ledger_metadata_in
from ledger.store.delta.model.tables import TABLES

TABLE_WITH_EXPENDABLE_FILES = "messages"
BACKUP = (
    "Restore a backup (`ledger restore-backup BACKUP ROOT --replace`): what is left does not show how the table was."
)


@dataclass(frozen=True)
class LostCommit:
    """A commit that a repair takes out.

    Attributes:
        verb: Empty if the log entry is not readable.
        messages: The number of the commit's messages (None: not known).
        flaw: What is wrong with the entry (empty: nothing).
    """

    version: int
    verb: str
    messages: int | None
    flaw: str


@dataclass(frozen=True)
class TableRepair:
    """The changes that a repair makes to one table.

    Attributes:
        version: The newest version that stays.
        commits: The later commits, which are lost.
        files: The data files that are removed from the table, each with its fault.
        messages: The number of messages in these files (None: not known).
        past: By version, the faults of damaged entries that a checkpoint sums up. These entries cost no message.
        readable_from: If `past` has entries, the first version that can be read after the repair.
    """

    table: str
    version: int
    commits: tuple[LostCommit, ...]
    files: Mapping[str, str]
    messages: int | None
    past: Mapping[int, str] = field(default_factory=dict)
    readable_from: int = 0


@dataclass(frozen=True)
class Repair:
    """The changes that a repair made, or would make. `lost` is the folder to which the repair moves files."""

    lost: str
    tables: tuple[TableRepair, ...]
    checkpoints: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.tables or self.checkpoints)


def repair_ledger(root: str, *, dry_run: bool = False) -> Repair:
    """Repair the damaged tables of a ledger, and return what was lost. With `dry_run`, change nothing.

    Raises InvalidParameterValue for a root that is no local path, LedgerDoesNotExist, StorageFailed, and, without
    `dry_run`, LedgerError while others hold a table's lock. Raises LedgerDamaged if a table cannot be repaired: then at
    most unreadable checkpoints were moved.
    """
    place = locate_here("root", root)
    if not place.is_local:
        fix = "On an object store, restore an earlier version of the damaged object."
        raise InvalidParameterValue("root", root, "Must be a local path", fix)
    folder = Path(place.text)
    require_open_above(folder)
    require_no_backup(folder)
    missing = [name for name in TABLES if not (folder / name / "_delta_log").is_dir()]
    if missing:
        raise LedgerDoesNotExist(root, f"it lacks {', '.join(missing)}", missing)
    lost = lost_folder(folder)
    with contextlib.ExitStack() as held, translating_errors(str(folder), DeltaError):
        if not dry_run:
            held.enter_context(all_locked(folder, TABLES))
        read = {name: read_checkpoints(str(folder / name), None) for name in TABLES}
        checkpoints = tuple(f"{name}/{path}" for name, one in read.items() for path in (*one.bad, *one.old))
        if not dry_run:
            # delta-rs cannot begin a read at an unreadable checkpoint.
            for name in TABLES:
                mend_checkpoints(str(folder / name), lost, deep=True)
        planned = [_plan(name, folder / name) for name in TABLES]
        damaged = tuple(one for one in planned if one.commits or one.files or one.past)
        if not dry_run:
            for one in damaged:
                _carry_out(one, folder / one.table, lost)
    return Repair(str(lost), damaged, checkpoints)


def _plan(table: str, place: Path) -> TableRepair:
    files = table_files(str(place), None)
    paths = files.log_paths()
    newest, intact = max(versions_in(paths), default=-1), read_checkpoints(str(place), None).intact
    whole = intact
    while whole < newest and _flaw(files, whole + 1) is None:
        whole += 1
    wrong = {} if whole < 0 else _faults_at(place, whole)
    while wrong and table != TABLE_WITH_EXPENDABLE_FILES:
        added = min(_find_added_version(files, path, intact, whole) for path in wrong)
        if added <= max(intact, 0):
            first_paths = ", ".join([*wrong][:3])
            raise LedgerDamaged(f"The table {table} cannot be repaired: it needs {first_paths}", BACKUP)
        whole = added - 1
        wrong = _faults_at(place, whole)
    if whole < 0:
        raise LedgerDamaged(f"The table {table} cannot be repaired: no version of it is whole", BACKUP)
    commits = tuple(_describe_lost_commit(files, version) for version in range(whole + 1, newest + 1))
    rows = _rows_of(place, whole, set(wrong)) if wrong else 0
    return TableRepair(table, whole, commits, wrong, rows, *find_past_damage(str(place), None, intact))


def _flaw(files: Any, version: int) -> str | None:
    content = files.read(log_file(version))
    return MISSING if content is None else flaw_of(content)


def _faults_at(place: Path, version: int) -> dict[str, str]:
    """Return the faults of a version's data files by path, by reading all rows.

    The result is empty if an unreadable checkpoint stops delta-rs.
    """
    try:
        loaded = DeltaTable(str(place), version=version)
    except DeltaError:
        if not read_checkpoints(str(place), None).bad:
            raise
        # Unless this is a dry run, or an entry after the checkpoint is missing, the repair has moved the checkpoint
        # out.
        return {}
    return dict(find_faulty_files(loaded, table_files(str(place), None), deep=True))


def _find_added_version(files: Any, path: str, intact: int, whole: int) -> int:
    """Return the last version up to `whole` that added a file, or else `intact`."""
    for version in range(whole, intact, -1):
        for action in parse_actions(files.read(log_file(version)) or b""):
            if action.get("add", {}).get("path") == path:
                return version
    return intact


def _describe_lost_commit(files: Any, version: int) -> LostCommit:
    content = files.read(log_file(version))
    if content is None:
        return LostCommit(version, "", None, MISSING)
    try:
        actions = parse_actions(content)
    except Flawed as flaw:
        return LostCommit(version, "", None, str(flaw))
    info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
    metadata = ledger_metadata_in(info.get("userMetadata"))
    events = sum(int(event.get("messages", 0)) for event in metadata.get("events", ()))
    rows = sum(json.loads(one["add"].get("stats") or "{}").get("numRecords", 0) for one in actions if "add" in one)
    verb = str(metadata.get("verb", info.get("operation", "")))
    return LostCommit(version, verb, events or (rows if verb.startswith("send") else None), "")


def _rows_of(place: Path, version: int, paths: set[str]) -> int | None:
    actions = pa.table(DeltaTable(str(place), version=version).get_add_actions(flatten=True)).to_pylist()
    counts = [one.get("num_records") for one in actions if one["path"] in paths]
    return None if None in counts else sum(counts)


def _carry_out(repair: TableRepair, place: Path, lost: Path) -> None:
    if repair.past:
        _cut_past(repair, place, lost)
    for commit in reversed(repair.commits):
        _replace(place, lost, log_file(commit.version), _entry_of_loss(repair.table, commit))
    # `mend_checkpoints` moves no checkpoint out while an entry is missing.
    mend_checkpoints(str(place), lost, deep=True)
    newest = repair.version + len(repair.commits)
    if not repair.files:
        return
    now = time.time_ns() // 1_000_000
    loaded = pa.table(DeltaTable(str(place), version=newest).get_add_actions(flatten=True)).to_pylist()
    gone = [file for file in loaded if file["path"] in repair.files]
    actions = [_repair_info(repair.table, {"files": len(gone), "messages": repair.messages}, now)]
    for file in gone:
        partition = {name: file[f"partition.{name}"] for name in TABLES[repair.table].partitions}
        actions.append(remove_action(file["path"], file["size_bytes"], partition, now))
    # A file that is moved away while the table still names it would be new damage.
    table_files(str(place), None).put_new(log_file(newest + 1), log_entry(actions))
    for file in gone:
        with contextlib.suppress(FileNotFoundError):
            set_aside(place, lost, file["path"])


def _cut_past(one: TableRepair, place: Path, lost: Path) -> None:
    """Move away the files from which a read of the lost versions starts, then replace the damaged entries.

    In this order, a repair after a stopped repair still finds the damaged entries.
    """
    files = table_files(str(place), None)
    for path in files.log_paths():
        summed_up = CHECKPOINT.fullmatch(path)
        version = int(summed_up[1]) if summed_up else version_of(path)
        if version is None or version >= one.readable_from or version in one.past:
            continue
        # A read can start at a checkpoint, or at an entry that has the protocol.
        if summed_up or any("protocol" in action for action in parse_actions(files.read(path) or b"")):
            set_aside(place, lost, path)
    for version, flaw in one.past.items():
        _replace(place, lost, log_file(version), _entry_of_loss(one.table, LostCommit(version, "", None, flaw)))


def _entry_of_loss(table: str, commit: LostCommit) -> bytes:
    now = time.time_ns() // 1_000_000
    lost = {"lost": {"verb": commit.verb, "messages": commit.messages, "flaw": commit.flaw}}
    return log_entry([_repair_info(table, lost, now)])


def _repair_info(table: str, facts: Mapping[str, Any], now: int) -> dict[str, Any]:
    metadata = {"operation": secrets.token_hex(8), "verb": "repair", "queue": "", "at": now, "owner": "repair"}
    return commit_info("REPAIR", {**metadata, "events": [], "table": table, **facts}, now)


def _replace(place: Path, lost: Path, path: str, content: bytes) -> None:
    """Replace a log entry in one step, and keep the old one in the folder `lost`.

    The version's checksum file describes the old entry, so this file is moved away first.
    """
    with contextlib.suppress(FileNotFoundError):
        set_aside(place, lost, path.replace(".json", ".crc"))
    entry, kept = place / path, lost / place.name / path
    kept.parent.mkdir(parents=True, exist_ok=True)
    with LocalFiles(recorded(str(place))).held_log() as log:
        if entry.exists():
            os.link(entry, kept)
        log.replace(path, content)
