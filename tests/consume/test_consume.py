"""Queue.consume in one process: what handlers return is written once, and what they raise fails one message."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import namedtuple
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pytest
from deltalake import DeltaTable

from ledger import InvalidParameterValue, Reject, RetryLater, SparkIsNeeded
from ledger.errors import OutputNotWritten
from ledger.work.handler_rows import cost_of


@dataclass
class Length:
    length: int


Named = namedtuple("Named", "length")


def rows(table):
    return sorted(DeltaTable(table).to_pyarrow_table().to_pylist(), key=str)


def versions(table):
    return DeltaTable(table).version()


def number(message):
    """Raises for a body that is no number."""
    int(message.body)


def sent(queue, bodies):
    return dict(zip(queue.send([{"MessageBody": body} for body in bodies]), bodies))


# What handlers return.


def test_each_message_has_the_rows_that_its_handler_returned_and_is_acknowledged(place):
    bodies = sent(place.queue, ["dict", "dataclass", "named", "list", "none", "empty"])
    answers = {
        "dict": {"length": 4},
        "dataclass": Length(9),
        "named": Named(5),
        "list": [{"length": 1}, Length(2), None],
        "none": None,
        "empty": [],
    }
    done = place.queue.consume(lambda message: answers[message.body], place.table)
    found = [(bodies[row["message_id"]], row["length"]) for row in rows(place.table)]
    assert sorted(found) == [("dataclass", 9), ("dict", 4), ("list", 1), ("list", 2), ("named", 5)]
    assert (done.messages, done.rows, done.failed, done.lost) == (6, 5, 0, 0)
    assert place.queue.counts().deleted == 6
    assert list(rows(place.table)[0]) == ["message_id", "length"]


def test_an_async_handler_runs_beside_others_on_one_thread(place):
    place.queue.send([str(n) for n in range(20)])
    together, threads = asyncio.Event(), set()
    running = 0

    async def handler(message):
        nonlocal running
        threads.add(threading.current_thread())
        running += 1
        if running == 8:
            together.set()
        await together.wait()
        return {"n": int(message.body)}

    assert place.queue.consume(handler, place.table, concurrency=8).messages == 20
    assert [row["n"] for row in sorted(rows(place.table), key=lambda row: row["n"])] == list(range(20))
    assert len(threads) == 1


def test_plain_functions_run_in_as_many_threads_as_are_asked_for(place):
    place.queue.send([str(n) for n in range(8)])
    together = threading.Barrier(4, timeout=30)
    assert place.queue.consume(lambda message: together.wait() * 0 or None, concurrency=4).messages == 8


@pytest.mark.parametrize("is_async", [False, True])
def test_a_batch_has_an_answer_for_each_message(place, is_async):
    bodies = sent(place.queue, [str(n) for n in range(10)])
    sizes = []

    def handler(messages):
        sizes.append(len(messages))
        return [{"n": int(message.body)} if message.body != "3" else None for message in messages]

    async def same(messages):
        return handler(messages)

    done = place.queue.consume(same if is_async else handler, place.table, batch=4, concurrency=1)
    assert (done.messages, done.rows) == (10, 9) and max(sizes) == 4 and len(sizes) <= 4
    assert all(int(bodies[row["message_id"]]) == row["n"] for row in rows(place.table))


def test_rows_of_a_flush_are_one_commit(place):
    place.queue.send([str(n) for n in range(3_000)])
    done = place.queue.consume(lambda message: {"n": 1}, place.table, max_messages=3_000)
    # The first version is the empty table.
    assert done.rows == 3_000 and done.claims == 1 and versions(place.table) == 1


def test_what_is_handled_is_written_every_so_many_rows_beside_calls_that_last(place):
    place.queue.send([str(n) for n in range(100)])
    release, seen = threading.Event(), []

    def handler(message):
        if message.body == "0":
            release.wait(30)
        return {"n": int(message.body)}

    def report(step):
        if step.startswith("settled"):
            seen.append(place.queue.counts().deleted)
            release.set()

    place.queue.consume(handler, place.table, flush_rows=50, flush_seconds=3_600, max_messages=100, report=report)
    assert 50 <= seen[0] < 100 and seen[-1] == 100 and len(rows(place.table)) == 100


def test_what_is_handled_is_written_after_some_seconds_beside_a_call_that_lasts(place):
    place.queue.send(["slow", "a", "b"])
    release = threading.Event()

    def handler(message):
        assert message.body != "slow" or release.wait(30)
        return {"body": message.body}

    def report(step):
        if step.startswith("settled 2"):
            release.set()

    place.queue.consume(handler, place.table, flush_seconds=0.2, report=report)
    assert [row["body"] for row in sorted(rows(place.table), key=lambda row: row["body"])] == ["a", "b", "slow"]


def test_without_an_output_messages_are_deleted(ledger):
    queue = ledger.create_queue("work")
    queue.send([str(n) for n in range(250)])
    seen = []
    done = queue.consume(lambda message: seen.append(message.body))
    assert done.messages == 250 == len(set(seen)) and queue.counts().deleted == 250


def test_a_handler_whose_task_is_cancelled_fails_its_message_alone(ledger):
    queue = ledger.create_queue("work")
    queue.send([str(n) for n in range(40)])

    async def handler(message):
        if message.body == "3":
            task = asyncio.create_task(asyncio.sleep(60))
            task.cancel()
            await task

    done = queue.consume(handler, until="once", concurrency=4)
    assert (done.messages, done.failed) == (39, 1) and queue.counts().visible == 1


def test_costs_of_every_kind_of_number_are_summed():
    kinds = [2, 0.5, np.int64(3), np.float32(0.25), Decimal("1.25"), float("nan"), float("inf"), True, "7", None]
    assert cost_of([{"tokens": one} for one in kinds], "tokens") == 7


def test_costs_are_summed(place):
    place.queue.send(["1", "2", "x"])
    done = place.queue.consume(
        lambda message: {"tokens": int(message.body) if message.body != "x" else None}, place.table, cost="tokens"
    )
    assert done.cost == 3


# What handlers raise.


def test_a_message_whose_handler_raises_fails_alone_and_is_parked_in_the_end(ledger):
    queue = ledger.create_queue("work")
    queue.send([str(n) for n in range(20)] + ["poison"])
    calls = []

    def handler(message):
        if message.body == "poison":
            calls.append(message.receive_count)
        int(message.body)

    done = queue.consume(handler)
    assert (done.messages, done.failed) == (20, 3) and calls == [1, 2, 3]
    (parked,) = ledger.store.postponed(queue.access.record(), ledger.time)
    assert parked.visible_at > ledger.time() + 3_500_000


def test_the_reason_of_a_failure_is_on_record(place):
    place.queue.send(["poison", "1"])
    place.queue.consume(number, maximum_receives=1)
    (found,) = place.ledger.sql("SELECT state, reason FROM in_flight").to_pylist()
    assert found["state"] == "parked"
    assert found["reason"].startswith("ValueError: invalid literal for int() with base 10: 'poison' (test_consume.py:")


def test_the_redrive_policy_says_how_often_where_there_is_one(ledger):
    dead = ledger.create_queue("dead")
    queue = ledger.create_queue("work", {"RedrivePolicy": {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 5}})
    queue.send(["poison", "1", "2"])
    done = queue.consume(number)
    assert (done.messages, done.failed) == (2, 5)
    assert dead.counts().visible == 1 and queue.counts().stored == 0


def test_a_failed_message_is_hidden_for_retry_after(ledger):
    queue = ledger.create_queue("work", {"VisibilityTimeout": 30})
    queue.send(["poison", "1"])
    done = queue.consume(number, until="once", retry_after=120)
    assert done.failed == 1 and queue.counts().visible == 0
    ledger.time.advance(121)
    assert queue.receive().messages()[0].receive_count == 2


def test_a_batch_that_raises_is_called_again_in_halves(place):
    place.queue.send([str(n) for n in range(15)] + ["poison"])
    calls = []

    def handler(messages):
        calls.append([message.body for message in messages])
        return [{"n": int(message.body)} for message in messages]

    done = place.queue.consume(handler, place.table, batch=16, concurrency=1, maximum_receives=1)
    assert (done.messages, done.failed) == (15, 1)
    assert sorted(row["n"] for row in rows(place.table)) == list(range(15)) and ["poison"] in calls


def test_an_exception_in_the_answer_of_a_batch_is_its_messages_own(place):
    place.queue.send(["1", "2", "x", "later"])

    def handler(messages):
        answers = {"x": ValueError("bad"), "later": RetryLater(600)}
        return [answers.get(message.body, {"n": 1}) for message in messages]

    done = place.queue.consume(handler, place.table, batch=8, maximum_receives=1)
    assert (done.messages, done.failed, done.retried) == (2, 1, 1)


class Unruly:
    """It raises whatever is asked of it."""

    def __repr__(self):
        raise RuntimeError("no text")

    __str__ = __repr__

    def __deepcopy__(self, memo):
        raise RuntimeError("no copy")


@dataclass
class Holder:
    x: object


CIRCLE: list = []
CIRCLE.append(CIRCLE)


@pytest.mark.soak_variants("dict*", "object", but=("dict0", "dict1", "dict3"))
@pytest.mark.parametrize(
    "answer",
    [
        *("text", 7, {1: "a"}, {"message_id": "another"}, [["nested"]], object(), Unruly(), Holder(Unruly())),
        *({"x": Unruly()}, {"x": CIRCLE}, {"\ud800": 1}, {"x": {"\ud83d": 1}}, {"message_id": np.array(["a", "b"])}),
        {"n": 10**400},
    ],
    ids=lambda answer: type(answer).__name__,
)
def test_an_answer_that_is_no_row_fails_the_message_and_no_other(place, answer):
    place.queue.send(["odd", "1", "2"])
    done = place.queue.consume(
        lambda message: answer if message.body == "odd" else {"n": 1}, place.table, maximum_receives=1
    )
    assert (done.messages, done.failed) == (2, 1) and len(rows(place.table)) == 2


@pytest.mark.soak_variants("cost1", "True", "None")
@pytest.mark.parametrize("cost", [Decimal("sNaN"), Decimal("Infinity"), float("nan"), 1j, True, None])
def test_what_no_sum_can_have_costs_nothing(place, cost):
    place.queue.send(["odd", "1", "2"])
    done = place.queue.consume(
        lambda message: {"cost": cost if message.body == "odd" else 2}, place.table, maximum_receives=1, cost="cost"
    )
    assert done.messages >= 2 and done.cost == 4


def test_a_row_without_an_output_fails_the_message(ledger):
    queue = ledger.create_queue("work")
    queue.send(["odd", "1", "2"])
    done = queue.consume(lambda message: {"n": 1} if message.body == "odd" else None, maximum_receives=1)
    assert (done.messages, done.failed) == (2, 1)


def test_rows_that_the_table_refuses_fail_their_messages_and_all_others_are_written(place):
    place.queue.send([str(n) for n in range(40)])

    def handler(message):
        n = int(message.body)
        return {"n": "seven" if n == 7 else {"a": {1}} if n == 8 else n}

    done = place.queue.consume(handler, place.table, maximum_receives=1)
    assert (done.messages, done.failed) == (38, 2)
    assert sorted(row["n"] for row in rows(place.table)) == [n for n in range(40) if n not in (7, 8)]


# Not the message's fault.


def test_retry_later_hides_the_message_and_its_receive_does_not_count(ledger):
    queue = ledger.create_queue("work")
    queue.send(["busy", "1"])
    calls = []

    def handler(message):
        if message.body == "busy":
            calls.append(message.receive_count)
            raise RetryLater(90, reason="429")

    assert queue.consume(handler).retried == 1
    assert queue.counts().visible == 0
    ledger.time.advance(91)
    assert queue.consume(handler).retried == 1 and calls == [1, 1]


def test_retry_later_until_an_instant_and_counted(ledger):
    queue = ledger.create_queue("work")
    queue.send("busy")
    until = datetime.fromtimestamp(ledger.time() / 1_000, timezone.utc) + timedelta(seconds=120)

    def handler(message):
        raise RetryLater(until=until, counted=True)

    queue.consume(handler, until="once")
    (lease,) = ledger.store.postponed(queue.access.record(), ledger.time)
    assert lease.visible_at == ledger.time() + 120_000
    ledger.time.advance(121)
    assert queue.receive().messages()[0].receive_count == 2


def test_a_closed_group_is_called_no_more_until_then(ledger):
    queue = ledger.create_queue("work")
    queue.send([{"MessageBody": str(n), "MessageGroupId": "slow" if n % 2 else "fast"} for n in range(20)])
    calls = []

    def handler(message):
        calls.append(message.message_group_id)
        if message.message_group_id == "slow":
            raise RetryLater(60, group=True)

    done = queue.consume(handler, concurrency=1)
    assert (done.messages, done.retried) == (10, 10) and calls.count("slow") == 1
    ledger.time.advance(61)
    assert queue.receive(20).count == 10


@pytest.mark.parametrize(
    "given", [{}, {"seconds": -1}, {"seconds": True}, {"seconds": 1, "until": datetime.now(timezone.utc)},
              {"until": datetime(2026, 1, 1)}, {"seconds": 1, "group": 7}]
)  # fmt: skip
def test_a_retry_at_no_time_is_refused(given):
    with pytest.raises(InvalidParameterValue):
        RetryLater(**given)
    with pytest.raises(InvalidParameterValue):
        Reject(" ")


def test_a_rejected_message_is_parked_at_once_where_there_is_no_dead_letter_queue(ledger):
    queue = ledger.create_queue("work")
    queue.send(["bad", "1"])

    def handler(message):
        if message.body == "bad":
            raise Reject("no such order")

    done = queue.consume(handler)
    assert (done.messages, done.rejected, done.failed) == (1, 1, 0)
    assert ledger.store.postponed(queue.access.record(), ledger.time)[0].messages == 1


def test_a_rejected_message_is_a_dead_letter_at_once_with_its_reason(place):
    dead = place.ledger.create_queue("dead")
    policy = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 9}
    queue = place.ledger.create_queue("orders", {"RedrivePolicy": policy})
    queue.send(["bad", "worse", "1", "failing"])

    def handler(message):
        if message.body == "failing" and message.receive_count == 1:
            raise ValueError("once more")
        if not message.body.isdecimal() and message.body != "failing":
            raise Reject(f"{message.body}: no such order")
        return {"body": message.body}

    done = queue.consume(handler, place.table)
    assert (done.messages, done.rejected, done.failed, done.lost) == (2, 2, 1, 0)
    said = place.ledger.sql("SELECT source, reason, messages FROM dead_letters ORDER BY reason").to_pylist()
    assert [(row["source"], row["reason"]) for row in said] == [
        ("orders", "bad: no such order"),
        ("orders", "worse: no such order"),
    ]
    # As with other dead letters, the counts go on.
    assert {message.body: message.receive_count for message in dead.receive(10)} == {"bad": 2, "worse": 2}


# Everything fails alike.


def test_a_broken_handler_stops_early_and_no_receive_counts(ledger):
    queue = ledger.create_queue("work")
    queue.send([str(n) for n in range(500)])
    calls = []

    def handler(message):
        calls.append(1)
        raise KeyError("no such column")

    with pytest.raises(KeyError, match="no such column"):
        queue.consume(handler, max_messages=500)
    assert len(calls) < 100
    assert queue.counts().visible == 500
    assert {message.receive_count for message in queue.receive(500)} == {1}


def test_an_outage_in_the_middle_stops_and_what_was_done_is_written(place):
    place.queue.send([str(n) for n in range(300)])
    done = []

    def handler(message):
        if len(done) >= 100:
            raise ConnectionError("no route")
        done.append(message.message_id)
        return {"n": int(message.body)}

    with pytest.raises(ConnectionError):
        place.queue.consume(handler, place.table, max_messages=300, concurrency=1)
    assert sorted(row["message_id"] for row in rows(place.table)) == sorted(done)
    assert place.queue.counts().visible == 200


def test_a_row_of_bad_messages_is_no_broken_handler(ledger):
    """They stand together, as they do in a sorted file."""
    queue = ledger.create_queue("work")
    queue.send(["bad"] * 100 + [str(n) for n in range(400)])
    done = queue.consume(number, max_messages=500, concurrency=1, park=60)
    assert (done.messages, done.failed) == (400, 300)


def test_a_few_bad_messages_that_are_all_that_is_left_are_no_broken_handler(ledger):
    queue = ledger.create_queue("work.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True})
    bodies = [str(n) for n in range(6)] + [f"bad-{n}" for n in range(6)]
    queue.send([{"MessageBody": body, "MessageGroupId": body} for body in bodies])
    done = queue.consume(number, max_messages=6)
    assert (done.messages, done.failed) == (6, 18)
    queue.send([{"MessageBody": f"worse-{n}", "MessageGroupId": f"worse-{n}"} for n in range(6)])
    with pytest.raises(ValueError, match="worse"):
        queue.consume(number)


def test_an_output_that_refuses_everything_stops_it(place):
    place.queue.send([str(n) for n in range(50)])
    place.queue.consume(lambda message: {"n": 1}, place.table, max_messages=10, until="once")
    with pytest.raises(OutputNotWritten):
        place.queue.consume(lambda message: {"n": "text"}, place.table)
    assert place.queue.counts().visible == 40


@pytest.mark.parametrize("is_async", [False, True])
def test_a_handler_that_ends_the_process_ends_the_consumer_and_all_is_given_back(ledger, is_async):
    queue = ledger.create_queue("work")
    queue.send([str(n) for n in range(20)])

    def handler(message):
        raise SystemExit(7)

    async def same(message):
        raise SystemExit(7)

    with pytest.raises(SystemExit, match="7"):
        queue.consume(same if is_async else handler)
    assert queue.counts().visible == 20


# Order.


@pytest.mark.parametrize("batch", [None, 3])
def test_a_fifo_group_is_handled_in_order_and_one_at_a_time(ledger, batch):
    queue = ledger.create_queue("work.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True})
    queue.send([{"MessageBody": f"{group}{n}", "MessageGroupId": group} for n in range(10) for group in "abc"])
    order, busy, overlaps = [], set(), []

    def handler(messages):
        groups = {message.message_group_id for message in messages}
        overlaps.extend(groups & busy)
        busy.update(groups)
        order.extend(message.body for message in messages)
        time.sleep(0.001)
        busy.difference_update(groups)

    def one(message):
        return handler([message])

    assert queue.consume(handler if batch else one, batch=batch, concurrency=8).messages == 30
    for group in "abc":
        assert [body for body in order if body[0] == group] == [f"{group}{n}" for n in range(10)]
    assert not overlaps


@pytest.mark.parametrize("batch", [None, 4])
def test_nothing_of_a_fifo_group_passes_a_message_that_failed(ledger, batch):
    queue = ledger.create_queue("work.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True})
    queue.send([{"MessageBody": f"{group}{n}", "MessageGroupId": group} for n in range(6) for group in "ab"])
    done, failures = [], {"a2": 2}

    def handler(messages):
        for message in messages:
            if failures.get(message.body):
                failures[message.body] -= 1
                raise ValueError("once more")
        done.extend(message.body for message in messages)

    def one(message):
        return handler([message])

    queue.consume(handler if batch else one, batch=batch)
    for group in "ab":
        assert [body for body in done if body[0] == group] == [f"{group}{n}" for n in range(6)]


# Refused before a claim.


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"handler": 7}, "handler"),
        ({"handler": lambda: None}, "handler"),
        ({"handler": lambda a, b: None}, "handler"),
        ({"handler": lambda message: (yield)}, "handler"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"batch": 0}, "batch"),
        ({"max_messages": 0}, "max_messages"),
        ({"flush_rows": 0}, "flush_rows"),
        ({"flush_seconds": 0}, "flush_seconds"),
        ({"flush_seconds": "5"}, "flush_seconds"),
        ({"until": "later"}, "until"),
        ({"visibility_timeout": 0}, "visibility_timeout"),
        ({"maximum_receives": 0}, "maximum_receives"),
        ({"retry_after": -1}, "retry_after"),
        ({"park": 50_000}, "park"),
        ({"park": 30}, "park"),
        ({"report": "print"}, "report"),
        ({"schema": "widen"}, "schema"),
        ({"cost": "tokens"}, "cost"),
        ({"output": 7}, "table"),
        ({"output": "./out", "schema": "wider"}, "schema"),
    ],
)
def test_what_cannot_be_done_is_refused_before_a_message_is_claimed(place, given, field):
    place.queue.send(["1"])
    with pytest.raises(InvalidParameterValue) as refused:
        place.queue.consume(**{"handler": lambda message: None, **given})
    assert refused.value.field == field if hasattr(refused.value, "field") else field in str(refused.value)
    assert place.queue.counts().visible == 1


def test_a_name_of_sparks_catalog_is_refused_without_spark(place):
    place.queue.send(["1"])
    with pytest.raises(SparkIsNeeded):
        place.queue.consume(lambda message: None, "answers")
    assert place.queue.counts().visible == 1


# Others, and earlier runs.


def test_a_retry_of_an_attempt_carries_on_with_what_the_failed_run_held(place):
    place.queue.send([str(n) for n in range(30)])
    place.queue.receive(20, attempt_id="task/0")
    seen = []
    done = place.queue.consume(lambda message: seen.append(message.body), attempt_id="task", max_messages=5)
    assert done.messages == 30 and len(set(seen)) == 30


def test_two_consumers_share_a_queue_and_no_row_is_written_twice(place):
    place.queue.send([str(n) for n in range(400)])
    others = place.another().queue("work")
    results = []

    def consume(queue):
        results.append(queue.consume(lambda message: {"n": int(message.body)}, place.table, max_messages=40))

    threads = [threading.Thread(target=consume, args=(queue,)) for queue in (place.queue, others)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(row["n"] for row in rows(place.table)) == list(range(400))
    assert sum(done.messages for done in results) == 400


def test_what_others_took_over_is_left_to_them(place):
    place.queue.send([str(n) for n in range(10)])
    taken = []

    def handler(message):
        if not taken:
            place.clock.advance(31)
            taken.append(place.another().queue("work").receive(10))
        return {"n": 1}

    done = place.queue.consume(handler, place.table, max_messages=10, until="once", concurrency=1)
    assert done.lost == 10 and done.messages == 0 and not DeltaTable.is_deltatable(place.table)
    assert taken[0].held == 10


@pytest.mark.parametrize("batch", [None, 4])
def test_what_is_read_later_stands_behind_what_was_given_back(ledger, batch):
    """A claim that does not fit in memory is read in pieces."""
    queue = ledger.create_queue("work.fifo", {"FifoQueue": "true", "ContentBasedDeduplication": "true"})
    queue.send([{"MessageBody": f"{n:03}" * 20, "MessageGroupId": "g"} for n in range(60)])
    seen, closed = [], [True]

    def handler(given):
        bodies = [message.body[:3] for message in (given if batch else [given])]
        if "003" in bodies and closed.pop():
            raise RetryLater(60)
        seen.extend(bodies)

    arguments = {"concurrency": 4, "batch": batch, "max_bytes": 1_000, "max_messages": 60, "until": "once"}
    done = queue.consume(handler, **arguments)
    assert done.messages == len(seen) == (0 if batch else 3) and queue.counts().in_flight == (batch or 1)
    ledger.time.advance(61)
    closed.append(False)
    queue.consume(handler, **arguments)
    handled = [f"{n:03}" for n in range(60)]
    assert list(dict.fromkeys(seen)) == handled and queue.counts().deleted == 60


def test_an_empty_object_tells_no_column_and_fails_no_message(place):
    place.queue.send(["1", "2"])
    done = place.queue.consume(lambda message: {"n": 1, "d": {}}, place.table)
    assert (done.messages, done.failed) == (2, 0) and rows(place.table)[0].keys() == {"message_id", "n"}
    place.queue.send("3")
    assert place.queue.consume(lambda message: {"n": 1, "d": {"a": 1}}, place.table).messages == 1
    assert sorted(str(row["d"]) for row in rows(place.table)) == ["None", "None", "{'a': 1}"]
