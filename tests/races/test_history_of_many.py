"""The checker finds what goes wrong between queues and in outputs: moves, restores, locks, purges, deleted queues."""

from dataclasses import replace

import pytest

from tests.races.checker import violations
from tests.races.history import Operation
from tests.races.test_history import act, ordered, receive, send

POLICIES = {"north": ("dead", 2)}


def at(queue, operation):
    return replace(operation, queue=queue)


def redrive(began, ended, queue, to, *ids, count=1):
    return Operation("w", "redrive", began, ended, ids, queue=queue, to=to, count=count)


def note(verb, began, ended, queue, *ids, **more):
    return Operation("w", verb, began, ended, ids, queue=queue, **more)


def write(receipt, began, ended, *ids, to="out", **more):
    return Operation("w", "write", began, ended, ids, receipt, queue="north", to=to, **more)


SENT = at("north", send("a"))
FIRST = at("north", receive("r1", 1, 10, 20, "a"))
RELEASED = act("release", "r1", 30, 40, "a")
DELETED = act("delete", "r1", 30, 40, "a")
WRITTEN = write("r1", 30, 40, "a")
RESTORED = note("restore", 50, 60, "north", receipt="r1", count=1)
AGAIN = at("north", receive("r2", 2, 1_070, 1_080, "a"))
AGAIN_DELETED = act("delete", "r2", 1_090, 1_100, "a")
LATER_ELSEWHERE = at("third", receive("r2", 2, 1_070, 1_080, "a"))
ROW = ("out", "a", "r1", "")
REFUSED = write("r1", 30, 40, "a", refused=True)

