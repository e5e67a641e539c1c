"""Runs a part of the tests on the versions that are said to work: `python tests/versions/run.py [NAME...]`.

Each has an environment of its own, in `.venv-versions/`. What is asked of it: the conformance suite through delta-rs,
or what Spark does. A version that is said to work in pyproject.toml has a row here, or lies between two that have.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
FOLDER = CHECKOUT / ".venv-versions"
sys.path.insert(0, str(CHECKOUT))

from ledger.runtime.bootstrap import ensure_environment  # noqa: E402 - the path comes first


class Row(NamedTuple):
    """Packages of which the versions count, the tests, and the extras that they need."""

    packages: Mapping[str, str]
    tests: Sequence[str]
    extras: str = "tests"


OF_DELTA_RS = ("tests/conformance", "tests/test_imports.py", "-k", "not spark")
OF_SPARK = (
    *("tests/conformance/test_claims.py", "tests/conformance/test_life.py", "tests/delta/dataframes/test_frames.py"),
    *(
        "tests/delta/dataframes/test_handle_frames.py",
        "tests/delta/views/test_views.py",
        "tests/output/test_write_spark.py",
        "tests/s3/test_spark.py",
    ),
)
ROWS = {
    "oldest": Row({"deltalake": "1.6.6", "numpy": "2.1.3", "pyarrow": "20.0.0", "obstore": "0.8.2"}, OF_DELTA_RS),
    **{
        f"spark-{version}": Row({"pyspark": version, "delta-spark": "4.4.0"}, OF_SPARK, "tests,jvm")
        for version in ("4.0.5", "4.1.4", "4.2.0")
    },
}


def main(names: Sequence[str]) -> int:
    """Runs the rows of these names, all without one; returns how many failed."""
    failed = 0
    for name in names or ROWS:
        began = time.monotonic()
        works = run(name, ROWS[name])
        failed += not works
        print(f"{name}: {'works' if works else 'FAILED'}, {time.monotonic() - began:.0f} s", flush=True)
    return failed


def run(name: str, row: Row) -> bool:
    """Whether the tests of a row pass, in its own environment."""
    place, uv = FOLDER / name, str(Path(sys.prefix) / "bin" / "uv")
    FOLDER.mkdir(exist_ok=True)
    overrides, pins = FOLDER / f"{name}.txt", FOLDER / f"{name}.lock"
    overrides.write_text("".join(f"{package}=={version}\n" for package, version in row.packages.items()))
    known = (CHECKOUT / "constraints.lock").read_text().splitlines(keepends=True)
    pins.write_text("".join(line for line in known if line.partition("==")[0] not in row.packages))
    made = [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(place)]
    python = str(place / "bin" / "python")
    filled = [
        *(uv, "pip", "install", "--quiet", "--python", python, "--editable", f"{CHECKOUT}[{row.extras}]"),
        *("--constraint", str(pins), "--override", str(overrides)),
    ]
    asked = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *row.tests]
    return all(subprocess.run(command, cwd=CHECKOUT).returncode == 0 for command in (made, filled, asked))


if __name__ == "__main__":
    ensure_environment(["tests", "jvm"])
    unknown = set(sys.argv[1:]) - set(ROWS)
    if unknown:
        sys.exit(f"There is no {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.exit(main(sys.argv[1:]))
