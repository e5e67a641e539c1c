"""A ledger for consumers: in memory, and on Delta tables with an output table."""

from __future__ import annotations

import pytest

from ledger import Ledger
from tests.clock import FrozenClock
from tests.output.conftest import Place


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path, FrozenClock())


@pytest.fixture(params=["memory", "delta-rs"])
def ledger(request, tmp_path):
    clock = FrozenClock()
    opened = (
        Ledger.in_memory(clock) if request.param == "memory" else Ledger.open(str(tmp_path / "ledger"), clock=clock)
    )
    # The same object as the ledger's clock: tests move it.
    opened.time = clock
    return opened
