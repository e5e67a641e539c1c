"""Commits per second, by threads; and what ten thousand commits do to the verbs of a queue."""

from __future__ import annotations

import threading
import time
from typing import Any

from contestant import VERBS
from folders import linked_copy, remove
from ours import LEASE, QUEUE, Ours, Templates
from timing import Patience, median_of, say, timed

from ledger import Ledger, Settings
from ledger.clock import system_clock

LANES = 8


def per_second(ours: Ours, threads: int, seconds: float, *, one_queue: bool) -> dict[str, Any]:
    """Every thread claims one message and acknowledges it, over and over: how many commits a second in all.

    Each has a queue of its own, so that no two commits touch the same lane; or with `one_queue` all share one.
    """
    root = ours.templates.work / f"commits-{ours.engine}-{threads}-{one_queue}"
    ledger = ours.open(root)
    names = [QUEUE] * threads if one_queue else [f"{QUEUE}-{number}" for number in range(threads)]
    for name in dict.fromkeys(names):
        queue = ledger.create_queue(name, {"Lanes": LANES})
        for _ in range(LANES):
            queue.send([f"message {number}" for number in range(1_000)])
    done, latencies, errors = [0] * threads, [[] for _ in range(threads)], []
    begin = threading.Barrier(threads + 1)

    def work(number: int) -> None:
        queue = ledger.queue(names[number])
        queue.receive(1, visibility_timeout=LEASE).delete()
        begin.wait()
        try:
            while time.monotonic() < end:
                took, claim = timed(lambda: queue.receive(1, visibility_timeout=LEASE))
                latencies[number] += [took, timed(claim.delete)[0]] if claim else []
                done[number] += 2 if claim.count else 0
        except Exception as error:
            errors.append(repr(error))

    crowd = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in crowd:
        thread.start()
    end = float("inf")
    begin.wait()
    start = time.monotonic()
    end = start + seconds
    for thread in crowd:
        thread.join()
    rate = sum(done) / (time.monotonic() - start)
    remove(root)
    kind = "one queue" if one_queue else "a queue each"
    say(f"{ours.name}: {threads} threads, {kind}: {rate:.1f} commits/s {errors[:1] or ''}")
    every = sorted(took for mine in latencies for took in mine)
    return {
        "engine": ours.engine,
        "threads": threads,
        "lanes": kind,
        "per_second": rate,
        "errors": errors[:3],
        "median": every[len(every) // 2] if every else None,
    }


def after_many(templates: Templates, messages: int, commits: int, patience: Patience) -> dict[str, Any]:
    """Medians of the verbs (10 messages, and all that is left) on a queue before and after `commits` commits.

    The commits are those of a consumer: receive ten, extend, release, receive ten, delete. Measured after them as they
    left it, again after the ledger's upkeep, and after an upkeep at a time when it may forget the deleted receipts.
    """
    root = linked_copy(templates.of(messages)[0])
    ledger = Ours(templates, "delta-rs").open(root)
    queue = ledger.queue(QUEUE)
    found = {"commits": commits, "messages": messages, "before": _verbs(queue, patience)}
    say(f"{commits:,} commits: before {_brief(found['before'])}")
    start = time.perf_counter()
    for _ in range(commits // 5):
        claim = queue.receive(10, visibility_timeout=LEASE)
        claim.extend()
        claim.release()
        queue.receive(10, visibility_timeout=LEASE).delete()
    found["seconds"] = time.perf_counter() - start
    found["after"] = _verbs(queue, patience)
    say(f"{commits:,} commits: {found['seconds']:.0f} s; after {_brief(found['after'])}")
    later = Settings().keep_deleted_receipts * 1_000 + 1
    for state, clock in (("upkeep", system_clock), ("upkeep later", lambda: system_clock() + later)):
        ledger = Ledger.open(str(root), engine="delta-rs", clock=clock)
        found[state] = timed(ledger.upkeep)[0]
        found[f"after {state}"] = _verbs(ledger.queue(QUEUE), patience)
        say(f"{commits:,} commits: {state} {found[state]:.1f} s; after it {_brief(found[f'after {state}'])}")
    remove(root)
    return found


def _verbs(queue: Any, patience: Patience) -> dict[str, dict[str, Any]]:
    return {"10": _verbs_of(queue, 10, patience), "all": _verbs_of(queue, None, patience)}


def _verbs_of(queue: Any, size: int | None, patience: Patience) -> dict[str, Any]:
    held: list[Any] = []

    def claim() -> None:
        held.append(queue.receive(size, visibility_timeout=LEASE))

    def give_back() -> None:
        while held:
            held.pop().release()

    cells = {"claim": median_of(claim, patience, give_back)}
    cells["extend"] = median_of(lambda: held[0].extend(), patience)
    give_back()
    cells["release"] = median_of(give_back, patience, claim)
    if size is not None:
        cells["delete"] = median_of(lambda: held.pop().delete(), patience, claim)
    return {verb: cells[verb].as_json() for verb in VERBS if verb in cells}


def _brief(verbs: dict[str, dict[str, Any]]) -> str:
    return "; ".join(
        f"{size}: " + ", ".join(f"{verb} {cell['median'] * 1e3:.0f} ms" for verb, cell in cells.items())
        for size, cells in verbs.items()
    )
