"""The walls: what a ledger is grown by, axis by axis, and how much slower that makes what it should not slow.

python tests/benchmarks/walls.py [--axes small_sends] [--divide 10]

Prints a table and writes it to results/walls.md: a row for each axis and verb, the median at each point, how many times
the first point's the last one's is, and how many times it may be. An axis is a function that yields what it measured at
each of its points; another one is added to AXES.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import machine
from command import RESULTS
from report import table
from timing import say, timed

from ledger import Ledger

#: By verb, the seconds that each call of it took.
Times = dict[str, list[float]]
REPEATS = 15


class Axis(NamedTuple):
    """What is grown to which points, how many times as long as at the first a verb may take at the last, and what
    measures: `measure(folder, points)` yields the times at each point."""

    title: str
    points: tuple[int, ...]
    aim: float
    measure: Callable[[Path, Sequence[int]], Iterator[Times]]


def small_sends(folder: Path, points: Sequence[int]) -> Iterator[Times]:
    """One process sends one message at a time, with delta-rs and without upkeep."""
    queue, sent = Ledger.open(str(folder), engine="delta-rs").create_queue("work"), 0
    for point in points:
        for _ in range(point - sent):
            queue.send("one message")
        sent, times = point, {"send": [], "receive": [], "read": []}
        for _ in range(REPEATS):
            times["send"].append(timed(lambda: queue.send("one message"))[0])
            took, claim = timed(lambda: queue.receive(1))
            times["receive"].append(took)
            times["read"].append(timed(claim.messages)[0])
        yield times


AXES = {"small_sends": Axis("messages sent one by one, by one process", (100, 500, 2_000, 10_000), 1.5, small_sends)}


def main(names: Sequence[str], divide: int) -> None:
    """Measures the axes, each in a folder of its own, and writes the report."""
    lines: list[list[Any]] = []
    with tempfile.TemporaryDirectory(prefix="ledger-walls-") as work:
        described = machine.describe(Path(work))
        for name in names:
            axis = AXES[name]
            points = [max(1, point // divide) for point in axis.points]
            found: dict[str, list[float]] = {}
            for point, times in zip(points, axis.measure(Path(work) / name, points)):
                for verb, seconds in times.items():
                    found.setdefault(verb, []).append(1_000 * statistics.median(seconds))
                say(f"{name}, {point:,}: " + ", ".join(f"{verb} {ms[-1]:.1f} ms" for verb, ms in found.items()))
            for verb, ms in found.items():
                medians = ", ".join(f"{point:,}: {one:.1f}" for point, one in zip(points, ms))
                lines.append([axis.title, verb, medians, f"{ms[-1] / ms[0]:.1f}", f"{axis.aim}"])
    rows = table(["axis", "verb", "median in ms at each point", "slope", "aim"], lines)
    page = ["# The walls", "", ", ".join(f"{key} {value}" for key, value in described.items()), "", *rows, ""]
    (RESULTS / "walls.md").write_text("\n".join(page))
    print("\n".join(page))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--axes", default=",".join(AXES), help="which axes (default: all)")
    parser.add_argument("--divide", type=int, default=1, help="all points by so much, for a quick look")
    chosen = parser.parse_args()
    main(chosen.axes.split(","), chosen.divide)
