"""The whole run, part by part; what was found so far is handed to `save` after each."""

from __future__ import annotations

import argparse
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import machine
from commits import after_many, per_second
from contestant import ALL, MILLION, compare
from floor import floors
from memory import growth
from merge_by_id import MergeById
from ours import Ours, Templates
from postgres import Postgres
from postgres_server import NoPostgres, server
from scattered import scattered
from timing import Patience, say

SIZES = [10, 10_000, MILLION, ALL]
#: The settings that make Spark interpret plans instead of compiling them; the engine's own sessions have them off.
CODEGEN = ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")


class Suite:
    """One run with its arguments."""

    def __init__(self, arguments: argparse.Namespace, work: Path, save: Callable[[dict[str, Any]], None]) -> None:
        self._arguments, self._work, self._save = arguments, work, save
        self._patience = Patience(budget=arguments.budget, quick=arguments.quick)
        self._found: dict[str, Any] = {
            "machine": machine.describe(work),
            "arguments": machine.told(arguments),
            "compare": {},
        }

    def run(self) -> dict[str, Any]:
        """Everything that was asked for."""
        from ledger.runtime.session import spark_session

        spark = spark_session("ledger-benchmarks")
        self._templates = Templates(self._work, spark)
        self._templates.warm_up()
        self._found["Spark settings"] = {
            name: spark.conf.get(name)
            for name in (
                "spark.master",
                "spark.driver.memory",
                "spark.sql.shuffle.partitions",
                "spark.databricks.delta.snapshotPartitions",
            )
        }
        for part in self._arguments.parts:
            say(f"part: {part}")
            with self._going_on(part):
                getattr(self, f"_{part}")()
            self._save(self._found)
        spark.stop()
        return self._found

    @contextmanager
    def _going_on(self, what: str) -> Iterator[None]:
        """A failure is reported, and the run goes on: the figures of hours are worth keeping."""
        try:
            yield
        except Exception as error:
            traceback.print_exc()
            self._found.setdefault("failed", {})[what] = repr(error)[:500]

    def _compare(self) -> None:
        for messages in self._arguments.backlogs:
            for engine in self._arguments.engines:
                for sync in (True, False):
                    self._compared(Ours(self._templates, engine, sync=sync), messages)
        if "postgres" in self._arguments.against:
            self._compare_postgres()
        if "merge" in self._arguments.against:
            contestant = MergeById(self._work, self._templates.spark, self._arguments.budget)
            for messages in self._arguments.merge_backlogs:
                self._compared(contestant, messages)

    def _compare_postgres(self) -> None:
        try:
            with server() as connect:
                contestant = Postgres(connect, self._arguments.budget)
                self._found["PostgreSQL settings"] = contestant.settings()
                for messages in self._arguments.backlogs:
                    self._compared(contestant, messages)
                contestant.close()
        except NoPostgres as error:
            self._found["PostgreSQL settings"] = {"missing": str(error)}
            say(str(error))

    def _compared(self, contestant: Any, messages: int) -> None:
        sizes = [size for size in SIZES if size is ALL or size < messages]
        with self._going_on(f"{contestant.name} with {messages:,}"):
            found = compare(contestant, messages, sizes, self._patience)
            self._found["compare"].setdefault(str(messages), {})[contestant.name] = found
        self._save(self._found)

    def _floor(self) -> None:
        sizes = {size for size in SIZES if size is not ALL and size <= max(self._arguments.backlogs)}
        everything = sorted(sizes | set(self._arguments.backlogs))
        self._found["floor"] = floors(self._work, self._templates.spark, everything, self._patience)

    def _codegen(self) -> None:
        """Spark's engine once more with code generation on, which its own sessions turn off."""
        if "spark" not in self._arguments.engines:
            return
        from ledger.delta_log.by_spark import SMALL_TRANSACTIONS

        usual = {name: SMALL_TRANSACTIONS.pop(name) for name in CODEGEN}
        messages = self._arguments.backlogs[0]
        ours = Ours(self._templates, "spark")
        ours.name += ", code generation on"
        self._found["codegen"] = {"messages": messages, **compare(ours, messages, [10, ALL], self._patience)}
        SMALL_TRANSACTIONS.update(usual)

    def _commits(self) -> None:
        seconds = 5.0 if self._arguments.quick else 15.0
        self._found["commits"] = []
        for engine in self._arguments.engines:
            # Spark's commits on a local path take turns, so that more threads only wait longer.
            crowds = (1, 4, 8) if engine == "delta-rs" else (1, 4)
            for one_queue in (False, True) if engine == "delta-rs" else (False,):
                for threads in crowds:
                    ours = Ours(self._templates, engine)
                    self._found["commits"].append(per_second(ours, threads, seconds, one_queue=one_queue))

    def _scattered(self) -> None:
        backlogs = [messages for messages in self._arguments.backlogs if messages >= MILLION]
        if backlogs:
            self._found["scattered"] = [
                scattered(Ours(self._templates, engine), backlogs[0], self._patience)
                for engine in self._arguments.engines
            ]

    def _memory(self) -> None:
        messages = max(self._arguments.backlogs)
        self._found["memory"] = [
            row for engine in self._arguments.engines for row in growth(self._templates, engine, messages, [10, ALL])
        ]

    def _many(self) -> None:
        commits = 1_000 if self._arguments.quick else 10_000
        if "delta-rs" in self._arguments.engines:
            self._found["many"] = after_many(self._templates, self._arguments.backlogs[0], commits, self._patience)
