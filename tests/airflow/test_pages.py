"""The DAGs of airflow.md, of upkeep.md and of the examples, as they stand there."""

import runpy

import pytest
from deltalake import DeltaTable

from tests.docs.pages import DOCS, blocks_of


@pytest.mark.parametrize("of", ["the page", "the example"])
def test_the_dags_send_and_work_as_they_stand(run, root, tmp_path, monkeypatch, of):
    (code,) = blocks_of("docs/how-to/airflow.md", "python")
    if of == "the example":
        code = (DOCS / "examples" / "airflow_dag.py").read_text()
    (tmp_path / "dags.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    made = runpy.run_path("dags.py")
    assert run(made["send_flights"]).state == "success"
    ran = run(made["work_flights"])
    assert (ran.state, len(ran.returned["receive"])) == ("success", 2)
    assert sorted(DeltaTable("results/lengths").to_pyarrow_table()["length"].to_pylist()) == [7, 7, 7]


def test_the_dag_of_the_page_on_upkeep_runs_as_it_stands(run, root, queue, tmp_path):
    (code,) = blocks_of("docs/how-to/operate/upkeep.md", "python")
    (tmp_path / "dags.py").write_text(code)
    queue.send(["a"])
    queue.receive().delete()
    ran = run(runpy.run_path(str(tmp_path / "dags.py"))["dag"])
    assert (ran.state, ran.returned["upkeep"]["receipts_filled"]) == ("success", 2)
