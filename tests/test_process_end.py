"""A process that ends right after a verb ends well.

Found with jobs/create_queue.py, which on a busy machine died of SIGABRT in up to half of its runs, its work done.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ledger import Ledger
from tests.clock import FrozenClock


@pytest.mark.parametrize("form", ["{}", "file://{}", "file:{}"])
def test_on_local_paths_no_python_runs_in_arrows_threads(tmp_path, monkeypatch, form):
    """They would need the interpreter that is being torn down. Reading goes through no Python file object at all."""
    import deltalake.fs

    def refuse(*_, **__):
        raise AssertionError("a table is read through Python")

    monkeypatch.setattr(deltalake.fs.DeltaStorageHandler, "from_table", refuse)
    clock = FrozenClock()
    folder = tmp_path / "led ger" if form == "{}" else tmp_path / "ledger"
    ledger = Ledger.open(form.format(folder), clock=clock)
    queue = ledger.create_queue("q")
    ids = queue.send(["a", "b", "c"])
    claim = queue.receive(3)
    assert [message.body for message in claim] == ["a", "b", "c"]
    assert queue.peek(ids[1]).body == "b"
    assert claim.delete().messages == 3 and queue.counts().deleted == 3
    clock.advance(7_200)
    assert ledger.upkeep().segments_dropped >= 1
    assert (folder / "visibility" / "_delta_log").is_dir()


ENDS_AFTER_A_READ = """
import sys, threading
from ledger import Ledger
queue = Ledger.open(sys.argv[1]).create_queue("q")
def hinder():
    while True:
        pass
# As on a busy machine: whoever wants the interpreter waits for it.
sys.setswitchinterval(0.00001)
for _ in range(2):
    threading.Thread(target=hinder, daemon=True).start()
queue.attributes()
"""


@pytest.mark.soak
def test_a_process_that_ends_after_a_read_is_not_aborted(tmp_path):
    for _ in range(20):
        run = subprocess.run(
            [sys.executable, "-c", ENDS_AFTER_A_READ, str(tmp_path / "ledger")],
            cwd=Path(__file__).resolve().parents[1],
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stderr
