"""Compares this ledger with its alternatives, in one run on one machine: `python tests/benchmarks/run.py`.

Writes results/benchmark.json after every part, and at the end benchmark.md and benchmark.png beside it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import command

from ledger.runtime.bootstrap import ensure_environment

PARTS = ("compare", "floor", "codegen", "commits", "scattered", "memory", "many")


def main() -> int:
    """Run what the arguments ask for; answer the exit code."""
    arguments = _arguments()
    from report import write_report

    def measure(work: Path, save: Callable[[command.Figures], object]) -> command.Figures:
        from suite import Suite

        return Suite(arguments, work, save).run()

    return command.run("benchmark", arguments, measure, _replacing, write_report)


def _replacing(known: command.Figures, found: command.Figures) -> tuple[command.Figures, list[str]]:
    """A part that was measured takes the place of the earlier one as a whole."""
    parts = [part for part in PARTS if found.get(part)]
    return {part: found[part] for part in parts}, parts


def _millions(text: str) -> list[int]:
    return [round(float(number) * 1_000_000) for number in text.split(",")]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backlogs", default="1,4,16", help="millions of messages, e.g. 1,4,16 (0.1 for a try)")
    parser.add_argument("--against", default="postgres,merge", help="the alternatives: postgres, merge, or nothing")
    parser.add_argument("--merge-backlogs", default=None, help="those of the MERGE by id, whose calls take minutes")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="fewer repeats, one backlog of a million, 1,000 commits; the report goes to build/benchmark-quick",
    )
    command.add_arguments(parser, PARTS, budget=120.0)
    given = command.parse(parser, PARTS)
    backlogs = "1" if given.quick and given.backlogs == "1,4,16" else given.backlogs
    given.backlogs = _millions(backlogs)
    given.merge_backlogs = _millions(given.merge_backlogs or backlogs)
    return given


if __name__ == "__main__":
    ensure_environment(["benchmarks", "jvm"])
    sys.exit(main())
