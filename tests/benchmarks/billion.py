"""A billion messages: what each verb takes beside 10^7, 10^8 and 10^9 of them, with disk and memory.

python tests/benchmarks/billion.py [--messages 10000000 100000000 1000000000] [--work FOLDER]

Spark sends the messages of a point in one commit, to a queue of a new ledger on the disk of FOLDER. A process without a
JVM then opens the ledger, counts, claims all messages, extends, releases and deletes them, and reads 100,000 of a
claim. Verbs are repeated, and their medians told; the first open and the send happen once. Every commit is synced. A
point that the disk has no room for is left out, and said. The table goes to results/billion.md.

A message is its number as text. 10^9 of them take some 8 GB of disk and, on two cores, a quarter of an hour to send.

With --shapes 100000000000 it shows what bends first beyond that: a ledger with as many segments and files as so many
messages have by default, in which each file has SCALE times fewer messages. Verbs decide on segments and files, so they
take what they would take. The files of a shape are links to a few: a commit names them all, as that of a send does. Its
table goes to results/billion-shapes.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

    from ledger.runtime.bootstrap import ensure_environment

    ensure_environment(["benchmarks", "jvm"])

import machine
import pyarrow as pa
import pyarrow.parquet as pq
from command import RESULTS
from report import table
from timing import say

from ledger import Ledger, Settings
from ledger.delta_log.protocol import StagedFile
from ledger.rules import message_id, staging

POINTS = (10_000_000, 100_000_000, 1_000_000_000)
REPEATS = 7
READ = 100_000
#: So many links a file of a shape has at most: ext4 allows 65,000.
LINKS = 50_000
#: How many times fewer messages the files of a shape have.
SCALE = 10_000
#: Bytes of disk that a message takes, with room to spare.
BYTES_OF_A_MESSAGE = 16
KEPT = RESULTS / "billion.json"


def measure(messages: int, work: Path, scale: int = 1) -> dict[str, Any]:
    """Return what a ledger of so many messages took: seconds by verb, bytes on the disk, memory of the process.

    Files and segments have `scale` times fewer messages than by default, and so has the ledger.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"billion-{messages}-", dir=work))
    root = str(folder / "ledger")
    try:
        sent = _run("send" if scale == 1 else "link", root, messages, scale)
        say(f"sent {messages:,} in {sent['send']:.1f} s")
        verbs = _run("verbs", root, messages, scale)
        sizes = {file: file.stat().st_size for file in folder.rglob("*") if file.is_file()}
        log = sum(size for file, size in sizes.items() if "_delta_log" in file.parts)
        return {"messages": messages, **sent, **verbs, "disk_bytes": sum(sizes.values()), "log_bytes": log}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(part: str, root: str, messages: int, scale: int) -> dict[str, Any]:
    """Return what a process of its own measured."""
    command = [sys.executable, __file__, "--part", part, root, str(messages), str(scale)]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    answer: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return answer


