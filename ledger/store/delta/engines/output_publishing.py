"""Output tables that files are published to by delta-rs, in one commit under a transaction; see rules.publishable."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from ledger.errors import OutputUnreadable
from ledger.rules.location import recorded
from ledger.rules.publishable import Demands
from ledger.store.delta.engines.committing import conflicts, properties
from ledger.store.delta.engines.log_gaps import without_gaps
from ledger.store.delta.engines.protocol import Conflict, StagedFile, Target, require_same
from ledger.store.delta.engines.table_files import log_file, table_files


class DeltaRsOutputs:
    """OutputPublishing through delta-rs."""

    def __init__(self, storage_options: dict[str, str] | None) -> None:
        self.storage_options = storage_options

    def look(self, location: str) -> Target | None:
        loaded = self._open(location)
        return None if loaded is None else _target(loaded)

    def make(self, location: str, demands: Demands, now: int) -> None:
        if recorded(location).is_local:
            Path(location, "_delta_log").mkdir(parents=True, exist_ok=True)
        first = demands.actions(str(uuid.uuid4()), now).encode()
        table_files(location, self.storage_options).put_new(log_file(0), first)

    def stage(self, location: str, demands: Demands, now: int) -> None:
        first = demands.actions(str(uuid.uuid4()), now).encode()
        table_files(location, self.storage_options).write({log_file(0): first})

    def column(self, location: str, paths: Sequence[str], name: str) -> Any:
        return table_files(location, self.storage_options).column(paths, name)

    def publish(
        self,
        location: str,
        target: Target,
        files: Sequence[StagedFile],
        transaction: tuple[str, int],
        metadata: Mapping[str, Any],
    ) -> None:
        loaded = self._open(location)
        if loaded is None:
            raise OutputUnreadable(location, "the table is gone", gone=True)
        application = transaction[0]
        if loaded.transaction_version(application) is not None:
            raise Conflict(f"{application} was committed before")
        require_same(target, _target(loaded))
        actions: list[AddAction | RemoveAction] = [
            AddAction(one.path, one.size, one.partition, one.modified_at, True, json.dumps(one.statistics))
            for one in files
        ]
        said = properties(metadata, transaction)
        with conflicts():
            partitions = list(target.demands.partitions)
            loaded.create_write_transaction(actions, "append", loaded.schema(), partitions, commit_properties=said)

    def _open(self, location: str) -> DeltaTable | None:
        if not DeltaTable.is_deltatable(location, self.storage_options):
            return None
        return without_gaps(partial(DeltaTable, location, storage_options=self.storage_options))


def _target(loaded: DeltaTable) -> Target:
    protocol, metadata = loaded.protocol(), loaded.metadata()
    known: dict[str, Any] = {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
    }
    for name, features in (("readerFeatures", protocol.reader_features), ("writerFeatures", protocol.writer_features)):
        if features is not None:
            known[name] = sorted(features)
    demands = Demands(known, loaded.schema().to_json(), tuple(metadata.partition_columns), metadata.configuration)
    return Target(str(metadata.id), demands)
