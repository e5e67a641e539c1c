"""What a consumer holds: bodies in memory are bounded in bytes, unwritten rows in what they have cost."""

from __future__ import annotations

import sys
import threading

import pytest
from deltalake import DeltaTable

from ledger import InvalidParameterValue
from ledger.work.consumer_claim import ClaimInHand

BODY = "x" * 10_000
SIZE = sys.getsizeof(BODY)


@pytest.fixture
def held(monkeypatch):
    """The bytes that the claims in hand held after each read."""
    seen, read = [], ClaimInHand.read

    def watched(one, most, most_bytes):
        found = read(one, most, most_bytes)
        seen.append(one.bytes_held)
        return found

    monkeypatch.setattr(ClaimInHand, "read", watched)
    return seen


def versions(table):
    return DeltaTable(table).version()


def test_bodies_in_memory_are_bounded_and_all_are_handled(place, held):
    place.queue.send([BODY] * 90)
    done = place.queue.consume(
        lambda message: {"n": 1}, place.table, concurrency=2, max_messages=90, max_bytes=5 * SIZE, flush_seconds=600
    )
    assert done.messages == 90
    assert max(held) <= 6 * SIZE and len(held) >= 90 / 6, "so many, and one body more"


def test_a_body_that_is_larger_than_all_that_may_be_in_memory_is_handled_alone(place, held):
    place.queue.send([BODY] * 3)
    assert place.queue.consume(lambda message: {"n": 1}, place.table, max_bytes=1, flush_seconds=600).messages == 3
    assert held == [SIZE] * 3


def test_what_waits_for_a_verdict_about_the_handler_does_not_stop_the_reading(place):
    """Nothing of a claim can be settled while all that was tried of it failed; more of it must be read to judge."""
    place.queue.send([BODY] * 60)

    def broken(message):
        raise KeyError("no such column")

    with pytest.raises(KeyError):
        place.queue.consume(broken, place.table, max_messages=60, max_bytes=2 * SIZE, concurrency=1)
    assert place.queue.counts().visible == 60


def test_later_claims_are_no_larger_than_what_fits_in_memory(place):
    place.queue.send([BODY] * 260)
    steps = []
    place.queue.consume(lambda message: {"n": 1}, place.table, max_bytes=20 * SIZE, concurrency=1, report=steps.append)
    claims = [int(step.split()[1].replace(",", "")) for step in steps if step.startswith("claimed")]
    assert claims[0] == 100 and set(claims[2:]) == {20}, claims


def test_rows_are_written_when_they_have_cost_enough(place):
    place.queue.send([str(n) for n in range(40)])
    calls, turn = [], threading.Semaphore(0)

    def handler(message):
        # The first calls together cost what a commit may; the next call waits until they are written.
        calls.append(message.body)
        if len(calls) == 11:
            assert turn.acquire(timeout=60)
        return {"n": int(message.body), "tokens": 50}

    def written(step):
        if step.startswith("settled"):
            turn.release()

    done = place.queue.consume(
        handler, place.table, concurrency=1, cost="tokens", flush_cost=500, flush_seconds=600, report=written
    )
    assert done.messages == 40 and done.cost == 2_000 and versions(place.table) >= 1


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"max_bytes": 0}, "max_bytes"),
        ({"max_bytes": 1.5}, "max_bytes"),
        ({"flush_cost": 5}, "flush_cost"),
        ({"flush_cost": 0, "cost": "tokens"}, "flush_cost"),
        ({"flush_cost": "5", "cost": "tokens"}, "flush_cost"),
        ({"flush_cost": float("nan"), "cost": "tokens"}, "flush_cost"),
    ],
)
def test_bounds_that_are_none_are_refused(place, given, field):
    place.queue.send("1")
    with pytest.raises(InvalidParameterValue, match=field):
        place.queue.consume(lambda message: {"n": 1}, place.table, **given)
    assert place.queue.counts().visible == 1
