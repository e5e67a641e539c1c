"""The seam between writes of a claim's output and the engines that reach output tables.

An output table belongs to the user. The ledger identifies the table by its place. The methods raise what the engine and
the storage raise, and the errors that their docstrings name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from ledger.delta_log.alterations import why_forgetful
from ledger.delta_log.protocol import Conflict, StagedFile, reason
from ledger.errors import ForkedProcess, OutputUnreadable
from ledger.rules.output_columns import Columns
from ledger.rules.publishable import Demands
from ledger.store.protocol import ArrowOutputs


class OutputLog(NamedTuple):
    """An output table: its id, its version, and the committed version of the given transaction id, or None.

    A table that was made anew has another id.
    """

    table_id: str
    version: int
    committed: int | None


class Target(NamedTuple):
    """The id of an output table, and its demands, as of one version."""

    table_id: str
    demands: Demands


def require_same(before: Target, now: Target) -> None:
    """Raise Conflict if another table has taken the place of the table, or the table's demands have changed."""
    if now.table_id != before.table_id:
        raise Conflict("another table lies there by now")
    if not now.demands.same(before.demands):
        raise Conflict("the table's columns, constraints or properties were changed while rows were written for it")


class OutputPublishing(Protocol):
    """The commits of files with rows that Spark has written. The methods identify output tables by their place.

    Raises what the engine and the storage raise.
    """

    @property
    def storage_options(self) -> Mapping[str, str] | None:
        """The settings by which the engine reaches the storage."""

    def look(self, location: str) -> Target | None:
        """Return a table as of its newest version; None if there is none."""

    def make(self, location: str, demands: Demands, now: int) -> None:
        """Make an empty table. If several callers make it at once, only one call has an effect."""

    def evolve(self, location: str, target: Target, columns: Columns) -> None:
        """Give a table the columns that rows ask for: new columns, and wider types.

        The `columns` were found when the table was the `target`. Raises Conflict if others changed the table meanwhile,
        OutputUnreadable if the table is gone, and OutputNotWritten for a change that this engine cannot make.
        """

    def why_not_widened(self, location: str) -> str | None:
        """Return why `evolve` gives a table's columns no wider types, in words that can follow "because of".

        Return None if `evolve` gives wider types, and if there is no table.
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
        also if another table has taken the place of the `target`, or the table's demands have changed. Raises
        StorageFailed if a file is gone, and OutputUnreadable if the table is gone.
        """


class ForeignTables(Protocol):
    """The calls by which an engine reaches output tables."""

    name: str

    def output_log(self, location: str, application: str) -> OutputLog:
        """Return a user's table, and the version of a transaction id (`application`) that is committed to it.

        Raises OutputUnreadable if there is no table, or the engine cannot see or read it. Callers never take this error
        for "not committed".
        """

    def fence_output(self, location: str, application: str, version: int) -> None:
        """Commit a transaction and no rows to a user's table.

        Raises Conflict if any version of that transaction is already committed, whatever the snapshot. Raises
        OutputUnreadable if the engine cannot commit to the table.
        """

    def arrow_outputs(self) -> ArrowOutputs | None:
        """Return the writer of Arrow tables to output tables; None if the engine writes only DataFrames."""

    def output_publishing(self, location: str) -> OutputPublishing | None:
        """Return the publisher of files that Spark has written below a table; None if Spark has to commit them."""


def require_remembered(location: str, properties: Mapping[str, str]) -> None:
    """Raise OutputUnreadable for a table that forgets transactions: that it has none proves nothing."""
    if forgetful := why_forgetful(properties):
        raise OutputUnreadable(location, forgetful)


@contextmanager
def unreadable(location: str) -> Iterator[None]:
    """Turn any error about an output table into OutputUnreadable, except Conflict and ForkedProcess."""
    try:
        yield
    except (Conflict, OutputUnreadable, ForkedProcess):
        raise
    except Exception as error:
        raise OutputUnreadable(location, reason(error)) from error
