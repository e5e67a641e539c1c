"""Queue.work: what a worker is done with is written and acknowledged once; the rest is given back with its reason."""

import os
import signal
import time

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

from ledger.errors import InvalidParameterValue, OutputNotWritten
from tests.clock import FrozenClock
from tests.output.conftest import Place


@pytest.fixture
def place(tmp_path, spark):
    return Place(tmp_path, FrozenClock(), spark=spark)


@pytest.fixture
def queue(place):
    place.queue.send([f"{n}" for n in range(10)])
    return place.queue


def reasoned(messages):
    """Every third fails."""
    number = F.col("body").cast("int")
    reason = F.when(number % 3 == 0, F.concat(F.lit("no "), "body"))
    return messages.select("message_id", number.alias("n"), reason.alias("reason"))


def parted(messages):
    rows = reasoned(messages)
    return rows.where("reason IS NULL").drop("reason"), rows.where("reason IS NOT NULL AND n <> 9")


def failures_of(place):
    rows = DeltaTable(f"{place.table}_failed").to_pyarrow_table().to_pylist()
    return sorted((row["reason"], row["verdict"], row["receive_count"]) for row in rows)


@pytest.mark.parametrize(
    ("function", "reason", "last"),
    [(reasoned, "reason", "no 9"), (parted, None, "the function returned neither a result nor a reason")],
)
def test_what_fails_is_released_then_parked_and_all_else_is_done(place, queue, function, reason, last):
    said = []
    worked = queue.work(
        function, place.table, failures=f"{place.table}_failed", reason=reason, max_messages=8, maximum_receives=2,
        park=3_600, report=said.append,
    )  # fmt: skip
    assert (worked.messages, worked.failed) == (6, 8), said
    expected = [(why, verdict, count) for why in ("no 0", "no 3", "no 6", last)
                for verdict, count in (("release", 1), ("park", 2))]  # fmt: skip
    assert failures_of(place) == sorted(expected)
    assert sorted(DeltaTable(place.table).to_pyarrow_table()["n"].to_pylist()) == [1, 2, 4, 5, 7, 8]
    counts = queue.counts()
    assert (counts.deleted, counts.in_flight, counts.visible) == (6, 4, 0)
    handles = (
        DeltaTable(f"{place.table}_failed").to_pyarrow_table().filter(pc.field("verdict") == "park")["receipt_handle"]
    )
    assert all(queue.change_visibility(handles.to_pylist(), 0)) and queue.counts().visible == 4


def test_one_frame_without_reasons_is_done_with_the_whole_claim_and_rows_may_say_who_wrote_them(place, queue):
    worked = queue.work(lambda m: m.select("message_id").limit(3), place.table, until="once", stamped=True)
    rows = DeltaTable(place.table).to_pyarrow_table()
    assert (worked.claims, worked.messages, worked.failed, rows.num_rows) == (1, 10, 0, 3)
    assert {"receipt_id", "claim_version", "worker", "written_at"} < set(rows.column_names)
    assert queue.counts().deleted == 10


def test_reasons_that_come_out_differently_each_time_are_of_one_evaluation(place, queue):
    """What is written, acknowledged, given back and told in the table of failures is computed once."""

    def by_chance(messages):
        drawn = F.expr("CAST(reflect('java.lang.Math', 'random') AS DOUBLE) < 0.5")
        return messages.select("message_id", F.when(drawn, "no luck").alias("reason"))

    ids = queue.send([f"{n}" for n in range(10, 40)])
    failures = f"{place.table}_failed"
    worked = queue.work(by_chance, place.table, failures=failures, reason="reason", until="once")
    failed = DeltaTable(failures).to_pyarrow_table()["message_id"].to_pylist()
    back = [message.message_id for message in queue.receive(None)]
    assert worked.messages == queue.counts().deleted == sum(place.written().values()) > 0
    assert worked.failed == len(back) > 0 and sorted(back) == sorted(failed)
    assert place.written().keys().isdisjoint(back) and set(ids) <= {*place.written(), *back}


def test_a_function_that_fails_gives_its_claim_back(place, queue):
    with pytest.raises(OutputNotWritten, match="my mistake"):
        queue.work(
            lambda m: m.select(F.raise_error(F.lit("my mistake")).cast("string").alias("message_id")), place.table
        )
    with pytest.raises(ZeroDivisionError):
        queue.work(lambda m: 1 / 0, place.table)
    assert queue.counts().visible == 10


def test_sigterm_gives_the_claim_back_and_is_nobodys_business_afterwards(place, queue):
    def terminated(messages):
        os.kill(os.getpid(), signal.SIGTERM)
        return messages.select("message_id")

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit):
        queue.work(terminated, place.table)
    assert queue.counts().visible == 10 and signal.getsignal(signal.SIGTERM) is before
    told = place.ledger.sql("SELECT reason FROM receipts WHERE event = 'released' ORDER BY version").to_pylist()
    assert told[-1]["reason"] == "the process was told to end (SIGTERM)"


def test_messages_of_a_claim_that_others_took_meanwhile_are_told_as_lost(place, queue):
    said = []

    def hung(messages):
        queue.claim(said[0].split("receipt ")[1].split(",")[0]).release()
        return messages.select("message_id")

    worked = queue.work(hung, place.table, until="once", report=said.append)
    assert (worked.claims, worked.messages, worked.failed, worked.lost) == (1, 0, 0, 10)
    assert queue.counts().visible == 10 and any("lost the claim" in line for line in said)


