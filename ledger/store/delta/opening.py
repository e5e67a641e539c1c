"""Opening of a store: its tables, its engine, and the storage's safety."""

from __future__ import annotations

import errno
import getpass
import logging
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ledger.backup_folder import require_no_backup
from ledger.clock import Clock, Passing, passing_of, system_clock
from ledger.delta_log.damage import mend
from ledger.delta_log.protocol import reason
from ledger.delta_log.spark_sessions import (
    FIX,
    create_table,
    has_jvm,
    is_in_memory_only,
    require_engines,
    require_executors_here,
    require_jvm,
    require_s3a,
    storage_options_of,
    warn_if_forgotten,
)
from ledger.errors import InvalidParameterValue, LedgerDamaged, LedgerDoesNotExist, SparkIsNeeded, StorageFailed
from ledger.place import locate_here
from ledger.rules.location import (
    DEFAULT_OPTIONS,
    DELTA_RS_COMMITS,
    OBJECT_STORES,
    S3,
    SAFE_FOR_SPARK,
    SCHEMA_PREFIX,
    Location,
    convert_options,
    explain_unknown_scheme,
    find_hadoop_option,
    is_name,
    name_for_delta_rs,
    name_for_spark,
    of_spark,
    recorded,
    with_defaults,
)
from ledger.runtime.threads import map_at_once, renew_in_child
from ledger.settings import ENGINES, STATEMENT, Settings
from ledger.store.delta.commit.clocks import SteadyClock, StorageClock, make_object_probe, make_probe
from ledger.store.delta.commit.locks import LOCKS, NoLock, TableLock, releasing
from ledger.store.delta.commit.readiness import Readiness
from ledger.store.delta.commit.storage_safety import PutTrust, require_committer, require_conditional_puts, require_safe
from ledger.store.delta.commit.transactions import Transactions
from ledger.store.delta.engine import Engine
from ledger.store.delta.model.tables import TABLES, require_readable
from ledger.store.delta.permissions import LOOK_ONLY, advise_denied, require_reachable, require_writable
from ledger.store.delta.verbs.store import DeltaStore
from ledger.store.delta.verbs.tidying import Ages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ledger.delta_log.object_store import ObjectStore
    from ledger.output_tables.protocol import ForeignTables
    from ledger.output_tables.tables_of_spark import SparkOutputTables
    from ledger.store.delta.dataframes.frames import Frames

Answer = TypeVar("Answer")
#: Errors of a write that this user, or nobody, may make.
REFUSED_WRITES = (errno.EACCES, errno.EPERM, errno.EROFS)
log = logging.getLogger("ledger.opening")


@dataclass(frozen=True)
class OpenLedger:
    store: DeltaStore
    engine: Engine
    locations: Mapping[str, str]
    transactions: Transactions
    frames: Frames | None
    spark: SparkSession | None
    #: None: nothing checks the clock, as in a simulation.
    clock: SteadyClock | None = None
    ages: Ages | None = None


