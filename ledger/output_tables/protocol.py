"""The seam between writes of a claim's output and the engines that reach output tables.

An output table belongs to the user. The ledger identifies it by its place. The methods raise what the engine and the
storage raise, and OutputUnreadable where they say so.
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
    """An output table: its id, its version, and the committed version of the transaction asked for, or None.

    A table that was made anew has another id.
    """

    table_id: str
    version: int
    committed: int | None


class Target(NamedTuple):
    """An output table as it is: its id, and what it demands."""

    table_id: str
    demands: Demands


def require_same(before: Target, now: Target) -> None:
    """Raise Conflict if the table is another one, or demands other things, than before."""
    if now.table_id != before.table_id:
        raise Conflict("another table lies there by now")
    if not now.demands.same(before.demands):
        raise Conflict("the table's columns, constraints or properties were changed while rows were written for it")


class OutputPublishing(Protocol):
    """The commits to output tables for which no row goes through this process. Tables are identified by their place.

    Raises what the engine and the storage raise.
    """

    @property
    def storage_options(self) -> Mapping[str, str] | None:
        """The settings by which the storage is reached."""

    def look(self, location: str) -> Target | None:
        """Return a table as of its newest version; None if there is none."""

    def make(self, location: str, demands: Demands, now: int) -> None:
        """Make a table, empty. If several callers do so at once, one is first, and the others have no effect."""

    def evolve(self, location: str, target: Target, columns: Columns) -> None:
        """Give a table the columns that rows ask for: those that are added, and those of wider types.

        The table was the `target` when its `columns` were found. Raises Conflict, and OutputNotWritten for a change
        that cannot be made here.
        """

    def why_not_widened(self, location: str) -> str | None:
        """Return why `evolve` gives a table's columns no wider types, as it stands behind "because of".

        Return None if it does, and if there is no table.
        """

    def stage(self, location: str, demands: Demands, now: int) -> None:
        """Make a table for the files of one write, where nobody else writes."""

    def column(self, location: str, paths: Sequence[str], name: str) -> Any:
        """Return a column of the rows in files below a place (an Arrow array); None if the files do not have it."""

    def publish(
        self,
        location: str,
        target: Target,
        files: Sequence[StagedFile],
        transaction: tuple[str, int],
        metadata: Mapping[str, Any],
    ) -> None:
        """Add files that lie below the table, in one commit.

        Raises Conflict if any version of the transaction is already committed, whatever the snapshot. Raises Conflict
        also if another table lies there, or the table demands other things than those that were applied.
        """


class ForeignTables(Protocol):
    """The calls by which an engine reaches output tables."""

    name: str

    def output_log(self, location: str, application: str) -> OutputLog:
        """Return what a user's table says of a transaction.

        Raises OutputUnreadable if there is no table, or it cannot be seen or read. Callers never take this for "not
        committed".
        """

    def fence_output(self, location: str, application: str, version: int) -> None:
        """Commit a transaction and no rows to such a table.

        Raises Conflict if any version of that transaction is already committed, whatever the snapshot, and
        OutputUnreadable if nothing can be committed to the table.
        """

    def arrow_outputs(self) -> ArrowOutputs | None:
        """Return the writer of Arrow tables to output tables; None if the engine writes only DataFrames."""

    def output_publishing(self, location: str) -> OutputPublishing | None:
        """Return the publisher of files that Spark has written below a table; None if Spark has to commit them."""


@contextmanager
def unreadable(location: str) -> Iterator[None]:
    """Turn any error about an output table into OutputUnreadable; a Conflict stays a Conflict."""
    try:
        yield
    except (Conflict, OutputUnreadable, ForkedProcess):
        raise
    except Exception as error:
        raise OutputUnreadable(location, reason(error)) from error