def test_one_that_lost_its_claim_goes_on_with_what_there_is(place, queue):
    others = []

    def slow(messages):
        if not others:
            place.clock.advance(31)
            others.append(place.another().queue("work").receive(None))
            others[0].release()
        return messages.select("message_id")

    worked = queue.work(slow, place.table)
    assert worked.messages == 10 and sum(place.written().values()) == 10 and len(place.written()) == 10


def test_what_the_loop_cannot_do_is_refused_before_anything_is_received(place, queue):
    for arguments, why in (
        ({"until": "later"}, "until.*one of empty"), ({"maximum_receives": 0}, "from 1 on"),
        ({"visibility_timeout": 0}, "no time"),
    ):  # fmt: skip
        with pytest.raises(InvalidParameterValue, match=why):
            queue.work(reasoned, place.table, **arguments)
    with pytest.raises(InvalidParameterValue, match="function"):
        queue.work(None, place.table)
    assert queue.counts().visible == 10


def test_a_message_that_is_both_done_and_failed_is_an_error(place, queue):
    with pytest.raises(InvalidParameterValue, match=r"Of 4 messages .* both"):
        queue.work(lambda m: reasoned(m).union(reasoned(m).withColumn("reason", F.lit(None))), place.table,
                   reason="reason")  # fmt: skip
    assert queue.counts().visible == 10 and not place.written()


@pytest.mark.soak_variants("None")
@pytest.mark.parametrize("strange", ["x", None])
def test_a_row_that_names_no_message_acknowledges_nothing(place, queue, strange):
    def nameless(messages):
        return messages.select(F.lit(strange).cast("string").alias("message_id"), "body")

    with pytest.raises(InvalidParameterValue, match="10 are neither a message id"):
        queue.work(nameless, place.table)
    assert queue.counts().visible == 10 and not DeltaTable.is_deltatable(place.table)


def test_a_report_that_goes_wrong_leaves_nothing_held(place, queue):
    def broken(said):
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        queue.work(reasoned, place.table, report=broken)
    assert queue.counts().visible == 10


@pytest.mark.parametrize(
    ("given", "field"),
    [({"report": "x"}, "report"), ({"park": -1}, "park"), ({"park": None}, "park"), ({"failures": "a/b"}, "failures")],
)
def test_what_cannot_be_worked_by_is_refused_before_anything_is_received(place, queue, given, field):
    with pytest.raises(InvalidParameterValue, match=field):
        queue.work(reasoned, "a/b", **given)
    assert queue.counts().visible == 10


@pytest.mark.soak_variants("asked1-0")
@pytest.mark.parametrize(("asked", "dead"), [({}, 4), ({"maximum_receives": 1}, 0)])
def test_a_redrive_policy_says_what_becomes_of_what_fails_unless_the_call_does(place, queue, asked, dead):
    target = place.ledger.create_queue("dead")
    queue.set_attributes({"RedrivePolicy": {"deadLetterTargetArn": target.arn, "maxReceiveCount": 2}})
    queue.work(reasoned, place.table, reason="reason", **asked)
    counts = queue.counts()
    assert (counts.deleted, counts.in_flight, target.counts().visible) == (6, 4 - dead, dead)
    told = place.ledger.sql("SELECT reason, greatest_receive_count FROM dead_letters ORDER BY reason").to_pylist()
    assert [(row["reason"], row["greatest_receive_count"]) for row in told] == [(f"no {n}", 2) for n in (0, 3, 6, 9)][
        :dead
    ]


def test_without_a_redrive_policy_what_fails_is_parked_after_three_receives(place, queue):
    queue.work(reasoned, place.table, reason="reason")
    (count,) = {row["greatest_receive_count"] for row in place.ledger.sql(
        "SELECT greatest_receive_count FROM in_flight WHERE state = 'parked'").to_pylist()}  # fmt: skip
    assert (count, queue.counts().in_flight) == (3, 4)


@pytest.mark.parametrize("by_handle", [False, True])
def test_what_was_parked_and_is_released_dies_with_the_reason_for_which_it_was_parked(place, queue, by_handle):
    target = place.ledger.create_queue("dead")
    queue.set_attributes({"RedrivePolicy": {"deadLetterTargetArn": target.arn, "maxReceiveCount": 1}})
    failures = f"{place.table}_failed"
    queue.work(reasoned, place.table, reason="reason", failures=failures, maximum_receives=1, until="once")
    if by_handle:
        handles = DeltaTable(failures).to_pyarrow_table()["receipt_handle"].to_pylist()
        assert all(queue.change_visibility(handles, 0))
    else:
        assert queue.release_postponed() == 4
    assert queue.counts().visible == 4 and not queue.receive(None)
    told = place.ledger.sql("SELECT cause, reason, messages FROM dead_letters ORDER BY reason").to_pylist()
    assert [tuple(row.values()) for row in told] == [("released", f"no {n}", 1) for n in (0, 3, 6, 9)]


def test_an_error_that_came_of_sigterm_ends_the_work_as_sigterm_does(place, queue):
    """Py4J raises KeyError: 'p' on a call that a signal interrupted."""
    said = []

    def interrupted(messages):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
        except SystemExit:
            raise KeyError("p")  # noqa: B904

    with pytest.raises(SystemExit) as ended:
        queue.work(interrupted, place.table, report=said.append)
    assert ended.value.code == 143 and ended.value.__suppress_context__
    assert any("gives back 10 messages: the process was told to end (SIGTERM)" in line for line in said), said
    assert {message.receive_count for message in queue.receive(None).messages()} == {1}
