"""How commits through delta-rs are made, and how its errors say that another writer was first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import DeltaError

from ledger.delta_log.log_gaps import is_gap
from ledger.delta_log.protocol import Conflict

#: How delta-rs's errors of a lost race begin: the conflicts, too many of them, and a version that is taken.
LOST_RACES = ("Failed to commit transaction: ", "Tried committing existing table version")
#: Commits that touch other partitions are rebased by delta-rs this often before it gives up.
REBASES = 100


@contextmanager
def conflicts() -> Iterator[None]:
    """Turns delta-rs's errors of a lost race into Conflict: other writers were first, or commit so fast that the log
    could not be listed, before this commit or after it. What else keeps a commit from being written (a full disk) comes
    in the same classes."""
    try:
        yield
    except DeltaError as lost:
        if str(lost).startswith(LOST_RACES) or is_gap(lost):
            raise Conflict(str(lost)) from lost
        raise


def committing(metadata: Mapping[str, Any], *transactions: tuple[str, int] | None) -> dict[str, Any]:
    """How commits to the ledger's own tables are made.

    Old entries of the log are removed by upkeep: a commit that looks for them lists the whole log, which takes longer
    than all the rest once the log has thousands.
    """
    return {
        "commit_properties": properties(metadata, *transactions),
        "post_commithook_properties": PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False),
    }


def commit_nothing(loaded: DeltaTable, said: CommitProperties) -> None:
    """Commits to any table what a commit says of itself, and no rows."""
    with conflicts():
        loaded.create_write_transaction(
            [],
            mode="append",
            schema=loaded.schema(),
            partition_by=loaded.metadata().partition_columns,
            commit_properties=said,
        )


def properties(
    metadata: Mapping[str, Any], *transactions: tuple[str, int] | None, rebases: int = REBASES
) -> CommitProperties:
    """What a commit to any table says of itself, and the transactions that it carries."""
    carried = [Transaction(*one) for one in transactions if one is not None]
    return CommitProperties(
        custom_metadata={"userMetadata": json.dumps(metadata)},
        max_commit_retries=rebases,
        app_transactions=carried or None,
    )
