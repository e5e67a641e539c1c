"""Measures a worker's loop against the same Spark job without a queue: `python tests/benchmarks/worker.py`.

Each works on one claim of so many messages: parses JSON, computes, writes rows to a Delta table, acknowledges; of some
claims all messages succeed, of others 2.6 % fail, scattered, and are given back with their reasons in a table of their
own. The contestants take turns in one run. Writes results/worker.json and worker.md beside it.
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

from ledger.runtime.bootstrap import ensure_environment

FAILING = 0.026
SCHEMA = "id LONG, carrier STRING, origin STRING, distance INT, air_time INT, departed DOUBLE, arrived DOUBLE"
BODY = """to_json(named_struct('id', id, 'carrier', concat('C', id % 17), 'origin', concat('O', id % 3),
    'distance', int(100 + id % 2500), 'air_time', int(20 + id % 400),
    'departed', rand(1) * 60, 'arrived', if(rand(2) < {failing}, NULL, rand(3) * 90)))"""


def rows_of(messages: Any) -> Any:
    """The work: a row for each message, with a reason where it failed."""
    from pyspark.sql import functions as F

    flights = messages.select("message_id", F.from_json("body", SCHEMA).alias("f")).select("message_id", "f.*")
    return flights.select(
        "*",
        (F.col("departed") - F.col("arrived")).alias("made_up"),
        F.round(F.col("distance") / F.col("air_time") * 60).cast("int").alias("speed"),
        F.when(F.col("arrived").isNull(), "no arrival is recorded").alias("reason"),
    )


def done_of(messages: Any) -> Any:
    """The same where nothing fails."""
    return rows_of(messages).drop("reason")


class Contestants:
    """All of them, on the same messages: `claim()` brings back what the last round took, untimed."""

    def __init__(self, spark: Any, work: Path, messages: int, failing: float) -> None:
        from ledger import Ledger

        self._spark, self._work, self._messages, self._failing = spark, work, messages, failing
        self._queue = Ledger.open(str(work / "ledger"), spark, owner="worker").create_queue("work")
        self._number = 0
        bodies = spark.range(messages).selectExpr(BODY.format(failing=failing) + " AS body")
        self._queue.send(bodies)
        claim = self._queue.receive(None, 3_600)
        # What a job without a queue reads has the same columns, and as many files.
        source = claim.dataframe.select("message_id", "body")
        source.write.format("delta").save(str(work / "source"))
        source.selectExpr("*", "'new' AS status").write.format("delta").save(str(work / "status"))
        claim.release()

    def fresh(self) -> tuple[str, str]:
        """Tables that are there and empty: one for rows, one for what failed."""
        self._number += 1
        tables = str(self._work / f"done-{self._number}"), str(self._work / f"failed-{self._number}")
        nothing = rows_of(self._spark.read.format("delta").load(str(self._work / "source")).limit(0))
        nothing.drop("reason").write.format("delta").save(tables[0])
        nothing.select("message_id", "reason").write.format("delta").save(tables[1])
        return tables

    def plain(self, done: str, failed: str) -> None:
        """The Spark job alone: what failed is a second pass, where there is any."""
        rows = rows_of(self._spark.read.format("delta").load(str(self._work / "source")))
        self._append(rows.where("reason IS NULL").drop("reason"), done)
        if self._failing:
            self._append(rows.where("reason IS NOT NULL").select("message_id", "reason"), failed)

    def status(self, done: str, failed: str) -> None:
        """A queue of one's own: a column status, which two updates of the table change."""
        table = f"delta.`{self._work / 'status'}`"
        self._spark.sql(f"UPDATE {table} SET status = 'claimed' WHERE status = 'new'")
        claimed = self._spark.read.format("delta").load(str(self._work / "status")).where("status = 'claimed'")
        rows = rows_of(claimed)
        self._append(rows.where("reason IS NULL").drop("reason"), done)
        if self._failing:
            self._append(rows.where("reason IS NOT NULL").select("message_id", "reason"), failed)
        self._spark.sql(
            f"MERGE INTO {table} t USING delta.`{done}` d ON t.message_id = d.message_id "
            "WHEN MATCHED THEN UPDATE SET status = 'done'"
        )

    def verbs(self, done: str, failed: str) -> None:
        """The ledger's verbs one by one, as the loop did before: two frames, a commit each."""
        claim = self._queue.receive(None, 3_600)
        rows = rows_of(claim.dataframe)
        written = rows.where("reason IS NULL").drop("reason")
        claim.write(written, done, messages="message_id")
        if self._failing:
            left = rows.where("reason IS NOT NULL").join(claim.dataframe.select("message_id", "receipt_handle"),
                                                         "message_id")  # fmt: skip
            self._append(left.select("message_id", "reason"), failed)
            claim.settle(release=left).count()

    def loop(self, done: str, failed: str) -> None:
        """Queue.work."""
        if self._failing:
            self._queue.work(
                rows_of, done, failures=f"{failed}-of-work", reason="reason", until="once", visibility_timeout=3_600
            )
        else:
            self._queue.work(done_of, done, until="once", visibility_timeout=3_600)

    def put_back(self) -> None:
        """All messages are new again."""
        status = f"delta.`{self._work / 'status'}`"
        self._spark.sql(f"UPDATE {status} SET status = 'new' WHERE status <> 'new'")
        for receipt in self._receipts():
            self._queue.restore(receipt)

    def _receipts(self) -> list[str]:
        from pyspark.sql import functions as F

        messages = self._spark.read.format("delta").load(str(self._work / "ledger" / "visibility"))
        held = messages.where(F.col("deleted_at").isNotNull()).select("receipt_id").distinct()
        return [row.receipt_id for row in held.collect()]

    @staticmethod
    def _append(rows: Any, table: str) -> None:
        rows.write.format("delta").mode("append").save(table)


