"""Where the seconds of a FIFO send and of a redrive go: `python tests/benchmarks/profile_of_jobs.py`.

Both are those of semantics.py: a send of 100,000 in 10,000 groups, one in ten a duplicate, a million sent a minute ago,
and the redrive of every other one of a million messages. For each, the call of REPEATS with the least CPU is told: its
stages, as Spark's own status store knows them, and CPU of all processes.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

    from ledger.runtime.bootstrap import ensure_environment

    ensure_environment(["benchmarks", "jvm"])

from ours import Templates
from processes import Processes
from semantics_ours import Semantics
from semantics_rows import Scale
from timing import Patience

from ledger.runtime.session import spark_session

REPEATS = 7
#: What a thread does whose name begins so.
KINDS = {
    "C1 Compiler": "Java's compilers",
    "C2 Compiler": "Java's compilers",
    "GC": "garbage collection",
    "G1": "garbage collection",
    "VM ": "garbage collection",
    "Executor": "tasks",
    "Thread-": "calls from Python: planning, and Delta",
}


class Jobs:
    """What Spark does during calls, as its status store knows it."""

    def __init__(self, spark: Any) -> None:
        self._context, gateway = spark.sparkContext._jsc.sc(), spark.sparkContext._gateway
        self._all = None, False, False, gateway.new_array(gateway.jvm.double, 0), gateway.jvm.java.util.ArrayList()

    def since(self, began: float) -> tuple[list[str], dict[str, float]]:
        """A line for each stage that ran since an instant, and what all of them took together, in seconds."""
        self._context.listenerBus().waitUntilEmpty()
        store = self._context.statusStore()
        stages, lines, spans = store.stageList(*self._all), [], []
        total = {"tasks' CPU": 0.0, "tasks' seconds": 0.0, "garbage collection": 0.0}
        for stage in map(stages.apply, range(stages.size())):
            submitted, completed = stage.submissionTime(), stage.completionTime()
            if not submitted.isDefined() or submitted.get().getTime() / 1e3 < began:
                continue
            first, last = submitted.get().getTime() / 1e3, completed.get().getTime() / 1e3
            spans.append((first, last))
            used = stage.executorCpuTime() / 1e9, stage.executorRunTime() / 1e3, stage.jvmGcTime() / 1e3
            for name, seconds in zip(total, used):
                total[name] += seconds
            megabytes = [
                f"{name} {size / 1e6:.1f} MB"
                for name, size in (
                    ("shuffled in", stage.shuffleReadBytes()),
                    ("shuffled out", stage.shuffleWriteBytes()),
                    ("written", stage.outputBytes()),
                )
                if size
            ]
            about = [
                f"{stage.numTasks()} tasks",
                f"{used[0]:.2f} s of CPU",
                f"{stage.inputRecords():,} rows",
                *megabytes,
            ]
            lines.append(f"{first - began:6.2f} to {last - began:.2f} s: {', '.join(about)}: {stage.name()}")
        return sorted(lines), {**total, "some stage runs": _covered(spans)}


class Threads:
    """CPU of the JVM's threads by what they do, as far as their names say it."""

    def __init__(self) -> None:
        import psutil

        (self._jvm,) = (one for one in psutil.Process().children(recursive=True) if one.name() == "java")

    def cpu_seconds(self) -> Counter[str]:
        """What the threads have done so far. Threads that have ended are those of the process without them."""
        found = Counter[str]()
        for thread in self._jvm.threads():
            with contextlib.suppress(OSError):
                name = Path(f"/proc/{self._jvm.pid}/task/{thread.id}/comm").read_text().strip()
                kind = next((kind for start, kind in KINDS.items() if name.startswith(start)), "other threads")
                found[kind] += thread.user_time + thread.system_time
        return found


def _covered(spans: list[tuple[float, float]]) -> float:
    """The seconds that lie in one of these spans or in several."""
    seconds, end = 0.0, 0.0
    for first, last in sorted(spans):
        seconds += max(0.0, last - max(first, end))
        end = max(end, last)
    return seconds


class Profiled(Semantics):
    """The ledger as semantics.py measures it; each call is profiled instead of timed."""

    jobs: Jobs

    def _measured(self, key: str, call: Callable[[], Any], before: Callable[[], Any] | None = None) -> dict[str, Any]:
        if not self._patience.wants(key):
            return {}
        processes, threads, least = Processes(), Threads(), None
        for _ in range(REPEATS):
            if before is not None:
                before()
            used, own, began, by_thread = (
                processes.cpu_seconds(),
                time.process_time(),
                time.time(),
                threads.cpu_seconds(),
            )
            call()
            by_thread = threads.cpu_seconds() - by_thread
            seconds, own, used = time.time() - began, time.process_time() - own, processes.cpu_seconds() - used
            lines, total = self.jobs.since(began)
            if least is None or used < least[0]:
                least = used, own, seconds, lines, total, by_thread
        used, own, seconds, lines, total, by_thread = least
        print(f"\n{key}: {seconds:.2f} s, {used:.2f} s of CPU, of it Python's driver {own:.2f} s")
        print("\n".join(lines))
        print(", ".join(f"{name} {value:.2f} s" for name, value in total.items()))
        print("CPU: " + ", ".join(f"{name} {value:.2f} s" for name, value in by_thread.most_common()), flush=True)
        return {}


def main(arguments: argparse.Namespace) -> None:
    """Print both profiles."""
    spark = spark_session("ledger-profile")
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        templates = Templates(Path(work), spark)
        templates.warm_up()
        Profiled.jobs = Jobs(spark)
        profiled = Profiled(templates, "delta-rs", Scale(), Patience(only=("send repeats", "redrive every other")))
        profiled.sends()
        profiled.dead_letters()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", help="folder for the tables (default: the system's temporary folder)")
    main(parser.parse_args())
