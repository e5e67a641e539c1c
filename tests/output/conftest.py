"""A queue on delta-rs with a clock that stands still, and a place for its output."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ledger import Ledger
from tests.clock import FrozenClock
from tests.output.silent_tables import SILENT


class Place:
    """A ledger, its queue `work`, and the table that its output goes to."""

    def __init__(self, folder, clock, **opening):
        self.root, self.table, self.clock, self._opening = (
            str(folder / "ledger"),
            str(folder / "output"),
            clock,
            opening,
        )
        if isinstance(clock, FrozenClock) and not Path(self.root).exists():
            shutil.copytree(made_once(folder.parent / "place"), self.root)
        self.ledger = self.another()
        self.queue = self.ledger.create_queue("work", {"VisibilityTimeout": 30})

    def another(self, **opening):
        """The same ledger, as another process would open it."""
        return Ledger.open(self.root, clock=self.clock, **{"engine": "delta-rs", **self._opening, **opening})

    @property
    def log(self):
        """The folder of the output table's log."""
        return Path(self.table) / "_delta_log"

    def written(self):
        """How often each message is in the output, and under how many receipts."""
        if not DeltaTable.is_deltatable(self.table):
            return Counter()
        return Counter(DeltaTable(self.table).to_pyarrow_table()["message_id"].to_pylist())


def made_once(root):
    """A ledger with the queue `work`, made by the first test of a process: a copy takes a third of the time."""
    if not root.exists():
        Ledger.open(str(root), engine="delta-rs", clock=FrozenClock()).create_queue("work", {"VisibilityTimeout": 30})
    return root


def rows_of(claim):
    """A row per message, as a job would compute it."""
    return pa.table({"message_id": [m.message_id for m in claim], "receipt_id": [claim.receipt_id] * len(claim)})


@pytest.fixture(autouse=True)
def soon_at_its_end(short_waits):
    """No test here waits long for a queue that stays empty."""


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path, FrozenClock())


@pytest.fixture
def at_step(place, monkeypatch):
    """Runs something once, when a verb of `place.ledger` comes to a step for the n-th time (from 1)."""

    def register(step, call, times=1):
        seen = Counter()

        def on_step(name):
            seen[name] += 1
            if name == step and seen[name] == times:
                call()

        monkeypatch.setattr(place.ledger.store.transactions, "on_step", on_step)

    return register


@pytest.fixture(params=SILENT, ids=lambda param: param[0].__name__)
def silent(request, short_pauses):
    """What breaks a table, and how far a write had come."""
    return request.param
