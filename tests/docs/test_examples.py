"""docs/examples: each program runs as it stands, in an empty folder, and checks its own result."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.docs.pages import DOCS
from tests.docs.test_pages import commands_in
from tests.s3.server import BUCKET, s3_server
from tests.sources import CHECKOUT

FOLDER = DOCS / "examples"
#: They need an Airflow, a store, and the JVM of test_pages.py.
ELSEWHERE = ("airflow_dag.py", "s3.py", "spark_worker.py")
PROGRAMS = sorted(file.name for file in FOLDER.iterdir() if file.suffix in (".py", ".sh"))
EXAMPLES = [name for name in PROGRAMS if name not in ELSEWHERE]


def run_example(name, tmp_path, **more):
    folder = tmp_path / "example"
    folder.mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("LEDGER_", "AWS_"))}
    environment = {**kept, "PATH": commands_in(tmp_path / "bin"), "PYTHONPATH": str(CHECKOUT), **more}
    program = [sys.executable] if name.endswith(".py") else ["bash"]
    command = [*program, str(FOLDER / name)]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout[-1_000:] + run.stderr[-3_000:]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_as_it_stands(name, tmp_path):
    run_example(name, tmp_path)


def test_the_example_of_an_object_store_runs_on_a_server_that_keeps_conditions(tmp_path):
    with s3_server() as server:
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        root = f"s3://{BUCKET}/ledger"
        run_example("s3.py", tmp_path, AWS_ENDPOINT_URL=server.url, LEDGER_ROOT=root, **keys)


def test_the_page_of_examples_names_each_of_them():
    text = (FOLDER / "README.md").read_text()
    assert all(f"({name})" in text for name in PROGRAMS)
