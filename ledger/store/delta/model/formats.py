"""Formats: which layout a table has, and whether this release may work with it.

Each table has a number, raised with every change of its columns, partitions or properties; a test holds it to them.
It stands in a property of the table, FORMAT; tables of before there was one have format 1. A release brings an older
table to its own format when it opens the ledger (`commit/migrating.py`). A newer one it may use as it is, unless the
table's description says that a release must know a later format than this one does. So releases can be mixed on one
ledger as long as a change allows it, and a change that does not keeps out those that would do harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ledger.errors import LedgerTooNew
from ledger.store.delta.model.tables import FORMAT, NEEDED, Table


class Layout(NamedTuple):
    """What a table in the storage says of itself: its description and its properties."""

    description: str | None
    properties: Mapping[str, str]


def require_readable(table: Table, layout: Layout) -> None:
    """Raises LedgerTooNew when a release must know a later format than this one does."""
    words = (layout.description or "").rsplit(" ", 1)
    if words[0] == NEEDED and words[-1].isdigit() and int(words[-1]) > table.format:
        raise LedgerTooNew(
            f"The table {table.name} has format {words[-1]}; this version of the ledger knows formats up to "
            f"{table.format}. Upgrade the package, or open the ledger with the version that wrote it"
        )


def is_older(table: Table, layout: Layout) -> bool:
    """Whether a table is of a format of before this release's."""
    return int(layout.properties.get(FORMAT, "1")) < table.format
