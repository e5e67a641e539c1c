"""A pytest plugin: a test that would start Spark is skipped, because mutants are judged in their thousands."""

import pytest


def pytest_fixture_setup(fixturedef):
    if fixturedef.argname == "spark":
        pytest.skip("mutants are judged without Spark")
