"""Limits of message groups: calls at once and messages a second, in all processes together."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from ledger import GroupLimit, InvalidParameterValue, Ledger
from ledger.work.backlog import AsideMessages, Backlog
from ledger.work.group_limits import (
    LONGEST_HIDDEN_SECONDS,
    NO_SLOT,
    PATIENCE_SECONDS,
    TOO_EARLY,
    Aside,
    ClosedGroups,
    GroupLimits,
    require_limits,
)
from ledger.work.handler_calls import CallSteps
from tests.clock import FrozenClock
from tests.consume import handlers


@pytest.fixture
def clock():
    return FrozenClock()


@pytest.fixture
def limits(tmp_path, clock):
    """Makes limits as a process has them that shares the folder."""

    def made(given):
        return GroupLimits(require_limits(given), tmp_path, clock)

    return made


def message(group):
    return SimpleNamespace(message_group_id=group)


def calls(limits, group, count):
    """Of so many calls one after the other, what was said of each that was refused, and None for the others."""
    said = []
    for _ in range(count):
        permits = limits.make_call_permits()
        said.append(permits.refuse(message(group), waited=PATIENCE_SECONDS * 2))
        permits.end()
    return said


def test_slots_are_shared_by_all_who_share_the_folder_and_end_with_the_call(limits):
    here, there = limits({"a": GroupLimit(concurrency=2)}), limits({"a": GroupLimit(concurrency=2)})
    first, second, third = here.make_call_permits(), there.make_call_permits(), here.make_call_permits()
    assert first.refuse(message("a")) is None and second.refuse(message("a")) is None
    assert first.refuse(message("a")) is None, "messages of one call share its slot"
    assert isinstance(third.refuse(message("a")), Aside)
    assert third.refuse(message("a"), waited=PATIENCE_SECONDS * 2).reason == NO_SLOT
    second.end()
    assert there.make_call_permits().refuse(message("a")) is None


def test_other_groups_and_messages_without_one_are_not_limited(limits):
    here = limits({"a": GroupLimit(concurrency=1)})
    held = here.make_call_permits()
    assert held.refuse(message("a")) is None
    assert (
        here.make_call_permits().refuse(message("b")) is None and here.make_call_permits().refuse(message(None)) is None
    )


def test_one_limit_is_for_each_group_by_itself(limits):
    here = limits(GroupLimit(concurrency=1))
    held = [here.make_call_permits() for _ in range(3)]
    assert [one.refuse(message(group)) is None for one, group in zip(held, "aab")] == [True, False, True]


def test_a_process_that_is_killed_takes_no_slot_with_it(tmp_path, limits):
    script = (
        "import sys, time\nfrom types import SimpleNamespace\n"
        "from ledger.work.group_limits import GroupLimit, GroupLimits\n"
        "call = GroupLimits({None: GroupLimit(concurrency=1)}, sys.argv[1], time.time_ns).make_call_permits()\n"
        "print(call.refuse(SimpleNamespace(message_group_id='a')), flush=True)\ntime.sleep(60)\n"
    )
    other = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "None\n"
        here = limits(GroupLimit(concurrency=1))
        assert isinstance(here.make_call_permits().refuse(message("a")), Aside)
    finally:
        other.send_signal(signal.SIGKILL)
        other.wait()
    assert here.make_call_permits().refuse(message("a")) is None


def test_a_process_that_a_handler_forked_keeps_no_slot(limits):
    """A pool of processes outlives the call that made it."""
    here = limits(GroupLimit(concurrency=1))
    call = here.make_call_permits()
    assert call.refuse(message("a")) is None
    child = os.fork()
    while not child:
        signal.pause()
    try:
        call.end()
        assert here.make_call_permits().refuse(message("a")) is None
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_group_has_a_burst_and_then_its_rate(limits, clock):
    limit = {"a": GroupLimit(rate=5)}
    here, there = limits(limit), limits(limit)
    assert calls(here, "a", 3) + calls(there, "a", 2) == [None] * 5
    assert here.take_turn("a", 5) == pytest.approx(0.2)
    clock.advance(0.2)
    assert there.take_turn("a", 5) == 0 and here.take_turn("a", 5) == pytest.approx(0.2)
    clock.advance(60)
    assert [here.take_turn("a", 5) == 0 for _ in range(6)] == [True] * 5 + [False], "a pause is worth one second"


@pytest.mark.parametrize("rate", [0.25, 1, 7, 400])
def test_in_any_time_a_group_has_no_more_than_its_rate_and_a_burst(limits, clock, rate):
    here, turns = limits(GroupLimit(rate=rate)), []
    for _ in range(300):
        if here.take_turn("a", rate) == 0:
            turns.append(clock.now)
        clock.advance(0.5 / rate)
    for first in range(len(turns)):
        for last in range(first, len(turns)):
            # The clock has whole milliseconds.
            seconds = (turns[last] - turns[first] + 1) / 1_000
            assert last - first + 1 <= rate * (seconds + 1) + 1
    assert len(turns) >= 0.9 * 150, "and it has them"


def test_a_message_is_put_aside_until_a_turn_that_comes_soon_and_hidden_until_a_later_one(limits, clock):
    here = limits(GroupLimit(rate=5))
    said = [here.make_call_permits().refuse(message("a"), before=max(0, n - 5)) for n in range(12)]
    assert said[:5] == [None] * 5
    assert [one.seconds for one in said[5:10]] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert {one.reason for one in said[10:]} == {TOO_EARLY}
    clock.advance(0.2)
    assert here.make_call_permits().refuse(message("a"), waited=0.2) is None
    said = calls(limits({"b": GroupLimit(rate=0.5)}), "b", 4)
    assert said[0] is None and {one.reason for one in said[1:]} == {TOO_EARLY}
    assert [one.seconds for one in said[1:]] == [4, 6, 8], "each has a turn of its own"


def test_no_message_is_hidden_for_long_however_many_wait(limits):
    slow, busy = limits({"a": GroupLimit(rate=0.1)}), limits({"b": GroupLimit(concurrency=1)})
    assert max(one.seconds for one in calls(slow, "a", 50)[1:]) == LONGEST_HIDDEN_SECONDS
    held = busy.make_call_permits()
    held.refuse(message("b"))
    seconds = [one.seconds for one in calls(busy, "b", 700)]
    assert seconds == sorted(seconds) and seconds[0] < 2 and seconds[-1] == LONGEST_HIDDEN_SECONDS


def test_a_clock_that_is_set_back_stops_no_group(limits, clock):
    here = limits({"a": GroupLimit(rate=5)})
    calls(here, "a", 5)
    clock.advance(-3_600)
    assert here.take_turn("a", 5) <= 1.0


def test_a_file_that_was_cut_short_is_a_new_one(limits, tmp_path):
    here = limits({"a": GroupLimit(rate=5)})
    calls(here, "a", 5)
    (file,) = tmp_path.glob("*.rate")
    os.truncate(file, 7)
    assert here.take_turn("a", 5) == 0


def test_what_is_refused_is_given_back_uncounted_and_other_groups_go_on(ledger):
    queue, seen = ledger.create_queue("work"), []
    queue.send([{"MessageBody": f"{group}{n}", "MessageGroupId": group} for n in range(5) for group in "ab"])
    done = queue.consume(
        lambda message: seen.append(message.body), until="once", concurrency=1, group_limits={"a": GroupLimit(rate=0.5)}
    )
    assert sorted(seen) == ["a0", "b0", "b1", "b2", "b3", "b4"] and (done.messages, done.limited, done.retried) == (
        6,
        4,
        0,
    )
    ledger.time.advance(10)
    assert {message.receive_count for message in queue.receive(10)} == {1}


def test_a_fifo_group_keeps_its_order_under_a_limit(ledger):
    queue, seen = ledger.create_queue("work.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True}), []
    queue.send([{"MessageBody": f"{group}{n}", "MessageGroupId": group} for n in range(3) for group in "ab"])
    limits = {"a": GroupLimit(rate=0.5)}
    for _ in range(9):
        queue.consume(lambda message: seen.append(message.body), until="once", concurrency=1, group_limits=limits)
        ledger.time.advance(5)
    assert [body for body in seen if body[0] == "a"] == ["a0", "a1", "a2"]
    assert [body for body in seen if body[0] == "b"] == ["b0", "b1", "b2"]


def overlap(folder, group):
    """The most calls of a group that ran at once, by what the handler wrote down in all processes."""
    edges = []
    for file in folder.glob("*.calls"):
        for line in file.read_text().splitlines():
            of, begun, ended = line.split()
            if of == group:
                edges += [(int(begun), 1), (int(ended), -1)]
    # At the same instant one ends before the other begins.
    level = most = 0
    for _, step in sorted(edges):
        level += step
        most = max(most, level)
    return most


def test_calls_at_once_are_limited_in_all_processes_together(tmp_path, monkeypatch):
    monkeypatch.setenv("CONSUME_CALLS", str(tmp_path))
    queue = Ledger.open(str(tmp_path / "ledger")).create_queue("work")
    queue.send([{"MessageBody": str(n), "MessageGroupId": group} for n in range(20) for group in "ab"])
    done = queue.consume(
        handlers.timed, processes=2, concurrency=4, max_messages=10, group_limits={"a": GroupLimit(concurrency=2)}
    )
    assert done.messages == 40 and overlap(tmp_path, "a") <= 2


def test_two_consumers_that_name_a_folder_share_its_limits(tmp_path):
    shared, running, most = tmp_path / "limits", [], []
    shared.mkdir()

    async def handler(message):
        running.append(message)
        most.append(len(running))
        await asyncio.sleep(0.01)
        running.pop()

    async def both():
        queues = []
        for name in ("one", "two"):
            queue = Ledger.in_memory(lambda: time.time_ns() // 1_000_000).create_queue(name)
            queue.send([{"MessageBody": str(n), "MessageGroupId": "a"} for n in range(15)])
            queues.append(queue)
        given = {"group_limits": GroupLimit(concurrency=1), "limits_folder": shared}
        await asyncio.gather(*(asyncio.to_thread(queue.consume, handler, concurrency=3, **given) for queue in queues))
        return [queue.counts().deleted for queue in queues]

    assert asyncio.run(both()) == [15, 15] and max(most) == 1


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"group_limits": {"a": 5}}, "group_limits"),
        ({"group_limits": {7: GroupLimit(rate=1)}}, "group_limits"),
        ({"group_limits": {"tenant 7": GroupLimit(rate=1)}}, "no space"),
        ({"group_limits": "a"}, "group_limits"),
        ({"limits_folder": "."}, "limits_folder"),
        ({"limits_folder": "missing", "group_limits": GroupLimit(rate=1)}, "limits_folder"),
    ],
)
def test_limits_that_are_none_are_refused(ledger, given, field):
    queue = ledger.create_queue("work")
    queue.send("1")
    with pytest.raises(InvalidParameterValue, match=field):
        queue.consume(lambda message: None, **given)
    assert queue.counts().visible == 1


@pytest.mark.parametrize("given", [{}, {"rate": 0}, {"rate": float("inf")}, {"rate": True}, {"concurrency": 0}])
def test_a_limit_of_nothing_is_refused(given):
    with pytest.raises(InvalidParameterValue):
        GroupLimit(**given)


def messages(count, group, first=0):
    return [SimpleNamespace(message_id=f"{group}{n}", message_group_id=group) for n in range(first, first + count)]


@pytest.mark.parametrize("in_order", [False, True])
def test_a_group_at_its_limit_holds_no_call_up(limits, clock, in_order):
    """A hundred messages of a group at its limit stand in front of a thousand of another one; two calls at a time."""
    backlog, told = Backlog(None, in_order=in_order), SimpleNamespace(batch=None, output=None)
    backlog.aside = AsideMessages(lambda: clock.now / 1_000)
    here, seen = limits({"a": GroupLimit(rate=1)}), []
    backlog.add("claim", [*messages(100, "a"), *messages(1_000, "b")])

    def call():
        taken = backlog.take()
        if taken is None:
            return False
        steps = CallSteps(taken, told, ClosedGroups(clock), backlog.aside, here, in_order=in_order)
        while (argument := steps.next()) is not None:
            seen.append(argument.message_id)
            steps.answered(None)
        steps.end()
        backlog.finish(taken, steps.given_back, steps.aside)
        return True

    while call():
        pass
    assert [one for one in seen if one[0] == "b"] == [f"b{n}" for n in range(1_000)], "no time has passed"
    assert [one for one in seen if one[0] == "a"] == ["a0"] and len(backlog) == 0
    assert len(backlog.aside) == 1 and backlog.aside.seconds_to_next() == 1
    clock.advance(1)
    while call():
        pass
    assert [one for one in seen if one[0] == "a"] == ["a0", "a1"]


def test_a_claim_that_is_lost_takes_its_messages_with_it_that_are_put_aside(clock):
    backlog = Backlog(None, in_order=True)
    backlog.aside = AsideMessages(lambda: clock.now / 1_000)
    backlog.add("one", messages(3, "a"))
    first = backlog.take()
    backlog.finish(first, (), [(first.messages[0], 0.5)])
    backlog.add("two", messages(2, "a", 3))
    assert backlog.take() is None, "its group waits"
    assert backlog.remove("one") == 3
    assert backlog.take().messages[0].message_id == "a3"


def test_what_fails_before_a_message_that_is_put_aside_gives_it_back_on_a_fifo_queue(clock):
    backlog = Backlog(2, in_order=True)
    backlog.add("one", messages(4, "a"))
    call = backlog.take()
    dropped = backlog.finish(call, ["a"], [(call.messages[1], 0.5)])
    assert [one.message_id for _, one in dropped] == ["a1", "a2", "a3"] and backlog.take() is None
    assert len(backlog.aside) == 0


@pytest.mark.parametrize("is_async", [False, True])
def test_messages_that_are_put_aside_are_handled_within_the_same_claim(tmp_path, is_async):
    queue = Ledger.in_memory(lambda: time.time_ns() // 1_000_000).create_queue("work")
    queue.send([{"MessageBody": str(n), "MessageGroupId": group} for group in "ab" for n in range(12)])
    seen = []

    def handler(message):
        seen.append(message.message_group_id)

    async def same(message):
        handler(message)

    done = queue.consume(same if is_async else handler, concurrency=2, group_limits={"a": GroupLimit(rate=10)})
    assert (done.messages, done.limited, done.claims) == (24, 0, 1)
    assert seen.index("b") <= 12 and set(seen[-2:]) == {"a"}, "the others did not wait for it"