NAMES = {
    "plain": "the Spark job without a queue",
    "loop": "ledger: Queue.work",
    "verbs": "ledger: write and settle, one by one",
    "status": "Delta, a column status, MERGE",
}


def measured(contestants: Contestants, repeats: int, say: Callable[[str], None]) -> dict[str, list[float]]:
    """Seconds of each, in turns; the first round warms up."""
    from timing import timed

    found: dict[str, list[float]] = {name: [] for name in NAMES}
    for number in range(repeats + 1):
        for name in NAMES:
            tables = contestants.fresh()
            seconds, _ = timed(lambda name=name, tables=tables: getattr(contestants, name)(*tables))
            say(f"  {name}: {seconds:.2f} s{' (warms up)' if not number else ''}")
            if number:
                found[name].append(round(seconds, 3))
            for table in tables:
                shutil.rmtree(table, ignore_errors=True)
            contestants.put_back()
    return found


def report(found: dict[str, Any]) -> str:
    """The figures as a table."""
    lines = ["# A worker's loop beside the same Spark job without a queue", ""]
    lines += [f"- {name}: {value}" for name, value in found["machine"].items()] + [""]
    lines += ["| messages of a claim | failing | " + " | ".join(NAMES.values()) + " |", "|---" * (2 + len(NAMES)) + "|"]
    for cell in found["cells"]:
        plain = statistics.median(cell["seconds"]["plain"])
        figures = [statistics.median(cell["seconds"][name]) for name in NAMES]
        shown = " | ".join(f"{one:.2f} s ({one / plain:.2f})" for one in figures)
        lines.append(f"| {cell['messages']:,} | {cell['failing']:.1%} | {shown} |")
    return "\n".join(
        [*lines, "", "In brackets: times the plain job's. Medians; one process, the tables on a local disk.", ""]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, nargs="+", default=[37_000, 1_000_000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--work", type=Path, help="where the tables lie while it runs (default: a temporary folder)")
    arguments = parser.parse_args()
    from timing import say

    from ledger.runtime.session import spark_session

    spark = spark_session("ledger-worker")

    def cell(messages: int, failing: float, work: Path) -> dict[str, Any]:
        seconds = measured(Contestants(spark, work, messages, failing), arguments.repeats, say)
        return {"messages": messages, "failing": failing, "seconds": seconds}

    cells = (
        (f"{messages:,} messages, {failing:.1%} failing", partial(cell, messages, failing))
        for messages in arguments.messages
        for failing in (0.0, FAILING)
    )
    run_cells("worker", arguments, cells, report)


if __name__ == "__main__":
    ensure_environment(["benchmarks", "jvm"])
    main()
