"""LedgerConsumeOperator in real DAGs: rows once, failures alone, and what a retry has back."""

import os
import signal
import threading
import time

import pytest
from airflow.sdk import DAG
from deltalake import DeltaTable

from ledger.airflow import LedgerConsumeOperator
from ledger.errors import InvalidParameterValue

FLIGHTS = {"task_id": "consume", "ledger_queue": "flights"}


def number(message):
    return {"n": int(message.body), "cost": 2}


def test_each_message_is_written_once_and_what_fails_fails_alone(run, queue, root):
    queue.send([str(n) for n in range(20)] + ["x"])
    with DAG("consumes") as dag:
        LedgerConsumeOperator(**FLIGHTS, handler=number, output_table="rows/n", options={"cost": "cost"})
    ran = run(dag)
    returned = ran.returned["consume"]
    assert ran.state == "success"
    assert (returned["messages"], returned["failed"], returned["cost"]) == (20, 3, 40)
    assert sorted(DeltaTable(returned["output_table"]).to_pyarrow_table()["n"].to_pylist()) == list(range(20))


def broken(message):
    raise KeyError("no such column")


def test_a_handler_that_raises_for_everything_fails_the_task_and_gives_all_back(run, queue):
    queue.send([str(n) for n in range(50)])
    with DAG("broken") as dag:
        LedgerConsumeOperator(**FLIGHTS, handler=broken)
    assert run(dag).state == "failed" and queue.counts().visible == 50


def test_a_task_that_is_ended_writes_what_is_done_and_gives_the_rest_back(run, queue, tmp_path):
    queue.send([str(n) for n in range(30)])
    done = threading.Event()

    def slow(message):
        if int(message.body) >= 5:
            done.set()
            time.sleep(5)
        return number(message)

    class Ended(LedgerConsumeOperator):
        """SIGTERM reaches it as Airflow's supervisor lets it: its handler calls on_kill."""

        def execute(self, context):
            before = signal.signal(signal.SIGTERM, lambda *_: self.on_kill())
            threading.Thread(
                target=lambda: (done.wait(30), time.sleep(0.3), os.kill(os.getpid(), signal.SIGTERM))
            ).start()
            try:
                return super().execute(context)
            except SystemExit as ended:
                raise RuntimeError("ended") from ended
            finally:
                signal.signal(signal.SIGTERM, before)

    table = tmp_path / "rows"
    with DAG("ended") as dag:
        Ended(**FLIGHTS, handler=slow, output_table=table, options={"concurrency": 1, "flush_seconds": 600})
    assert run(dag).state == "failed"
    written = DeltaTable(str(table)).to_pyarrow_table().num_rows if DeltaTable.is_deltatable(str(table)) else 0
    counts = queue.counts()
    assert counts.deleted == written and counts.visible == 30 - written and counts.in_flight == 0


@pytest.mark.parametrize("name", ["output", "attempt_id", "report"])
def test_what_the_operator_says_itself_is_no_option(name):
    with pytest.raises(InvalidParameterValue, match="options"):
        LedgerConsumeOperator(**FLIGHTS, handler=number, options={name: 1})
