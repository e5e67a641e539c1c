"""From a root to a store: where the tables lie, which engine commits, and whether the storage is safe for that."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ledger.clock import Clock, system_clock
from ledger.errors import InvalidParameterValue, LedgerDoesNotExist, SparkIsNeeded, StorageFailed
from ledger.place import here
from ledger.rules.location import FILE, SCHEMA_PREFIX, is_name, recorded
from ledger.rules.storage import S3, SAFE_FOR_BOTH, SAFE_FOR_SPARK, unknown
from ledger.settings import ENGINES, Settings
from ledger.store.delta.commit.file_locks import NoLock, TableLock
from ledger.store.delta.commit.migrating import migrate
from ledger.store.delta.commit.storage_clock import StorageClock, probe
from ledger.store.delta.commit.storage_safety import require_safe
from ledger.store.delta.commit.transactions import Transactions
from ledger.store.delta.engines.protocol import Engine, reason
from ledger.store.delta.model.formats import is_older, require_readable
from ledger.store.delta.model.tables import TABLES
from ledger.store.delta.verbs.store import DeltaStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ledger.store.delta.dataframes.frames import Frames
    from ledger.store.delta.engines.spark import SparkEngine


@dataclass(frozen=True)
class Opened:
    """An open ledger: its store, and with Spark what moves DataFrames."""

    store: DeltaStore
    engine: Engine
    locations: Mapping[str, str]
    transactions: Transactions
    frames: Frames | None
    spark: SparkSession | None


def open_tables(
    root: str,
    spark: SparkSession | None,
    engine: str,
    settings: Settings,
    owner: str | None,
    storage_options: Mapping[str, str],
    clock: Clock = system_clock,
    storage_clock: Clock | None = None,
    create: bool = True,
    sender_id: str | None = None,
) -> Opened:
    """Opens the tables under `root`; makes them, if it may. See StorageClock for the clocks."""
    if engine not in ENGINES:
        raise InvalidParameterValue("engine", engine, f"Must be one of {', '.join(ENGINES)}")
    if engine == "spark" and spark is None:
        raise SparkIsNeeded("engine='spark' needs a session: Ledger.open(root, spark=spark, engine='spark')")
    locations = _locations(root, spark, create)
    place = recorded(locations["visibility"])
    scheme, folder = place.scheme, Path(place.text)
    # delta-rs knows nothing of the log store that the session is configured with.
    require_safe(scheme, None if engine == "delta-rs" else spark, settings)
    chosen = _engine(root, engine, scheme, locations, spark, storage_options)
    _require_known(root, scheme, chosen)
    if not create:
        _require_tables(root, chosen, folder.parent if place.is_local else None)
    if storage_clock is None and clock is system_clock and place.is_local:
        storage_clock = probe(folder.parent / "_locks")
    clocks = StorageClock(clock, storage_clock, settings.maximum_clock_skew)
    locks: dict[str, Any] = dict.fromkeys(TABLES, NoLock())
    if place.is_local:
        locks = _locks(root, folder.parent / "_locks")
    clocks.check()
    older = [name for name in TABLES if _make(chosen, name, locks[name])]
    # Spark's commits to a local path are only safe while no other process commits at all.
    alone = chosen.name == "spark" and place.is_local
    transactions = Transactions(chosen, locks, alone, settings, owner or default_owner(), before_turn=clocks.check)
    migrate(chosen, transactions, older, clock)
    store = DeltaStore(chosen, transactions, settings, _by_spark(chosen, spark, locations), sender_id)
    return Opened(store, chosen, locations, transactions, _frames(spark, store, locations), spark)


def default_owner() -> str:
    """Who acts: user, machine and process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}:{os.getpid()}"


