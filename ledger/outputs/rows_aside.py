"""Rows that delta-rs writes into a folder of their own below an output table, where no log tells of them yet.

So whoever commits them says what is right of the files (`outputs.file_entries`). For DataFrames: `outputs.staging`.
"""

from __future__ import annotations

import json
import shutil
from typing import Any

from deltalake import DeltaTable, write_deltalake

from ledger.clock import system_clock
from ledger.delta_log.delta_rs_commits import begin_log, remove_log
from ledger.delta_log.protocol import StagedFile
from ledger.delta_log.storage import LocalFiles, log_file, table_files
from ledger.outputs.file_entries import staged_file
from ledger.place import absent_folders, remove_empty
from ledger.rules import staging
from ledger.rules.publishable import FOLDER, Demands


class RowsAside:
    """One folder below the table at `location`, which takes rows as a table with these demands does."""

    def __init__(self, location: str, options: dict[str, str] | None, demands: Demands, *, sync: bool = True) -> None:
        now = system_clock()
        self._name = staging.new_folder(now)
        self._place, self._options = f"{location.rstrip('/')}/{FOLDER}/{self._name}", options
        self._made = absent_folders(f"{location.rstrip('/')}/{FOLDER}")
        self._stored = table_files(self._place, options, sync=sync)
        begin_log(self._stored, demands, now, below=table_files(location, options))

    def write(self, rows: Any, **how: Any) -> list[StagedFile]:
        """Write rows as `write_deltalake` does; return the files as delta-rs tells of them, none without a row."""
        write_deltalake(DeltaTable(self._place, storage_options=self._options), rows, mode="append", **how)
        entry = self._stored.read(log_file(1)) or b""
        added = [json.loads(line).get("add") for line in entry.splitlines()]
        return [staged_file(self._name, add) for add in added if add is not None]

    def settle(self) -> None:
        """Remove what nobody needs once the files are committed."""
        remove_log(self._stored)

    def remove(self) -> None:
        """Remove all of it, where it is certain that nobody commits the files; of an object store VACUUM does."""
        if isinstance(self._stored, LocalFiles):
            shutil.rmtree(self._place, ignore_errors=True)
            remove_empty(self._made)
        else:
            self.settle()
