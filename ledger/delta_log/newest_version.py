"""The newest version of a table, as delta-rs loads it beside others who commit all the time.

delta-rs lists the log and takes a listing with a gap for a damaged log (see `log_gaps`). Where others commit 25 times a
second, each of seven listings in a row has had one. But what was there before a listing began is in it: so the table is
loaded as of the highest version that a listing of our own has shown, and a gap below that is a real one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from ledger import forks
from ledger.delta_log.log_entries import checkpointed
from ledger.delta_log.log_gaps import is_gap, without_gaps
from ledger.delta_log.table_files import TableFiles, table_files, version_of


def opened(location: str, storage_options: Mapping[str, str] | None) -> DeltaTable:
    """A table as of a version that is no older than the newest one before this call. Raises what delta-rs does."""
    forks.require_own("delta-rs")
    options = dict(storage_options or {}) or None
    try:
        return DeltaTable(location, storage_options=options)
    except DeltaError as error:
        if not is_gap(error):
            past = _opened_past_checkpoint(location, options)
            if past is None:
                raise
            return past
    version = newest_listed(table_files(location, options))
    return without_gaps(partial(DeltaTable, location, version, storage_options=options))


def _opened_past_checkpoint(location: str, options: dict[str, str] | None) -> DeltaTable | None:
    """Return a table whose newest checkpoint is empty or gone, by the entries of its log; None where they cannot be
    read. delta-rs fails when it looks for the checkpoint that `_last_checkpoint` names; not on its way past it."""
    try:
        newest = max(checkpointed(table_files(location, options).log_paths()), default=0)
        loaded = DeltaTable(location, max(0, newest - 1), storage_options=options)
        loaded.update_incremental()
    except (DeltaError, OSError):
        return None
    return loaded


def catch_up(loaded: DeltaTable, files: TableFiles) -> None:
    """Brings a loaded table, whose files these are, to such a version. Raises what delta-rs does."""
    try:
        loaded.update_incremental()
    except DeltaError as error:
        if not is_gap(error):
            raise
        version = newest_listed(files)
        if version is None:
            raise
        if version > loaded.version():
            without_gaps(partial(loaded.load_as_version, version))


def newest_listed(files: TableFiles) -> int | None:
    """None: there is none, and delta-rs says so better."""
    return max((version for version in map(version_of, files.log_paths()) if version is not None), default=None)
