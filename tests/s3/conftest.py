"""The S3 server that the tests here share, a Spark session that knows it, and an empty place on it for each."""

from itertools import count

import pytest

from tests.s3.server import s3_server

NUMBERS = count()


@pytest.fixture(scope="session")
def s3():
    with s3_server() as server:
        yield server


@pytest.fixture
def place(s3):
    return s3.root(f"ledger-{next(NUMBERS)}")


@pytest.fixture(scope="session")
def s3_spark(spark, s3):
    """The suite's session, with the keys to the server; RuntimeSetupError says why it cannot have S3's jars."""
    from ledger.runtime.jars import find_or_fetch_jars, s3_packages

    find_or_fetch_jars(s3_packages())
    for name, value in s3.spark_settings.items():
        spark.conf.set(name.removeprefix("spark.hadoop."), value)
    return spark
