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
from ledger.rules.storage import S3
from ledger.store.delta.model.tables import COMMITS, FORMAT, NEEDED, Table


class Layout(NamedTuple):
    """What a table in the storage says of itself: its description and its properties."""

    description: str | None
    properties: Mapping[str, str]


def layout_of_new(table: Table, scheme: str) -> Layout:
    """What a table that is made on a kind of storage says of itself."""
    if table.on_s3 is None or scheme not in S3:
        return Layout(table.description, table.properties)
    of_s3 = {FORMAT: str(table.on_s3), COMMITS: "delta-rs"}
    return Layout(f"{NEEDED} {table.on_s3}", {**table.properties, **of_s3})


def require_readable(table: Table, layout: Layout) -> None:
    """Raises LedgerTooNew when a release must know a later format than this one does."""
    said = layout.description or ""
    needed = said.removeprefix(f"{NEEDED} ")
    # What is no number is of a release that names formats in another way.
    if needed != said and not (needed.isdecimal() and int(needed) <= table.latest):
        raise LedgerTooNew(
            f"The table {table.name} has format {needed}; this version of the ledger knows formats up to "
            f"{table.latest}. Upgrade the package, or open the ledger with the version that wrote it"
        )


def is_older(table: Table, layout: Layout) -> bool:
    """Whether a table is of a format of before this release's."""
    known = layout.properties.get(FORMAT, "1")
    # What is no number is of a newer release.
    return known.isdecimal() and int(known) < table.format
