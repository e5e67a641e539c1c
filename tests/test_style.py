"""The style of the code is that of ruff, and its types are those of mypy; the rules of both are in pyproject.toml."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
CODE = ("ledger", "jobs", "notebooks", "tests")
#: NumPy's arrays have types without being asked for them since 2.3, which Python 3.10 does not get. And an environment
#: that was made before mypy was among the tests' own tools runs the rest.
needs_mypy = pytest.mark.skipif(
    sys.version_info < (3, 11) or find_spec("mypy") is None,
    reason="needs Python 3.11 and mypy: install the extra `tests` again",
)


@pytest.mark.parametrize("what", [("check",), ("format", "--check")], ids=" ".join)
def test_ruff_has_nothing_to_say(what):
    run = subprocess.run([sys.executable, "-m", "ruff", *what, *CODE], cwd=CHECKOUT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


@needs_mypy
def test_mypy_has_nothing_to_say():
    status, said = mypy()
    assert status == 0, said


@needs_mypy
def test_the_signatures_tell_users_what_is_answered(tmp_path):
    (tmp_path / "uses.py").write_text(USES)
    _, said = mypy(str(tmp_path / "uses.py"))
    assert re.findall(r'Revealed type is "(.*)"', said) == [
        "None",
        "list[ledger.results.HandleOutcome]",
        "list[ledger.results.HandleOutcome]",
        "pyspark.sql.dataframe.DataFrame",
        "list[ledger.results.HandleOutcome]",
        "pyspark.sql.dataframe.DataFrame",
        "list[ledger.results.SendOutcome]",
        "list[ledger.results.SendOutcome]",
        "ledger.store.delta.dataframes.bulk_send.Sent",
        "ledger.client.arrow_rows.SentTable",
    ]
    assert len(re.findall("error: ", said)) == 2 == len(re.findall("No overload variant", said)), said


USES = """
from pyspark.sql import DataFrame
from ledger import Claim, Queue
from ledger.client.tables import ArrowTable

def uses(queue: Queue, claim: Claim, handles: list[str], frame: DataFrame, table: ArrowTable) -> None:
    reveal_type(queue.delete("handle"))
    reveal_type(queue.delete(handles))
    reveal_type(queue.delete([message.receipt_handle for message in claim]))
    reveal_type(queue.change_visibility(frame, "seconds"))
    reveal_type(queue.settle(delete=handles, release=["handle"], visibility_timeout=[1]))
    reveal_type(claim.settle(delete=handles, extend=frame))
    reveal_type(queue.send("body"))
    reveal_type(queue.send([{"MessageBody": "body"}]))
    reveal_type(queue.send(frame, body="text"))
    reveal_type(queue.send(table))
    queue.delete(1)
    queue.send(frame, delay_seconds=1)
"""


def mypy(*arguments: str) -> tuple[int, str]:
    run = subprocess.run([sys.executable, "-m", "mypy", *arguments], cwd=CHECKOUT, capture_output=True, text=True)
    return run.returncode, run.stdout + run.stderr
