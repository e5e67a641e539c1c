"""Fixtures for the whole suite."""

import pytest


@pytest.fixture(scope="session")
def spark():
    """The suite's one Spark session, with settings for tiny tables."""
    from ledger.runtime.session import spark_session

    session = spark_session("tests", small=True)
    yield session
    session.stop()
