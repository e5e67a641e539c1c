"""What a verb costs beside idle queues of the same ledger, and beside other threads of the same process.

    python tests/benchmarks/neighbours.py [idle] [threads] [--idle 0 100 1000] [--rounds 40] [--seconds 10]

CPU times are the process's, so they say what a verb costs even while the machine does other things.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from ledger import Ledger
from ledger.clock import system_clock
from ledger.rules.message import Entry
from ledger.store.delta.model.tables import Where

LEASE = 600
#: So many idle queues are sent to in one commit.
AT_ONCE = 50


def add_idle(ledger: Ledger, count: int) -> None:
    """Queues with a segment and visibility rows each, as if they had been sent to and received from long ago."""
    import pyarrow as pa

    from ledger.rules import message_id as ids
    from ledger.store.delta.state.sent_messages import message_rows
    from ledger.store.delta.verbs import queues

    if not count:
        return
    store, engine = ledger.store, ledger.store.engine
    made = ledger.create_queue("idle").access.made
    idle = [replace(made, id=f"idle{n}-{n:08x}", name=f"idle{n}") for n in range(count)]
    rows = queues._edits([("insert", one, None) for one in idle])
    engine.merge(engine.load("queues", Where()), "queues", Where(), rows, {})
    now = system_clock()
    for start in range(0, count, AT_ONCE):
        mine = idle[start : start + AT_ONCE]
        names = [(one, ids.segment(ids.new_send_key(), 0)) for one in mine]
        sent = [message_rows(one, 0, name, 0, [Entry("a"), Entry("b")], now) for one, name in names]
        engine.append("messages", pa.concat_tables(sent), {})
        received = [_received(one, name, now) for one, name in names]
        engine.merge(engine.load("visibility", Where()), "visibility", Where(), pa.concat_tables(received), {})
    assert {queue.name for queue in store.queues()} >= {one.name for one in idle}


def _received(queue: Any, segment: str, now: int) -> Any:
    """The edits that record a receive of a segment's first message."""
    import numpy as np
    import pyarrow as pa

    from ledger.rules.visibility import Record
    from ledger.store.delta.model.message_runs import Runs, positions
    from ledger.store.delta.model.tables import VISIBILITY
    from ledger.store.delta.state.lane_records import Lanes

    lanes = Lanes(queue.id, VISIBILITY.empty_table())
    at = positions(lanes.register(pa.array([segment]), [0]), [0])
    record = Record("r" * 32, None, 1, now, now, now + 30_000)
    return lanes.edits(Runs(at, at, np.array([lanes.code(record)])), now)


@contextmanager
def opened() -> Iterator[Ledger]:
    """A ledger in a folder of its own, removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        yield Ledger.open(f"{folder}/ledger", engine="delta-rs")


def cpu(call: Callable[[], Any]) -> float:
    """Milliseconds of CPU that a call takes."""
    start = time.process_time()
    call()
    return (time.process_time() - start) * 1_000


def verbs_of(queue: Any) -> dict[str, float]:
    """CPU of one round of verbs on a queue."""
    found, held = {}, []
    found["send"] = cpu(lambda: queue.send(["x"] * 10))
    found["receive"] = cpu(lambda: held.append(queue.receive(10, visibility_timeout=LEASE)))
    found["extend"] = cpu(lambda: held[0].extend(LEASE))
    found["delete"] = cpu(lambda: held[0].delete())
    found["counts"] = cpu(queue.counts)
    return found


def beside_idle(counts: list[int], rounds: int) -> None:
    """The verbs of one queue beside so many idle ones; the ledgers take turns, so that noise meets all alike."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        queues = []
        for count in counts:
            ledger = stack.enter_context(opened())
            add_idle(ledger, count)
            queues.append(ledger.create_queue("jobs", {"Lanes": 4}))
            for _ in range(3):
                verbs_of(queues[-1])
        found = [[] for _ in counts]
        for _ in range(rounds):
            for queue, mine in zip(queues, found):
                mine.append(verbs_of(queue))
    print(f"CPU ms a verb, medians of {rounds}, beside idle queues")
    print("verb     " + "".join(f"{count:>9,}" for count in counts) + "    last / first")
    for verb in found[0][0]:
        medians = [statistics.median(one[verb] for one in mine) for mine in found]
        print(f"{verb:<9}" + "".join(f"{value:9.1f}" for value in medians) + f"{medians[-1] / medians[0]:12.2f}")


def by_threads(numbers: list[int], seconds: float) -> None:
    """Threads of one process that claim one message of one queue and acknowledge it, over and over."""
    print("threads  commits/s  CPU ms a commit  slowest verb (s)  fewest / most verbs of a thread  errors")
    for number in numbers:
        with opened() as ledger:
            queue = ledger.create_queue("jobs", {"Lanes": 8})
            for _ in range(8):
                queue.send([f"message {n}" for n in range(1_000)])
            done, slowest, errors = [0] * number, [0.0] * number, []
            end = time.monotonic() + seconds

            def work(me: int) -> None:
                while time.monotonic() < end:  # noqa: B023 - joined before the next round
                    start = time.monotonic()
                    try:
                        queue.receive(1, visibility_timeout=LEASE).delete()  # noqa: B023
                        done[me] += 2  # noqa: B023
                    except Exception as error:
                        errors.append(repr(error))  # noqa: B023
                    slowest[me] = max(slowest[me], time.monotonic() - start)  # noqa: B023

            crowd = [threading.Thread(target=work, args=(me,)) for me in range(number)]
            began, used = time.monotonic(), time.process_time()
            for one in crowd:
                one.start()
            for one in crowd:
                one.join()
            took, used = time.monotonic() - began, time.process_time() - used
            print(
                f"{number:7} {sum(done) / took:10.1f} {used * 1_000 / max(1, sum(done)):16.1f} {max(slowest):17.2f} "
                f"{min(done):14} / {max(done):<14} {len(errors)} {errors[:1]}"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[], metavar="idle|threads")
    parser.add_argument("--idle", type=int, nargs="+", default=[0, 100, 1_000])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    if not given.parts or "idle" in given.parts:
        beside_idle(given.idle, given.rounds)
    if not given.parts or "threads" in given.parts:
        by_threads(given.threads, given.seconds)
