"""The seam between writes of a claim's output and the engines that reach output tables.

An output table belongs to the user. It goes by its place. The methods raise what the engine and the storage do, and
OutputUnreadable where they say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from ledger.delta_log.protocol import Conflict, StagedFile, reason
from ledger.errors import ForkedProcess, OutputUnreadable
from ledger.rules.output_columns import Columns
from ledger.rules.publishable import Demands
from ledger.store.protocol import ArrowOutputs


class OutputLog(NamedTuple):
    """An output table: its id (another one when it was made anew), its version, and the version that was committed of
    the transaction asked for; None when none was."""

    table_id: str
    version: int
    committed: int | None


class Target(NamedTuple):
    """An output table as it is: its id, and what it asks for."""

    table_id: str
    demands: Demands


def require_same(before: Target, now: Target) -> None:
    """Raises Conflict for a table that is another one, or asks for other things, than before."""
    if now.table_id != before.table_id:
        raise Conflict("another table lies there by now")
    if not now.demands.same(before.demands):
        raise Conflict("the table's columns, constraints or properties were changed while rows were written for it")


class OutputPublishing(Protocol):
    """What is done to output tables without a row going through this process. They go by where they lie.

    Raises what the engine and the storage do.
    """

    @property
    def storage_options(self) -> Mapping[str, str] | None:
        """How the storage is reached."""

    def look(self, location: str) -> Target | None:
        """A table as of its newest version; None: there is none."""

    def make(self, location: str, demands: Demands, now: int) -> None:
        """Makes a table, empty. Of several that do so at once one is first, and nothing becomes of the others."""

    def evolve(self, location: str, target: Target, columns: Columns) -> None:
        """Give a table, which was the `target` when its `columns` were found, those that rows ask for: those that are
        added, and those of wider types. Raises Conflict, and OutputNotWritten for what this cannot change."""

    def why_not_widened(self, location: str) -> str | None:
        """Why `evolve` gives the columns of a table no wider types, as it stands behind "because of"; None where it
        does, and where there is no table."""

    def stage(self, location: str, demands: Demands, now: int) -> None:
        """Makes a table for the files of one write, where nobody else writes."""

    def column(self, location: str, paths: Sequence[str], name: str) -> Any:
        """A column of the rows in files below a place (an Arrow array); None where the files have none."""

    def publish(
        self,
        location: str,
        target: Target,
        files: Sequence[StagedFile],
        transaction: tuple[str, int],
        metadata: Mapping[str, Any],
    ) -> None:
        """One commit that adds files which lie below the table.

        Raises Conflict when any version of the transaction is committed already, by whatever snapshot; when another
        table lies there by now; and when it asks for other things than those that were applied.
        """


class ForeignTables(Protocol):
    """What an engine does with output tables."""

    name: str

    def output_log(self, location: str, application: str) -> OutputLog:
        """What a table that is none of the ledger's says of a transaction. Raises OutputUnreadable when there is no
        table, or when it cannot be seen or read: that is never taken for "not committed"."""

    def fence_output(self, location: str, application: str, version: int) -> None:
        """Commits a transaction and no rows to such a table. Raises Conflict when any version of that transaction is
        committed already, by whatever snapshot, and OutputUnreadable when it cannot be committed to."""

    def arrow_outputs(self) -> ArrowOutputs | None:
        """Return the writer of Arrow tables to output tables; None: the engine writes DataFrames alone."""

    def output_publishing(self, location: str) -> OutputPublishing | None:
        """Return the publisher of files that Spark has written below a table; None: Spark has to commit them."""


@contextmanager
def unreadable(location: str) -> Iterator[None]:
    """Turns whatever goes wrong with an output table into OutputUnreadable; a Conflict stays one."""
    try:
        yield
    except (Conflict, OutputUnreadable, ForkedProcess):
        raise
    except Exception as error:
        raise OutputUnreadable(location, reason(error)) from error
