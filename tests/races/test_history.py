"""The checker finds what it is there to find, and nothing in a good history."""

from dataclasses import replace

import pytest

from tests.races.checker import violations
from tests.races.history import Log, Operation, read


def send(*ids, began=0, ended=1):
    return Operation("s", "send", began, ended, ids)


def receive(receipt, version, began, ended, *ids, timeout=1_000, worker="w"):
    return Operation(worker, "receive", began, ended, ids, receipt, began, began + timeout, version)


def act(verb, receipt, began, ended, *ids, deadline=None, worker="w"):
    return Operation(worker, verb, began, ended, ids, receipt, None, deadline)


GOOD = {
    "received and deleted": [send("a"), receive("r1", 1, 10, 20, "a"), act("delete", "r1", 30, 40, "a")],
    "ran out and was received again": [
        send("a"),
        receive("r1", 1, 10, 20, "a"),
        receive("r2", 2, 1_010, 1_020, "a"),
        act("delete", "r2", 1_030, 1_040, "a"),
    ],
    "released and received at once": [
        send("a"),
        receive("r1", 1, 10, 20, "a"),
        act("release", "r1", 30, 60, "a"),
        receive("r2", 2, 40, 50, "a"),
    ],
    "shortened and received again": [
        send("a"),
        receive("r1", 1, 10, 20, "a"),
        act("extend", "r1", 30, 40, "a", deadline=100),
        receive("r2", 2, 100, 110, "a"),
    ],
    "the same receipt again": [send("a"), receive("r1", 1, 10, 20, "a"), receive("r1", 2, 30, 40, "a")],
    "a delete without an answer": [send("a"), receive("r1", 1, 10, 20, "a"), act("delete", "r1", 30, None, "a")],
    "a send without an answer": [send("a", ended=None)],
    "a late delete before the next receive was answered": [
        send("a"),
        receive("r1", 1, 10, 20, "a"),
        act("delete", "r1", 1_015, 1_050, "a"),
        receive("r2", 2, 1_010, 1_020, "a"),
    ],
}
BAD = {
    "is lost": [send("a", "b"), receive("r1", 1, 10, 20, "a"), act("delete", "r1", 30, 40, "a")],
    "never sent": [send("a"), receive("r1", 1, 10, 20, "a", "c"), act("delete", "r1", 30, 40, "a")],
    "had two holders": [
        send("a"),
        receive("r1", 1, 10, 20, "a"),
        receive("r2", 2, 15, 30, "a"),
        act("delete", "r2", 35, 40, "a"),
    ],
    "two holders: r1 of w until 5000": [
        send("a"),
        receive("r1", 1, 10, 20, "a"),
        act("extend", "r1", 30, 40, "a", deadline=5_000),
        receive("r2", 2, 2_000, 2_010, "a"),
        act("delete", "r2", 2_020, 2_030, "a"),
    ],
    "came back": [
        send("a"),
        receive("r1", 1, 10, 20, "a"),
        act("delete", "r1", 30, 40, "a"),
        receive("r2", 2, 1_010, 1_020, "a"),
    ],
    "was deleted 2 times": [
        send("a"),
        receive("r1", 1, 10, 20, "a"),
        act("delete", "r1", 30, 40, "a"),
        act("delete", "r1", 50, 60, "a"),
    ],
    "delete of w worked on a through the stale receipt r1": [
        send("a"),
        receive("r1", 1, 10, 20, "a"),
        receive("r2", 2, 1_010, 1_020, "a"),
        act("delete", "r1", 1_030, 1_040, "a"),
    ],
    "extend of w worked on a through the stale receipt r1": [
        send("a"),
        receive("r1", 1, 10, 20, "a"),
        receive("r2", 2, 1_010, 1_020, "a"),
        act("extend", "r1", 1_030, 1_040, "a", deadline=9_000),
    ],
    "was never granted": [send("a"), act("delete", "r9", 30, 40, "a")],
    "have the fencing token 1": [
        send("a"),
        receive("r1", 1, 10, 20, "a"),
        receive("r2", 1, 1_010, 1_020, "a"),
        act("delete", "r2", 1_030, 1_040, "a"),
    ],
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_has_no_violations(name):
    deleted = {i for o in GOOD[name] if o.verb == "delete" for i in o.ids}
    assert violations(GOOD[name], {"a"} - deleted) == []


@pytest.mark.parametrize("words", BAD)
def test_a_bad_history_is_found_out(words):
    found = violations(BAD[words], remaining=[])
    assert any(words in problem for problem in found), found


def test_a_deleted_message_that_is_still_there_is_found_out():
    assert "was deleted and is there in the end" in violations(GOOD["received and deleted"], ["a"])[0]


def test_a_log_keeps_what_was_begun_and_replaces_it_by_the_answer(tmp_path):
    log = Log(tmp_path / "log", "w")
    first = log.began("receive")
    done = log.ended(first, ids=("a",), receipt="r", version=3)
    cut_off = log.began("delete", ["a"], "r")
    (tmp_path / "log").open("a").write('{"worker": "w", "ver')
    assert read([tmp_path / "log"]) == [done, cut_off]


def ordered(receipt, version, began, ended, *ids, numbers, queue="q.fifo", timeout=1_000, moved=()):
    """`moved`: when those of the messages came that were moved to the queue, by their numbers."""
    places = tuple(("g", number, dict(moved).get(number, number), number in dict(moved)) for number in numbers)
    return Operation("w", "receive", began, ended, ids, receipt, began, began + timeout, version, queue, places)


IN_ORDER = {
    "one after the other": [
        send("a", "b"),
        ordered("r1", 1, 10, 20, "a", numbers=[1]),
        act("delete", "r1", 30, 40, "a"),
        ordered("r2", 2, 50, 60, "b", numbers=[2]),
    ],
    "together": [send("a", "b"), ordered("r1", 1, 10, 20, "a", "b", numbers=[1, 2])],
    "the first one again while the second is held": [
        send("a", "b"),
        ordered("r1", 1, 10, 20, "a", "b", numbers=[1, 2]),
        act("release", "r1", 30, 40, "a"),
        ordered("r2", 2, 50, 60, "a", numbers=[1]),
    ],
    "sent while the other was given": [
        send("b"),
        send("a", began=0, ended=30),
        ordered("r1", 1, 10, 20, "b", numbers=[2]),
        ordered("r2", 2, 40, 50, "a", numbers=[1]),
    ],
}
BEYOND_ONE = {
    "past a": [
        send("a", "b"),
        ordered("r1", 1, 10, 20, "a", numbers=[1]),
        ordered("r2", 2, 30, 40, "b", numbers=[2]),
    ],
    "out of order": [send("a", "b"), ordered("r1", 1, 10, 20, "b", "a", numbers=[2, 1])],
    "k was stored twice": [
        Operation("s", "send", 0, 1, ("a",), keys=("k",)),
        Operation("s", "send", 2, 3, ("b",), keys=("k",)),
    ],
    "made 3 messages in flight": [
        send("a", "b", "c"),
        receive("r1", 1, 10, 20, "a", "b"),
        receive("r2", 2, 30, 40, "c"),
    ],
    "is a dead letter after 1": [send("a"), receive("r1", 1, 10, 20, "a"), receive("r2", 2, 1_010, 1_020, "a")],
}


@pytest.mark.parametrize("name", IN_ORDER)
def test_a_group_in_order_has_no_violations(name):
    deleted = {i for o in IN_ORDER[name] if o.verb == "delete" for i in o.ids}
    assert violations(IN_ORDER[name], {"a", "b"} - deleted) == []


@pytest.mark.parametrize("words", BEYOND_ONE)
def test_what_goes_beyond_one_message_is_found_out(words):
    found = violations(BEYOND_ONE[words], None, {"": 2}, {"": ("dead", 1)} if "dead" in words else None)
    assert [problem for problem in found if words in problem], found


def test_what_was_moved_away_and_back_is_the_newest_of_its_group():
    def history(moved):
        return [
            replace(send("a", "b"), queue="q.fifo"),
            ordered("r1", 1, 10, 20, "a", numbers=[1]),
            act("release", "r1", 30, 40, "a"),
            Operation("undertaker", "redrive", 50, 60, queue="dead-q.fifo"),
            ordered("r2", 2, 70, 80, "b", "a", numbers=[2, 1], moved=moved),
        ]

    policies = {"q.fifo": ("dead-q.fifo", 1)}
    assert violations(history([(1, 55)]), {"a", "b"}, policies=policies) == []
    assert any("out of order" in problem for problem in violations(history([]), {"a", "b"}, policies=policies))


def test_what_may_have_been_moved_away_may_be_passed():
    history = [
        replace(send("a", "b"), queue="q.fifo"),
        ordered("r1", 1, 10, 20, "a", numbers=[1]),
        act("release", "r1", 30, 40, "a"),
        ordered("r2", 2, 70, 80, "b", numbers=[2]),
    ]
    assert violations(history, {"a", "b"}, policies={"q.fifo": ("dead-q.fifo", 1)}) == []
    found = violations(history, {"a", "b"}, policies={"q.fifo": ("dead-q.fifo", 2)})
    assert any("past a" in problem for problem in found)


def test_a_quota_that_is_kept_because_a_lease_ended_is_no_violation():
    history = [send("a", "b"), receive("r1", 1, 10, 20, "a"), receive("r2", 2, 1_010, 1_020, "b")]
    assert violations(history, {"a", "b"}, {"": 1}) == []


def test_a_message_in_two_queues_is_found_out():
    assert "a is in 2 queues" in violations([send("a")], ["a", "a"])[0]