@releasing
def open_tables(
    root: str,
    spark: SparkSession | None,
    engine: str,
    settings: Settings,
    owner: str | None,
    storage_options: Mapping[str, object],
    clock: Clock = system_clock,
    storage_clock: Clock | None = None,
    create: bool = True,
    sender_id: str | None = None,
    read_only: bool = False,
    passing: Passing | None = None,
) -> OpenLedger:
    """Open the tables under `root`. With `create`, make missing ones. With `read_only`, write nothing: no lock, no
    probe."""
    if engine not in ENGINES:
        raise InvalidParameterValue("engine", engine, f"Must be one of {', '.join(ENGINES)}")
    require_engines(spark)
    user_options = convert_options(storage_options)
    by_name = _locations(root, spark, create and not read_only)
    locations = {name: name_for_delta_rs(location) for name, location in by_name.items()}
    of_spark = {name: name_for_spark(location) for name, location in locations.items()}
    place = recorded(locations["visibility"])
    scheme, folder = place.scheme, Path(place.text)
    if place.is_local:
        require_reachable(folder.parent)
        require_no_backup(folder.parent)
    require_safe(scheme, engine)
    if engine == "spark" and spark is None:
        raise SparkIsNeeded("engine='spark' needs a session: Ledger.open(root, spark=spark, engine='spark')")
    if spark is not None and place.is_local and not settings.single_driver:
        require_executors_here(root, spark)
    if spark is not None and scheme in S3 and has_jvm(spark):
        require_s3a(spark)
        user_options = user_options or storage_options_of(spark, place.text.split("/")[2])
    options = _complete_options(user_options)
    chosen = _choose_engine(root, engine, scheme, locations, spark, options, settings)
    by_delta_rs = chosen.name == "delta-rs"
    files = _files(place, user_options, options) if by_delta_rs else None
    _require_known(root, scheme, chosen)
    at_once = files is not None
    missing = [name for name, exists in zip(TABLES, _call_for_each(chosen.exists, TABLES, at_once)) if not exists]
    if missing and (read_only or not create):
        contents = _describe_contents(missing, folder.parent if place.is_local else None, files)
        raise LedgerDoesNotExist(root, contents, missing if len(missing) < len(TABLES) else ())
    # The clock of a local path may be the machine's own, which confirms nothing.
    confirming_clock = storage_clock
    if storage_clock is None and clock is system_clock and not read_only:
        if place.is_local:
            storage_clock = make_probe(folder.parent / LOCKS)
        elif files is not None:
            storage_clock = confirming_clock = make_object_probe(files)
    steady = SteadyClock(clock, passing or passing_of(clock), settings.maximum_clock_skew)
    clocks = StorageClock(steady, storage_clock, settings.maximum_clock_skew)
    locks: dict[str, Any] = dict.fromkeys(TABLES, NoLock())
    if place.is_local and not read_only and not missing:
        require_writable(folder.parent)
    if place.is_local and not read_only:
        locks = _make_locks(root, folder.parent / LOCKS, there=not missing)

    def check_clock() -> None:
        try:
            clocks.check()
        except StorageFailed as error:
            is_denied = isinstance(error.__cause__, OSError) and error.__cause__.errno in REFUSED_WRITES
            raise error.advised(LOOK_ONLY) if is_denied and not missing else error from None

    check = partial(_check, root, chosen, at_once)
    whole = locations if place.is_local and not read_only and not missing else {}
    existing = [name for name in TABLES if name not in missing]
    if not at_once:
        check_clock()
        mend(whole, folder.parent)
    try:
        if at_once:
            # `check_clock` takes three requests in a row.
            _run_at_once(check_clock, partial(check, existing))
        else:
            check(existing)
    except LedgerDamaged:
        if not mend(whole, folder.parent, deep=True):
            raise
        check(existing)
    trust = None if files is None else PutTrust(files)
    if missing and files is not None and trust is not None:
        require_conditional_puts(files, "No table was made. ")
        trust.trust()
    for name in missing:
        # Lock only missing tables: a process that is suspended in a verb must not block the opening.
        with locks[name].exclusive():
            _create(chosen, name)
    check(missing)
    if place.is_local and settings.sync and not read_only:
        # If a power cut damaged one of these versions, the ledger might not open.
        for name in TABLES:
            chosen.make_durable(name, chosen.version(name))
    # Spark's commits to a local path are unsafe while another process commits to the table.
    alone = chosen.name == "spark" and place.is_local

    def before_turn() -> None:
        clocks.check()
        if trust is not None:
            trust.check()

    transactions = Transactions(
        chosen, locks, alone, settings, owner or default_owner(), before_turn=before_turn, read_only=read_only
    )
    if owner is None:
        renew_in_child(transactions, _renew_owner)
    log.info("%s opened through %s%s", root, chosen.name, ", read-only" if read_only else "")
    by_spark = _make_spark_outputs(chosen, spark, of_spark, settings.sync)
    readiness = Readiness(
        chosen, folder.parent if place.is_local else None, steady, storage_clock, settings.maximum_clock_skew
    )
    used = options if by_delta_rs else None
    outputs = by_spark if by_spark is not None and not by_delta_rs else _outputs(scheme, spark, options, settings.sync)
    store = DeltaStore(chosen, transactions, settings, outputs, by_spark, sender_id, used, readiness)
    ages = Ages(chosen, transactions, steady, settings, confirming_clock)
    steady.explained_by = ages.explain
    return OpenLedger(store, chosen, of_spark, transactions, _frames(spark, store, of_spark), spark, steady, ages)


