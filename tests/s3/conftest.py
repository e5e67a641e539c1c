"""The S3 server that the tests here share, and an empty place on it for each."""

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
