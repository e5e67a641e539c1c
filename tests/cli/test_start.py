"""The command itself, as a process: the entry point, how quickly it starts, a terminal, a pipe that closes."""

import os
import pty
import subprocess
import sys

import pytest

from tests.sources import CHECKOUT

COMMAND = [sys.executable, "-m", "ledger"]


def environment(root, **more):
    return {**os.environ, "PYTHONPATH": str(CHECKOUT), "LEDGER_ROOT": root, **more}


def test_the_entry_point_is_this_command():
    text = (CHECKOUT / "pyproject.toml").read_text()
    assert 'ledger = "ledger.cli:main"' in text


def test_it_starts_without_pandas_spark_or_what_reads_inputs(root, queue):
    code = """
import sys
from ledger.cli import main
assert main(["--help"]) == 0
light = set(sys.modules)
assert main(["queues", "list"]) == 0
print(sorted({"numpy", "pyarrow"} & light), "deltalake" in sys.modules)
print(sorted({"pandas", "pyspark", "py4j", "delta", "obstore"} & set(sys.modules)))
"""
    ran = subprocess.run([sys.executable, "-c", code], env=environment(root), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-2:] == ["[] True", "[]"]


def test_ctrl_c_while_it_starts_is_told_in_a_line(root):
    """Python raises it wherever it is: here at the first import of what has all commands."""
    code = """
import signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "ledger.cli.app":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from ledger.cli import main
sys.exit(main(["queues", "list"]))
"""
    ran = subprocess.run([sys.executable, "-c", code], env=environment(root), capture_output=True, text=True)
    assert (ran.returncode, ran.stderr.strip()) == (130, "ledger: interrupted")


def test_it_asks_on_a_terminal_and_a_no_changes_nothing(root, queue):
    queue.send("a")
    mine, its = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "queues", "purge", "work"], env=environment(root), stdin=its, stdout=its, stderr=its
    ) as run:
        os.write(mine, b"n\n")
        assert run.wait(60) == 1
    # As long as somebody has its other end open.
    said = os.read(mine, 10_000).decode()
    os.close(its)
    os.close(mine)
    assert "Delete 1 message in work (0 in flight)?" in said and "nothing was changed" in said
    assert queue.counts().visible == 1


@pytest.mark.parametrize("unbuffered", ["1", ""], ids=["at once", "at the end"])
def test_what_cannot_be_printed_is_an_error_in_a_line(root, queue, unbuffered):
    env = environment(root, PYTHONUNBUFFERED=unbuffered)
    with open("/dev/full", "w") as full:  # noqa: PTH123
        ran = subprocess.run([*COMMAND, "queues", "list"], env=env, stdout=full, stderr=subprocess.PIPE)
    assert ran.returncode == 1 and ran.stderr.startswith(b"ledger: ") and b"Traceback" not in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


@pytest.mark.parametrize("claim", [[], ["--claim"]], ids=["messages", "claim"])
@pytest.mark.parametrize("unbuffered", ["1", ""], ids=["at once", "at the end"])
def test_messages_whose_receipts_cannot_be_printed_are_given_back(root, queue, unbuffered, claim):
    queue.send(["a", "b"])
    env = environment(root, PYTHONUNBUFFERED=unbuffered)
    with open("/dev/full", "w") as full:  # noqa: PTH123
        receive = [*COMMAND, "receive", "work", "-n", "2", "--json", *claim]
        ran = subprocess.run(receive, env=env, stdout=full, stderr=subprocess.PIPE, text=True)
    assert ran.returncode == 1 and "were given back" in ran.stderr and len(ran.stderr.splitlines()) == 1
    assert {message.receive_count for message in queue.receive(2)} == {1}


def test_a_reader_that_has_enough_gets_no_traceback(root, queue):
    queue.send([f"{number:01000}" for number in range(2_000)])
    script = f"{sys.executable} -m ledger.cli receive work --all --json | head -c 10; exit ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", script], env=environment(root), capture_output=True, text=True)
    assert (ran.returncode, ran.stderr, len(ran.stdout)) == (1, "", 10)


def test_without_a_stdout_nothing_is_received_and_without_a_stdin_nothing_is_read(root, queue):
    queue.send("a")
    for line, code in (("receive work >&-", 1), ("send work - <&-", 0)):
        script = f"{sys.executable} -m ledger.cli {line}"
        ran = subprocess.run(["bash", "-c", script], env=environment(root), capture_output=True, text=True)
        assert ran.returncode == code and "Traceback" not in ran.stderr
    assert queue.counts().visible == 1
