"""A standalone cluster of Spark on loopback: a master and workers are processes of their own, and so are executors."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark

from ledger.runtime.session import submit_environment

SPARK_HOME = Path(pyspark.__file__).parent
#: How long a process may take to say that it is there, in seconds.
PATIENCE = 120.0


@contextlib.contextmanager
def cluster(folder: Path, workers: int) -> Iterator[str]:
    """Runs a master and so many workers of one core and 1 GB each; returns the master's URL. All of it is killed at the
    end, executors too. What executors say lies below `folder`/worker-N."""
    with contextlib.ExitStack() as all_of_it:
        master = folder / "master.log"
        address = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        start(all_of_it, master, "org.apache.spark.deploy.master.Master", *address)
        url = told(master, r"Starting Spark master at (spark://\S+)")
        for number in range(1, workers + 1):
            log, work = folder / f"worker-{number}.log", folder / f"worker-{number}"
            sizes = ("--cores", "1", "--memory", "1g", "--work-dir", str(work))
            start(all_of_it, log, "org.apache.spark.deploy.worker.Worker", *address, *sizes, url)
        for number in range(1, workers + 1):
            told(folder / f"worker-{number}.log", "Successfully (registered) with master")
        yield url


def start(all_of_it: contextlib.ExitStack, log: Path, name: str, *arguments: str) -> None:
    """Starts one of Spark's classes, to be killed with all that it started."""
    environment = {**submit_environment(), "SPARK_DAEMON_MEMORY": "256m", "SPARK_NO_DAEMONIZE": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [SPARK_HOME / "bin" / "spark-class", name, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )
    all_of_it.callback(kill, process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def told(log: Path, what: str) -> str:
    """Waits for a line in a log; returns the part in brackets."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found = re.search(what, log.read_text(errors="replace"))
        if found:
            return found[1]
        time.sleep(0.1)
    raise AssertionError(f"{what!r} is not in {log}:\n{log.read_text(errors='replace')[-3000:]}")
