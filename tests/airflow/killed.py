"""What runs in processes that are killed: the function of a Spark worker, a worker without Spark, a DAG's worker."""

import os
import signal
import sys
import time
from pathlib import Path


def killed_once(messages):
    """The rows of a claim, for jobs/work.py; the first time its driver is killed instead."""
    marker = Path(os.environ["KILLED"])
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return messages.select("message_id", "body", "receive_count")


def worker(arguments):
    """Claims what there is and holds it until it is told to end, and then gives it back; or ends as `--ends` says. Its
    first arguments are those of jobs/work.py."""
    from ledger import Ledger
    from ledger.airflow.claims import attempt_of

    named = dict(zip(arguments[2::2], arguments[3::2]))
    queue = Ledger.open(arguments[0], create=False).queue(arguments[1])
    claim = queue.receive(None, attempt_id=attempt_of(named["--attempt-id"], 0))
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
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


def child_of_a_worker(arguments):
    """Starts a process that outlives it, unless it is ended."""
    import subprocess

    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    Path(arguments[0]).write_text(str(left.pid))


if __name__ == "__main__":
    {"worker": worker, "parent": parent, "leaves a child": child_of_a_worker}[sys.argv[1]](sys.argv[2:])
