"""Formats: the layout of each table, and whether this release may use it.

A table's format number is in its property FORMAT, and the format that a release must know to use the table in its
description. Release 0.1.0 writes format 1 of every table. A release that changes the columns, partitions or properties
of a table must raise the first number. (A test compares these.) If earlier releases would misread the new layout, it
must also raise the second.
"""

from __future__ import annotations

from ledger.delta_log.spec import Layout
from ledger.errors import LedgerTooNew
from ledger.store.delta.model.tables import NEEDED, Table


def require_readable(table: Table, layout: Layout) -> None:
    """Raise LedgerTooNew if a table's description asks for a format that this release does not know."""
    described = layout.description or ""
    needed = described.removeprefix(f"{NEEDED} ")
    # A later release may use other names than numbers.
    if needed != described and not (needed.isdecimal() and int(needed) <= table.format):
        raise LedgerTooNew(
            f"The table {table.name} has format {needed}; this version of the ledger knows formats up to "
            f"{table.format}. Upgrade the package, or open the ledger with the version that wrote it"
        )