def default_owner() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}:{os.getpid()}"


def _renew_owner(transactions: Transactions) -> None:
    transactions.owner = default_owner()


def _call_for_each(call: Callable[[str], Answer], tables: Iterable[str], at_once: bool) -> list[Answer]:
    """Return a call's answer for each table. On an object store, make the slow calls `at_once`."""
    names = list(tables)
    return map_at_once(call, names, len(names)) if at_once and names else [call(name) for name in names]


def _run_at_once(*calls: Callable[[], None]) -> None:
    map_at_once(lambda call: call(), calls, len(calls))


def _check(root: str, engine: Engine, at_once: bool, tables: Sequence[str]) -> None:
    layouts = dict(zip(tables, _call_for_each(engine.layout, tables, at_once)))
    for name, layout in layouts.items():
        require_readable(TABLES[name], layout)
        if name == "queues":
            require_committer(root, layout, engine.name)


def _create(engine: Engine, table: str) -> None:
    try:
        engine.create(table)
    except StorageFailed:
        if not engine.exists(table):
            raise


def _describe_contents(missing: Sequence[str], folder: Path | None, files: ObjectStore | None) -> str:
    """Describe a root that lacks tables. A root that only Spark can list counts as empty."""
    if len(missing) < len(TABLES):
        return f"it has tables of a ledger, but not {', '.join(missing)}"
    if files is not None:
        return "there are other things" if next(files.paths(), None) else "there is nothing"
    if folder is None or not folder.exists():
        return "there is nothing"
    if not folder.is_dir():
        return "it is a file, and no folder"
    return "the folder holds other things" if any(folder.iterdir()) else "the folder is empty"


def _complete_options(user_options: Mapping[str, str]) -> dict[str, str]:
    hadoop = find_hadoop_option(user_options)
    if hadoop:
        raise InvalidParameterValue("storage_options", hadoop[0], "Is an option of Hadoop, not of delta-rs", hadoop[1])
    return with_defaults(user_options, DEFAULT_OPTIONS)


def _files(place: Location, user_options: Mapping[str, str], options: Mapping[str, str]) -> ObjectStore | None:
    """Return the files below the root on an object store, or None elsewhere.

    Raises StorageFailed within seconds if the store cannot be reached (`rules.location.FIRST_REQUEST`).
    """
    if place.scheme not in OBJECT_STORES:
        return None
    from ledger.delta_log.object_store import open_checked, unknown_options

    root = place.text.rpartition("/")[0]
    unknown_names = unknown_options(place.text, user_options) if place.scheme in S3 else []
    if unknown_names:
        log.warning(
            "Neither delta-rs nor the ledger knows the storage_options %s (mistyped?). %s is opened without them",
            ", ".join(unknown_names),
            root,
        )
    return open_checked(root, options, user_options)


def _require_known(root: str, scheme: str, engine: Engine) -> None:
    if scheme in (*DELTA_RS_COMMITS, *SAFE_FOR_SPARK):
        return
    try:
        engine.exists("queues")
    except StorageFailed as error:
        bound, fix = explain_unknown_scheme(scheme)
        raise InvalidParameterValue(
            "root", root, f"{bound}, and Spark says: {reason(error.__cause__ or error)}", fix
        ) from error


def _locations(root: str, spark: SparkSession | None, create: bool) -> dict[str, str]:
    if root.startswith(SCHEMA_PREFIX):
        if spark is None:
            raise SparkIsNeeded(
                f"The schema {root[len(SCHEMA_PREFIX) :]!r} is Spark's: open the ledger with spark=spark"
            )

        if not is_name(root[len(SCHEMA_PREFIX) :]):
            raise InvalidParameterValue(
                "root", root, "Must be schema:NAME, with a valid name of a schema", "Quote it: `a-b`."
            )
        return find_schema_locations(spark, root[len(SCHEMA_PREFIX) :], create)
    # The engines disagree on %20 in a URI, so a local root stays a path.
    place = locate_here("root", root)
    return {name: place.below(name).text for name in TABLES}


