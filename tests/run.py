"""Runs the tests in the project's own environment: `python3 tests/run.py [--fast | --soak] [pytest arguments]`."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT))

from ledger.runtime.bootstrap import ensure_environment  # noqa: E402 - the path comes first

#: The whole suite runs in so many processes at most, each with a Spark session of its own when it needs one.
PROCESSES = 2
#: What `--fast` runs: the rules, the store in memory through the whole of the library, and the shape of the code. It
#: starts no JVM and opens no Delta table.
FAST = (
    *("tests/rules", "tests/store", "tests/conformance", "tests/mutation", "tests/test_architecture.py"),
    *("tests/test_style.py", "tests/test_tabular.py", "tests/docs/test_contents.py"),
)
OUTSIDE_FAST = "not delta-rs and not spark and not mypy and not signatures_tell and not test_quotas"
#: Where Linux has a file system in memory, and how many bytes must be free there.
MEMORY, NEEDED_BYTES = Path("/dev/shm"), 4 << 30


@contextmanager
def folder_in_memory() -> Iterator[dict[str, str]]:
    """Yield the environment in which tests write to memory, if there is room: a sync to a disk takes longer than most
    tests. What a power cut leaves of a disk is judged by tests/power, on any file system."""
    if not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < NEEDED_BYTES:
        yield dict(os.environ)
        return
    with tempfile.TemporaryDirectory(prefix="ledger-tests-", dir=MEMORY, ignore_cleanup_errors=True) as folder:
        yield {"PYTEST_DEBUG_TEMPROOT": folder, **os.environ}


def main(arguments: list[str]) -> int:
    """Run pytest with `arguments`, where `--soak` lets in the tests that take minutes; return its exit code.

    Without arguments all tests run, in as many processes as there are cores, up to PROCESSES. `--fast` runs FAST alone,
    within a minute on two cores.
    """
    if not arguments:
        arguments = ["-n", str(min(PROCESSES, os.cpu_count() or 1)), "--dist", "worksteal"]
    if "--fast" in arguments:
        rest = [argument for argument in arguments if argument != "--fast"]
        arguments = ["-q", "-n", str(PROCESSES), "--dist", "worksteal", "-k", OUTSIDE_FAST, *FAST, *rest]
    if "--soak" in arguments:
        rest = [argument for argument in arguments if argument != "--soak"]
        arguments = ["-m", "soak or not soak", *rest]
    with folder_in_memory() as environment:
        return subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=CHECKOUT, env=environment).returncode


if __name__ == "__main__":
    ensure_environment(["tests", "jvm", "flights"])
    sys.exit(main(sys.argv[1:]))
