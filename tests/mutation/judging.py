"""A pytest plugin for judging mutants, which come in their thousands: without Spark, and alike each time.

A test that would start Spark is skipped. Properties are tried on the same examples each time, however slow the machine:
a mutant is killed by what it does.
"""

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("mutants", deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
settings.load_profile("mutants")


def pytest_fixture_setup(fixturedef):
    if fixturedef.argname == "spark":
        pytest.skip("mutants are judged without Spark")
