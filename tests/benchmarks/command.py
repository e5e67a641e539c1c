"""What the benchmarks' commands share: arguments, the file of figures, and the folder for the tables."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
#: For a quick run: its figures are no page's.
OF_QUICK_RUNS = Path(__file__).resolve().parents[2] / "build" / "benchmark-quick"
Figures = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser, parts: Sequence[str], budget: float) -> None:
    """Adds what every command takes."""
    parser.add_argument("--engines", default="delta-rs,spark", help="of this ledger")
    parser.add_argument("--parts", default=",".join(parts), help="which parts to run")
    parser.add_argument("--budget", type=float, default=budget, help="seconds that one call of an alternative may take")
    parser.add_argument("--work", default=None, help="folder for the tables (default: the system's temporary folder)")
    parser.add_argument(
        "--results", default=None, help="folder for the report (default: results beside the benchmarks; see --quick)"
    )
    parser.add_argument("--add", action="store_true", help="keep the other figures of an earlier run in RESULTS")
    parser.add_argument("--render", action="store_true", help="only write the report anew from the figures")


def parse(parser: argparse.ArgumentParser, parts: Sequence[str]) -> argparse.Namespace:
    """The arguments, with lists of words taken apart; an unknown part ends the process."""
    given = parser.parse_args()
    for name in ("engines", "against", "parts"):
        setattr(given, name, [word for word in getattr(given, name).split(",") if word])
    if given.results is None:
        given.results = str(OF_QUICK_RUNS if getattr(given, "quick", False) else RESULTS)
    unknown = set(given.parts) - set(parts)
    if unknown:
        parser.error(f"unknown part {sorted(unknown)[0]}; there are {', '.join(parts)}")
    return given


def run_cells(
    name: str,
    arguments: argparse.Namespace,
    cells: Iterable[tuple[str, Callable[[Path], Figures]]],
    page: Callable[[Figures], str],
) -> None:
    """Measures cells one after the other, each in a folder of its own: what it is, and `measured(folder)`. After each,
    what was found is in NAME.json and, as a `page`, in NAME.md in the folder `arguments.results`; then printed.
    """
    import machine
    from timing import say

    with tempfile.TemporaryDirectory(dir=arguments.work) as folder:
        described = machine.describe(Path(folder))
        found: Figures = {"machine": described, "arguments": machine.told(arguments), "cells": []}
        for number, (title, measured) in enumerate(cells):
            say(title)
            work = Path(folder, str(number))
            found["cells"].append(measured(work))
            shutil.rmtree(work)
            arguments.results.mkdir(exist_ok=True)
            (arguments.results / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
            (arguments.results / f"{name}.md").write_text(page(found))
    print(page(found))


def run(
    name: str,
    arguments: argparse.Namespace,
    measure: Callable[[Path, Callable[[Figures], object]], Figures],
    replacing: Callable[[Figures, Figures], tuple[Figures, Sequence[str]]],
    write_report: Callable[[Figures, Path], None],
) -> int:
    """Measures into NAME.json, saved whenever `measure(folder for tables, save)` says so, and writes the report;
    answers the exit code.

    `replacing(known, found)`: with --add, what of the earlier figures changes, and the names of what was measured anew.
    """
    results = Path(arguments.results)
    results.mkdir(parents=True, exist_ok=True)
    file = results / f"{name}.json"
    if arguments.render:
        write_report(json.loads(file.read_text()), results)
        return 0
    known = json.loads(file.read_text()) if arguments.add else None

    def save(found: Figures) -> None:
        whole = found
        if known is not None:
            changed, names = replacing(known, found)
            later = {**known.get("later", {}), **dict.fromkeys(names, found["machine"])}
            failed = {**known.get("failed", {}), **found.get("failed", {})}
            whole = {**known, **changed, "later": later, **({"failed": failed} if failed else {})}
        file.write_text(json.dumps(whole, indent=1))

    with tempfile.TemporaryDirectory(prefix=f"ledger-{name}-", dir=arguments.work, ignore_cleanup_errors=True) as work:
        found = measure(Path(work), save)
    save(found)
    write_report(json.loads(file.read_text()), results)
    print((results / f"{name}.md").read_text())
    return 1 if found.get("failed") else 0
