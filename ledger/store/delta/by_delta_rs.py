"""The store's engine on delta-rs, without a JVM."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ledger.delta_log.by_delta_rs import DeltaRsTables
from ledger.delta_log.failures import advise_nothing
from ledger.errors import StorageFailed
from ledger.store.delta.engine import LedgerTables, Publishing, ledger_metadata_in, verb_of
from ledger.store.delta.model.tables import TABLES


class DeltaRsEngine(DeltaRsTables, LedgerTables):
    """Engine on delta-rs. Threads may share the engine."""

    def __init__(
        self,
        locations: Mapping[str, str],
        storage_options: Mapping[str, str] | None = None,
        *,
        sync: bool = True,
        by_statement: bool = False,
        advise: Callable[[StorageFailed], str] = advise_nothing,
    ) -> None:
        """`sync`: commits survive a power cut on a local path. For the other arguments see DeltaRsTables."""
        super().__init__(
            TABLES,
            locations,
            storage_options,
            sync=sync,
            by_statement=by_statement,
            read_metadata=ledger_metadata_in,
            purpose_of=verb_of,
            advise=advise,
        )

    def publishing(self) -> Publishing:
        """See Engine."""
        return self
