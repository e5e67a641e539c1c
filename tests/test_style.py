"""The style of the code is that of ruff, whose rules are in pyproject.toml."""

import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
CODE = ("ledger", "jobs", "notebooks", "tests")


@pytest.mark.parametrize("what", [("check",), ("format", "--check")], ids=" ".join)
def test_ruff_has_nothing_to_say(what):
    run = subprocess.run([sys.executable, "-m", "ruff", *what, *CODE], cwd=CHECKOUT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