def _make_locks(root: str, folder: Path, there: bool) -> dict[str, Any]:
    try:
        return {name: TableLock(folder, name) for name in TABLES}
    except OSError as error:
        fix = LOOK_ONLY if there else "Name a folder that you may write."
        bound = f"No folder can be made there: {error.strerror}"
        raise InvalidParameterValue("root", root, bound, fix) from error


def _choose_engine(
    root: str,
    engine: str,
    scheme: str,
    locations: Mapping[str, str],
    spark: SparkSession | None,
    storage_options: Mapping[str, str],
    settings: Settings,
) -> Engine:
    by_statement = settings.merge == STATEMENT
    if spark is None or engine == "delta-rs" or (engine == "auto" and scheme in DELTA_RS_COMMITS):
        if scheme not in DELTA_RS_COMMITS:
            if scheme not in SAFE_FOR_SPARK:
                raise InvalidParameterValue("root", root, *explain_unknown_scheme(scheme))
            raise SparkIsNeeded(f"Only Spark commits to {scheme}: open the ledger with spark=spark and engine='spark'")
        from ledger.store.delta.by_delta_rs import DeltaRsEngine

        return DeltaRsEngine(
            locations, storage_options, sync=settings.sync, by_statement=by_statement, advise=advise_denied
        )
    from ledger.store.delta.by_spark import SparkEngine

    require_jvm(spark)
    return SparkEngine(spark, locations, sync=settings.sync, by_statement=by_statement, advise=advise_denied)


def _options_for_bucket_of(spark: SparkSession | None) -> Callable[[str], Mapping[str, str]] | None:
    if spark is None or not has_jvm(spark):
        return None
    return partial(storage_options_of, spark)


def _outputs(scheme: str, spark: SparkSession | None, options: Mapping[str, str], sync: bool) -> ForeignTables:
    """Return access to output tables through delta-rs. A ledger on S3 uses its options for all buckets."""
    from ledger.output_tables.tables_of_delta_rs import DeltaRsOutputTables

    return DeltaRsOutputTables(options, None if scheme in S3 else _options_for_bucket_of(spark), sync=sync)


def _make_spark_outputs(
    chosen: Engine, spark: SparkSession | None, locations: Mapping[str, str], sync: bool
) -> SparkOutputTables | None:
    if spark is None or not has_jvm(spark):
        return None
    from ledger.output_tables.tables_of_spark import SparkOutputTables
    from ledger.store.delta.by_spark import SparkEngine

    return SparkOutputTables(chosen if isinstance(chosen, SparkEngine) else SparkEngine(spark, locations, sync=sync))


def _frames(spark: SparkSession | None, store: DeltaStore, locations: Mapping[str, str]) -> Frames | None:
    if spark is None:
        return None
    from ledger.store.delta.dataframes.frames import Frames

    return Frames(spark, store, locations)


def find_schema_locations(spark: SparkSession, schema: str, create: bool = True) -> dict[str, str]:
    """Return the locations of a ledger's tables in a catalog schema. With `create`, make the schema and missing tables.

    Without it, raises LedgerDoesNotExist if the schema or a table does not exist.
    """
    if not create:
        _require_schema(spark, schema)
    else:
        if not spark.catalog.databaseExists(schema):
            warn_if_forgotten(spark, schema, "the names of a new ledger")
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    locations, scheme = {}, spark.catalog.getDatabase(schema).locationUri.partition(":")[0]
    for table in TABLES:
        if create:
            create_table(spark, f"{schema}.{table}", TABLES[table], scheme)
        (detail,) = spark.sql(f"DESCRIBE DETAIL {schema}.{table}").select("location").collect()
        locations[table] = of_spark(detail.location).text
    return locations


def _require_schema(spark: SparkSession, schema: str) -> None:
    if not spark.catalog.databaseExists(schema):
        forgotten = f", and is in this session's memory alone: {FIX}" if is_in_memory_only(spark, schema) else ""
        raise LedgerDoesNotExist(f"schema:{schema}", f"the catalog has no such schema{forgotten}")
    missing = [table for table in TABLES if not spark.catalog.tableExists(f"{schema}.{table}")]
    if missing:
        raise LedgerDoesNotExist(f"schema:{schema}", f"the schema has no {', '.join(missing)}")
