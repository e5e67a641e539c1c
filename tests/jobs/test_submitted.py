"""The page spark-jobs.md, run as it stands by a user who has nothing but a table of orders."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.docs.pages import blocks_of

PAGE = "docs/how-to/spark-jobs.md"


@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_the_commands_of_the_page_on_jobs_do_what_it_says(tmp_path):
    (tmp_path / "orders_work.py").write_text(blocks_of(PAGE, "python")[0])
    orders = pa.table({"id": pa.array(range(100)), "total": pa.array([n / 4 for n in range(100)])})
    pq.write_table(orders, tmp_path / "orders.parquet")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    work, look = blocks_of(PAGE, "sh")
    for line in [*work.splitlines(), *look.splitlines()]:
        run = subprocess.run(
            line,
            shell=True,
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert run.returncode == 0, (line, run.stderr[-2_000:])
    written = DeltaTable(str(tmp_path / "results" / "totals")).to_pyarrow_table()
    assert sorted(written["total"].to_pylist()) == orders["total"].to_pylist()
    assert "released 0 messages" in run.stdout
