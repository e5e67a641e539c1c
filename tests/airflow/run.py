"""Runs the tests of ledger/airflow, on an Airflow of their own: `python3 tests/airflow/run.py [pytest arguments]`.

Airflow is in `.venv-airflow`, without Spark. The worker that a task starts has Spark in the project's own `.venv`.
"""

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))

from ledger.runtime.bootstrap import BootstrapError, Environment, ensure_environment  # noqa: E402 - the path comes first


def main(arguments: list[str]) -> int:
    """Run pytest on tests/airflow, or with `arguments`; return its exit code."""
    command = [sys.executable, "-m", "pytest", *(arguments or ["tests/airflow"])]
    return subprocess.run(command, cwd=CHECKOUT).returncode


if __name__ == "__main__":
    ensure_environment(["airflow-tests"], ".venv-airflow")
    try:
        Environment(CHECKOUT).bring_up_to_date(["spark", "jvm"])
    except BootstrapError as error:
        sys.exit(f"ledger: {error}")
    sys.exit(main(sys.argv[1:]))
