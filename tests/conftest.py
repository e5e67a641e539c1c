"""Fixtures for the whole suite."""

import contextlib
import logging
from importlib.util import find_spec

import pytest

#: They run where Airflow is: tests/airflow/run.py.
collect_ignore = [] if find_spec("airflow") else ["airflow"]


@pytest.fixture(scope="session")
def spark():
    """The suite's one Spark session, with settings for tiny tables."""
    from ledger.runtime.cache import RuntimeSetupError
    from ledger.runtime.jars import jars_of, s3_packages
    from ledger.runtime.session import spark_session

    # Once it runs there is no adding to its class path. What is tested on S3 asks again, and fails then.
    with contextlib.suppress(RuntimeSetupError):
        jars_of(s3_packages())
    session = spark_session("tests", small=True)
    yield session
    session.stop()


@pytest.fixture
def by_hand(monkeypatch):
    """No thread runs a message move task: the test takes its steps."""
    monkeypatch.setattr("ledger.move_tasks.MoveTasks.run", lambda self, handle, revision: None)


@pytest.fixture(autouse=True)
def logs_of_the_ledger():
    """Each test finds the ledger's logger as it is by default, whatever one before it left."""
    logging.getLogger("ledger").setLevel(logging.NOTSET)
    logging.getLogger("ledger").propagate = True
