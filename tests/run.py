"""Runs the tests in the project's own environment: `python3 tests/run.py [--soak] [pytest arguments]`."""

import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT))

from ledger.bootstrap import ensure_environment  # noqa: E402 - the path comes first

#: The whole suite runs in so many processes at most, each with a Spark session of its own when it needs one.
PROCESSES = 2


def main(arguments: list[str]) -> int:
    """Run pytest with `arguments`, where `--soak` lets in the tests that take minutes; return its exit code.

    Without arguments all tests run, in as many processes as there are cores, up to PROCESSES.
    """
    if not arguments:
        arguments = ["-n", str(min(PROCESSES, os.cpu_count() or 1)), "--dist", "worksteal"]
    if "--soak" in arguments:
        rest = [argument for argument in arguments if argument != "--soak"]
        arguments = ["-m", "soak or not soak", *rest]
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=CHECKOUT).returncode


if __name__ == "__main__":
    ensure_environment(["tests", "jvm", "flights"])
    sys.exit(main(sys.argv[1:]))
