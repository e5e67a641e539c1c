"""The walls: what a ledger is grown by, axis by axis, and how much slower that makes what it should not slow.

python tests/benchmarks/walls.py [--axes commits,threads] [--divide 10]

Writes a table to results/walls.md, axis by axis as they are measured (those of earlier runs stay): a row for each axis
and verb, the median at each point, how many times the first point's the last one's is, and how many times it may be. An
axis is a function that yields what it measured at each of its points; another one is added to AXES. A quick look with
--divide is printed, and not kept.
"""

from __future__ import annotations

import argparse
import itertools
import json
import secrets
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

    from ledger.runtime.bootstrap import ensure_environment

    ensure_environment(["benchmarks", "jvm"])

import machine
import pyarrow as pa
from command import RESULTS
from report import table
from timing import say, timed

from ledger import Ledger

#: By verb, the seconds that each call of it took.
Times = dict[str, list[float]]
REPEATS = 15
KEPT = RESULTS / "walls.json"


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


def commits(folder: Path, points: Sequence[int]) -> Iterator[Times]:
    """Verbs on a queue whose ledger has had so many commits, with delta-rs and without upkeep."""
    ledger = Ledger.open(str(folder), engine="delta-rs")
    queue = ledger.create_queue("work", {"VisibilityTimeout": 3_600})
    for _ in range(20):
        queue.send([f"{n}" for n in range(1_000)])
    claim, made = queue.receive(1), 0
    for point in points:
        while made < point:
            claim.extend(3_600 + made % 1_000)
            made += 1
        yield _verbs(queue)


