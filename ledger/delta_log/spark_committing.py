"""How commits through Spark are made, and how its errors say that another writer was first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from delta import exceptions as delta_exceptions

from ledger.delta_log.log_gaps import is_gap
from ledger.delta_log.merge_statement import CHANGED_MEANWHILE
from ledger.delta_log.protocol import Conflict
from ledger.delta_log.spark_tables import jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Siblings, not a hierarchy: each has to be named.
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
    """A context in which what the session commits says this of itself; `jobs` names its jobs. Raises Conflict for a
    lost race."""
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
    """Commits a transaction that says nothing but which versions of which applications it is."""
    jvm = jvm_of(session)
    delta, none = jvm.org.apache.spark.sql.delta, jvm.scala.Option.empty()
    marks = [delta.actions.SetTransaction(application, version, none) for application, version in transactions]
    _commit(session, begun, marks)


def commit_layout(session: SparkSession, begun: Any, properties: Mapping[str, str]) -> None:
    """Commit a transaction that gives its table further properties."""
    known = begun.metadata()
    configuration = known.configuration()
    for name, value in properties.items():
        configuration = configuration.updated(name, value)
    columns = (known.schemaString(), known.partitionColumns(), configuration, known.createdTime())
    begun.updateMetadata(known.copy(known.id(), known.name(), known.description(), known.format(), *columns), False)
    _commit(session, begun, [])


def _commit(session: SparkSession, begun: Any, actions: list[Any]) -> None:
    jvm = jvm_of(session)
    operation = getattr(getattr(jvm.org.apache.spark.sql.delta, "DeltaOperations$ManualUpdate$"), "MODULE$")
    begun.commit(jvm.scala.jdk.javaapi.CollectionConverters.asScala(actions).toSeq(), operation)


def committed_version(session: SparkSession) -> int:
    """The version that was committed since `committing` began. Raises Conflict when there is none: a write under a
    transaction that another writer has committed meanwhile is left out by Delta, and no error says so."""
    version = session.conf.get(LAST_VERSION)
    if version is None:
        raise Conflict("nothing was committed: the transaction was committed before")
    return int(version)
