"""The proof of jobs/flights.py: every flight was done once, or is left with its reason.

The proof compares the file, which pandas reads, with the tables, which delta-rs reads: rows, and totals by carrier. The
code that did the work takes no part in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jobs.flights_demo.data import KEY, totals

if TYPE_CHECKING:
    import pandas as pd

    from ledger.results import Counts

EMPTY = ["message_id", "reason", "claim_version", "receipt_handle"]


class Check(NamedTuple):
    """A statement, and whether it holds."""

    holds: bool
    statement: str


def read_delta(path: Path) -> pd.DataFrame:
    """Return the rows of a Delta table by delta-rs, or no rows if there is no table."""
    import pandas as pd
    from deltalake import DeltaTable
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    if not DeltaTable.is_deltatable(str(path)):
        return pd.DataFrame(columns=EMPTY)
    # With the file system of delta-rs, a process that ends soon after the read may abort.
    return DeltaTable(str(path)).to_pandas(filesystem=SubTreeFileSystem(str(path), LocalFileSystem()))


def prove(flights: pd.DataFrame, done: pd.DataFrame, left: pd.DataFrame, counts: Counts) -> list[Check]:
    """Return checks that compare the file, the processed rows, the flights that are left, and the queue."""
    arrived = flights[flights["arr_delay"].notna()]
    same = arrived.merge(done, on=[*KEY, "origin", "dest", "arr_delay"], how="inner")
    both = set(done["message_id"]) & set(left["message_id"])
    n, rows, messages = len(flights), len(done), done["message_id"].nunique()
    return [
        Check(
            rows == messages == len(done.drop_duplicates(KEY)),
            f"{rows:,} rows in the output are {messages:,} different messages: none was processed twice",
        ),
        Check(
            not both and rows + len(left) == n and left["message_id"].is_unique,
            f"{rows:,} processed and {len(left):,} left make {n:,} flights: none was lost, none is in both",
        ),
        Check(
            len(same) == rows == len(arrived),
            f"the processed ones are the file's {len(arrived):,} flights that arrived",
        ),
        Check(bool(left["reason"].notna().all()), f"all {len(left):,} that are left say why"),
        Check(
            (counts.deleted, counts.stored, counts.in_flight) == (rows, len(left), 0),
            f"the queue agrees: {counts.deleted:,} deleted, {counts.stored:,} stored, {counts.in_flight:,} in flight",
        ),
        Check(
            totals(flights).equals(totals(done)),
            "the delays' totals by carrier equal those that pandas gets from the file",
        ),
    ]
