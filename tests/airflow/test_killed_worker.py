"""A worker of Airflow's that is killed between its receive and the XCom that would have said so."""

import os
import signal
import subprocess
import sys

from airflow.sdk import DAG

from ledger.airflow import LedgerReceiveOperator
from tests.sources import CHECKOUT

AT = "2025-01-01T00:00:00+00:00"


class Killed(LedgerReceiveOperator):
    """Is killed when it has received, where the environment says so."""

    def execute(self, context):
        received = super().execute(context)
        if os.environ.get("KILLED"):
            os.kill(os.getpid(), signal.SIGKILL)
        return received


def dag():
    with DAG("killed_worker") as made:
        Killed(task_id="receive", ledger_queue="flights", max_messages=2, claims=2)
    return made


def main():
    """Runs the DAG in a process of its own, on the Airflow that the environment has."""
    from datetime import datetime

    at = datetime.fromisoformat(AT)
    dag().test(logical_date=at, run_after=at)


def test_the_claims_of_a_worker_that_was_killed_before_it_told_of_them_are_those_of_its_retry(run, queue):
    from datetime import datetime

    queue.send(["a", "b", "c", "d", "e"])
    run(dag())
    released = [queue.claim(lease.receipt_id).release() for lease in leases(queue)]
    assert len(released) == 2, "of a run that was not killed, whose claims are no matter here"
    command = [sys.executable, "-c", "from tests.airflow.test_killed_worker import main; main()"]
    process = subprocess.run(command, cwd=CHECKOUT, env={**os.environ, "KILLED": "yes"}, capture_output=True)
    assert process.returncode == -signal.SIGKILL, process.stdout[-2_000:]
    held = {lease.receipt_id for lease in leases(queue)}
    ran = run(dag(), datetime.fromisoformat(AT))
    assert ran.state == "success"
    assert {claim["receipt_id"] for claim in ran.returned["receive"]} == held and len(held) == 2
    assert (queue.counts().in_flight, queue.counts().visible) == (4, 1)


def leases(queue):
    """Who holds messages of a queue now."""
    return queue.access.store.leases(queue.access.record(), queue.access.clock)