def claims(folder: Path, points: Sequence[int]) -> Iterator[Times]:
    """Verbs beside so many claims of ten in flight."""
    queue = Ledger.open(str(folder), engine="delta-rs").create_queue("work", {"VisibilityTimeout": 43_200})
    for _ in range(points[-1] // 5_000 + 1):
        queue.send(pa.table({"body": [f"{n}" for n in range(55_000)]}))
    held = 0
    for point in points:
        while held < point:
            some = queue.receive_many([(10,)] * min(5_000, point - held))
            held += len(some)
        found = [timed(partial(queue.claim, some[-1].receipt_id))[0] for _ in range(REPEATS)]
        yield {**_verbs(queue), "counts": [timed(queue.counts)[0] for _ in range(REPEATS)], "claim": found}


def acknowledged(folder: Path, points: Sequence[int]) -> Iterator[Times]:
    """Verbs beside so many claims of ten that were acknowledged, each of which keeps its receipt for an hour."""
    queue, done = Ledger.open(str(folder), engine="delta-rs").create_queue("work", {"VisibilityTimeout": 43_200}), 0
    for _ in range(points[-1] // 5_000 + 1):
        queue.send(pa.table({"body": [f"{n}" for n in range(55_000)]}))
    with ThreadPoolExecutor(16) as pool:
        for point in points:
            while done < point:
                some = queue.receive_many([(10,)] * min(1_000, point - done))
                done += sum(settled.messages for settled in pool.map(lambda claim: claim.delete(), some)) // 10
            yield {**_verbs(queue), "counts": [timed(queue.counts)[0] for _ in range(REPEATS)]}


def claimed_frames(folder: Path, points: Sequence[int]) -> Iterator[Times]:
    """A claim of ten as a DataFrame, of so many messages that were sent as one, with Spark."""
    from ledger.runtime.session import spark_session

    spark = spark_session("walls")
    ledger = Ledger.open(str(folder), spark)
    for point in points:
        queue = ledger.create_queue(f"work-{point}")
        queue.send(spark.range(point).selectExpr("concat('message ', id) AS body").coalesce(1))
        frames = [queue.receive(10).dataframe for _ in range(5)]
        yield {"dataframe of 10": [timed(frame.collect)[0] for frame in frames]}
    spark.stop()


def large_bodies(folder: Path, points: Sequence[int]) -> Iterator[Times]:
    """One of so many messages of 1 MiB, sent by lists of a hundred, is received and read; and a list of ten is sent."""
    attributes = {"MaximumMessageSize": 1 << 20, "VisibilityTimeout": 43_200}
    queue, sent = Ledger.open(str(folder), engine="delta-rs").create_queue("work", attributes), 0
    for point in points:
        while sent < point:
            some = min(100, point - sent)
            queue.send([secrets.token_hex(1 << 19) for _ in range(some)])
            sent += some
        ten = [secrets.token_hex(1 << 19) for _ in range(10)]
        times: Times = {"send 10": [], "receive": [], "read": []}
        for _ in range(3):
            times["send 10"].append(timed(partial(queue.send, ten))[0])
            sent += 10
            took, claim = timed(partial(queue.receive, 1))
            times["receive"].append(took)
            times["read"].append(timed(claim.messages)[0])
        yield times


def groups(folder: Path, points: Sequence[int]) -> Iterator[Times]:
    """A FIFO queue with so many groups of one message; what is sent is beyond the time in which repeats are known."""
    passed = itertools.count(1_700_000_000_000, 301_000)
    now = [next(passed)]
    ledger = Ledger.open(str(folder), engine="delta-rs", clock=lambda: now[0])
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true", "VisibilityTimeout": 43_200}
    queue, sent = ledger.create_queue("work.fifo", attributes), 0
    for point in points:
        while sent < point:
            numbers = range(sent, min(point, sent + 100_000))
            texts = [f"{n}" for n in numbers]
            queue.send(pa.table({"body": texts, "message_group_id": texts}))
            sent, now[0] = sent + len(numbers), next(passed)
        queue.receive(10)
        times: Times = {"receive 10": [], "send": [], "receive 10 after a send": []}
        for n in range(REPEATS):
            times["receive 10"].append(timed(partial(queue.receive, 10))[0])
            entry = {"MessageBody": f"{point}/{n}", "MessageGroupId": f"{point}/{n}"}
            times["send"].append(timed(partial(queue.send, entry))[0])
            times["receive 10 after a send"].append(timed(partial(queue.receive, 10))[0])
        yield times


def idle_queues(folder: Path, points: Sequence[int]) -> Iterator[Times]:
    """Verbs beside so many other queues, which have each been used once."""
    ledger, there = Ledger.open(str(folder), engine="delta-rs"), 0
    queue = ledger.create_queue("work")
    queue.send([f"{n}" for n in range(1_000)])
    for point in points:
        while there < point:
            other = ledger.create_queue(f"other-{there}")
            other.send(["one"])
            other.receive(1).delete()
            there += 1
        yield _verbs(queue)


def threads(folder: Path, points: Sequence[int]) -> Iterator[Times]:
    """So many threads of one process that receive, extend and delete on one queue: seconds for each verb that is done,
    by all of them together, and how long one takes."""
    queue = Ledger.open(str(folder), engine="delta-rs").create_queue("work", {"VisibilityTimeout": 3_600})
    for _ in range(20):
        queue.send([f"{n}" for n in range(5_000)])
    for point in points:
        with ThreadPoolExecutor(point) as pool:
            took, each = timed(partial(list, pool.map(partial(_verbs, queue), [240 // point] * point)))
        spent = [seconds for times in each for some in times.values() for seconds in some]
        yield {"for each verb done": [took / len(spent)], "a verb": spent}


def _verbs(queue: Any, repeats: int = REPEATS) -> Times:
    times: Times = {"receive 10": [], "extend": [], "delete": []}
    for _ in range(repeats):
        took, claim = timed(lambda: queue.receive(10))
        times["receive 10"].append(took)
        times["extend"].append(timed(partial(claim.extend, 4_000))[0])
        times["delete"].append(timed(claim.delete)[0])
    return times


AXES = {
    "small_sends": Axis("messages sent one by one, by one process", (100, 500, 2_000, 10_000), 1.5, small_sends),
    "commits": Axis("commits to the ledger, without upkeep", (100, 1_000, 10_000, 100_000), 1.2, commits),
    "claims": Axis("claims of ten in flight", (100, 1_000, 10_000, 100_000), 2.0, claims),
    "acknowledged": Axis("claims of ten acknowledged in this hour", (100, 1_000, 10_000, 50_000), 2.0, acknowledged),
    "claimed_frames": Axis("messages of one send, with Spark", (10_000, 100_000, 1_000_000), 1.5, claimed_frames),
    "large_bodies": Axis("messages of 1 MiB", (10, 100, 500), 1.5, large_bodies),
    "groups": Axis("groups of a FIFO queue", (10_000, 100_000, 1_000_000), 2.0, groups),
    "idle_queues": Axis("other queues, idle", (1, 100, 1_000), 1.15, idle_queues),
    "threads": Axis("threads on one queue", (1, 4, 8, 16), 2.0, threads),
}


def main(names: Sequence[str], divide: int) -> None:
    """Measures the axes, each in a folder of its own; each is in the report as soon as it is measured."""
    with tempfile.TemporaryDirectory(prefix="ledger-walls-") as work:
        described = ", ".join(f"{key} {value}" for key, value in machine.describe(Path(work)).items())
        for name in names:
            axis, found = AXES[name], {}
            points = [max(1, point // divide) for point in axis.points]
            for point, times in zip(points, axis.measure(Path(work) / name, points)):
                for verb, seconds in times.items():
                    found.setdefault(verb, []).append(round(1_000 * statistics.median(seconds), 1))
                say(f"{name}, {point:,}: " + ", ".join(f"{verb} {ms[-1]} ms" for verb, ms in found.items()))
            if divide == 1:
                _keep(name, {"machine": described, "points": points, "milliseconds": found})


def _keep(name: str, measured: dict[str, Any]) -> None:
    """Puts an axis among those measured before, and writes the report of all."""
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    known[name] = measured
    KEPT.write_text(json.dumps({name: known[name] for name in AXES if name in known}, indent=1) + "\n")
    lines = []
    for name, axis in AXES.items():
        for verb, ms in known.get(name, {"milliseconds": {}})["milliseconds"].items():
            medians = ", ".join(f"{point:,}: {one}" for point, one in zip(known[name]["points"], ms))
            lines.append([axis.title, verb, medians, f"{ms[-1] / ms[0]:.1f}", f"{axis.aim}"])
    rows = table(["axis", "verb", "median in ms at each point", "slope", "aim"], lines)
    machines = [f"- {name}: {of['machine']}" for name, of in known.items()]
    (RESULTS / "walls.md").write_text("\n".join(["# The walls", "", *rows, "", "Measured on:", "", *machines, ""]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--axes", default=",".join(AXES), help="which axes (default: all)")
    parser.add_argument("--divide", type=int, default=1, help="all points by so much, for a quick look")
    chosen = parser.parse_args()
    main(chosen.axes.split(","), chosen.divide)
