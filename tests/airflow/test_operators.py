"""Operators in real DAGs: what they do to a queue, and what goes through XComs; retries, clears, mapped tasks."""

import json
import os
import signal
import time
from datetime import datetime, timedelta, timezone

import pytest
from airflow.sdk import DAG
from deltalake import DeltaTable

from ledger.airflow import (
    LedgerCreateQueueOperator,
    LedgerReceiveOperator,
    LedgerSendOperator,
    LedgerUpkeepOperator,
    LedgerWorkOperator,
)

AT = datetime(2025, 1, 1, tzinfo=timezone.utc)
ONCE_MORE = {"retries": 1, "retry_delay": timedelta(0)}
RECEIVED = {"task_id": "receive", "ledger_queue": "flights"}


def bodies(messages):
    return sorted(message.body for message in messages)


def nothing(messages):
    return None


class Forgetful(LedgerReceiveOperator):
    """Its first try fails once it has received."""

    def execute(self, context):
        received = super().execute(context)
        if context["ti"].try_number == 1:
            raise RuntimeError(received[0]["receipt_id"])
        return received


def test_a_dag_makes_a_queue_sends_receives_and_works_on_claims_in_mapped_tasks(run, root):
    seen = []
    with DAG("whole") as dag:
        make = LedgerCreateQueueOperator(task_id="make", ledger_queue="flights", attributes={"VisibilityTimeout": 60})
        send = LedgerSendOperator(task_id="send", ledger_queue="flights", messages=[f"body {n}" for n in range(5)])
        receive = LedgerReceiveOperator(**RECEIVED, max_messages=2, claims=4)
        work = LedgerWorkOperator.partial(task_id="work", function=lambda messages: seen.append(bodies(messages)))
        make >> send >> receive >> work.expand(claim=receive.output)
    ran = run(dag)
    assert ran.state == "success"
    assert sorted(seen) == [["body 0", "body 1"], ["body 2", "body 3"], ["body 4"]]
    assert [ran.returned["work", index]["messages"] for index in range(3)] == [2, 2, 1]
    assert ran.returned["send"] == {"ledger_queue": "flights", "messages": 5}
    assert "body" not in json.dumps(list(ran.returned.values()))


def test_nothing_to_receive_skips_the_mapped_work(run, queue):
    with DAG("empty") as dag:
        receive = LedgerReceiveOperator(**RECEIVED)
        LedgerWorkOperator.partial(task_id="work", function=nothing).expand(claim=receive.output)
    ran = run(dag)
    assert (ran.states["work"], ran.returned["receive"]) == ("skipped", [])


def test_a_send_that_is_cleared_and_run_again_sends_nothing_more(run, queue):
    with DAG("sent_once") as dag:
        LedgerSendOperator(task_id="send", ledger_queue="flights", messages=["a", "b"])
    assert [run(dag, AT).returned["send"]["messages"] for _ in range(2)] == [2, 2]
    assert queue.counts().visible == 2
    run(dag)
    assert queue.counts().visible == 4, "another run sends anew"


def test_other_messages_under_a_sends_attempt_id_fail_and_send_nothing(run, queue):
    for messages, state in ((["a"], "success"), (["b"], "failed")):
        with DAG("sent_else") as dag:
            LedgerSendOperator(task_id="send", ledger_queue="flights", messages=messages)
        assert run(dag, AT).state == state
    assert queue.counts().visible == 1


def test_what_is_sent_may_come_of_another_task_or_of_a_function(run, queue):
    with DAG("sent_of") as dag:
        receive = LedgerReceiveOperator(**RECEIVED)
        named = LedgerSendOperator(task_id="named", ledger_queue="flights", messages=["run {{ run_id }}"])
        made = LedgerSendOperator(task_id="made", ledger_queue="flights", function=lambda: ["a", "b"])
        tabled = LedgerSendOperator(task_id="tabled", ledger_queue="flights", function=table_of_bodies)
        receive >> named >> made >> tabled
    ran = run(dag)
    assert ran.state == "success"
    assert bodies(queue.receive(10)) == sorted(["a", "b", "c", f"run {ran.run_id}"])


def table_of_bodies():
    import pyarrow as pa

    return pa.table({"body": ["c"]})


def test_a_fifo_queue_is_sent_to_without_an_attempt_id(run, root):
    with DAG("fifo") as dag:
        name = "flights.fifo"
        make = LedgerCreateQueueOperator(task_id="make", ledger_queue=name, attributes={"FifoQueue": True})
        options = {"message_group_id": "g", "message_deduplication_id": "{{ run_id }}"}
        send = LedgerSendOperator(task_id="send", ledger_queue=name, messages="a", options=options)
        make >> send >> LedgerReceiveOperator(task_id="receive", ledger_queue=name)
    assert run(dag).returned["receive"][0]["count"] == 1


