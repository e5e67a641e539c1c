"""DeltaTables with Spark as the engine. Most reads and commits are direct (see `log`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from ledger.delta_log.alterations import APPEND_ONLY, FORGETS, TableRefusal, describe_alterations, find_alteration_at
from ledger.delta_log.damage import damage_causing_failure
from ledger.delta_log.failures import advise_nothing, translate_storage_errors
from ledger.delta_log.history import parse_metadata, retry_while_gap
from ledger.delta_log.join import Joining
from ledger.delta_log.protocol import (
    Commit,
    Layout,
    NotDirect,
    PartitionFilter,
    Seen,
    Snapshot,
    TableSpec,
    nothing_late,
    require_generation,
    require_next,
    require_unset,
)
from ledger.delta_log.reading import NOTHING, filter_wanted_rows, plan_wanted_rows
from ledger.delta_log.replay import Files, LatestVersions
from ledger.delta_log.rewrite import require_expected
from ledger.delta_log.spark_commits import (
    commit_layout,
    commit_nothing,
    commit_rows,
    committing,
    read_committed_version,
)
from ledger.delta_log.spark_replay import direct_tables, files_at, statistics_of
from ledger.delta_log.spark_sessions import (
    EVERY_TRANSACTION,
    IDEMPOTENT_WRITES,
    SMALL_TRANSACTIONS,
    arrow_frame,
    create_table,
    jvm_of,
    temporary_view,
)
from ledger.delta_log.statements import SOURCE_VIEW, Paths, append_statement, checking_merge, no_purpose, path_of
from ledger.errors import LedgerDamaged, StorageFailed, TableAltered
from ledger.rules.location import recorded
from ledger.runtime.threads import require_own

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAILURES = (PySparkException, Py4JError)

#: With more edits than this, a MERGE runs faster in a session that compiles its code.
MOST_EDITS_OF_SMALL = 5_000
#: A history asks for this many commits more than are known: others may commit meanwhile.
MEANWHILE = 10


def _name_no_jobs(spark: SparkSession, metadata: Mapping[str, Any]) -> AbstractContextManager[None]:
    return nullcontext()


@translate_storage_errors(*FAILURES)
class SparkTables:
    """DeltaTables on Spark. Each thread has sessions of its own: commit metadata is a session's setting."""

    name = "spark"

    def __init__(
        self,
        specs: Mapping[str, TableSpec],
        spark: SparkSession,
        locations: Mapping[str, str],
        *,
        sync: bool = True,
        by_statement: bool = False,
        read_metadata: Callable[[str | None], dict[str, Any]] = parse_metadata,
        purpose_of: Callable[[Mapping[str, Any]], str] = no_purpose,
        name_jobs: Callable[[SparkSession, Mapping[str, Any]], AbstractContextManager[None]] = _name_no_jobs,
        advise: Callable[[StorageFailed], str] = advise_nothing,
    ) -> None:
        """`sync`: on a local path commits survive a power cut, and on HDFS direct commits do. `by_statement`: only
        statements of Spark commit rows. `name_jobs` returns a context in which the session's jobs have names."""
        self.advise = advise
        self.paths = Paths(self.name, purpose_of)
        self._read_metadata, self._name_jobs = read_metadata, name_jobs
        self._specs = {name: specs[name] for name in locations}
        self.session, self._spark, self.locations, self._sync = spark, spark, dict(locations), sync
        self._own = threading.local()
        self._files = {name: files_at(place, self._session, sync=sync) for name, place in self.locations.items()}
        self._direct = direct_tables(
            self._specs,
            self.locations,
            self._files,
            self._session,
            self._state,
            *FAILURES,
            by_statement=by_statement,
        )
        logs = {table: direct.writer.followed for table, direct in self._direct.items()}
        self._latest = LatestVersions(self._files, logs, self.version, at_once=False)

    def place(self, table: str) -> str:
        return self.locations[table]

    def damage(self, table: str) -> LedgerDamaged | None:
        place = self.locations[table]
        return damage_causing_failure(table, recorded(place).text, None) if recorded(place).is_local else None

    def alteration(self, table: str) -> TableRefusal | None:
        place = self.locations[table]
        return find_alteration_at(table, recorded(place).text) if recorded(place).is_local else None

    def refusal(self, table: str, *, appends: bool = False) -> TableRefusal | None:
        # Spark itself refuses a feature that it does not know, perhaps only at a commit.
        properties = self.layout(table).properties
        alterations = [APPEND_ONLY] if not appends and properties.get(APPEND_ONLY, "false").lower() == "true" else []
        alterations += [FORGETS] if FORGETS in properties else []
        return describe_alterations(table, self.locations[table], alterations) if alterations else None

    def _require_transactions_kept(self, table: str) -> None:
        if FORGETS in self._direct[table].writer.followed.altered():
            raise TableAltered(self.locations[table], *describe_alterations(table, self.locations[table], [FORGETS]))

    def create(self, table: str) -> None:
        if not self.exists(table):
            create_table(self._session(), f"delta.`{self.locations[table]}`", self._specs[table])
            self._make_newest_durable(table)

    def layout(self, table: str) -> Layout:
        table_metadata, java = self._state(table).metadata(), jvm_of(self._session()).scala.jdk.javaapi
        return Layout(
            table_metadata.description(), dict(java.CollectionConverters.asJava(table_metadata.configuration()))
        )

    def configure(self, table: str, properties: Mapping[str, str], metadata: Mapping[str, Any]) -> int:
        require_unset(table, properties, self.layout(table).properties)
        with self.committing(metadata) as session:
            begun = self.begin(session, self.locations[table])
            commit_layout(session, begun, properties)
            return int(self._state(table).version())

    def exists(self, table: str) -> bool:
        return int(self._state(table).version()) >= 0

    def version(self, table: str) -> int:
        followed = self._direct[table].writer.followed
        latest = followed.newest() if followed.seen() is not None else None
        version = int(self._state(table).version()) if latest is None else latest.version
        if version < 0:
            raise FileNotFoundError(f"there is no Delta table at {self.locations[table]}")
        return version

    def generation(self) -> int:
        return next(iter(self._direct.values())).writer.followed.generation()

    def newest_versions(self, tables: Sequence[str]) -> dict[str, int]:
        return self._latest.of(tables)

    def load(self, table: str, where: PartitionFilter) -> Snapshot:
        snapshot = self._direct[table].load(where)
        if snapshot is not None:
            return snapshot
        version = self.version(table)
        schema = self._specs[table].schema
        rows = self._rows(
            f"SELECT {', '.join(schema.names)} FROM {self._quote_table(table)} WHERE {where.shorten().sql()}"
        )
        return Snapshot(version, where, rows.cast(schema))

    def merge(
        self,
        snapshot: Snapshot,
        table: str,
        where: PartitionFilter,
        edits: pa.Table,
        metadata: Mapping[str, Any],
        late: Callable[[], Mapping[str, Any]] = nothing_late,
    ) -> int:
        require_expected(snapshot, self._specs[table], edits)
        return self.paths.commit(
            table,
            metadata,
            partial(self._direct[table].merge, snapshot, where, edits, metadata, late),
            lambda why: self._merge_by_statement(snapshot, table, where, edits, {**metadata, **late()}, why),
        )

    def _merge_by_statement(
        self,
        snapshot: Snapshot,
        table: str,
        where: PartitionFilter,
        edits: pa.Table,
        metadata: Mapping[str, Any],
        reason: str,
    ) -> int:
        self._require_transactions_kept(table)
        self._direct[table].require_same(snapshot)
        small = edits.num_rows <= MOST_EDITS_OF_SMALL
        with self.committing(metadata, small=small) as session, temporary_view(session, edits) as source:
            shown = self.statement(table, where, SOURCE_VIEW)
            self.paths.log_statement(table, metadata, reason, shown, edits.num_rows)
            session.sql(self.statement(table, where, source))
            return read_committed_version(session)

    def add_rows(
        self,
        table: str,
        rows: pa.Table,
        metadata: Mapping[str, Any],
        transactions: Sequence[tuple[str, int]] = (),
        still_valid: Callable[[Files], None] | None = None,
        beside: Sequence[tuple[str, int]] = (),
        seen: Seen | None = None,
    ) -> int:
        return self.paths.commit(
            table,
            metadata,
            partial(self._direct[table].append, rows, metadata, transactions, still_valid, beside, seen),
            partial(self._append_by_statement, table, rows, metadata, transactions, still_valid, beside),
        )

    def _append_by_statement(
        self,
        table: str,
        rows: pa.Table,
        metadata: Mapping[str, Any],
        transactions: Sequence[tuple[str, int]],
        still_valid: Callable[[Files], None] | None,
        beside: Sequence[tuple[str, int]],
        reason: str,
    ) -> int:
        if still_valid is not None:
            raise NotDirect(reason)
        self._require_transactions_kept(table)
        self.paths.log_statement(table, metadata, reason, self.statement(table, None, SOURCE_VIEW), rows.num_rows)
        for transaction in transactions:
            require_next(transaction, self.transaction_version(table, transaction[0]))
        with self.committing(metadata) as session:
            frame = arrow_frame(session, rows).coalesce(1)
            if len(transactions) + len(beside) > 1:
                begun = self.begin(session, self.locations[table])
                for transaction in transactions:
                    # Delta notes which ids were read. If another writer commits under these ids meanwhile, this commit
                    # fails.
                    committed = begun.txnVersion(transaction[0])
                    require_next(transaction, None if committed < 0 else int(committed))
                commit_rows(session, begun, frame, *transactions, *beside)
                return self._make_newest_durable(table)
            writer = frame.write.format("delta").mode("append")
            for application, version in (*transactions, *beside):
                writer = writer.option("txnAppId", application).option("txnVersion", version)
            writer.save(self.locations[table])
            return read_committed_version(session)

    def is_direct(self, table: str) -> bool:
        return self._direct[table].is_known()

    def why_not_direct(self, table: str) -> tuple[str, str] | None:
        return self._direct[table].why_not()

    def statement(self, table: str, where: PartitionFilter | None, source: str) -> str:
        spec, place = self._specs[table], self.locations[table]
        if where is None:
            return append_statement(spec, place, source)
        return checking_merge(spec, where).sql(place, source)

    def mark(self, table: str, metadata: Mapping[str, Any], *transactions: tuple[str, int]) -> int:
        self._require_transactions_kept(table)
        with self.committing(metadata) as session:
            begun = self.begin(session, self.locations[table])
            committed = begun.txnVersion(transactions[0][0])
            require_next(transactions[0], None if committed < 0 else int(committed))
            commit_nothing(session, begun, *transactions)
            return self._make_newest_durable(table)

    def file_facts(self, table: str, at_least: int | None = None) -> tuple[int, pa.Table]:
        latest = self._direct[table].writer.followed.at_least(at_least)
        if latest is not None and latest.statistics is not None:
            return latest.version, latest.statistics.table
        state = self._state(table)
        return int(state.version()), statistics_of(state, self._session(), self._specs[table]).table

    def rows(
        self,
        table: str,
        where: PartitionFilter,
        columns: Sequence[str],
        between: Mapping[str, tuple[int, int]] = NOTHING,
        above: Mapping[str, int] = NOTHING,
    ) -> pa.Table:
        near = self._direct[table].read_small_rows(where, above)
        if near is not None:
            return filter_wanted_rows(near, plan_wanted_rows(self._specs[table], where, columns, between, above))
        conditions = [where.sql()]
        for name, ends in between.items():
            lowest, highest = (self._format_bound(table, name, end) for end in ends)
            conditions.append(f"{name} BETWEEN {lowest} AND {highest}")
        conditions += [f"{name} > {self._format_bound(table, name, bound)}" for name, bound in above.items()]
        return self._rows(
            f"SELECT {', '.join(columns)} FROM {self._quote_table(table)} WHERE {' AND '.join(conditions)}"
        )

    def _format_bound(self, table: str, name: str, value: int) -> str:
        """`value` is in milliseconds for a column of instants."""
        is_instant = pa.types.is_timestamp(self._specs[table].schema.field(name).type)
        return f"timestamp_millis({value})" if is_instant else str(value)

    def delete(self, table: str, predicate: str, metadata: Mapping[str, Any], generation: int | None = None) -> None:
        if generation is not None:
            self.version(table)
            require_generation(table, generation, self.generation())
        with self.committing(metadata) as session:
            session.sql(f"DELETE FROM {self._quote_table(table)} WHERE {predicate}")
            self._make_newest_durable(table)

    def files_above(self, table: str, value: str, column: str, bound: int) -> dict[str, int] | None:
        return self._direct[table].files_above(value, column, bound)

    def greatest(self, table: str, column: str) -> int | None:
        rows = self._rows(f"SELECT max({column}) AS greatest FROM {self._quote_table(table)}")
        (greatest,) = rows["greatest"].to_pylist()
        return None if greatest is None else int(greatest)

    def history(self, table: str, since: int) -> list[Commit]:
        newest, limit = self.version(table), 0
        rows: list[Any] = []
        # Spark returns the newest commits. If others made too many since `newest` was read, ask for more.
        while newest - since > limit:
            limit = newest - since + MEANWHILE
            described = self._session().sql(f"DESCRIBE HISTORY {self._quote_table(table)} LIMIT {limit}")
            rows = described.select(
                "version", "timestamp", "userMetadata", "operation", "operationParameters"
            ).collect()
            newest = max(row.version for row in rows)
        commits = [
            Commit(
                row.version,
                round(row.timestamp.timestamp() * 1_000),
                self._read_metadata(row.userMetadata),
                path_of(row.asDict()),
            )
            for row in rows
            if row.version > since
        ]
        return sorted(commits, key=lambda commit: commit.version)

    def make_durable(self, table: str | None = None, version: int = -1) -> None:
        self._latest.make_durable(table, version)

    def _make_newest_durable(self, table: str) -> int:
        self.make_durable(table, version := self.version(table))
        return version

    def transaction_version(self, table: str, application: str) -> int | None:
        return self._direct[table].writer.transaction_version(application)

    def join_files(self, table: str, where: PartitionFilter, *, growing: bool = False) -> bool:
        joined = Joining(self._specs[table], self._direct[table]).join(where, growing=growing)
        if joined is None:
            with self.committing({}) as session:
                (done,) = session.sql(f"OPTIMIZE {self._quote_table(table)} WHERE {where.sql()}").collect()
                joined = done.metrics.numFilesRemoved > 0
                self._make_newest_durable(table)
        return joined

    def vacuum(self, table: str) -> None:
        session = self._session()
        # Before a file is removed, make the files that replace it durable.
        self._make_newest_durable(table)
        self._files[table].sync_checkpoints()
        session.sql(f"VACUUM {self._quote_table(table)}")
        # After a direct commit, Spark does not remove old entries of the log.
        state = self._state(table)
        state.deltaLog().doLogCleanup(state, jvm_of(session).scala.Option.empty())

    def begin(self, session: SparkSession, location: str) -> Any:
        self.state_at(location)
        none = jvm_of(session).scala.Option.empty()
        log = jvm_of(session).org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, location)
        return log.startTransaction(none, none)

    def make_durable_at(self, location: str) -> None:
        files_at(location, self._session, sync=self._sync).make_durable(int(self.state_at(location).version()))

    def _quote_table(self, table: str) -> str:
        return f"delta.`{self.locations[table]}`"

    def _session(self, *, small: bool = True) -> SparkSession:
        require_own("Spark's session")
        kind = "small" if small else "large"
        session: SparkSession | None = getattr(self._own, kind, None)
        if session is None:
            session = self._spark.newSession()
            for name, value in {**EVERY_TRANSACTION, **(SMALL_TRANSACTIONS if small else {})}.items():
                session.conf.set(name, value)
            # With these settings of an application, Delta would take each commit but the first for a repetition.
            for name in IDEMPOTENT_WRITES:
                session.conf.unset(name)
            setattr(self._own, kind, session)
        return session

    def _state(self, table: str) -> Any:
        """Return Delta's own snapshot of the table's newest version. Its method `version` runs no query."""
        return self.state_at(self.locations[table])

    def state_at(self, location: str) -> Any:
        """Return Delta's own snapshot of any table's newest version; version -1: there is no table."""
        session = self._session()
        jvm = jvm_of(session)
        jvm.SparkSession.setActiveSession(session._jsparkSession)
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, location)
        nothing = jvm.scala.Option.empty()
        return retry_while_gap(partial(log.update, False, nothing, nothing))

    def _rows(self, query: str) -> pa.Table:
        session = self._session()
        return retry_while_gap(lambda: session.sql(query).toArrow())

    def committing(self, metadata: Mapping[str, Any], *, small: bool = True) -> AbstractContextManager[SparkSession]:
        session = self._session(small=small)
        return committing(session, metadata, self._name_jobs(session, metadata))
