"""The main job's worker on a cluster whose executors are other processes, and a ledger and an output on S3."""

import json
import subprocess
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.flights_demo.data import read_flights, write_flights
from jobs.flights_demo.workers import JAVA_OPTIONS
from ledger import Ledger
from ledger.runtime.checks import read_properties
from ledger.runtime.jars import delta_packages, find_or_fetch_jars, s3_packages
from ledger.runtime.session import submit_environment
from tests.s3.cluster import SPARK_HOME, cluster

CHECKOUT = Path(__file__).resolve().parents[2]
FLIGHTS, CLAIM = 300, 150


def settings_for(s3, url):
    """As conf/spark-cluster.conf and conf/spark-s3.conf say, without a network: with the jars instead of packages."""
    conf = {}
    for name in ("spark-cluster.conf", "spark-s3.conf"):
        conf.update(read_properties((CHECKOUT / "conf" / name).read_text()))
    del conf["spark.jars.packages"], conf["spark.jars.excludes"]
    jars = [*find_or_fetch_jars(delta_packages()), *find_or_fetch_jars(s3_packages())]
    return {
        **conf,
        **s3.spark_settings,
        "spark.jars": ",".join(map(str, jars)),
        "spark.master": url,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        # For few rows on two cores.
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
    }


def submitted(settings, script, *arguments):
    """What a job under spark-submit said."""
    conf = [argument for name, value in settings.items() for argument in ("--conf", f"{name}={value}")]
    run = subprocess.run(
        [SPARK_HOME / "bin" / "spark-submit", *conf, CHECKOUT / "jobs" / script, *arguments],
        env={**submit_environment(), "PYTHONPATH": str(CHECKOUT), "JDK_JAVA_OPTIONS": JAVA_OPTIONS},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.mark.soak
def test_a_cluster_works_off_a_queue_on_s3_and_each_message_is_in_the_output_once(s3, place, tmp_path):
    write_flights(tmp_path / "flights.csv", FLIGHTS)
    flights = read_flights(tmp_path / "flights.csv").convert_dtypes()
    flights.to_json(tmp_path / "flights.json", orient="records", lines=True)
    queue = Ledger.open(place, storage_options=s3.options).create_queue("flights")
    output = place + "-results/delays"
    with cluster(tmp_path, 2) as url:
        settings = settings_for(s3, url)
        submitted(settings, "send.py", place, "flights", str(tmp_path / "flights.json"))
        assert queue.counts().visible == FLIGHTS
        said = submitted(
            settings, "work.py", place, "flights", "--function", "jobs.flights_demo.delays:process",
            "--reason", "reason", "--claim", str(CLAIM), "--max-receives", "1", "--output", output,
        )  # fmt: skip
    executors = {file.parts[-2] for file in tmp_path.glob("worker-*/app-*/*/stderr")}
    assert executors >= {"0", "1"}, "both workers had an executor"
    delays = DeltaTable(output, storage_options=s3.options).to_pyarrow_table()
    left = DeltaTable(output + "_failed", storage_options=s3.options).to_pyarrow_table()
    done = delays["message_id"].to_pylist()
    failed = left["message_id"].to_pylist()
    assert len(done) == len(set(done)) and len({*done, *failed}) == FLIGHTS and len(done) > FLIGHTS * 0.8
    counts = queue.counts()
    # What could not be worked on, cancelled flights, is parked.
    assert (counts.deleted, counts.in_flight) == (len(done), len(failed)), said
    commits = [json.loads(one["userMetadata"]) for one in DeltaTable(output, storage_options=s3.options).history()
               if one.get("userMetadata")]  # fmt: skip
    assert len({one["write_id"] for one in commits}) == -(-FLIGHTS // CLAIM), "a commit for each claim"
