"""Runs with one attempt_id that are alive at once: what each of them is told, and that they part."""

import threading
from collections import Counter

import pytest

from ledger.rules.attempts import Share
from ledger.work.claim_source import ClaimSource


def row(message):
    return {"n": int(message.body)}


class Gate:
    """A handler that waits, at its first message, until another run has ended."""

    def __init__(self):
        self.entered, self.opened = threading.Event(), threading.Event()

    def __call__(self, message):
        self.entered.set()
        assert self.opened.wait(60)
        return row(message)


@pytest.mark.parametrize("has_rows", [True, False])
def test_what_another_run_of_the_attempt_did_first_is_not_counted_as_done(place, tmp_path, has_rows):
    """Both have the same claim, as they have the same receipt."""
    place.queue.send([str(n) for n in range(20)])
    gate, said, found = Gate(), [], []
    output = place.table if has_rows else None
    call = gate if has_rows else lambda message: gate(message) and None
    arguments = {"output": output, "attempt_id": "today", "max_messages": 20, "until": "once", "report": said.append}
    slow = threading.Thread(target=lambda: found.append(place.queue.consume(call, concurrency=1, **arguments)))
    slow.start()
    assert gate.entered.wait(60)
    other = place.another().queue("work")
    done = other.consume(row if has_rows else lambda message: None, **{**arguments, "report": None})
    gate.opened.set()
    slow.join(60)
    assert (done.messages, done.lost) == (20, 0)
    assert (found[0].messages, found[0].rows, found[0].lost) == (0, 0, 20)
    assert place.queue.counts().deleted == 20
    if has_rows:
        assert any("20 messages had rows by another run with this attempt_id" in line for line in said)
        assert set(place.written().values()) == {1}


def test_a_run_that_met_another_one_of_its_attempt_receives_other_messages_from_then_on(place):
    """The numbers of its claims are no longer those of the other run. A later run finds the claims of both."""
    place.queue.send([str(n) for n in range(40)])
    slow, fast = (place.another().queue("work").access for _ in range(2))
    sources = [ClaimSource(access, None, "today", lambda line: None) for access in (slow, fast)]
    numbers = [source.attempts() for source in sources]

    def receive(which):
        return sources[which].receive(next(numbers[which])[0], 10, 0)

    assert receive(0).receipt_id == receive(1).receipt_id
    sources[0].part_ways()
    one, two = receive(0), receive(1)
    assert one.receipt_id != two.receipt_id and one.count == two.count == 10
    resumed = ClaimSource(fast, None, "today", lambda line: None).attempts()
    assert [next(resumed)[1] for _ in range(4)] == [10, 10, 10, 0]


@pytest.mark.parametrize("processes", [1, 2, 3, 5])
def test_a_run_with_another_number_of_processes_has_all_that_the_dead_one_held(place, processes):
    """Each claim is carried on with by one process, and none has the number of another one's new claim."""
    place.queue.send([str(n) for n in range(60)])
    access = place.queue.access
    for dead in (Share(number, 3) for number in range(3)):
        source = ClaimSource(access, None, "today", print, dead)
        ids = source.attempts()
        for _ in range(2):
            source.receive(next(ids)[0], 10, 0)
    carried, fresh = Counter(), set()
    for number in range(processes):
        source = ClaimSource(access, None, "today", print, Share(number, processes))
        for attempt_id, held in source.attempts():
            if not held:
                fresh.add(attempt_id)
                break
            carried.update([source.receive(attempt_id, 10, 0).receipt_id])
    assert len(carried) == 6 and set(carried.values()) == {1} and len(fresh) == processes
    assert fresh.isdisjoint(f"today/{number}.{claim}" for number in range(3) for claim in range(2))
    assert place.queue.counts().visible == 0
