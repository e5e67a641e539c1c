"""Work in a process of its own: with Spark, killed and retried; ended, left behind, and what it is told."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest
from airflow.sdk import DAG
from deltalake import DeltaTable

from ledger import InvalidParameterValue
from ledger.airflow import LedgerSparkWorkOperator
from ledger.airflow.processes import TaskProcess
from tests.sources import CHECKOUT

#: Of the project's own environment, which has Spark; tests/airflow/run.py makes it.
SPARK = [str(CHECKOUT / ".venv" / "bin" / "python"), str(CHECKOUT / "jobs" / "work.py")]
PLAIN = [sys.executable, "-m", "tests.airflow.killed", "worker"]


@pytest.fixture(autouse=True)
def checkout(monkeypatch):
    """Workers find the tests' modules in the folder that they run in."""
    monkeypatch.chdir(CHECKOUT)


def wait_until(holds):
    """Looks every hundredth of a second; raises AssertionError after a minute."""
    give_up = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < give_up, "it did not come to be"
        time.sleep(0.01)


def test_a_spark_worker_that_is_killed_has_its_claim_back_in_the_retry(run, queue, tmp_path):
    queue.send([f"flight {number}" for number in range(100)])
    output, held = f"{tmp_path}/flights", []
    with DAG("spark_killed_and_retried") as dag:
        LedgerSparkWorkOperator(
            task_id="work",
            ledger_queue="flights",
            submit=SPARK,
            function="tests.airflow.killed:killed_once",
            output_table=output,
            arguments=["--once"],
            env={"KILLED": str(tmp_path / "killed")},
            on_retry_callback=lambda context: held.extend(leases(queue)),
            retries=1,
            retry_delay=timedelta(0),
        )
    assert run(dag).state == "success"
    rows = DeltaTable(output).to_pyarrow_table()
    assert [lease.messages for lease in held] == [100], "the killed worker's claim is still held"
    assert set(rows["receipt_id"].to_pylist()) == {held[0].receipt_id}, "and it is the one that the retry has"
    assert set(rows["receive_count"].to_pylist()) == {1}, "and nobody received it anew"
    assert sorted(rows["body"].to_pylist()) == sorted(f"flight {number}" for number in range(100))
    assert (queue.counts().deleted, queue.counts().stored, queue.counts().in_flight) == (100, 0, 0)


def leases(queue):
    """Who holds messages of a queue now."""
    return queue.access.store.leases(queue.access.record(), queue.access.clock)


def task(tmp_path, *arguments, submit=PLAIN, **more):
    return LedgerSparkWorkOperator(
        task_id="work",
        ledger_queue="flights",
        submit=submit,
        function="none:none",
        output_table="out/rows",
        arguments=["--marker", str(tmp_path / "claimed"), *arguments],
        **more,
    )


@pytest.mark.parametrize("tries", [1, 2])
def test_what_killed_workers_held_is_given_back_after_the_last_try(run, queue, tmp_path, tries):
    queue.send(["a", "b"])
    held = []
    with DAG(f"killed_for_good_{tries}") as dag:
        retried = {
            "retries": tries - 1,
            "retry_delay": timedelta(0),
            "on_retry_callback": lambda context: held.extend(leases(queue)),
        }
        task(tmp_path, "--ends", "killed", **retried)
    assert run(dag).state == "failed"
    assert [lease.messages for lease in held] == [2] * (tries - 1), "it was kept for the retry"
    assert queue.counts().visible == 2


def test_a_task_that_is_ended_ends_its_process_which_gives_the_claim_back(run, queue, tmp_path):
    queue.send(["a"])
    before = signal.getsignal(signal.SIGTERM)

    def end_it():
        wait_until((tmp_path / "claimed").exists)
        os.kill(os.getpid(), signal.SIGTERM)

    ender = threading.Thread(target=end_it)
    with DAG("ended") as dag:
        task(tmp_path)
    ender.start()
    try:
        assert run(dag).state == "failed"
    finally:
        ender.join()
        signal.signal(signal.SIGTERM, before)
    assert queue.counts().visible == 1


def test_a_timeout_of_the_task_ends_its_process_which_gives_the_claim_back(run, queue, tmp_path):
    queue.send(["a"])
    with DAG("timed_out") as dag:
        task(tmp_path, execution_timeout=timedelta(seconds=5))
    assert run(dag).state == "failed"
    assert (queue.counts().visible, queue.counts().in_flight) == (1, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no kernel tells a process that its parent died")
def test_a_process_whose_task_is_killed_is_told_so_and_gives_the_claim_back(queue, root, tmp_path):
    queue.send(["a"])
    named = ["--attempt-id", "a", "--marker", str(tmp_path / "claimed")]
    parent = subprocess.Popen([sys.executable, "-m", "tests.airflow.killed", "parent", root, "flights", *named])
    wait_until((tmp_path / "claimed").exists)
    parent.kill()
    parent.wait()
    wait_until(lambda: queue.counts().visible == 1)


def test_what_a_killed_spark_submit_leaves_behind_is_ended_and_gives_the_claim_back(queue, root, tmp_path):
    queue.send(["a"])
    named = ["--attempt-id", "a", "--marker", str(tmp_path / "claimed")]
    said = []
    command = [sys.executable, "-m", "tests.airflow.killed", "submit", root, "flights", *named]
    assert TaskProcess(command, {}, said.append).wait(30) == -signal.SIGKILL
    assert (said, queue.counts().visible) == (["claimed 1"], 1)


def test_a_process_that_does_not_listen_is_killed_when_the_grace_is_over(tmp_path):
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    said = []
    process = TaskProcess([sys.executable, "-c", deaf], {}, said.append)
    wait_until(lambda: said)
    process.terminate(0.1)
    assert process.wait(0.1) == -signal.SIGKILL


def test_a_command_that_is_not_there_fails_and_says_so(run, queue, tmp_path):
    said = []
    assert TaskProcess(["/nowhere/spark-submit"], {}, said.append).wait(1) == 1
    assert said == ["/nowhere/spark-submit: No such file or directory"]
    with DAG("no_command") as dag:
        task(tmp_path, submit=["/nowhere/spark-submit"])
    assert run(dag).state == "failed"


def test_a_process_is_told_the_root_and_the_settings_and_keys_only_in_its_environment(monkeypatch, tmp_path):
    extra = {"storage_options": {"aws_secret_access_key": "nobodys"}, "settings": "/etc/ledger.toml"}
    connection = {"conn_type": "ledger", "host": "s3://bucket/ledger", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LEDGER_DEFAULT", json.dumps(connection))
    told = task(tmp_path, attempt_id="mine")
    command = told.command()
    assert command[: len(PLAIN) + 2] == [*PLAIN, "s3://bucket/ledger", "flights"]
    named = dict(zip(command[len(PLAIN) + 2 :: 2], command[len(PLAIN) + 3 :: 2]))
    assert (named["--settings"], named["--attempt-id"], named["--owner"]) == ("/etc/ledger.toml", "mine", "mine")
    assert "nobodys" not in str(command)
    assert told.hook.place.environment() == {"AWS_SECRET_ACCESS_KEY": "nobodys"}


@pytest.mark.parametrize(("wrong", "field"), [({"submit": "spark-submit a.py"}, "submit"), ({"submit": []}, "submit")])
def test_a_command_that_is_no_list_is_refused_by_name(tmp_path, wrong, field):
    with pytest.raises(InvalidParameterValue) as refused:
        task(tmp_path, **wrong)
    assert refused.value.field == field
