"""A ledger for consumers: in memory, and on Delta tables with an output table."""

from __future__ import annotations

import shutil

import pytest

from ledger import Ledger
from tests.clock import FrozenClock
from tests.output.conftest import Place


@pytest.fixture(autouse=True)
def soon_at_its_end(short_waits):
    """No test here waits long for a queue that stays empty."""


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path, FrozenClock())


@pytest.fixture(scope="session")
def empty_ledger(tmp_path_factory):
    """A folder with the ledger's empty tables, to be copied."""
    root = tmp_path_factory.mktemp("template") / "ledger"
    Ledger.open(str(root), clock=FrozenClock())
    return root


@pytest.fixture(params=["memory", "delta-rs"])
def ledger(request, tmp_path):
    clock = FrozenClock()
    if request.param == "memory":
        opened = Ledger.in_memory(clock)
    else:
        root = shutil.copytree(request.getfixturevalue("empty_ledger"), tmp_path / "ledger")
        opened = Ledger.open(str(root), clock=clock)
    # The same object as the ledger's clock: tests move it.
    opened.time = clock
    return opened
