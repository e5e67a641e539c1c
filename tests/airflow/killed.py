"""What runs in processes that are killed: the function of a Spark worker, a worker without Spark, a DAG's worker."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def killed_once(messages):
    """The rows of a claim, for jobs/work.py; the first time its driver is killed instead."""
    from ledger.runtime.session import SMALL

    marker = Path(os.environ["KILLED"])
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    for name, value in SMALL.items():
        messages.sparkSession.conf.set(name, value)
    return messages.select("message_id", "body", "receive_count")


def worker(arguments):
    """Claims what there is and holds it until it is told to end, and then gives it back; or ends as `--ends` says. Its
    first arguments are those of jobs/work.py."""
    from ledger import Ledger
    from ledger.airflow.claims import attempt_of
    from ledger.runtime.termination import ended_by_sigterm

    named = dict(zip(arguments[2::2], arguments[3::2]))
    queue = Ledger.open(arguments[0], create=False).queue(arguments[1])
    claim = queue.receive(None, attempt_id=attempt_of(named["--attempt-id"], 0))
    with ended_by_sigterm():
        print("claimed", claim.count, flush=True)
        Path(named["--marker"]).touch()
        try:
            if named.get("--ends") == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)
        finally:
            claim.release()


def parent(arguments):
    """Starts a worker as a task does, and waits for it."""
    from ledger.airflow.processes import TaskProcess

    TaskProcess([sys.executable, "-m", "tests.airflow.killed", "worker", *arguments], {}, print).wait(30)


def submit(arguments):
    """Starts a worker as spark-submit starts a driver, and is killed when that has claimed."""
    subprocess.Popen([sys.executable, "-m", "tests.airflow.killed", "worker", *arguments])
    marker = Path(arguments[arguments.index("--marker") + 1])
    while not marker.exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    {"worker": worker, "parent": parent, "submit": submit}[sys.argv[1]](sys.argv[2:])
