"""The seam between writes of a claim's output and the engines that reach output tables.

The methods identify a user's table by its place (`location`). In a forked process they may raise ForkedProcess.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from ledger.delta_log.alterations import explain_forgetting
from ledger.delta_log.protocol import Conflict, StagedFile, reason
from ledger.errors import ForkedProcess, OutputUnreadable
from ledger.rules.output_columns import Columns
from ledger.rules.publishable import Demands
from ledger.store.protocol import ArrowOutputs


class OutputLog(NamedTuple):
    """An output table: its id, its version, and the committed version of a transaction id, or None.

    A new table in an old one's place has another id.
    """

    table_id: str
    version: int
    committed: int | None


class Target(NamedTuple):
    table_id: str
    demands: Demands


def require_same(before: Target, now: Target) -> None:
    """Raise Conflict if since `before` another table took the table's place, or its demands changed."""
    if now.table_id != before.table_id:
        raise Conflict("another table lies there by now")
    if not now.demands.is_equivalent(before.demands):
        raise Conflict("the table's columns, constraints or properties were changed while rows were written for it")


class OutputPublishing(Protocol):
    """The publishing of files that lie below an output table. The methods also raise what engine and storage raise."""

    @property
    def storage_options(self) -> Mapping[str, str] | None:
        """The settings by which the engine reaches the storage."""

    def look(self, location: str) -> Target | None:
        """Return the id and the demands of a table, as of its newest version; None: there is no table."""

    def make(self, location: str, demands: Demands, now: int) -> None:
        """Make an empty table. If several callers do so at once, only one call has an effect."""

    def evolve(self, location: str, target: Target, columns: Columns) -> None:
        """Give the table that was found as `target` new columns and wider types.

        Raises OutputUnreadable if the table is gone, and OutputNotWritten for a change that this engine cannot make.
        Raises Conflict if others changed the table before a change of types, or too often for new columns alone.
        """

    def why_not_widened(self, location: str) -> str | None:
        """Return why `evolve` gives a table no wider types, in words that can follow "because of".

        None: `evolve` can, or there is no table.
        """

    def stage(self, location: str, demands: Demands, now: int) -> None:
        """Make a table for the files of one write, where nobody else writes."""

    def column(self, location: str, paths: Sequence[str], name: str) -> Any:
        """Return a column (an Arrow array) of files below a place; None if the files do not have it."""

    def publish(
        self,
        location: str,
        target: Target,
        files: Sequence[StagedFile],
        transaction: tuple[str, int],
        metadata: Mapping[str, Any],
    ) -> None:
        """Add files that lie below the table, in one commit, with a `transaction` (its id and its version).

        Raises Conflict if any version of this transaction id is committed, even by a commit that comes meanwhile.
        Raises Conflict also if `target` no longer describes the table, or if others were first too often. Raises
        StorageFailed if a file is gone, and OutputUnreadable if the table is gone.
        """


class ForeignTables(Protocol):
    """An engine's access to output tables."""

    name: str

    def read_output_log(self, location: str, application: str) -> OutputLog:
        """Return a table's OutputLog, with the committed version of the transaction id `application`.

        Raises OutputUnreadable if the engine cannot see or read a table. Raises it also if the table forgets
        transactions and has no version of this id. Callers never take this error for "not committed".
        """

    def fence_output(self, location: str, application: str, version: int) -> None:
        """Commit a version of the transaction id `application`, without rows.

        Raises Conflict if any version of this id is committed, even by a commit that comes meanwhile. Raises
        OutputUnreadable if the engine cannot commit to the table.
        """

    def arrow_outputs(self) -> ArrowOutputs | None:
        """Return the writer of Arrow tables; None if the engine writes only DataFrames."""

    def output_publishing(self, location: str) -> OutputPublishing | None:
        """Return the publisher of files below a table; None if Spark has to write and commit rows itself."""


def require_remembered(location: str, properties: Mapping[str, str]) -> None:
    """Raise OutputUnreadable for a table that forgets transactions: a missing transaction proves nothing there."""
    if forgetful := explain_forgetting(properties):
        look = (
            "Look for the rows of these messages in it first: once the property is unset, forgotten rows count as not "
            "written"
        )
        raise OutputUnreadable(location, f"{forgetful}. {look}")


@contextmanager
def unreadable(location: str) -> Iterator[None]:
    """Turn any error about an output table into OutputUnreadable, except Conflict and ForkedProcess."""
    try:
        yield
    except (Conflict, OutputUnreadable, ForkedProcess):
        raise
    except Exception as error:
        raise OutputUnreadable(location, reason(error)) from error
