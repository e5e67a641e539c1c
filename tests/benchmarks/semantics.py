"""Measures what SQS does beside visibility timeouts, in one run on one machine: `python tests/benchmarks/semantics.py`.

FIFO sends and receives, dead-letter moves and redrives, through both engines of this ledger and on PostgreSQL two ways.
Writes results/semantics.json after every part, and at the end semantics.md beside it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from ledger.bootstrap import ensure_environment  # noqa: E402 - the path comes first

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
        self._patience = Patience(budget=arguments.budget, fast=5, quick=arguments.quick)
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

    results = Path(arguments.results)
    results.mkdir(parents=True, exist_ok=True)
    file = results / "semantics.json"
    if arguments.render:
        write_report(json.loads(file.read_text()), results)
        return 0
    known = json.loads(file.read_text()) if arguments.add else None
    work = Path(tempfile.mkdtemp(prefix="ledger-semantics-", dir=arguments.work))
    try:
        found = Run(arguments, work, lambda found: file.write_text(json.dumps(_added(known, found), indent=1))).run()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    whole = _added(known, found)
    file.write_text(json.dumps(whole, indent=1))
    write_report(whole, results)
    print((results / "semantics.md").read_text())
    return 1 if found.get("failed") else 0


def _added(known: dict[str, Any] | None, found: dict[str, Any]) -> dict[str, Any]:
    """The cells of this run in the place of those of an earlier one, with a word about when they were measured."""
    if known is None:
        return found
    cells = {key: {**known["cells"].get(key, {}), **cells} for key, cells in found["cells"].items()}
    later = dict.fromkeys(sorted({name for cells in found["cells"].values() for name in cells}), found["machine"])
    return {**known, "cells": {**known["cells"], **cells}, "later": {**known.get("later", {}), **later}}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default="delta-rs,spark", help="of this ledger")
    parser.add_argument("--against", default="postgres", help="the alternative, or nothing")
    parser.add_argument("--parts", default=",".join(PARTS), help="which parts to run")
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages, fewer repeats")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds that one call of PostgreSQL may take")
    parser.add_argument("--work", default=None, help="folder for the tables (default: the system's temporary folder)")
    parser.add_argument("--results", default=str(HERE / "results"), help="folder for the report")
    parser.add_argument("--add", action="store_true", help="keep the other cells of an earlier run in RESULTS")
    parser.add_argument("--render", action="store_true", help="only write the report anew from semantics.json")
    given = parser.parse_args()
    for name in ("engines", "against", "parts"):
        setattr(given, name, [word for word in getattr(given, name).split(",") if word])
    unknown = set(given.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {sorted(unknown)[0]}; there are {', '.join(PARTS)}")
    return given


if __name__ == "__main__":
    ensure_environment(["benchmarks", "jvm"])
    sys.exit(main())
