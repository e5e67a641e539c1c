"""Output tables through Spark: the version of a write's transaction, and the fence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.delta_log.alterations import FORGETS
from ledger.delta_log.protocol import CommittedBefore
from ledger.errors import OutputUnreadable
from ledger.output_tables.protocol import OutputLog, require_remembered, unreadable
from ledger.rules.location import name_for_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ledger.store.delta.by_spark import SparkEngine


class SparkOutputTables:
    """ForeignTables through the session of an engine."""

    name = "spark"

    def __init__(self, engine: SparkEngine) -> None:
        self._engine = engine

    @property
    def session(self) -> SparkSession:
        return self._engine.session

    def read_output_log(self, location: str, application: str) -> OutputLog:
        with unreadable(location):
            state = self._engine.state_at(name_for_spark(location))
            _require_there(location, state)
            committed_version = state.transactions().get(application)
            committed = int(committed_version.get()) if committed_version.isDefined() else None
            if committed is None and application:
                forgets = state.metadata().configuration().get(FORGETS)
                require_remembered(location, {FORGETS: str(forgets.get())} if forgets.isDefined() else {})
            return OutputLog(str(state.metadata().id()), int(state.version()), committed)

    def fence_output(self, location: str, application: str, version: int) -> None:
        # Spark's DataFrame writer commits any version above the last committed version of a transaction id. So a fence
        # by that writer could succeed after the write was committed. Delta's own transaction finds any version of the
        # id in its snapshot, and conflicts with a later commit of the id.
        from ledger.delta_log.spark_commits import commit_nothing

        with unreadable(location), self._engine.committing({"verb": "fence"}) as session:
            transaction = self._engine.begin(session, name_for_spark(location))
            _require_there(location, transaction.snapshot())
            if transaction.txnVersion(application) >= 0:
                raise CommittedBefore(f"{application} was committed before")
            commit_nothing(session, transaction, (application, version))
            self._engine.make_durable_at(name_for_spark(location))

    def arrow_outputs(self) -> None:
        return None

    def output_publishing(self, location: str) -> None:
        return None


def _require_there(location: str, state: Any) -> None:
    """Raise OutputUnreadable if there is no table: then the snapshot has a version below 0."""
    if state.version() < 0:
        raise OutputUnreadable(location, "there is no Delta table, or this process cannot see it", gone=True)
