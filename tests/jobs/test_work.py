"""A worker that is tried again first has back what the failed run held, and waits for no lease of its own."""

import os
import re
import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.work import require_persistent_table
from ledger import Ledger
from ledger.errors import InvalidParameterValue
from ledger.runtime.session import submit_command, submit_environment
from ledger.work.claim_source import ClaimSource

WORK = Path(__file__).resolve().parents[2] / "jobs" / "work.py"
FUNCTION = """
import time
from pathlib import Path

def work(messages):
    if Path("first").exists() and Path("hang").exists():
        Path("hanging").touch()
        time.sleep(600)
    Path("first").touch()
    return messages.select("message_id", "body")
"""


def source_of(queue, attempt_id=None):
    return ClaimSource(queue.access, 600, attempt_id, print)


def test_a_retry_asks_first_for_what_the_attempt_still_holds_and_gives_new_work_numbers_of_its_own(tmp_path):
    ledger = Ledger.open(str(tmp_path / "ledger"))
    queue, other = ledger.create_queue("jobs"), ledger.create_queue("other")
    queue.send([str(n) for n in range(40)])
    other.send("x")
    for attempt, most, timeout in (
        ("task/0", 1, 7_200),  # by a run with a longer visibility timeout
        ("task/4", 7, 600),  # more than a claim of now would take
        ("task/2", 2, 600),
        ("task/old", 1, 600),
        ("task", 1, 600),
        ("other task/9", 1, 600),
    ):
        queue.receive(most, timeout, attempt_id=attempt)
    other.receive(1, 600, attempt_id="task/30")
    source = source_of(queue, "task")
    asked = list(islice(source.attempts(), 4))
    assert asked == [("task/0", 1), ("task/2", 2), ("task/4", 7), ("task/5", 0)]
    assert [source.receive(attempt, max(5, held), 0).count for attempt, held in asked] == [1, 2, 7, 5]
    (first, held), (second, _) = islice(source_of(queue, "x" * 500).attempts(), 2)
    assert held == 0 and first.endswith("/0") and second.endswith("/1") and len(first) < 128
    assert list(islice(source_of(queue).attempts(), 2)) == [(None, 0)] * 2


@pytest.mark.soak
def test_a_retry_carries_on_with_the_claim_of_a_killed_worker_and_waits_for_no_lease(tmp_path):
    """Killed with its second claim in hand: the retry has that claim, and not the messages that nobody held."""
    (tmp_path / "function.py").write_text(FUNCTION)
    (tmp_path / "hang").touch()
    root, log = tmp_path / "ledger", tmp_path / "log"
    queue = Ledger.open(str(root)).create_queue("jobs")
    for n in range(6):
        queue.send(str(n))
    command = submit_command(
        WORK, str(root), "jobs", "--function", "function:work", "--output", str(tmp_path / "out"), "--claim", "2",
        "--visibility-timeout", "3600", "--attempt-id", "dag.run.task.-1",
    )  # fmt: skip

    def start():
        with log.open("wb") as output:
            return subprocess.Popen(
                command,
                cwd=tmp_path,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=submit_environment(),
                start_new_session=True,
            )

    def receipts():
        return re.findall(r"claimed 2 messages \(receipt (\w+)", log.read_text())

    killed = start()
    give_up = time.monotonic() + 300
    while not (tmp_path / "hanging").exists():
        assert killed.poll() is None and time.monotonic() < give_up, log.read_text()
        time.sleep(0.2)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    held = receipts()[1]
    (tmp_path / "hang").unlink()
    assert start().wait(300) == 0, log.read_text()
    assert receipts()[0] == held and len(receipts()) == 2, log.read_text()
    assert "ends after 2 claims: 4 messages done" in log.read_text()
    rows = DeltaTable(str(tmp_path / "out")).to_pyarrow_table()
    assert sorted(rows["body"].to_pylist()) == [str(n) for n in range(6)]
    assert queue.counts().deleted == 6


def run_job(script, *arguments, cwd):
    job = WORK.with_name(script)
    return subprocess.run([sys.executable, job, *arguments], cwd=cwd, capture_output=True, text=True, timeout=300)


