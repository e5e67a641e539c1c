"""A ledger with one queue, and the command line on it."""

import functools
import shutil

import pytest

from ledger import Ledger
from tests.cli.running import run


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "ledger-data")


@pytest.fixture(scope="session")
def empty_ledger(tmp_path_factory):
    """A folder with the ledger's empty tables, to be copied."""
    root = tmp_path_factory.mktemp("template") / "ledger"
    Ledger.open(str(root))
    return root


@pytest.fixture
def ledger(empty_ledger, root):
    shutil.copytree(empty_ledger, root)
    return Ledger.open(root)


@pytest.fixture
def queue(ledger):
    return ledger.create_queue("work", {"VisibilityTimeout": 600})


@pytest.fixture
def cli(root, queue):
    """Runs `ledger` on the ledger with the queue `work`."""
    return functools.partial(run, root=root)
