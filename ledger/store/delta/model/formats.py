"""Formats: the layout of each table, and whether this release may use it.

Each table has a format number, in its property FORMAT. The table's description has the format that a release must know
to use the table. Release 0.1.0 writes format 1 of every table. A release that changes the columns, partitions or
properties of a table must raise the number in the property. (A test compares these.) If earlier releases would fail on
the new layout or misread it, that release must also raise the number in the description.
"""

from __future__ import annotations

from ledger.delta_log.spec import Layout
from ledger.errors import LedgerTooNew
from ledger.store.delta.model.tables import NEEDED, Table


def require_readable(table: Table, layout: Layout) -> None:
    """Raise LedgerTooNew if the description of a table asks for a format that this release does not know."""
    described = layout.description or ""
    needed = described.removeprefix(f"{NEEDED} ")
    # A later release may give formats names that are not numbers.
    if needed != described and not (needed.isdecimal() and int(needed) <= table.format):
        raise LedgerTooNew(
            f"The table {table.name} has format {needed}; this version of the ledger knows formats up to "
            f"{table.format}. Upgrade the package, or open the ledger with the version that wrote it"
        )
