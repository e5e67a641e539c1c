"""Measures what SQS does beside visibility timeouts, in one run on one machine: `python tests/benchmarks/semantics.py`.

FIFO sends and receives, dead-letter moves and redrives, through both engines of this ledger and on PostgreSQL two ways.
Writes results/semantics.json after every part, and at the end semantics.md beside it.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import command

from ledger.runtime.bootstrap import ensure_environment

PARTS = ("sends", "receives", "dead_letters")
#: A receive takes a lock for each of 10,000 groups; the server's default has room for 6,400 in all.
LOCKS = "1024"


class Run:
    """One run with its arguments."""

    def __init__(self, arguments: argparse.Namespace, work: Path, save: Callable[[dict[str, Any]], None]) -> None:
        import machine
        from semantics_rows import Scale
        from timing import Patience

        self._arguments, self._work, self._save = arguments, work, save
        self._patience = Patience(budget=arguments.budget, fast=5, quick=arguments.quick, only=tuple(arguments.only))
        self._scale = Scale().divided(10 if arguments.quick else 1)
        self.found: dict[str, Any] = {
            "machine": machine.describe(work),
            "arguments": machine.told(arguments),
            "scale": asdict(self._scale),
            "cells": {},
        }

    def run(self) -> dict[str, Any]:
        """Every part of every contestant."""
        from ours import Templates
        from semantics_ours import Semantics

        from ledger.runtime.session import spark_session

        spark = spark_session("ledger-semantics")
        templates = Templates(self._work, spark)
        templates.warm_up()
        for engine in self._arguments.engines:
            self._measure(Semantics(templates, engine, self._scale, self._patience))
        spark.stop()
        if "postgres" in self._arguments.against:
            self._postgres()
        return self.found

    def _postgres(self) -> None:
        from postgres_server import NoPostgres, server
        from semantics_postgres import Semantics

        try:
            with server(max_locks_per_transaction=LOCKS) as connect:
                for ways in (("advisory locks", "two tables"), ("SKIP LOCKED", "one table")):
                    contestant = Semantics(connect, ways, self._scale, self._patience)
                    settings = contestant.settings() | {"max_locks_per_transaction": LOCKS}
                    self.found["PostgreSQL settings"] = settings
                    self._measure(contestant)
                    contestant.close()
        except NoPostgres as error:
            self.found["PostgreSQL settings"] = {"missing": str(error)}

    def _measure(self, contestant: Any) -> None:
        for part in self._arguments.parts:
            with self._going_on(f"{part} of {contestant.name}"):
                for key, cell in getattr(contestant, part)().items():
                    if cell:
                        self.found["cells"].setdefault(key, {})[contestant.name] = cell
            self._save(self.found)

    @contextmanager
    def _going_on(self, what: str) -> Iterator[None]:
        """A failure is reported, and the run goes on."""
        try:
            yield
        except Exception as error:
            traceback.print_exc()
            self.found.setdefault("failed", {})[what] = repr(error)[:500]


def main() -> int:
    """Run what the arguments ask for; answer the exit code."""
    arguments = _arguments()
    from semantics_report import write_report

    def measure(work: Path, save: Callable[[command.Figures], object]) -> command.Figures:
        return Run(arguments, work, save).run()

    return command.run("semantics", arguments, measure, _replacing, write_report)


def _replacing(known: command.Figures, found: command.Figures) -> tuple[command.Figures, list[str]]:
    """A contestant's cell that was measured takes the place of its earlier one."""
    cells = {key: {**known["cells"].get(key, {}), **row} for key, row in found["cells"].items()}
    return {"cells": {**known["cells"], **cells}}, sorted({name for row in found["cells"].values() for name in row})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", default="postgres", help="the alternative, or nothing")
    parser.add_argument("--only", nargs="+", default=[], metavar="KEY", help="of the operations, by semantics_rows.py")
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages, fewer repeats")
    command.add_arguments(parser, PARTS, budget=300.0)
    return command.parse(parser, PARTS)


if __name__ == "__main__":
    ensure_environment(["benchmarks", "jvm"])
    sys.exit(main())
