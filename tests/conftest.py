"""Fixtures for the whole suite."""

import contextlib
import logging
from fnmatch import fnmatchcase
from importlib.util import find_spec

import pytest

#: They run where Airflow is: tests/airflow/run.py.
collect_ignore = [] if find_spec("airflow") else ["airflow"]


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector, name):
    """Mark as `soak` the variants of a test whose ids match a pattern of its marker `soak_variants`.

    All variants of a test are collected here, even if the command line asks for one of them. Thus a pattern that no
    variant matches is a mistake, and so is a marker that leaves the usual run no variant.
    """
    made = yield
    variants = [item for item in made if isinstance(item, pytest.Function)] if isinstance(made, list) else []
    for marker in variants[0].iter_markers("soak_variants") if variants else ():
        kept = marker.kwargs.get("but", ())
        slow = [item for item in variants if matches(item, marker.args)]
        idle = [pattern for pattern in marker.args if not any(matches(item, (pattern,)) for item in slow)]
        idle += [pattern for pattern in kept if not any(matches(item, (pattern,)) for item in slow)]
        if idle:
            raise collector.CollectError(f"{name}: soak_variants names {idle}, and no variant matches: correct the ids")
        for item in slow:
            if not matches(item, kept):
                item.add_marker(pytest.mark.soak)
        if all(item.get_closest_marker("soak") for item in variants):
            raise collector.CollectError(f"{name}: soak_variants leaves the usual run no variant: use the marker soak")
    return made


def matches(item, patterns):
    """Return whether the id of a test's variant matches one of the patterns."""
    return any(fnmatchcase(item.callspec.id, pattern) for pattern in patterns)


@pytest.fixture(scope="session")
def spark():
    """The suite's one Spark session, with settings for tiny tables."""
    from ledger.runtime.cache import RuntimeSetupError
    from ledger.runtime.jars import find_or_fetch_jars, s3_packages
    from ledger.runtime.session import spark_session

    # Once it runs there is no adding to its class path. What is tested on S3 asks again, and fails then.
    with contextlib.suppress(RuntimeSetupError):
        find_or_fetch_jars(s3_packages())
    session = spark_session("tests", small=True)
    yield session
    session.stop()


@pytest.fixture
def short_pauses(monkeypatch):
    """A damaged entry or a gap of a log is read again three times at once, and not for a second: nobody mends it."""
    from ledger.delta_log import damage, history

    for module in (damage, history):
        monkeypatch.setattr(module, "PAUSES", (0.001,) * 3)


@pytest.fixture
def short_waits(monkeypatch):
    """A worker and a consumer in this process find out soon that their queue is empty: nobody sends meanwhile."""
    from ledger.work import consumer, worker

    monkeypatch.setattr(worker, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(consumer, "WAIT_SECONDS", 0.05)


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
