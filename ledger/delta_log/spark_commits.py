"""Commits of Delta through Spark: their metadata, their transaction ids, and a lost race as Conflict."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from delta import exceptions as delta_exceptions

from ledger.delta_log.history import is_gap
from ledger.delta_log.protocol import CommittedBefore, Conflict
from ledger.delta_log.spark_sessions import jvm_of
from ledger.delta_log.statements import CHANGED_MEANWHILE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONFLICTS = (
    delta_exceptions.ConcurrentAppendException,
    delta_exceptions.ConcurrentDeleteReadException,
    delta_exceptions.ConcurrentDeleteDeleteException,
    delta_exceptions.ConcurrentWriteException,
    delta_exceptions.ConcurrentTransactionException,
    delta_exceptions.DeltaConcurrentModificationException,
    delta_exceptions.MetadataChangedException,
    delta_exceptions.ProtocolChangedException,
)

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
LAST_VERSION = "spark.databricks.delta.lastCommitVersionInSession"


@contextmanager
def committing(
    session: SparkSession, metadata: Mapping[str, Any], jobs: AbstractContextManager[None]
) -> Iterator[SparkSession]:
    """Return a context in which the session's commits carry this metadata. `jobs` names the session's jobs.

    Raises Conflict for a lost race, for a MERGE that found the table changed (CHANGED_MEANWHILE), and for a gap in
    Spark's list of the log (see `history`).
    """
    session.conf.set(USER_METADATA, json.dumps(metadata))
    session.conf.unset(LAST_VERSION)
    try:
        with jobs:
            yield session
    except CONFLICTS as conflict:
        raise Conflict(str(conflict)) from conflict
    except Exception as error:
        if CHANGED_MEANWHILE in str(error):
            raise Conflict(CHANGED_MEANWHILE) from error
        if is_gap(error):
            raise Conflict(str(error)) from error
        raise
    finally:
        session.conf.unset(USER_METADATA)


def commit_nothing(session: SparkSession, begun: Any, *transactions: tuple[str, int]) -> None:
    _commit(session, begun, _marks(session, transactions))


def commit_rows(session: SparkSession, begun: Any, frame: DataFrame, *transactions: tuple[str, int]) -> None:
    """Append rows under several transaction ids: a DataFrame's own writer takes only one."""
    converters = jvm_of(session).scala.jdk.javaapi.CollectionConverters
    files = list(converters.asJava(begun.writeFiles(frame._jdf)))
    _commit(session, begun, [*_marks(session, transactions), *files])


def _marks(session: SparkSession, transactions: Iterable[tuple[str, int]]) -> list[Any]:
    jvm = jvm_of(session)
    delta, none = jvm.org.apache.spark.sql.delta, jvm.scala.Option.empty()
    return [delta.actions.SetTransaction(application, version, none) for application, version in transactions]


def commit_layout(session: SparkSession, begun: Any, properties: Mapping[str, str]) -> None:
    current = begun.metadata()
    configuration = current.configuration()
    for name, value in properties.items():
        configuration = configuration.updated(name, value)
    columns = (current.schemaString(), current.partitionColumns(), configuration, current.createdTime())
    begun.updateMetadata(
        current.copy(current.id(), current.name(), current.description(), current.format(), *columns), False
    )
    _commit(session, begun, [])


def _commit(session: SparkSession, begun: Any, actions: list[Any]) -> None:
    jvm = jvm_of(session)
    operation = getattr(getattr(jvm.org.apache.spark.sql.delta, "DeltaOperations$ManualUpdate$"), "MODULE$")
    begun.commit(jvm.scala.jdk.javaapi.CollectionConverters.asScala(actions).toSeq(), operation)


def read_committed_version(session: SparkSession) -> int:
    """Return the version that was committed since `committing` began.

    Raises CommittedBefore if there is none: Delta silently skips a write whose transaction id was committed before.
    """
    version = session.conf.get(LAST_VERSION)
    if version is None:
        raise CommittedBefore("nothing was committed: an earlier commit has this transaction id")
    return int(version)