def test_a_retry_of_a_receive_under_another_try_number_returns_the_claim_of_the_first(run, queue):
    queue.send(["a", "b", "c"])
    with DAG("received_again") as dag:
        Forgetful(**RECEIVED, max_messages=2, **ONCE_MORE)
    ran = run(dag)
    assert ran.state == "success"
    assert [claim["count"] for claim in ran.returned["receive"]] == [2]
    assert (queue.counts().visible, queue.counts().in_flight) == (1, 2)
    assert {message.receive_count for message in queue.claim(ran.returned["receive"][0]["receipt_id"])} == {1}


def test_a_finished_claim_does_not_come_back_when_its_tasks_are_cleared_and_run_again(run, queue):
    seen = []
    with DAG("cleared") as dag:
        receive = LedgerReceiveOperator(**RECEIVED)
        work = LedgerWorkOperator.partial(task_id="work", function=lambda messages: seen.append(bodies(messages)))
        work.expand(claim=receive.output)
    queue.send(["old"])
    run(dag, AT)
    queue.send(["new"])
    run(dag, AT)
    run(dag, AT)
    assert seen == [["old"], ["new"]]


def test_a_claim_that_was_finished_before_is_no_work_and_no_failure(run, queue):
    queue.send(["a"])
    received = received_by(run)
    for done in (1, 0):
        ran = run(working_on(received[0], nothing), AT)
        assert (ran.state, ran.returned["work"]["messages"]) == ("success", done)


def test_a_claim_that_others_have_or_that_was_given_back_fails_for_good(run, queue):
    queue.send(["a"])
    received = received_by(run)
    queue.claim(received[0]["receipt_id"]).release()
    for _ in ("given back", "others have it"):
        tries = []
        ran = run(working_on(received[0], tries.append, **ONCE_MORE))
        assert (ran.state, tries) == ("failed", [])
        queue.receive()


def test_upkeep_runs_a_round_if_one_is_due_and_one_in_any_case_where_it_is_told_to(run, root, queue):
    queue.send(["a"])
    queue.receive().delete()
    with DAG("kept_up") as dag:
        first = LedgerUpkeepOperator(task_id="first")
        second = LedgerUpkeepOperator(task_id="second")
        always = LedgerUpkeepOperator(task_id="always", only_if_due=False, vacuum=False)
        first >> second >> always
    ran = run(dag)
    assert ran.state == "success"
    assert ran.returned["first"]["receipts_filled"] == 2
    assert ran.returned["always"]["receipts_filled"] == 0


def received_by(run, **more):
    with DAG("received") as dag:
        LedgerReceiveOperator(**RECEIVED, **more)
    return run(dag).returned["receive"]


def working_on(claim, function, **more):
    with DAG("worked") as dag:
        LedgerWorkOperator(task_id="work", function=function, claim=claim, **more)
    return dag


def test_a_function_that_raises_in_the_last_try_gives_the_claim_back_at_once(run, queue):
    queue.send(["a", "b"])
    states = []

    def fails(messages):
        states.append(queue.counts().in_flight)
        raise RuntimeError("as it must")

    assert run(working_on(received_by(run)[0], fails)).state == "failed"
    assert (states, queue.counts().visible) == ([2], 2)


def test_a_claim_that_a_task_was_handed_is_kept_for_its_retry_and_given_back_by_the_last(run, queue):
    queue.send(["a"])
    received, seen = received_by(run), []

    def fails(messages):
        seen.extend((message.receive_count, message.receipt_handle) for message in messages)
        raise RuntimeError("as it must")

    assert run(working_on(received[0], fails, **ONCE_MORE)).state == "failed"
    assert len(seen) == 2 and len(set(seen)) == 1, "the retry had the same claim"
    assert queue.counts().visible == 1, "and gave it back"


def test_a_claim_is_kept_over_the_delay_of_the_next_try(run, queue):
    queue.send(["a"])
    received, kept = received_by(run), []

    def fails(messages):
        if not kept:
            raise RuntimeError("as it must")

    class Looking(LedgerWorkOperator):
        def execute(self, context):
            try:
                return super().execute(context)
            except RuntimeError:
                kept.append(queue.claim(received[0]["receipt_id"]).deadline - datetime.now(timezone.utc))
                raise

    with DAG("kept") as dag:
        Looking(task_id="work", function=fails, claim=received[0], retries=1, retry_delay=timedelta(seconds=1))
    assert run(dag).state == "success"
    assert kept[0] > timedelta(seconds=600)


def test_messages_that_failed_are_hidden_and_the_others_acknowledged(run, queue):
    queue.send(["good", "bad"])
    assert run(working_on(received_by(run)[0], the_bad_ones)).returned["work"] == {
        "claims": 1,
        "messages": 1,
        "failed": 1,
    }
    counts = queue.counts()
    assert (counts.deleted, counts.in_flight, counts.visible) == (1, 1, 0)


def the_bad_ones(messages):
    return {message.message_id: "it is bad" for message in messages if message.body == "bad"}


