"""Output tables: whether a claim's write is in the table, or fenced off."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ledger.delta_log.protocol import Conflict, reason
from ledger.delta_log.storage import table_files
from ledger.errors import InvalidParameterValue, OutputUnreadable, StorageFailed
from ledger.output_tables.protocol import ForeignTables, OutputPublishing
from ledger.rules import output_doubts
from ledger.rules.location import FILE, recorded
from ledger.rules.storage import DELTA_RS_COMMITS, S3, SAFE_FOR_BOTH
from ledger.settings import Settings
from ledger.store.delta.commit.file_locks import StillLocked, table_lock
from ledger.store.delta.commit.holdings import releasing
from ledger.store.delta.commit.retrying import Attempts
from ledger.store.delta.commit.storage_safety import TRUSTED_SECONDS, require_conditional_puts, require_safe_output

if TYPE_CHECKING:
    from ledger.output_tables.tables_of_spark import SparkOutputTables

log = logging.getLogger("ledger.output")
ATTEMPTS = 20
Answer = TypeVar("Answer")
#: The seconds that a caller that holds up others waits for a table. After a longer wait in vain, such callers skip the
#: table for SILENT_FACTOR times the wait.
WAIT_SECONDS, SILENT_FACTOR = 1.0, 10


class OutputTables:
    def __init__(self, engine: ForeignTables, by_spark: SparkOutputTables | None, settings: Settings) -> None:
        self._engine, self._by_spark, self._settings, self._fences = engine, by_spark, settings, True
        self._silent: dict[str, tuple[float, OutputUnreadable]] = {}
        self._puts_checked_at: dict[str, float] = {}

    def only_looking(self) -> OutputTables:
        """Return the same tables, to be asked without a commit. A write that is not in counts as fenced off."""
        looking = OutputTables(self._engine, self._by_spark, self._settings)
        looking._fences = False
        return looking

    def require_safe(self, table: str, why: str) -> None:
        """Raise UnsafeStorage for a place where Spark drivers could lose each other's commits."""
        require_safe_output(table, self._settings, why)

    def publishing(self, table: str) -> OutputPublishing | None:
        """Return the object that publishes files at a place (None: Spark has to commit to the place).

        Raises StorageFailed, and UnsafeStorage for a store that lets one commit overwrite another.
        """
        scheme, publishing = recorded(table).scheme, self._engine.output_publishing(table)
        if publishing is None or scheme not in DELTA_RS_COMMITS:
            return None
        if scheme in S3 and time.monotonic() - self._puts_checked_at.get(table, -TRUSTED_SECONDS) >= TRUSTED_SECONDS:
            from ledger.delta_log.object_store import ObjectStore

            require_conditional_puts(ObjectStore(table, publishing.storage_options))
            self._puts_checked_at[table] = time.monotonic()
        return publishing

    def table_id(self, table: str) -> str:
        return self._first(table, lambda engine: engine.output_log(table, "").table_id)

    def committed(self, table: str, write_id: str) -> int | None:
        return self._first(
            table, lambda engine: engine.output_log(table, output_doubts.application(write_id)).committed
        )

    def written_or_fenced(self, table: str, write_id: str, patience: float | None = WAIT_SECONDS) -> bool:
        """Return whether a write is in. If not, commit a fence to the table, so that the write can never get in.

        Waits up to `patience` seconds (None: without a limit) for other writers. Raises OutputUnreadable if the answer
        cannot be known.
        """
        if not self._fences:
            return self.committed(table, write_id) == output_doubts.WRITTEN
        until = None if patience is None else time.monotonic() + patience
        keep = partial(self._make_durable, table)
        return self._first(table, lambda engine: _written_or_fenced(engine, table, write_id, until, keep))

    def _make_durable(self, table: str, version: int) -> None:
        if recorded(table).is_local:
            table_files(table, None, sync=self._settings.sync).make_durable(version)

    def written_or_fenced_by_others(self, table: str, write_id: str) -> bool:
        """Answer as `written_or_fenced`, for a verb that may have other messages to serve.

        If a table recently took longer than WAIT_SECONDS and gave no answer, its last error is raised again.
        """
        until, problem = self._silent.get(table, (0.0, None))
        began = time.monotonic()
        if problem is not None and began < until:
            raise problem
        try:
            return self.written_or_fenced(table, write_id)
        except OutputUnreadable as error:
            log.warning("%s", error)
            now = time.monotonic()
            if now - began > WAIT_SECONDS:
                self._silent[table] = now + SILENT_FACTOR * (now - began), error
            raise

    def _first(self, table: str, ask: Callable[[ForeignTables], Answer]) -> Answer:
        """Return the answer of the first engine that can answer. If none can, raise the first error."""
        engine, *others = self._engines(table)
        try:
            return ask(engine)
        except OutputUnreadable:
            for other in others:
                with contextlib.suppress(OutputUnreadable):
                    return ask(other)
            raise

    def _engines(self, table: str) -> list[ForeignTables]:
        """Return the engines that may commit to a table, the preferred one first."""
        try:
            scheme = recorded(table).scheme
        except InvalidParameterValue as error:
            raise OutputUnreadable(table, str(error)) from error
        spark: list[ForeignTables] = [] if self._by_spark is None else [self._by_spark]
        if scheme in (FILE, *SAFE_FOR_BOTH):
            # delta-rs does not support every feature of Spark's tables.
            return list({engine.name: engine for engine in (self._engine, *spark)}.values())
        if scheme in S3:
            return self._engines_on_s3(table, spark)
        if not spark:
            raise OutputUnreadable(table, f"only Spark can tell on {scheme}:, and the ledger was opened without it")
        return spark

    def _engines_on_s3(self, table: str, spark: list[ForeignTables]) -> list[ForeignTables]:
        safe = [] if self._engine.output_publishing(table) is None else [self._engine]
        engines = [*safe, *spark] if self._settings.single_driver else safe
        if not engines:
            raise OutputUnreadable(table, "only delta-rs can fence off a write on S3, and the ledger's engine is Spark")
        return engines


@releasing
def _written_or_fenced(
    engine: ForeignTables, table: str, write_id: str, until: float | None, keep: Callable[[int], None]
) -> bool:
    application, before, attempts = (
        output_doubts.application(write_id),
        None,
        Attempts(f"the fence of {table}", ATTEMPTS),
    )
    for _ in attempts:
        output_log = engine.output_log(table, application)
        if output_log.committed is not None:
            # The rows (or the fence) must be durable before anything is recorded about the messages.
            keep(output_log.version)
            return output_log.committed == output_doubts.WRITTEN
        if output_doubts.table_of(write_id) not in (None, output_log.table_id):
            # The rows may be in the earlier table, which may come back, say, with a disk that is not mounted now.
            raise OutputUnreadable(
                table, "another table lies there than the one that the write was begun for", gone=True
            )
        if before is not None and before[0] == output_log.version:
            # Nobody else has committed since the last try, so that try lost no race.
            raise OutputUnreadable(table, f"it cannot be committed to ({before[1]})")
        try:
            with table_lock(table).exclusive(until):
                engine.fence_output(table, application, output_doubts.FENCED)
        except Conflict as conflict:
            before = output_log.version, reason(conflict)
        except StillLocked as error:
            raise OutputUnreadable(table, "others are writing to it, or stand still while they do") from error
        except (OSError, StorageFailed) as error:
            raise OutputUnreadable(table, reason(error)) from error
    raise OutputUnreadable(table, f"{ATTEMPTS} commits lost to other writers in {attempts.seconds:.1f} s")
