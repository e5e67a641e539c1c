"""What Spark has staged for bulk sends: published in one commit, or given up, and then removed; see rules.staging."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ledger.clock import Clock
from ledger.delta_log.protocol import Conflict
from ledger.errors import StorageFailed
from ledger.rules import staging
from ledger.store.delta.commit.folders import Folders, folders_below
from ledger.store.delta.commit.retrying import Attempts
from ledger.store.delta.commit.transactions import Transactions
from ledger.store.delta.verbs.store import DeltaStore

if TYPE_CHECKING:
    from ledger.delta_log.protocol import StagedFile
    from ledger.store.delta.engine import Publishing, Tables

log = logging.getLogger("ledger.upkeep")


def staged_folders(store: DeltaStore) -> Folders | None:
    """The folders of a ledger's bulk sends; None where this process cannot list them."""
    return folders_below(f"{store.engine.place('messages')}/{staging.FOLDER}", store.spark, store.storage_options)


def end_of(tables: Tables, folder: str) -> int | None:
    """Whether a folder was PUBLISHED, or given up (FENCED), see rules.staging; None when neither has happened yet."""
    return tables.transaction_version("messages", staging.application(folder))


class Publisher:
    """Publishes what one try of a send has staged."""

    def __init__(
        self,
        transactions: Transactions,
        engine: Publishing,
        folder: str,
        files: Sequence[StagedFile],
        admit: Callable[[], tuple[str, int] | None] | None = None,
    ) -> None:
        """`admit`: asks before each try whether the queue has room, and says under which further transaction."""
        self._transactions, self._engine, self._folder, self._files = transactions, engine, folder, files
        self._admit = admit or (lambda: None)
        #: Whether a commit was begun that nobody knows the end of.
        self.undecided = False

    def publish(
        self, metadata: dict[str, Any], transaction: tuple[str, int] | None, turn: Any, attempts: Attempts
    ) -> bool:
        """One commit, tried again while it may land; False when another send under the transaction was first, or
        upkeep has given the folder up. `turn(losses)`: a context in which a commit is safe.

        Raises StorageFailed, ContentionOutlastedRetries.
        """
        own = staging.application(self._folder), staging.PUBLISHED
        for losses in attempts:
            with turn(losses):
                since, counted = self._engine.version("messages"), self._admit()
                self._transactions.step("chosen")
                write = partial(self._engine.publish, "messages", self._files, metadata, transaction, own, counted)
                self.undecided = True
                version = self._transactions.commit("messages", metadata, since, write, attempts)
                self.undecided = False
                if version is not None:
                    self._transactions.step("committed")
                    return True
                ended = end_of(self._engine, self._folder)
                if ended is not None or not (transaction is None or self._may_be_next(*transaction)):
                    return ended == staging.PUBLISHED
        raise attempts.outlasted()

    def _may_be_next(self, application: str, version: int) -> bool:
        return self._engine.transaction_version("messages", application) in (None, version - 1)


def remove_abandoned(store: DeltaStore, clock: Clock) -> int:
    """Removes what was staged and never published, once nobody can publish it any more, and what is left of folders
    that were published, when nothing in them is needed; returns how many folders that were. Others are not touched."""
    folders, removed = staged_folders(store), 0
    if folders is None:
        log.info("what bulk sends left behind can be listed by a process with Spark only")
        return 0
    for folder in folders.names():
        if not staging.is_abandoned(folder, clock()):
            continue
        try:
            # Given up in any case, if it is not published, before a vacuum could meet its files.
            removed += _is_over(store, folder, clock()) and _remove(store, folders, folder)
        except StorageFailed as error:
            # A task of Spark's that nobody stopped may still write there.
            log.warning("%s; it is left to the next upkeep", error)
    if removed:
        log.info("removed %d folders of bulk sends", removed)
    return removed


def settle(folders: Folders, folder: str) -> None:
    """Removes from a folder that was published what nobody needs: the log of a table of its own."""
    with contextlib.suppress(StorageFailed):
        folders.remove(f"{folder}/_delta_log")


def _is_over(store: DeltaStore, folder: str, now: int) -> bool:
    """Whether a folder was published, or is given up, which is committed now; False when its sender was first."""
    if end_of(store.engine, folder) is None:
        metadata = store.transactions.metadata("", "upkeep", "", now, [])
        try:
            with store.transactions.turn("messages"):
                store.engine.mark("messages", metadata, (staging.application(folder), staging.FENCED))
        except Conflict:
            return False
    return True


def _remove(store: DeltaStore, folders: Folders, folder: str) -> bool:
    """Removes what a folder that is over needs no more; returns whether that was all."""
    if end_of(store.engine, folder) != staging.FENCED:
        settle(folders, folder)
        if folders.has_files(folder):
            return False
    folders.remove(folder)
    return True
