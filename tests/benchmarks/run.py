"""Compares this ledger with its alternatives, in one run on one machine: `python tests/benchmarks/run.py`.

Writes results/benchmark.json after every part, and at the end benchmark.md and benchmark.png beside it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from ledger.bootstrap import ensure_environment  # noqa: E402 - the path comes first

PARTS = ("compare", "floor", "codegen", "commits", "scattered", "memory", "many")


def main() -> int:
    """Run what the arguments ask for; answer the exit code."""
    arguments = _arguments()
    from report import write_report

    results = Path(arguments.results)
    results.mkdir(parents=True, exist_ok=True)
    file = results / "benchmark.json"
    known = json.loads(file.read_text()) if arguments.render or arguments.add else None
    if arguments.render:
        write_report(known, results)
        return 0
    from suite import Suite

    work = Path(tempfile.mkdtemp(prefix="ledger-benchmark-", dir=arguments.work))
    try:
        suite = Suite(arguments, work, lambda found: file.write_text(json.dumps(_added(known, found), indent=1)))
        suite.run()
        write_report(json.loads(file.read_text()), results)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print((results / "benchmark.md").read_text())
    return 1 if suite.failed else 0


def _added(known: dict[str, Any] | None, found: dict[str, Any]) -> dict[str, Any]:
    """The parts of this run in the place of those of an earlier one, with a word about when they were measured."""
    if known is None:
        return found
    parts = [part for part in PARTS if found.get(part)]
    later = dict.fromkeys(parts, found["machine"])
    return {**known, **{part: found[part] for part in parts}, "later": {**known.get("later", {}), **later}}


def _millions(text: str) -> list[int]:
    return [round(float(number) * 1_000_000) for number in text.split(",")]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backlogs", default="1,4,16", help="millions of messages, e.g. 1,4,16 (0.1 for a try)")
    parser.add_argument("--engines", default="delta-rs,spark", help="of this ledger")
    parser.add_argument("--against", default="postgres,merge", help="the alternatives: postgres, merge, or nothing")
    parser.add_argument("--merge-backlogs", default=None, help="those of the MERGE by id, whose calls take minutes")
    parser.add_argument("--parts", default=",".join(PARTS), help="which parts to run")
    parser.add_argument("--quick", action="store_true", help="fewer repeats, one backlog of a million, 1,000 commits")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds that one call of an alternative may take")
    parser.add_argument("--work", default=None, help="folder for the tables (default: the system's temporary folder)")
    parser.add_argument("--results", default=str(HERE / "results"), help="folder for the report")
    parser.add_argument("--add", action="store_true", help="keep the other parts of an earlier run in RESULTS")
    parser.add_argument("--render", action="store_true", help="only write the report anew from benchmark.json")
    given = parser.parse_args()
    for name in ("engines", "against", "parts"):
        setattr(given, name, [word for word in getattr(given, name).split(",") if word])
    unknown = set(given.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {sorted(unknown)[0]}; there are {', '.join(PARTS)}")
    backlogs = "1" if given.quick and given.backlogs == "1,4,16" else given.backlogs
    given.backlogs = _millions(backlogs)
    given.merge_backlogs = _millions(given.merge_backlogs or backlogs)
    return given


if __name__ == "__main__":
    ensure_environment(["benchmarks", "jvm"])
    sys.exit(main())
