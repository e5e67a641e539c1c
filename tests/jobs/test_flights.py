"""The main job, small: every process, kill and proof of it is real; only the flights are fewer."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from jobs.flights_demo.workers import Accident
from ledger import Ledger

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.mark.soak
def test_a_worker_is_killed_and_every_flight_is_done_exactly_once(tmp_path):
    run = subprocess.run(
        [sys.executable, "jobs/flights.py", "--root", tmp_path / "run", "--flights", "3000", "--workers", "2",
         "--claim", "400", "--visibility-timeout", "15"],
        cwd=CHECKOUT, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr[-2_000:]
    assert "killed worker-2" in run.stdout and "acknowledged by the next receiver" in run.stdout
    assert "\nNO " not in run.stdout and run.stdout.count("\nyes  ") == 7
    assert (tmp_path / "run" / "flights.png").stat().st_size > 10_000


def test_what_a_worker_parked_is_no_claim_that_it_has_not_acknowledged(tmp_path):
    """Of whom it would be said that it was killed in time."""
    queue = Ledger.open(str(tmp_path / "ledger"), engine="delta-rs", owner="worker-2").create_queue("work")
    output = tmp_path / "out"
    queue.send([f"{n}" for n in range(5)])
    accident, claim = Accident(SimpleNamespace(name="worker-2"), queue, output), queue.receive(5)
    assert accident.unacknowledged(claim.receipt_id, 4).count == 5
    rows = pa.table({"message_id": [message.message_id for message in claim]})
    failed = rows["message_id"].to_pylist()[:1]
    claim.write(rows.slice(1), str(output), failed=failed, visibility_timeout=3_600)
    assert accident.just_written() == (claim.receipt_id, 4) and accident.just_written() is None
    assert queue.counts().in_flight == 1 and not queue.claim(claim.receipt_id), "what is hidden is no part of the claim"
    assert accident.unacknowledged(claim.receipt_id, 4) is None


def test_a_folder_that_is_in_use_and_too_few_flights_are_refused(tmp_path):
    (tmp_path / "mine").write_text("precious")
    for arguments, said in (["--root", tmp_path], "is not empty"), (["--flights", "3"], "at least 100 flights"):
        run = subprocess.run(
            [sys.executable, "jobs/flights.py", *arguments], cwd=CHECKOUT, capture_output=True, text=True
        )
        assert run.returncode == 2 and said in run.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]