#: Histories with what is there in the end, and the rows of the outputs.
GOOD = {
    "moved after its lease and received elsewhere": (
        [SENT, FIRST, redrive(1_020, 1_030, "north", "third"), LATER_ELSEWHERE],
        ["a"],
        [],
    ),
    "received elsewhere by way of a third queue": (
        [SENT, redrive(2, 3, "north", "third"), redrive(4, 5, "third", "fourth"), at("fourth", FIRST)],
        ["a"],
        [],
    ),
    "a dead letter that was moved back": (
        [
            SENT,
            FIRST,
            RELEASED,
            at("north", receive("r2", 2, 50, 60, "a")),
            act("release", "r2", 70, 80, "a"),
            redrive(90, 100, "dead", None),
            at("north", receive("r3", 3, 110, 120, "a")),
        ],
        ["a"],
        [],
    ),
    "a move without an answer": (
        [SENT, redrive(2, None, "north", "third", count=None), at("third", FIRST)],
        ["a"],
        [],
    ),
    "restored and received again": ([SENT, FIRST, DELETED, RESTORED, AGAIN, AGAIN_DELETED], [], []),
    "restored and there": ([SENT, FIRST, DELETED, RESTORED], ["a"], []),
    "purged": ([SENT, note("purge", 5, 6, "north", count=1)], [], []),
    "sent to a queue that was deleted": ([SENT, note("remove", 5, 6, "north")], [], []),
    "moved by name to a queue that was deleted": (
        [SENT, redrive(2, 3, "north", "third", "a"), note("remove", 5, 6, "third")],
        [],
        [],
    ),
    "locked for a moment": ([SENT, note("lock", 5, 6, "north", "a", deadline=10), FIRST], ["a"], []),
    "written": ([SENT, FIRST, WRITTEN], [], [ROW]),
    "written without an answer": ([SENT, FIRST, write("r1", 30, None, "a")], [], [ROW]),
    "not written by one that died": ([SENT, FIRST, write("r1", 30, None, "a"), AGAIN], ["a"], []),
    "written again under the same receipt": ([SENT, FIRST, WRITTEN, write("r1", 50, 60, "a")], [], [ROW]),
    "written and deleted at once through one receipt": (
        [SENT, FIRST, WRITTEN, act("delete", "r1", 35, 38, "a")],
        [],
        [ROW],
    ),
    "given again to its attempt, less what it gave back": (
        [
            at("q.fifo", send("a", "b")),
            ordered("r1", 1, 10, 20, "a", "b", numbers=[1, 2]),
            act("release", "r1", 30, 40, "a"),
            ordered("r1", 2, 50, 60, "b", numbers=[2]),
            ordered("r2", 3, 2_000, 2_010, "a", "b", numbers=[1, 2]),
        ],
        ["a", "b"],
        [],
    ),
    "written, restored and written again": (
        [SENT, FIRST, WRITTEN, RESTORED, AGAIN, write("r2", 1_090, 1_100, "a")],
        [],
        [ROW, ("out", "a", "r2", "")],
    ),
    "refused after its lease": ([SENT, FIRST, write("r1", 1_020, 1_030, "a", refused=True)], ["a"], []),
    "refused once another one had it": (
        [SENT, FIRST, AGAIN, write("r1", 1_085, 1_088, "a", refused=True)],
        ["a"],
        [],
    ),
    "refused once its attempt was tried again by one that died": (
        [SENT, replace(FIRST, attempt="job"), note("receive", 25, None, "north", attempt="job"), REFUSED],
        ["a"],
        [],
    ),
}
BAD = {
    "a had two holders: r1 of w until 1010 in 'north', and r2 of w from 500 in 'third'": (
        [SENT, FIRST, redrive(100, 110, "north", "third"), at("third", receive("r2", 2, 500, 510, "a"))],
        ["a"],
        [],
    ),
    "received by w from third, and no way led there from north": ([SENT, at("third", FIRST)], ["a"], []),
    "received by w from fourth, and no way led there from third": (
        [SENT, redrive(2, 3, "north", "third"), at("third", FIRST), at("fourth", AGAIN)],
        ["a"],
        [],
    ),
    "no way led there from north": (
        # It was another message that was moved.
        [at("north", send("a", "b")), redrive(2, 3, "north", "third", "b"), at("third", FIRST)],
        ["a", "b"],
        [],
    ),
    "is a dead letter after 2": (
        [SENT, FIRST, AGAIN, at("north", receive("r3", 3, 2_080, 2_090, "a"))],
        ["a"],
        [],
    ),
    "a is lost": ([SENT, redrive(2, 3, "north", "third"), at("third", FIRST)], [], []),
    "a is lost: ": ([SENT, note("purge", 5, 6, "south", count=1)], [], []),
    "a is lost: sent": ([at("north", replace(send("a"), began=10, ended=11)), note("purge", 5, 6, "north")], [], []),
    "w received from north, which was deleted before": ([SENT, note("remove", 5, 6, "north"), FIRST], [], []),
    "came back": ([SENT, FIRST, DELETED, AGAIN], ["a"], []),
    "through r1 and came back": (
        # Restored was what another receipt had acknowledged.
        [SENT, FIRST, DELETED, replace(RESTORED, receipt="r9"), AGAIN],
        ["a"],
        [],
    ),
    "came back to w": ([SENT, FIRST, DELETED, replace(RESTORED, count=0), AGAIN], ["a"], []),
    "deleted and is there": ([SENT, FIRST, DELETED], ["a"], []),
    "a was deleted 2 times": ([SENT, FIRST, DELETED, RESTORED, replace(DELETED, began=70, ended=80)], [], []),
    "was locked": ([SENT, note("lock", 2, 3, "north", "a", deadline=500), FIRST], ["a"], []),
    "through the stale receipt r1": (
        [SENT, FIRST, note("lock", 1_020, 1_030, "north", "a", deadline=2_000), act("delete", "r1", 1_040, 1_050, "a")],
        [],
        [],
    ),
    "write of w worked on a through the stale receipt r1": (
        [SENT, FIRST, AGAIN, write("r1", 1_085, 1_088, "a"), AGAIN_DELETED],
        [],
        [ROW],
    ),
    "a is 2 times in the output": ([SENT, FIRST, WRITTEN], [], [ROW, ROW]),
    "a is 2 times in the output: by r1, r2": (
        [SENT, FIRST, write("r1", 30, None, "a"), AGAIN, write("r2", 1_090, 1_100, "a")],
        [],
        [ROW, ("out", "a", "r2", "")],
    ),
    "without a row in out": ([SENT, FIRST, WRITTEN], [], []),
    "without a row in elsewhere": ([SENT, FIRST, WRITTEN, write("r1", 50, 60, "a", to="elsewhere")], [], [ROW]),
    "again, and out has its row": ([SENT, FIRST, write("r1", 30, None, "a"), AGAIN], ["a"], [ROW]),
    "and the message is there in the end": ([SENT, FIRST, write("r1", 30, None, "a")], ["a"], [ROW]),
    "which was never granted it": ([SENT, FIRST, DELETED], [], [("out", "a", "r9", "")]),
    "was refused, and it held a": (
        [SENT, replace(FIRST, attempt="job"), note("receive", 25, None, "north", attempt="other"), REFUSED],
        ["a"],
        [],
    ),
    "for a, which was 'said'": ([SENT, replace(FIRST, bodies=("said",)), WRITTEN], [], [("out", "a", "r1", "other")]),
    "met a wall": ([SENT, Operation("w", "error", 5, to="a wall")], ["a"], []),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_of_several_queues_has_no_violations(name):
    operations, remaining, rows = GOOD[name]
    assert violations(operations, remaining, policies=POLICIES, rows=rows) == []


@pytest.mark.parametrize("words", BAD)
def test_a_bad_history_of_several_queues_is_found_out(words):
    operations, remaining, rows = BAD[words]
    found = violations(operations, remaining, policies=POLICIES, rows=rows)
    assert [problem for problem in found if words in problem], found


def test_a_send_that_is_tried_again_and_stored_twice_is_found_out():
    first = Operation("s", "send", 0, None, (), bodies=("one",), attempt="job")
    again = Operation("s", "send", 5, 6, ("b",), bodies=("one",), attempt="job")
    received = [
        replace(receive("r1", 1, 10, 20, "a"), bodies=("one",)),
        replace(receive("r2", 2, 10, 20, "b"), bodies=("one",)),
    ]
    assert violations([first, again, received[1]], ["b"]) == []
    assert any("'one' was stored twice" in found for found in violations([first, again, *received], ["a", "b"]))


def test_what_was_never_sent_is_found_out_although_some_sends_have_no_answer():
    unanswered = Operation("s", "send", 0, None, (), bodies=("one",))
    received = replace(receive("r1", 1, 10, 20, "a"), bodies=("two",))
    assert violations([unanswered, replace(received, bodies=("one",))], ["a"]) == []
    assert "a was received and never sent" in violations([unanswered, received], ["a"])


def test_a_body_that_changed_on_its_way_is_found_out():
    history = [
        Operation("s", "send", 0, 1, ("a",), bodies=("one",)),
        replace(receive("r1", 1, 10, 20, "a"), bodies=("two",)),
    ]
    assert any("is now 'two'" in found for found in violations(history, ["a"]))


def test_a_deduplication_id_counts_anew_after_five_minutes_and_after_a_purge():
    first, second = (Operation("s", "send", 0, 1, (one,), queue="q.fifo", keys=("k",)) for one in "ab")
    late = replace(second, began=300_001, ended=300_002)
    purge = Operation("w", "purge", 2, 3, queue="q.fifo", count=1)
    assert any("k was stored twice" in found for found in violations([first, replace(second, began=5, ended=6)]))
    assert violations([first, late]) == []
    assert violations([first, purge, replace(second, began=5, ended=6)]) == []


def test_a_group_keeps_its_order_in_the_queue_that_it_was_moved_to():
    def history(*got):
        return [at("q.fifo", send("a", "b")), redrive(2, 3, "q.fifo", "third.fifo"), *got]

    moved = {"queue": "third.fifo", "moved": [(1, 3), (2, 3)]}
    first, both = (
        ordered("r1", 1, 10, 20, "b", numbers=[2], **moved),
        ordered("r2", 2, 1_100, 1_110, "a", "b", numbers=[1, 2], **moved),
    )
    assert violations(history(both), ["a", "b"]) == []
    # Nobody can say that a was there before it is met; afterwards it was, as it came only once.
    met = ordered("r0", 0, 4, 5, "a", numbers=[1], timeout=1, **moved)
    assert any("past a" in found for found in violations(history(met, first, both), ["a", "b"]))


def test_the_same_attempt_again_with_a_shorter_lease_counts_from_its_last_commit():
    """Two threads share an attempt: their calls overlap, and nobody can say whose lease is the last."""
    history = [
        send("a"),
        receive("r1", 1, 10, 20, "a"),
        receive("r1", 2, 30, 60, "a", timeout=100),
        act("extend", "r1", 40, 50, "a", deadline=5_000),
        receive("r2", 3, 200, 210, "a"),
    ]
    assert violations(history, ["a"]) == []
    sure = [*history[:2], replace(history[2], ended=35), *history[3:]]
    assert any("two holders" in found for found in violations(sure, ["a"]))
