"""A ledger to make a scenario on, and the exploring of what clients do to copies of it."""

import threading
import types

import pytest

from ledger import Ledger
from ledger.store.delta.commit import transactions
from ledger.store.delta.state import choosing
from tests.clock import FrozenClock
from tests.interleavings.scheduler import explore


@pytest.fixture
def clock():
    return FrozenClock()


@pytest.fixture
def ledger(tmp_path, clock):
    return Ledger.open(str(tmp_path / "ledger"), engine="delta-rs", clock=clock)


@pytest.fixture(autouse=True)
def nothing_is_random(monkeypatch):
    """Of lanes that serve alike, every other client takes the last; nobody pauses before it tries again."""

    def shuffle(lanes):
        lanes.sort(reverse=threading.current_thread().name.endswith(("1", "3")))

    monkeypatch.setattr(choosing, "random", types.SimpleNamespace(shuffle=shuffle))
    monkeypatch.setattr(transactions, "pause", lambda losses, first, longest: None)


@pytest.fixture
def every_interleaving(tmp_path, clock, ledger):
    """Runs clients in every order on copies of `ledger`, checks each outcome, and answers how many orders there are."""

    def run(clients, check):
        return explore(tmp_path / "ledger", clock, clients, check)

    return run