def test_what_needs_no_spark_is_refused_before_it_starts(tmp_path):
    (tmp_path / "mine.py").write_text("def work(messages): ...\ndef two(a, b): ...\nnone = 1\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x.txt").touch()
    # There is no ledger at this root, which is found out later.
    for function, output, why in (
        ("mine:work", "no-name", "--output.*Must be a path"), ("mine:work", "./full", "--output.*no Delta table"),
        ("mine:two", "./out", "--function.*one argument"), ("mine:none", "./out", "--function.*not a function"),
        ("mine", "./out", "--function.*MODULE:NAME"), ("mine:work", "./out", "There is no ledger at .*create_queue"),
    ):  # fmt: skip
        arguments = ("ledger", "jobs", "--function", function, "--output", output)
        if why.startswith("There"):
            ended = run_job("show.py", "ledger", cwd=tmp_path)
        else:
            ended = run_job("work.py", *arguments, cwd=tmp_path)
            assert ended.returncode == 2
        assert re.search(why, ended.stderr), ended.stderr
        assert "JAVA" not in ended.stderr and "Traceback" not in ended.stderr
    said = " ".join(run_job("work.py", "--help", cwd=tmp_path).stdout.split())
    for part in ("gets a DataFrame of messages (message_id, body", "(done, failed)", "message_id, reason"):
        assert part in said


def test_a_module_may_need_a_session_when_it_is_imported_and_a_row_that_raises_is_isolated(tmp_path):
    (tmp_path / "mine.py").write_text(
        'from pyspark.sql.functions import pandas_udf\n\n\n@pandas_udf("double")\ndef number(body):\n'
        "    return body.astype(float)\n\n\ndef work(messages):\n"
        '    return messages.select("message_id", number("body").alias("x"))\n'
    )
    queue = Ledger.open(str(tmp_path / "ledger")).create_queue("jobs")
    queue.send(["0", "1", "five"])
    ended = run_job("work.py", "ledger", "jobs", "--function", "mine:work", "--output", "./out", "--once", cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "ends after 1 claims: 2 messages done, 1 failed receives" in ended.stdout
    (row,) = DeltaTable(str(tmp_path / "out_failed")).to_pyarrow_table().to_pylist()
    assert (row["body"], row["verdict"]) == ("five", "release")
    assert row["reason"] == "ValueError: could not convert string to float: 'five' (mine.py:6)"


def test_a_function_that_answers_something_else_is_named_and_the_claim_given_back(tmp_path, spark):
    ledger = Ledger.open(str(tmp_path / "ledger"), spark, "delta-rs")
    queue = ledger.create_queue("jobs", {"VisibilityTimeout": 600})
    queue.send(["a"])
    for answer, why in (
        (lambda messages: None, "NoneType.*must return a DataFrame of Spark's.*mapInPandas"),
        (lambda messages: (messages, messages), "without reason"),
        (lambda messages: messages.select("body"), "without message_id"),
        (lambda messages: [messages] * 3, "or two of them"),
    ):
        with pytest.raises(InvalidParameterValue, match=why):
            queue.work(answer, tmp_path / "out", max_messages=1)
        assert queue.counts().visible == 1


def test_a_queue_that_is_there_with_other_attributes_is_answered_with_options(tmp_path):
    assert run_job("create_queue.py", "ledger", "jobs", cwd=tmp_path).returncode == 0
    ended = run_job("create_queue.py", "ledger", "jobs", "--attribute", "VisibilityTimeout=5", cwd=tmp_path)
    assert ended.returncode == 1 and "--change" in ended.stderr and "set_attributes" not in ended.stderr


def test_an_output_that_would_be_gone_with_the_job_is_refused(spark):
    """Messages were acknowledged, and nobody found the table."""
    for option in ("--output", "--failed"):
        with pytest.raises(InvalidParameterValue, match=rf"{option} is invalid.*in this job's memory.*\./results"):
            require_persistent_table(option, "results")
        for lasting in (None, "./results", "s3://bucket/results"):
            require_persistent_table(option, lasting)
