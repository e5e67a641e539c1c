"""Commits of upkeep that are no decisions of a verb: it is the one that tries again, and gives way in the end."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ledger.store.delta.engine import Conflict
from ledger.store.delta.transaction import Transactions, pause

log = logging.getLogger("ledger.upkeep")
ATTEMPTS = 10


def retried(transactions: Transactions, table: str, commit: Callable[[], None]) -> bool:
    """Tries a commit to a table until no other writer is first; False: it is left to the next round."""
    for losses in range(ATTEMPTS):
        try:
            with transactions.turn(table):
                commit()
                return True
        except Conflict:
            pause(losses + 4)
    log.warning("upkeep of %s lost to other writers %d times and leaves it to the next round", table, ATTEMPTS)
    return False