def _require_tables(root: str, engine: Engine, folder: Path | None) -> None:
    """Raises LedgerDoesNotExist unless all tables of a ledger are there; makes nothing, no lock either."""
    missing = [name for name in TABLES if not engine.exists(name)]
    if not missing:
        return
    if len(missing) < len(TABLES):
        raise LedgerDoesNotExist(root, f"it has tables of a ledger, but not {', '.join(missing)}")
    if folder is None or not folder.exists():
        raise LedgerDoesNotExist(root, "there is nothing")
    if not folder.is_dir():
        raise LedgerDoesNotExist(root, "it is a file, and no folder")
    raise LedgerDoesNotExist(root, "the folder holds other things" if any(folder.iterdir()) else "the folder is empty")


def _make(engine: Engine, table: str, lock: Any) -> bool:
    """Makes a table if there is none; returns whether it is of an older format. Raises LedgerTooNew."""
    # What is there needs no lock: else one process that stands still in a verb held up all newcomers, and whoever
    # waits to have a table alone holds up everybody else.
    if not engine.exists(table):
        with lock.exclusive():
            engine.create(table)
    layout = engine.layout(table)
    require_readable(TABLES[table], layout)
    return is_older(TABLES[table], layout)


def _require_known(root: str, scheme: str, engine: Engine) -> None:
    """Raises InvalidParameterValue for a scheme that not even Spark has a file system for: it is mistyped."""
    if scheme in (FILE, *SAFE_FOR_BOTH, *SAFE_FOR_SPARK, *S3):
        return
    try:
        engine.exists("queues")
    except StorageFailed as error:
        bound, fix = unknown(scheme)
        raise InvalidParameterValue(
            "root", root, f"{bound}, and Spark says: {reason(error.__cause__ or error)}", fix
        ) from error


def _locations(root: str, spark: SparkSession | None, create: bool) -> dict[str, str]:
    if root.startswith(SCHEMA_PREFIX):
        if spark is None:
            raise SparkIsNeeded(
                f"The schema {root[len(SCHEMA_PREFIX) :]!r} is Spark's: open the ledger with spark=spark"
            )
        from ledger.store.delta.schemas import schema_locations

        if not is_name(root[len(SCHEMA_PREFIX) :]):
            raise InvalidParameterValue(
                "root", root, "Must be schema:NAME, a name of Spark's catalog", "Quote it: `a-b`."
            )
        return schema_locations(spark, root[len(SCHEMA_PREFIX) :], create)
    # A path where it is local: the engines do not agree on what %20 in a URI stands for.
    place = here("root", root)
    return {name: place.below(name).text for name in TABLES}


def _locks(root: str, folder: Path) -> dict[str, Any]:
    try:
        return {name: TableLock(folder, name) for name in TABLES}
    except OSError as error:
        raise InvalidParameterValue(
            "root", root, f"No folder can be made there: {error.strerror}", "Name a folder that you may write."
        ) from error


def _engine(
    root: str,
    engine: str,
    scheme: str,
    locations: Mapping[str, str],
    spark: SparkSession | None,
    storage_options: Mapping[str, str],
) -> Engine:
    if spark is None or engine == "delta-rs" or (engine == "auto" and scheme in (FILE, *SAFE_FOR_BOTH)):
        if scheme not in (FILE, *SAFE_FOR_BOTH, *S3):
            if scheme not in SAFE_FOR_SPARK:
                raise InvalidParameterValue("root", root, *unknown(scheme))
            raise SparkIsNeeded(f"Only Spark commits to {scheme}: open the ledger with spark=spark and engine='spark'")
        from ledger.store.delta.engines.delta_rs import DeltaRsEngine

        return DeltaRsEngine(locations, storage_options)
    from ledger.store.delta.engines.spark import SparkEngine

    return SparkEngine(spark, locations)


def _by_spark(chosen: Engine, spark: SparkSession | None, locations: Mapping[str, str]) -> SparkEngine | None:
    if spark is None:
        return None
    from ledger.store.delta.engines.spark import SparkEngine

    return chosen if isinstance(chosen, SparkEngine) else SparkEngine(spark, locations)


def _frames(spark: SparkSession | None, store: DeltaStore, locations: Mapping[str, str]) -> Frames | None:
    if spark is None:
        return None
    from ledger.store.delta.dataframes.frames import Frames

    return Frames(spark, store, locations)
