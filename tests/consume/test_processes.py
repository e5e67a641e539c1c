"""Queue.consume in several processes: shared work, killed children, signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from ledger import InvalidParameterValue, Ledger
from ledger.runtime.termination import ONE_SIGNAL_SECONDS
from tests.consume import handlers

CHECKOUT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys
from ledger import Ledger
from tests.consume import handlers

if __name__ == "__main__":
    root, table, handler, processes, concurrency = sys.argv[1:]
    queue = Ledger.open(root).queue("work")
    done = queue.consume(
        getattr(handlers, handler), table, processes=int(processes), concurrency=int(concurrency),
        flush_seconds=0.2, max_messages=40, visibility_timeout=5,
        report=lambda step: print(step, flush=True),
    )
    print("done", done.messages, flush=True)
"""


def numbers(table):
    if not DeltaTable.is_deltatable(str(table)):
        return []
    return sorted(DeltaTable(str(table)).to_pyarrow_table()["n"].to_pylist())


@pytest.fixture
def queue(tmp_path):
    return Ledger.open(str(tmp_path / "ledger")).create_queue("work", {"VisibilityTimeout": 5})


class Run:
    """A script that consumes, in a process group of its own; its lines as they come."""

    def __init__(self, folder, handler, processes=1, concurrency=4, before="", stderr=None):
        script = folder / "consume.py"
        script.write_text(before + SCRIPT)
        command = [sys.executable, str(script), str(folder / "ledger"), str(folder / "out"), handler]
        self.process = subprocess.Popen(
            [*command, str(processes), str(concurrency)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
            start_new_session=True,
        )
        self.lines = []

    def until(self, word):
        """Read lines until one has a word."""
        for line in self.process.stdout:
            self.lines.append(line)
            if word in line:
                return line
        raise AssertionError(f"it ended without {word}: {self.lines}")

    def end(self):
        self.lines += self.process.stdout.readlines()
        return self.process.wait(60)


def test_processes_share_the_work_and_each_row_is_written_once(queue, tmp_path):
    queue.send([str(n) for n in range(600)])
    table = str(tmp_path / "out")
    done = queue.consume(handlers.slow, table, processes=2, concurrency=4, max_messages=50, flush_seconds=0.5)
    assert done.messages == done.rows == 600 and numbers(table) == list(range(600))
    assert len(set(DeltaTable(table).to_pyarrow_table()["pid"].to_pylist())) == 2


def test_a_killed_process_leaves_its_messages_to_the_others_and_the_parent_says_so(queue, tmp_path):
    queue.send([str(n) for n in range(400)])
    run = Run(tmp_path, "slow", processes=2)
    run.until("settled")
    children = Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children").read_text().split()
    victim = next(pid for pid in children if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text())
    os.kill(int(victim), signal.SIGKILL)
    assert run.end() == 0
    assert any("was killed by signal 9" in line and victim in line for line in run.lines), run.lines
    assert numbers(tmp_path / "out") == list(range(400))


def test_what_a_child_warns_of_is_a_warning_of_the_parent(queue, tmp_path, caplog):
    queue.send(["1", "2"])
    queue.consume(handlers.number, str(tmp_path / "out"), processes=2, concurrency=1, cost="tokens")
    said = [one.getMessage() for one in caplog.records if one.levelname == "WARNING" and one.name == "ledger.consume"]
    assert said and all(line.startswith("process ") and "the column 'tokens'" in line for line in said)


def test_what_a_child_raises_for_everything_is_raised_by_the_parent(queue, tmp_path):
    queue.send([str(n) for n in range(200)])
    with pytest.raises(KeyError, match="no such column"):
        queue.consume(handlers.broken, str(tmp_path / "out"), processes=2)
    assert queue.counts().visible == 200


def test_a_handler_that_ends_its_process_is_no_success(queue, tmp_path):
    """SystemExit(0), as in one process, is raised; what was held is given back."""
    queue.send([str(n) for n in range(20)])
    with pytest.raises(SystemExit):
        queue.consume(handlers.leaving, str(tmp_path / "out"), processes=2)
    assert queue.counts().visible == 20


def test_a_group_that_one_process_closes_is_closed_in_the_others(queue, tmp_path, monkeypatch):
    monkeypatch.setenv("CONSUME_CALLS", str(tmp_path))
    queue.send([{"MessageBody": str(n), "MessageGroupId": "busy"} for n in range(60)])
    done = queue.consume(handlers.closing, processes=2, concurrency=1, max_messages=10)
    assert done.retried == 60
    # Each process may have one call under way when the other one's closing comes.
    assert len(list(tmp_path.glob("*-*-*"))) <= 2


def test_a_handler_that_no_other_process_can_import_is_refused(queue, tmp_path):
    queue.send("1")
    with pytest.raises(InvalidParameterValue, match="handler"):
        queue.consume(lambda message: None, processes=2)
    with pytest.raises(InvalidParameterValue, match="processes"):
        Ledger.in_memory().create_queue("work").consume(handlers.broken, processes=2)
    assert queue.counts().visible == 1


@pytest.mark.soak_variants("slower-2-Ctrl-C", "slower-1-SIGTERM", "patient-1-Ctrl-C")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
@pytest.mark.parametrize(("handler", "processes"), [("slower", 1), ("patient", 1), ("slower", 2)])
def test_the_first_signal_drains(queue, tmp_path, number, handler, processes):
    queue.send([str(n) for n in range(1_000)])
    run = Run(tmp_path, handler, processes)
    run.until("begins")
    time.sleep(0.4)
    os.killpg(run.process.pid, number) if number == signal.SIGINT else os.kill(run.process.pid, number)
    code = run.end()
    assert code == 143 if number == signal.SIGTERM else code in (1, 130, -signal.SIGINT)
    done = numbers(tmp_path / "out")
    assert done and len(set(done)) == len(done)
    counts = queue.counts()
    assert counts.deleted == len(done) and counts.in_flight == 0 and counts.visible == 1_000 - len(done)
    assert {message.receive_count for message in queue.receive(1_000)} == {1}, "what was not begun does not count"


def test_one_signal_to_the_whole_group_is_one_signal(queue, tmp_path):
    """As timeout and systemd send it: each process gets it, and the parent tells its children of it, too."""
    queue.send([str(n) for n in range(40)])
    run = Run(tmp_path, "slower", processes=2)
    run.until("begins")
    time.sleep(0.4)
    os.killpg(run.process.pid, signal.SIGTERM)
    assert run.end() == 143
    done, counts = numbers(tmp_path / "out"), queue.counts()
    waits = [int(line.split("waits for ")[1].split()[0]) for line in run.lines if "waits for" in line]
    assert done and len(done) >= sum(waits) > 0, run.lines
    assert counts.deleted == len(done) and counts.in_flight == 0 and counts.visible == 40 - len(done)


def test_the_second_signal_gives_all_back(queue, tmp_path):
    queue.send([str(n) for n in range(8)])
    run = Run(tmp_path, "hanging")
    # A drain without a call is over at once, and the second signal finds nobody.
    run.until("hangs")
    os.kill(run.process.pid, signal.SIGTERM)
    run.until("drains")
    time.sleep(2 * ONE_SIGNAL_SECONDS)
    os.kill(run.process.pid, signal.SIGTERM)
    assert run.end() == 143
    assert queue.counts().visible == 8 and numbers(tmp_path / "out") == []


def test_a_process_that_two_signals_end_gave_all_back_and_the_parent_says_so(queue, tmp_path):
    queue.send([str(n) for n in range(8)])
    run = Run(tmp_path, "hanging", processes=2, concurrency=8)
    run.until("hangs")
    children = Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children").read_text().split()
    processes = [int(pid) for pid in children if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]
    # The two may have shared the messages. A handler's own line may come before the line that the parent prints.
    claimed = next((line for line in run.lines if " claimed " in line), None) or run.until(" claimed ")
    holder = processes[int(claimed.split("process ")[1][0])]
    try:
        os.kill(holder, signal.SIGTERM)
        run.until("drains: waits for")
        time.sleep(2 * ONE_SIGNAL_SECONDS)
        os.kill(holder, signal.SIGTERM)
        run.until("gives back")
        run.until(f"(pid {holder}) was ended by SIGTERM, and gave its messages back")
    finally:
        os.killpg(run.process.pid, signal.SIGKILL)
    assert not any("come back when their lease ends" in line for line in run.lines), run.lines


def test_ctrl_c_while_the_processes_still_import_ends_them_without_a_trace(queue, tmp_path):
    queue.send([str(n) for n in range(20)])
    signalled = tmp_path / "signalled"
    # A process that starts late must not find the other one's import over.
    waiting_import = f"""
import os, time
if __name__ == "__mp_main__":
    os.write(1, b"imports\\n")
    while not os.path.exists({str(signalled)!r}):
        time.sleep(0.02)
    time.sleep(1)
"""
    run = Run(tmp_path, "number", processes=2, before=waiting_import, stderr=subprocess.PIPE)
    run.until("imports")
    run.until("imports")
    os.killpg(run.process.pid, signal.SIGINT)
    signalled.touch()
    errors = run.process.stderr.read()
    assert run.end() in (1, 130, -signal.SIGINT)
    assert errors.count("Traceback") == 1 and "in <module>" in errors, "the parent's alone, which nobody catches"
    assert not any("killed" in line or "claimed" in line for line in run.lines), run.lines
    assert queue.counts().visible == 20


@pytest.mark.soak
@pytest.mark.timeout(3_000)
def test_two_hundred_kills_repeat_no_row_and_lose_none(tmp_path):
    """Each run is killed at a random moment, its children with it or alone."""
    import random

    chance = random.Random(34)
    ledger = Ledger.open(str(tmp_path / "ledger"))
    queue = ledger.create_queue("work", {"VisibilityTimeout": 1})
    sent = kills = 0
    while kills < 200:
        if queue.counts().visible < 200:
            queue.send([str(n) for n in range(sent, sent + 500)])
            sent += 500
        run = Run(tmp_path, chance.choice(["number", "slow", "patient"]), chance.choice([1, 1, 2]))
        run.until("claimed")
        time.sleep(chance.random() * 0.8)
        os.killpg(run.process.pid, signal.SIGKILL)
        run.end()
        kills += 1
    queue.consume(handlers.number, str(tmp_path / "out"), visibility_timeout=5)
    assert numbers(tmp_path / "out") == list(range(sent))
