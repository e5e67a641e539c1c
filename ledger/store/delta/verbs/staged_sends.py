"""Staged files of bulk sends: how they are published, given up and removed (see `rules.staging`)."""

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
from ledger.store.delta.commit.transactions import Attempts, Transactions
from ledger.store.delta.verbs.store import DeltaStore

if TYPE_CHECKING:
    from ledger.delta_log.protocol import StagedFile
    from ledger.store.delta.engine import Publishing, Tables

log = logging.getLogger("ledger.upkeep")


def open_staged_folders(store: DeltaStore) -> Folders | None:
    """Return the folders of a ledger's bulk sends (None: this process cannot list them)."""
    return folders_below(f"{store.engine.place('messages')}/{staging.FOLDER}", store.spark, store.storage_options)


def find_end(tables: Tables, folder: str) -> int | None:
    """Return how a folder ended: PUBLISHED, or FENCED (given up). None: it has not ended."""
    return tables.transaction_version("messages", staging.application(folder))


class Publisher:
    def __init__(
        self,
        transactions: Transactions,
        engine: Publishing,
        folder: str,
        files: Sequence[StagedFile],
        admit: Callable[[], tuple[str, int] | None] | None = None,
    ) -> None:
        """`admit` checks before each commit that the queue has room, and may return a further transaction."""
        self._transactions, self._engine, self._folder, self._files = transactions, engine, folder, files
        self._admit = admit or (lambda: None)
        #: Whether the outcome of a commit is not known.
        self.undecided = False

    def publish(
        self, metadata: dict[str, Any], transaction: tuple[str, int] | None, turn: Any, attempts: Attempts
    ) -> bool:
        """Publish in one commit. `turn(losses)` is a context in which a commit is safe.

        Returns False if another send under the transaction was first, or if upkeep has given the folder up. Raises
        StorageFailed, ContentionOutlastedRetries, and what `admit` raises.
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
                ended = find_end(self._engine, self._folder)
                if ended is not None or not (transaction is None or self._may_be_next(*transaction)):
                    self._engine.make_durable()
                    return ended == staging.PUBLISHED
        raise attempts.give_up()

    def _may_be_next(self, application: str, version: int) -> bool:
        return self._engine.transaction_version("messages", application) in (None, version - 1)


def remove_abandoned(store: DeltaStore, clock: Clock) -> int:
    """Remove folders of bulk sends that began long ago and are over, and return how many.

    A folder of unpublished files is first given up, so that nobody can publish the files any more. A published folder
    is removed when a vacuum has removed all files in it. A process that cannot list the folders removes none.
    """
    folders, removed = open_staged_folders(store), 0
    if folders is None:
        log.info("the folders of bulk sends stay: only a process with Spark can list them")
        return 0
    for folder in folders.names():
        if not staging.is_abandoned(folder, clock()):
            continue
        try:
            removed += _is_over(store, folder, clock()) and _remove(store, folders, folder)
        except StorageFailed as error:
            # A Spark task may still write to the folder.
            log.warning("%s; the folder is left to the next upkeep", error)
    if removed:
        log.info("removed %d folders of bulk sends", removed)
    return removed


def remove_folder_log(folders: Folders, folder: str) -> None:
    with contextlib.suppress(StorageFailed):
        folders.remove(f"{folder}/_delta_log")


def _is_over(store: DeltaStore, folder: str, now: int) -> bool:
    """Give a folder up if it has not ended. Return False if another commit was first."""
    if find_end(store.engine, folder) is None:
        metadata = store.transactions.metadata("", "upkeep", "", now, [])
        try:
            with store.transactions.turn("messages"):
                store.engine.mark("messages", metadata, (staging.application(folder), staging.FENCED))
        except Conflict:
            return False
    return True


def _remove(store: DeltaStore, folders: Folders, folder: str) -> bool:
    """Remove a folder that was given up, or a published one without files. Return whether it is removed."""
    if find_end(store.engine, folder) != staging.FENCED:
        remove_folder_log(folders, folder)
        if folders.has_files(folder):
            return False
    folders.remove(folder)
    return True
