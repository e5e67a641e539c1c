"""A pytest plugin for judging mutants, which come in their thousands: without Spark, and alike each time.

A test that would start Spark is skipped, and one of delta-rs where it runs in a fork: both would fail whatever a mutant
does, and it would pass for killed. Properties are tried on the same examples each time, however slow the machine: a
mutant is killed by what it does.
"""

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("mutants", deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
settings.load_profile("mutants")

#: What delta-rs panics with in a process that was forked from one which it had threads in.
FORKED = "Forked process detected"


def pytest_fixture_setup(fixturedef):
    if fixturedef.argname == "spark":
        # Skipped from within: pytest has to see how it ended, or stumbles over it in the next test.
        fixturedef.func = _without_spark


def _without_spark():
    pytest.skip("mutants are judged without Spark")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    return (yield from _skipping_what_cannot_be_forked())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    return (yield from _skipping_what_cannot_be_forked())


def _skipping_what_cannot_be_forked():
    try:
        return (yield)
    # A panic is no Exception.
    except BaseException as error:
        if FORKED not in str(error):
            raise
        pytest.skip("delta-rs does not run in a fork")
