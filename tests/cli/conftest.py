"""A ledger with one queue, and the command line on it."""

import functools

import pytest

from ledger import Ledger
from tests.cli.running import run


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "ledger-data")


@pytest.fixture
def ledger(root):
    return Ledger.open(root)


@pytest.fixture
def queue(ledger):
    return ledger.create_queue("work", {"VisibilityTimeout": 600})


@pytest.fixture
def cli(root, queue):
    """Runs `ledger` on the ledger with the queue `work`."""
    return functools.partial(run, root=root)
