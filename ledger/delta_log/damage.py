"""Search for damage in a table's log entries, checkpoints and data files; removal of damaged checkpoints.

If a checkpoint is damaged, nothing is lost while the entries exist that it sums up, from version 0 or from an older
intact checkpoint on. Entries that an intact checkpoint sums up are needed only to read past versions.

Most checks of entries look only at local paths: an object store never keeps half of a file.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from ledger.delta_log.alterations import OUTSIDE
from ledger.delta_log.delta_rs_commits import opened
from ledger.delta_log.history import (
    LAST_CHECKPOINT,
    MISSING,
    PAUSES,
    REPAIR,
    Flawed,
    find_lost_entries,
    find_missing_entries,
    first_version,
    flaws_in,
    list_checkpoints,
    make_damage_error,
    read_hinted_checkpoint,
    require_whole,
    versions_in,
)
from ledger.delta_log.protocol import read_retention
from ledger.delta_log.storage import LINES, LOG, Storage, TableStorage, log_file, table_files, version_of
from ledger.errors import LedgerDamaged
from ledger.rules.location import recorded

log = logging.getLogger("ledger.opening")
MOST_NAMED = 3
#: The most bytes of a table's data files that are read in full after a failed call.
DECODED_BYTES = 64 << 20
#: The most unchecked entries that are read without looking for a checkpoint.
MOST_BEFORE_CHECKPOINTS = 20
WITH_ENTRIES = (
    "The log's entries have all that the checkpoint has. On a local path `ledger repair ROOT` takes the checkpoint "
    "out, and so does the next opening for writing (`ledger upkeep`, or Ledger.open without read_only). A read-only "
    "opening cannot, and delta-rs does not read past the checkpoint. On an object store remove the file."
)
WITHOUT_ENTRIES = (
    "Entries before it are gone, so nothing else shows what is in the table: restore a backup (`ledger restore-backup "
    "BACKUP ROOT --replace`)."
)
_LINES = re.compile(rf'"{LINES}": ([0-9]+)'.encode())
#: The folder next to a ledger's tables for files that are moved out of them.
LOST = "_ledger_lost"


class TableDamage(NamedTuple):
    """The damage of a table.

    Attributes:
        entries: The faults, by version, of entries that the newest version needs.
        checkpoints: The paths of unreadable checkpoint files (`Checkpoints.bad`, or `old`).
        files: The faults, by path, of data files that the log names.
        is_recoverable: Whether the log has every entry after the newest intact checkpoint.
    """

    version: int
    entries: Mapping[int, str]
    checkpoints: tuple[str, ...]
    files: Mapping[str, str]
    is_recoverable: bool = True

    def error(self, table: str) -> LedgerDamaged | None:
        if self.entries:
            return make_damage_error(table, *next(iter(sorted(self.entries.items()))))
        if self.files:
            return LedgerDamaged(
                f"Version {self.version} of the table {table} is damaged: {self.listed()}", f"{REPAIR}."
            )
        if self.checkpoints:
            named = ", ".join(self.checkpoints[:MOST_NAMED])
            advice = WITH_ENTRIES if self.is_recoverable else WITHOUT_ENTRIES
            return LedgerDamaged(f"The table {table} has a checkpoint that cannot be read: {named}", advice)
        return None

    def listed(self) -> str:
        named_files = "; ".join(f"{path} {what}" for path, what in [*self.files.items()][:MOST_NAMED])
        more = f"; and {len(self.files) - MOST_NAMED:,} more" if len(self.files) > MOST_NAMED else ""
        return f"{len(self.files):,} of the data files that it names are not as written: {named_files}{more}"


class PastDamage(NamedTuple):
    """Damage of entries that a checkpoint sums up: their faults by version.

    Versions from the first fault to the one before `readable_from` may be lost. `readable_from` is the first readable
    checkpoint at or after the last fault; 0: there is none.
    """

    entries: Mapping[int, str]
    readable_from: int

    def error(self, table: str) -> LedgerDamaged | None:
        return make_damage_error(table, *min(self.entries.items())) if self.entries else None


def find_damage(
    location: str, storage_options: Mapping[str, str] | None, *, deep: bool = False, needs_info: bool = True
) -> TableDamage:
    """Look for damage in the newest version of a table.

    With `deep`, read data files in full, and checkpoints down to an intact one. `needs_info`: an entry without a
    `commitInfo` is damaged. Raises DeltaError if delta-rs cannot read the log for another reason.
    """
    files = table_files(location, storage_options)
    paths = files.log_paths()
    versions = versions_in(paths)
    newest = versions[-1] if versions else -1

    def look(*, deep: bool) -> TableDamage:
        """Look at checkpoints, and at the entries after the newest intact one."""
        bad, intact = _find_bad_checkpoints(files, paths, deep=deep)
        flaws = dict(flaws_in(files, [version for version in versions if version > intact], needs_info=needs_info))
        missing = find_missing_entries(files, versions, intact + 1, newest)
        if not bad:
            flaws.update(dict.fromkeys(missing, MISSING))
        return TableDamage(newest, flaws, bad, {}, not missing)

    seen = look(deep=deep)
    if seen.entries:
        return seen
    try:
        loaded = opened(location, storage_options)
    except DeltaError:
        # A checkpoint whose footer can be read may have pages that cannot.
        seen = seen if deep else look(deep=True)
        if seen.checkpoints:
            return seen
        raise
    wrong = find_faulty_files(loaded, files, deep=deep)
    if wrong and loaded.version() < (again := opened(location, storage_options)).version():
        # Others may have removed a missing file from the table since.
        loaded, wrong = again, find_faulty_files(again, files, deep=deep)
    return seen._replace(version=loaded.version(), files=wrong)


class Checkpoints(NamedTuple):
    """The checkpoints of a table.

    Attributes:
        bad: The paths of unreadable files newer than `intact`, and of a checkpoint that `_last_checkpoint` names and
            that is gone.
        intact: The version of the newest readable checkpoint; -1: there is none.
        old: The paths of unreadable files before `intact`, on local paths.
    """

    bad: tuple[str, ...]
    intact: int
    old: tuple[str, ...]


def read_checkpoints(location: str, storage_options: Mapping[str, str] | None) -> Checkpoints:
    """Read checkpoints in full, on an object store only down to an intact one."""
    files = table_files(location, storage_options)
    paths = files.log_paths()
    bad, intact = _find_bad_checkpoints(files, paths, deep=True)
    return Checkpoints(bad, intact, _find_old_checkpoints(files, paths, intact) if recorded(location).is_local else ())


def _find_old_checkpoints(files: TableStorage, paths: list[str], intact: int) -> tuple[str, ...]:
    older = (version for version in list_checkpoints(paths) if version < intact)
    return tuple(path for version in older for path in _unreadable_files(files, paths, version, deep=True))


def _find_lost_version(location: str, old: Sequence[str]) -> int | None:
    """Return the version of the newest of the unreadable checkpoint files `old` that no entries replace."""
    files = table_files(location, None)
    paths = files.log_paths()
    unreadable = {int(path.removeprefix(f"{LOG}/").partition(".")[0]) for path in old}
    readable = [version for version in list_checkpoints(paths) if version not in unreadable]
    for version in sorted(unreadable, reverse=True):
        first = max((earlier + 1 for earlier in readable if earlier < version), default=0)
        if find_missing_entries(files, versions_in(paths), first, version):
            return version
    return None


def find_past_damage(location: str, storage_options: Mapping[str, str] | None, intact: int | None = None) -> PastDamage:
    """Look for damage in the entries that the newest intact checkpoint sums up, on local paths only.

    `intact`: the version of that checkpoint, if the caller has read all of it. Then each entry is parsed; otherwise
    only entries that do not look whole.
    """
    if not recorded(location).is_local:
        return PastDamage({}, 0)
    files = table_files(location, storage_options)
    paths = files.log_paths()
    is_deep = intact is not None
    intact = _find_bad_checkpoints(files, paths)[1] if intact is None else intact
    versions = versions_in(paths)
    begins = first_version(versions)
    past = [version for version in versions if begins <= version <= intact]
    doubtful = [version for version in past if is_deep or not _looks_whole(files.read(log_file(version)))]
    missing = find_lost_entries(
        files, versions, begins, intact, partial(_read_log_retention, location, storage_options)
    )
    flaws = {**flaws_in(files, doubtful), **dict.fromkeys(missing, MISSING)}
    later = (version for version in list_checkpoints(paths) if version >= max(flaws, default=0))
    return PastDamage(
        flaws,
        next(
            (
                checkpoint
                for checkpoint in later
                if checkpoint == intact or not _unreadable_files(files, paths, checkpoint)
            ),
            0,
        ),
    )


def _read_log_retention(location: str, storage_options: Mapping[str, str] | None) -> float:
    try:
        properties = opened(location, storage_options).metadata().configuration
    except DeltaError:
        properties = {}
    return read_retention(properties).log_retention


def find_past_damage_error(
    table: str, location: str, storage_options: Mapping[str, str] | None
) -> LedgerDamaged | None:
    """Return the error about damage of past versions or of an old checkpoint; None: none was found."""
    try:
        checkpoints = read_checkpoints(location, storage_options)
        error = find_past_damage(location, storage_options, checkpoints.intact).error(table)
        lost = None if error else _find_lost_version(location, checkpoints.old)
        if lost is not None:
            return LedgerDamaged(
                f"The table {table} has a checkpoint that cannot be read, of version {lost}",
                "Entries before it are gone, so the versions from this one to the next checkpoint cannot be read any "
                "more. The newest version is whole.",
            )
        return error or TableDamage(0, {}, checkpoints.old, {}).error(table)
    except (OSError, pa.ArrowException):
        return None


def find_first_readable(location: str) -> int:
    """Return the first version of a table that can be read; 0 elsewhere than on a local path."""
    if not recorded(location).is_local:
        return 0
    files = table_files(location, None)
    paths = files.log_paths()
    if b'"metaData"' in (files.read(log_file(0)) or b""):
        return 0
    begins = first_version(versions_in(paths))
    later = (version for version in list_checkpoints(paths) if version >= begins)
    return next((version for version in later if not _unreadable_files(files, paths, version)), 0)


def _looks_whole(content: bytes | None) -> bool:
    if content is None:
        return True
    if b'"commitInfo"' not in content or b"\0" in content:
        return False
    lines = content.splitlines()
    line_count = _LINES.search(lines[0])
    if line_count is not None and int(line_count[1]) > len(lines):
        return False
    return all(line.startswith(b"{") and line.endswith(b"}") for line in lines)


def damage_causing_failure(
    table: str, location: str, storage_options: Mapping[str, str] | None
) -> LedgerDamaged | None:
    """Return the damage that made an engine fail; None: none was found, or the table cannot be read.

    A data file of the right size can be damaged inside, so small tables are read in full.
    """
    try:
        damage = find_damage(location, storage_options).error(table)
        if damage is None and _data_bytes(location, storage_options) <= DECODED_BYTES:
            damage = find_damage(location, storage_options, deep=True).error(table)
        return damage
    except (OSError, pa.ArrowException, DeltaError):
        return None


def _data_bytes(location: str, storage_options: Mapping[str, str] | None) -> int:
    actions = pa.table(opened(location, storage_options).get_add_actions())
    return sum(actions["size_bytes"].to_pylist()) if actions.num_rows else 0


class LogTail:
    """The entries after a log's last checkpoint on a local path. Each is checked once.

    Both engines take an empty entry for a commit that changes nothing.
    """

    def __init__(self, table: str, location: str) -> None:
        self._table, self._files = table, table_files(location, None) if recorded(location).is_local else None
        self._whole: int | None = None

    def require(self, version: int) -> None:
        if self._files is None:
            return
        since = -1 if self._whole is None else self._whole
        if self._whole is None or version - since > MOST_BEFORE_CHECKPOINTS:
            # A restored log goes on at a multiple of 1,000,000: without its checkpoint, a million missing
            # entries would be looked for.
            since = max(since, _find_readable_checkpoint(self._files, version))
        for flawed in flaws_in(self._files, range(since + 1, version + 1)):
            content = self._files.read(log_file(flawed))
            if content is not None:
                require_whole(self._table, flawed, content, self._files)
        self._whole = max(version, -1 if self._whole is None else self._whole)


def require_whole_log(location: str, version: int | None) -> None:
    """Raise Flawed if an entry after the last checkpoint, up to `version`, stays empty or torn, on a local path."""
    if not recorded(location).is_local:
        return
    files = table_files(location, None)
    newest = version if version is not None else max(filter(None, map(version_of, files.log_paths())), default=0)
    versions: Sequence[int] = range(_find_readable_checkpoint(files, newest) + 1, newest + 1)
    for pause in (*PAUSES, 0):
        flaws = flaws_in(files, versions, needs_info=False)
        if not flaws:
            return
        versions = [*flaws]
        time.sleep(pause)
    flawed, what = min(flaws.items())
    raise Flawed(f"version {flawed} of its log is damaged: {log_file(flawed)} {what}")


def _find_readable_checkpoint(files: TableStorage, version: int) -> int:
    """Return the version of a readable checkpoint up to `version`; without one, the version before the first entry."""
    hinted = read_hinted_checkpoint(files)
    if hinted is not None and hinted <= version and _row_count_in_footer(files, _checkpoint_path(hinted)) is not None:
        return hinted
    paths = files.log_paths()
    first = min((entry for entry in map(version_of, paths) if entry is not None), default=0)
    candidates = (candidate for candidate in reversed(list_checkpoints(paths)) if candidate <= version)
    return next((candidate for candidate in candidates if not _unreadable_files(files, paths, candidate)), first - 1)


def lost_folder(root: Path) -> Path:
    return root / LOST / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(2)}"


def mend(locations: Mapping[str, str], root: Path, *, deep: bool = False) -> list[str]:
    lost = lost_folder(root)
    mended = [path for place in locations.values() for path in mend_checkpoints(place, lost, deep=deep)]
    if mended:
        log.warning("checkpoints could not be read, and are moved to %s: %s", lost, ", ".join(mended))
    return mended


def mend_checkpoints(location: str, lost: Path, *, deep: bool) -> list[str]:
    """Move unreadable checkpoints of a table on a local path to the folder `lost`. Return the paths of their files.

    If the log lacks an entry after the newest intact checkpoint, do nothing. `_last_checkpoint` is moved, too, if it
    may name one of them. Without `deep`, do nothing unless `_misses_checkpoint`, and read only the end of each
    checkpoint file.
    """
    place, files = Path(recorded(location).text), table_files(location, None)
    if not deep and not _misses_checkpoint(place):
        return []
    paths = files.log_paths()
    bad, intact = _find_bad_checkpoints(files, paths, deep=deep)
    old = _find_old_checkpoints(files, paths, intact) if deep else ()
    versions = {*versions_in(paths)}
    newest = max(versions, default=-1)
    if not set(range(intact + 1, newest + 1)) <= versions:
        return []
    hint = (LAST_CHECKPOINT,) if (place / LAST_CHECKPOINT).exists() and (bad or _misses_checkpoint(place)) else ()
    for path in (*bad, *old, *hint):
        with suppress(FileNotFoundError):
            set_aside(place, lost, path)
    return [*bad, *old]


def set_aside(place: Path, lost: Path, path: str) -> None:
    """Move a file of a table to the folder `lost`. Raises FileNotFoundError if the file is gone.

    Hadoop's checksum of the file is moved, too: Spark would compare the next file of that name with it.
    """
    *folders, name = path.split("/")
    for file_path in ("/".join([*folders, f".{name}.crc"]), path):
        into = lost / place.name / file_path
        into.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError) if file_path != path else nullcontext():
            (place / file_path).rename(into)


def _misses_checkpoint(place: Path) -> bool:
    """Return whether `_last_checkpoint` cannot be parsed, or names a missing or empty checkpoint."""
    try:
        hint = json.loads((place / LAST_CHECKPOINT).read_bytes())
        named = [*(place / LOG).glob(f"{hint['version']:020d}.checkpoint.*parquet")] if hint.get("parts") else []
        named = named or [place / LOG / f"{hint['version']:020d}.checkpoint.parquet"]
        return not all(file.exists() and file.stat().st_size for file in named)
    except FileNotFoundError:
        return False
    except (AttributeError, KeyError, TypeError, ValueError):
        return True


def _find_bad_checkpoints(files: TableStorage, paths: list[str], *, deep: bool = False) -> tuple[tuple[str, ...], int]:
    bad: list[str] = []
    hinted = read_hinted_checkpoint(files)
    gone = hinted is not None and hinted not in list_checkpoints(paths) and not files.has(_checkpoint_path(hinted))
    if hinted is not None and gone:
        bad.append(_checkpoint_path(hinted))
    for version in reversed(list_checkpoints(paths)):
        wrong = _unreadable_files(files, paths, version, deep=deep)
        if not wrong:
            return tuple(bad), version
        bad += wrong
    return tuple(bad), -1


def _unreadable_files(files: Storage, paths: list[str], version: int, *, deep: bool = False) -> list[str]:
    of_version = [path for path in paths if path.startswith(f"{LOG}/{version:020d}.checkpoint.")]
    rows = _count_rows if deep else _row_count_in_footer
    return [path for path in of_version if rows(files, path) is None]


def _checkpoint_path(version: int) -> str:
    return f"{LOG}/{version:020d}.checkpoint.parquet"


def _row_count_in_footer(files: Storage, path: str) -> int | None:
    try:
        with files.open(path) as file:
            return int(file.metadata.num_rows)
    except (OSError, pa.ArrowException):
        return None


def _count_rows(files: Storage, path: str) -> int | None:
    try:
        with files.open(path) as file:
            groups = range(file.metadata.num_row_groups)
            return sum(_count_intact_rows(file, number) for number in groups)
    except (OSError, pa.ArrowException):
        return None


def _count_intact_rows(file: pq.ParquetFile, group: int) -> int:
    rows = file.read_row_group(group, use_threads=False)
    rows.validate(full=True)
    return int(rows.num_rows)


def find_faulty_files(loaded: DeltaTable, files: TableStorage, *, deep: bool) -> Mapping[str, str]:
    """Return the faults of a loaded table's data files, by path. Without `deep`, only compare sizes.

    Files outside the table belong to another table, and are left out.
    """
    actions = pa.table(loaded.get_add_actions(flatten=True))
    if actions.num_rows:
        actions = actions.filter(pa.array([not OUTSIDE.match(path) for path in actions["path"].to_pylist()]))
    paths = [unquote(path) for path in actions["path"].to_pylist()] if actions.num_rows else []
    sizes = files.sizes(paths)
    rows = actions["num_records"].to_pylist() if "num_records" in actions.column_names else [None] * len(paths)
    named = zip(paths, actions["size_bytes"].to_pylist() if paths else (), rows)
    return dict(_file_faults(named, sizes, files if deep else None))


def _file_faults(named: Any, sizes: Mapping[str, int], read_in_full: TableStorage | None) -> Iterator[tuple[str, str]]:
    for path, size, rows in named:
        size_there = sizes.get(path)
        if size_there is None:
            yield path, MISSING
        elif size_there != size:
            yield path, "is empty" if not size_there else f"has {size_there:,} bytes, and the log says {size:,}"
        elif read_in_full is not None:
            rows_there = _count_rows(read_in_full, path)
            if rows_there is None:
                yield path, "cannot be read as Parquet"
            elif rows is not None and rows_there != rows:
                yield path, f"has {rows_there:,} rows, and the log says {rows:,}"
