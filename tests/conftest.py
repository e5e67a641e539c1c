"""Fixtures for the whole suite."""

import contextlib
import logging
from fnmatch import fnmatchcase
from importlib.util import find_spec

import pytest

#: They run where Airflow is: tests/airflow/run.py.
collect_ignore = [] if find_spec("airflow") else ["airflow"]


def pytest_itemcollected(item):
    """Mark as `soak` the variants of a test whose ids match a pattern of its marker `soak_variants`."""
    for marker in item.iter_markers("soak_variants"):
        variant, kept = item.callspec.id, marker.kwargs.get("but", ())
        if any(fnmatchcase(variant, one) for one in marker.args) and not any(fnmatchcase(variant, k) for k in kept):
            item.add_marker(pytest.mark.soak)


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
    monkeypatch.setattr("ledger.client.move_tasks.MoveTasks.run", lambda self, handle, revision: None)


def logging_now():
    root, ledger = logging.getLogger(), logging.getLogger("ledger")
    return root.level, root.manager.disable, ledger.level, ledger.propagate, ledger.disabled


@pytest.fixture(autouse=True)
def logging_as_it_was():
    """No test, and no library that it runs, leaves the loggers changed: a later test would find its log empty."""
    before = logging_now()
    yield
    assert logging_now() == before, "the test changed the root logger, or the ledger's, for all later tests"