def test_rows_are_written_and_their_messages_acknowledged_together(run, queue, tmp_path):
    queue.send(["good", "bad"])
    output = f"{tmp_path}/rows"
    with DAG("rows") as dag:
        receive = LedgerReceiveOperator(**RECEIVED)
        how = {"function": rows, "output_table": output, "reason": "error", "hide_failed": 0}
        LedgerWorkOperator.partial(task_id="work", **how).expand(claim=receive.output)
    assert run(dag).state == "success"
    assert DeltaTable(output).to_pyarrow_table().select(["text"]).to_pylist() == [{"text": "good"}]
    assert (queue.counts().deleted, queue.counts().visible) == (1, 1)


def rows(messages):
    return [
        {"message_id": message.message_id, "text": message.body, "error": "bad" if message.body == "bad" else None}
        for message in messages
    ]


def test_mapped_tasks_have_attempts_of_their_own(run, queue):
    queue.send(["a", "b"])
    with DAG("mapped") as dag:
        LedgerReceiveOperator.partial(task_id="receive", ledger_queue="flights").expand(max_messages=[1, 1])
    receipts = [claims[0]["receipt_id"] for claims in run(dag).returned.values()]
    assert len(set(receipts)) == 2


def test_an_attempt_id_of_ones_own_is_a_template(run, queue):
    queue.send(["a", "b"])
    with DAG("own_attempt") as dag:
        LedgerReceiveOperator(**RECEIVED, max_messages=1, attempt_id="{{ dag.dag_id }} of prod")
    receipts = {run(dag).returned["receive"][0]["receipt_id"] for _ in range(2)}
    assert len(receipts) == 1, "two runs are one attempt"


def test_the_claim_is_extended_while_the_function_runs(run, queue):
    queue.send(["a"])
    deadlines = []

    def waits_for_a_beat(messages):
        first = queue.peek(messages[0].message_id).visible_at
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up and queue.peek(messages[0].message_id).visible_at == first:
            time.sleep(0.01)
        deadlines.extend([first, queue.peek(messages[0].message_id).visible_at])

    assert run(working_on(received_by(run)[0], waits_for_a_beat, visibility_timeout=2)).state == "success"
    assert deadlines[1] > deadlines[0]


@pytest.fixture
def sigterm():
    """Puts back what Airflow's task runner does to SIGTERM."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_sigterm_ends_the_function_and_gives_the_claim_back_also_where_another_try_comes(run, queue, sigterm):
    queue.send(["a"])
    visible = []

    def is_killed(messages):
        if visible:
            return
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        finally:
            visible.append(queue.counts().visible)

    class Looking(LedgerWorkOperator):
        def execute(self, context):
            try:
                return super().execute(context)
            finally:
                visible.append(queue.counts().visible)

    received = received_by(run)[0]
    with DAG("killed") as dag:
        Looking(task_id="work", function=is_killed, claim=received, **ONCE_MORE)
    ran = run(dag)
    assert visible[:2] == [0, 1]
    assert ran.state == "failed", "what was handed is handed anew by a clear"


def test_on_kill_beside_finished_work_does_nothing():
    LedgerWorkOperator(task_id="work", claim={}, function=nothing).on_kill()


@pytest.mark.parametrize(
    ("operator", "given", "field"),
    [
        (LedgerReceiveOperator, {"claims": 0}, "claims"),
        (LedgerReceiveOperator, {"claims": 2}, "max_messages"),
    ],
)
def test_what_cannot_be_is_refused_when_the_dag_is_read(operator, given, field):
    from ledger import InvalidParameterValue

    with pytest.raises(InvalidParameterValue) as refused:
        operator(**{"task_id": "t", "ledger_queue": "flights", **given})
    assert refused.value.field == field


@pytest.mark.parametrize(
    "given",
    [
        {"function": lambda messages: "text"},
        {"function": lambda messages: {"no message": "reason"}},
        {"function": nothing, "output_table": "out/rows"},
    ],
)
def test_an_answer_that_is_not_understood_fails_and_gives_the_claim_back(run, queue, given):
    queue.send(["a"])
    assert run(working_on(received_by(run)[0], **given)).state == "failed"
    assert queue.counts().visible == 1


@pytest.mark.parametrize("given", [{"reason": "error"}, {"claim": [1]}, {"function": "no function"}])
def test_what_is_not_understood_fails_before_the_function_is_called(run, queue, given):
    queue.send(["a"])
    seen = []
    with DAG("refused") as dag:
        LedgerWorkOperator(task_id="work", **{"function": seen.append, "claim": received_by(run)[0], **given})
    assert (run(dag).state, seen) == ("failed", [])


def test_a_ledger_that_is_not_there_is_no_new_one(run, root):
    from pathlib import Path

    with DAG("mistyped") as dag:
        LedgerReceiveOperator(**RECEIVED)
    assert run(dag).state == "failed"
    assert not Path(root).exists()
