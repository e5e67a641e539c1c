"""Measures a bulk send against a plain Delta append of the same rows: `python tests/benchmarks/sends.py`.

Three take turns in one run: the append, the send, and the send as it is where executors have no Python, through Spark's
writer. They send bodies of 100 B and of 10 KB, and to a FIFO queue: 10,000 groups, one row in ten a duplicate.

The report has the CPU seconds of all processes, which a busy machine changes least: the JVM, its Python workers and
this one. Beside them stand those that Spark counts of its executors, which leave the workers out, and seconds by the
clock. `--messages 16000000` for more of the small ones. Writes results/sends.json and sends.md beside it.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from command import RESULTS, run_cells
from processes import Processes

from ledger.runtime.bootstrap import ensure_environment

NAMES = {"plain": "a plain Delta append", "send": "Queue.send", "spark": "Queue.send through Spark's writer"}
MEASURED = {"processes": "CPU of all processes", "cpu": "CPU of executors", "seconds": "seconds"}
SMALL = """concat('{"id": ', lpad(id, 8, '0'), ', "carrier": "AB", "text": "', repeat(char(97 + id % 26), 56), '"}')"""
LARGE = """concat('{"id": ', id, ', "text": "', repeat(concat(id % 1000, ' in words '), 800), '"}')"""
#: A row in ten says what the one before it said.
FIFO = (
    "concat('g', (id - int(id % 10 = 9)) % {groups}) AS message_group_id",
    "concat('d', id - int(id % 10 = 9)) AS message_deduplication_id",
)


class Executors:
    """What Spark's executors have done so far, as its own status store knows it."""

    def __init__(self, spark: Any) -> None:
        self._context, gateway = spark.sparkContext._jsc.sc(), spark.sparkContext._gateway
        self._all = None, False, False, gateway.new_array(gateway.jvm.double, 0), gateway.jvm.java.util.ArrayList()

    def cpu_seconds(self) -> float:
        """CPU seconds of all tasks."""
        self._context.listenerBus().waitUntilEmpty()
        stages = self._context.statusStore().stageList(*self._all)
        return float(sum(stages.apply(n).executorCpuTime() for n in range(stages.size())) / 1e9)


class Contestants:
    """All of them, on the same rows, which each computes anew: that is a part of everybody's time."""

    def __init__(self, spark: Any, work: Path, rows: Any, attributes: dict[str, Any]) -> None:
        from ledger import Ledger

        self._work, self._rows, self._number = work, rows, 0
        self._ledger, self._attributes = Ledger.open(str(work / "ledger"), spark, owner="sends"), attributes
        self.is_fifo = bool(attributes)

    def ready(self) -> tuple[str, Any]:
        """A table that is there and empty, and a queue: neither was written to before."""
        self._number += 1
        table = str(self._work / f"plain-{self._number}")
        self._rows.limit(0).write.format("delta").save(table)
        name = f"q{self._number}" + (".fifo" if self._attributes else "")
        return table, self._ledger.create_queue(name, self._attributes)

    def plain(self, table: str, queue: Any) -> None:
        """What the rows cost without a queue."""
        self._rows.write.format("delta").mode("append").save(table)

    def send(self, table: str, queue: Any) -> None:
        """One send."""
        queue.send(self._rows)

    def spark(self, table: str, queue: Any) -> None:
        """One send, by the path of executors that have no Python."""
        from ledger.store.delta.dataframes.staging import unable_applications

        application = self._rows.sparkSession.sparkContext.applicationId
        unable_applications.add(application)
        try:
            queue.send(self._rows)
        finally:
            unable_applications.discard(application)


def measured(
    contestants: Contestants, executors: Executors, repeats: int, say: Callable[[str], None]
) -> dict[str, dict[str, list[float]]]:
    """Seconds of each, in turns; the first round warms up. A FIFO queue has one path."""
    from timing import timed

    names = [name for name in NAMES if name != "spark" or not contestants.is_fifo]
    found: dict[str, dict[str, list[float]]] = {name: {what: [] for what in MEASURED} for name in names}
    processes = Processes()
    for number in range(repeats + 1):
        table, queue = contestants.ready()
        for name in names:
            before, all_before = executors.cpu_seconds(), processes.cpu_seconds()
            seconds, _ = timed(lambda name=name, to=(table, queue): getattr(contestants, name)(*to))
            cpu, all_cpu = executors.cpu_seconds() - before, processes.cpu_seconds() - all_before
            say(f"  {name}: {all_cpu:.2f} s of CPU, {seconds:.2f} s{'' if number else ' (warms up)'}")
            if number:
                for what, value in (("processes", all_cpu), ("cpu", cpu), ("seconds", seconds)):
                    found[name][what].append(round(value, 3))
        shutil.rmtree(table)
    return found


def report(found: dict[str, Any]) -> str:
    """The figures as a table."""
    lines = ["# A bulk send beside a plain Delta append of the same rows", ""]
    lines += [f"- {name}: {value}" for name, value in found["machine"].items()] + [""]
    lines += ["| rows | by | " + " | ".join(MEASURED.values()) + " |", "|---" * (2 + len(MEASURED)) + "|"]
    for cell in found["cells"]:
        medians = {
            name: {what: statistics.median(figures[what]) for what in MEASURED}
            for name, figures in cell["measured"].items()
        }
        for name, own in medians.items():
            shown = [f"{own[what]:.2f} s ({own[what] / medians['plain'][what]:.2f})" for what in MEASURED]
            lines.append(f"| {cell['rows']} | {NAMES[name]} | " + " | ".join(shown) + " |")
    said = "Executors: as Spark counts, without their Python workers. In brackets: times the plain append's."
    return "\n".join([*lines, "", f"{said} Medians; the disk is named above.", ""])


def cells(spark: Any, arguments: argparse.Namespace) -> list[tuple[str, Any, dict[str, Any]]]:
    """What is sent: its name, the rows, and the queue's attributes."""
    small = [
        (f"{number:,} of 100 B", spark.range(number).selectExpr(f"{SMALL} AS body"), {})
        for number in arguments.messages
    ]
    large, fifo = arguments.large, arguments.fifo
    given = [one.format(groups=max(1, fifo // 10)) for one in FIFO]
    return [
        *small,
        (f"{large:,} of 10 KB", spark.range(large).selectExpr(f"{LARGE} AS body"), {}),
        (f"{fifo:,} of 100 B, FIFO", spark.range(fifo).selectExpr(f"{SMALL} AS body", *given), {"FifoQueue": True}),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, nargs="+", default=[1_000_000], help="of 100 B")
    parser.add_argument("--large", type=int, default=20_000, help="messages of 10 KB")
    parser.add_argument("--fifo", type=int, default=100_000, help="messages to a FIFO queue")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--work", type=Path, help="where the tables lie while it runs (default: a temporary folder)")
    arguments = parser.parse_args()
    from timing import say

    from ledger.runtime.session import spark_session

    spark = spark_session("ledger-sends")

    def cell(name: str, rows: Any, attributes: dict[str, Any], work: Path) -> dict[str, Any]:
        figures = measured(Contestants(spark, work, rows, attributes), Executors(spark), arguments.repeats, say)
        return {"rows": name, "measured": figures}

    given = ((one[0], partial(cell, *one)) for one in cells(spark, arguments))
    run_cells("sends", arguments, given, report)


if __name__ == "__main__":
    ensure_environment(["benchmarks", "jvm"])
    main()
