"""An Airflow for the tests: a home and a SQLite database that are gone with them, no DAG of anybody else's."""

import json
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

# Airflow reads these when it is imported.
HOME = tempfile.TemporaryDirectory(prefix="ledger-airflow-")
DAGS = Path(HOME.name, "dags")
DAGS.mkdir()
os.environ |= {
    "AIRFLOW_HOME": HOME.name,
    "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    # The assets of a paused DAG are not watched.
    "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
    # DAGs are as the tests make them, and not as a file has them.
    "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "0",
}


class Ran(NamedTuple):
    """A run of a DAG: the states of its tasks, and what they returned, each by task id or (task id, map index)."""

    state: str
    run_id: str
    states: dict
    returned: dict


@pytest.fixture(scope="session")
def database():
    """Airflow's tables."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.utils.db import initdb

    initdb()
    DagBundlesManager().sync_bundles_to_db()


@pytest.fixture
def run(database):
    """Runs a DAG in this process, as `dag.test()` does; the same `at` is the same run again, as if it was cleared."""
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db

    def run_dag(dag, at=None):
        bag = DagBag(dag_folder=str(DAGS))
        bag.bag_dag(dag)
        sync_bag_to_db(bag, "dags-folder", None)
        return looked_at(dag.test(logical_date=at, run_after=at) if at else dag.test())

    return run_dag


def looked_at(run):
    """What became of a run."""
    states, returned = {}, {}
    for task in run.get_task_instances():
        key = task.task_id if task.map_index < 0 else (task.task_id, task.map_index)
        states[key] = str(task.state)
        returned[key] = returned_by(run, task)
    return Ran(str(run.state), run.run_id, states, returned)


def returned_by(run, task):
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    with create_session() as session:
        found = XComModel.get_many(
            key="return_value", dag_ids=run.dag_id, task_ids=task.task_id, run_id=run.run_id, map_indexes=task.map_index
        )
        values = [XComModel.deserialize_value(each) for each in session.execute(found).scalars()]
    return values[0] if values else None


@pytest.fixture
def root(tmp_path, monkeypatch):
    """The root of a ledger, to which the connection ledger_default leads; there is none yet."""
    connection = {"conn_type": "ledger", "host": str(tmp_path / "ledger")}
    monkeypatch.setenv("AIRFLOW_CONN_LEDGER_DEFAULT", json.dumps(connection))
    return connection["host"]


@pytest.fixture
def queue(root):
    """Its queue `flights`."""
    from ledger import Ledger

    return Ledger.open(root).create_queue("flights", {"VisibilityTimeout": 600})