def send(root: str, messages: int, scale: int) -> dict[str, Any]:
    """Send the messages with Spark, in one commit."""
    from ledger.runtime.session import spark_session

    spark = spark_session("billion")
    usual = Settings()
    in_segment, in_file = usual.messages_per_segment // scale, usual.messages_per_file // scale
    settings = replace(usual, messages_per_segment=in_segment, messages_per_file=in_file)
    ledger = Ledger.open(root, spark=spark, settings=settings)
    # A small send first: what Java compiles, and a worker imports, is not what is measured.
    ledger.create_queue("warm").send(spark.range(1_000).selectExpr("string(id) AS body"))
    queue = ledger.create_queue("work")
    frame = spark.range(messages // scale).selectExpr("string(id) AS body")
    seconds = _timed(lambda: queue.send(frame))
    return {"send": seconds}


def link(root: str, messages: int, scale: int) -> dict[str, Any]:
    """Make a ledger of so many segments and files, and commit all of them at once; no message of a file is new."""
    ledger, usual = Ledger.open(root), Settings()
    queue, store = ledger.create_queue("work"), ledger.store
    in_file, files_of_segment = usual.messages_per_file // scale, usual.messages_per_segment // usual.messages_per_file
    first_files = [_file_of_a_segment(root, in_file, number) for number in range(files_of_segment)]
    record, now, key = queue.access.record(), ledger.clock(), message_id.new_send_key()
    folder = staging.new_folder(now)
    below = Path(root, "messages", staging.FOLDER, folder)
    below.mkdir(parents=True)
    lanes, files = int(record.attributes["Lanes"]), list[StagedFile]()
    for ordinal in range(messages // usual.messages_per_segment):
        lane, segment = str(ordinal % lanes), message_id.segment(key, ordinal)
        partition = {"queue": record.id, "lane": lane, "segment": segment}
        for number, (file, of_file) in enumerate(first_files):
            name = f"{ordinal}-{number}.parquet"
            if ordinal % LINKS == 0:
                shutil.copyfile(file, below / name)
                first_files[number] = below / name, of_file
            else:
                os.link(file, below / name)
            place = f"{staging.FOLDER}/{folder}/{name}"
            files.append(StagedFile(place, file.stat().st_size, partition, now, of_file))
    metadata = store.transactions.metadata("shape", "send", record.id, now, [], 0)
    end = staging.application(folder), staging.PUBLISHED
    return {"send": _timed(lambda: store.engine.publishing().publish("messages", files, metadata, end))}


def _file_of_a_segment(root: str, rows: int, number: int) -> tuple[Path, str]:
    """Return a file with the messages of this number of file in a segment, and its statistics."""
    first, now = number * rows, datetime.now(timezone.utc)
    sequence = range(first, first + rows)
    table = pa.table(
        {
            "seq": pa.array(sequence, pa.int64()),
            "body": [str(n) for n in sequence],
            "sent_at": pa.array([now] * rows, pa.timestamp("us", "UTC")),
            "available_at": pa.array([now] * rows, pa.timestamp("us", "UTC")),
        }
    )
    file = Path(root, f"shape-{number}.parquet")
    pq.write_table(table, file)
    at = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    times = {"sent_at": at, "available_at": at}
    lowest, highest = {"seq": first, **times}, {"seq": first + rows - 1, **times}
    return file, json.dumps({"numRecords": rows, "minValues": lowest, "maxValues": highest, "nullCount": {}})


def verbs(root: str, messages: int, scale: int) -> dict[str, Any]:
    """Call each verb on all messages, without a JVM."""
    messages //= scale
    times: dict[str, list[float]] = {}

    def note(verb: str, call: Callable[[], Any]) -> Any:
        answers, used = list[Any](), time.process_time()
        times.setdefault(verb, []).append(_timed(lambda: answers.append(call())))
        times.setdefault(f"{verb}, CPU", []).append(time.process_time() - used)
        return answers[0]

    queue = note("open", lambda: Ledger.open(root)).queue("work")
    note("first count", queue.counts)
    for _ in range(REPEATS):
        claim = note("claim all", lambda: queue.receive(None, visibility_timeout=3_600))
        assert claim.count == messages, claim.count
        note("extend all", lambda claim=claim: claim.extend(7_200))
        counts = note("count", queue.counts)
        assert counts.in_flight == messages
        note("release all", claim.release)
    for _ in range(REPEATS):
        claim = note("claim 10,000", lambda: queue.receive(10_000, visibility_timeout=3_600))
        note("delete 10,000", claim.delete)
    if scale == 1:
        claim = queue.receive(None, visibility_timeout=3_600)
        note(f"read {READ:,}", lambda: sum(1 for _ in itertools.islice(claim, READ)))
        claim.release()
    for number in range(REPEATS):
        claim = queue.receive(None, visibility_timeout=3_600)
        note("delete all", claim.delete)
        if number < REPEATS - 1:
            note("restore all", lambda claim=claim: queue.restore(claim.receipt_id))
    assert queue.counts().visible == 0
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024
    return {verb: statistics.median(seconds) for verb, seconds in times.items()} | {"memory_bytes": memory}


def _timed(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def report(points: list[dict[str, Any]], described: dict[str, str]) -> str:
    """Return the page of results."""
    verbs = [name for name in points[0] if not name.endswith("_bytes") and name != "messages"]
    head = ["", *(f"{point['messages']:,}" for point in points)]
    rows = [[verb, *(_shown(point[verb]) for point in points)] for verb in verbs]
    rows.append(["disk", *(f"{point['disk_bytes'] / 1e9:.2f} GB" for point in points)])
    rows.append(["of it logs", *(f"{point['log_bytes'] / 1e6:.1f} MB" for point in points)])
    rows.append(
        ["memory of the process that calls the verbs", *(f"{point['memory_bytes'] / 1e6:.0f} MB" for point in points)]
    )
    about = "\n".join(f"- {name}: {value}" for name, value in described.items())
    return (
        f"# {max(point['messages'] for point in points):,} messages\n\n{chr(10).join(table(head, rows))}\n\n{about}\n"
    )


def _shown(seconds: float) -> str:
    return f"{seconds * 1_000:.1f} ms" if seconds < 1 else f"{seconds:,.1f} s"


def main(arguments: argparse.Namespace) -> None:
    """Measure each point, and write the table."""
    work = Path(arguments.work or tempfile.gettempdir())
    described, points, scale, kept = machine.describe(work), list[dict[str, Any]](), 1, KEPT
    if arguments.shapes:
        scale, kept = SCALE, KEPT.with_name("billion-shapes.json")
    for messages in sorted(arguments.shapes or arguments.messages):
        if shutil.disk_usage(work).free < messages * BYTES_OF_A_MESSAGE // scale:
            say(f"{messages:,}: left out, {work} has no {messages * BYTES_OF_A_MESSAGE / 1e9:.0f} GB free")
            continue
        points.append(measure(messages, work, scale))
        say(str(points[-1]))
        kept.write_text(json.dumps({"machine": described, "points": points}, indent=1) + "\n")
        kept.with_suffix(".md").write_text(report(points, described))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, nargs="+", default=POINTS)
    parser.add_argument("--work", help="a folder on the disk that is measured")
    parser.add_argument("--shapes", type=int, nargs="+", help="ledgers with the files of so many messages")
    parser.add_argument("--part", nargs=4, metavar=("PART", "ROOT", "MESSAGES", "SCALE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        part, place, count, times = given.part
        print(json.dumps({"send": send, "link": link, "verbs": verbs}[part](place, int(count), int(times))))
    else:
        main(given)
