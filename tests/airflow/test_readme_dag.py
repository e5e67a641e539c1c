"""The README's file of DAGs, as it stands there."""

import runpy

from deltalake import DeltaTable

from tests.sources import CHECKOUT


def test_the_readmes_dags_send_and_work_as_they_stand(run, root, tmp_path, monkeypatch):
    section = (CHECKOUT / "README.md").read_text().split("\n## Airflow\n")[1].split("\n## ")[0]
    (code,) = [block.removeprefix("python\n") for block in section.split("```") if block.startswith("python\n")]
    (tmp_path / "dags.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    made = runpy.run_path("dags.py")
    assert run(made["send_flights"]).state == "success"
    ran = run(made["work_flights"])
    assert (ran.state, len(ran.returned["receive"])) == ("success", 2)
    assert sorted(DeltaTable("results/lengths").to_pyarrow_table()["length"].to_pylist()) == [7, 7, 7]


def test_the_dag_of_the_page_on_upkeep_runs_as_it_stands(run, root, queue, tmp_path):
    page = (CHECKOUT / "docs" / "upkeep.md").read_text()
    (code,) = [block.removeprefix("python\n") for block in page.split("```") if block.startswith("python\n")]
    (tmp_path / "dags.py").write_text(code)
    queue.send(["a"])
    queue.receive().delete()
    ran = run(runpy.run_path(str(tmp_path / "dags.py"))["dag"])
    assert (ran.state, ran.returned["upkeep"]["receipts_filled"]) == ("success", 2)
