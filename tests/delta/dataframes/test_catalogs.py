"""A ledger in a schema, and deployed views, are as good as the catalog that has them."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from ledger import Ledger
from ledger.errors import LedgerDoesNotExist
from ledger.runtime.session import submit_arguments, submit_environment
from ledger.store.delta.views.statements import comments_of
from tests.docs.pages import blocks_of
from tests.runtime.test_session import conf
from tests.sources import CHECKOUT


def test_views_in_a_catalog_of_this_session_alone_are_said_to_be_gone_with_it(spark, tmp_path, caplog):
    ledger = Ledger.open(str(tmp_path / "ledger"), spark=spark)
    with caplog.at_level(logging.WARNING, "ledger"):
        ledger.deploy_views("test_catalogs")
    spark.sql("DROP SCHEMA test_catalogs CASCADE")
    assert "the views, in test_catalogs, will be gone with it" in caplog.text
    assert "conf/spark-hive.conf" in caplog.text


def test_a_schema_that_this_session_does_not_know_may_be_one_of_another_session(spark):
    with pytest.raises(
        LedgerDoesNotExist, match=r"no such schema, and is in this session's memory alone: .*spark-hive"
    ):
        Ledger.open("schema:of_another", spark, create=False)


PROCESS = """
import sys
from ledger import Ledger
from ledger.runtime.session import spark_session

folder, number = sys.argv[1:3]
named = dict(one.split("=", 1) for one in sys.argv[3:])
spark = spark_session("catalogs", small=True, conf=named)
ledger = Ledger.open("schema:work", spark=spark, create=number == "1")
if number == "1":
    ledger.create_queue("orders").send(["a", "b"])
    ledger.deploy_views("ops")
else:
    assert ledger.queue("orders").counts().visible == 2
    assert spark.sql("SELECT body FROM ops.messages ORDER BY body").toPandas().body.tolist() == ["a", "b"]
"""


@pytest.mark.soak
def test_the_next_process_finds_a_ledger_in_a_schema_of_a_metastore_and_the_views(tmp_path):
    said = {
        **conf("spark-hive.conf"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={tmp_path}/metastore;create=true",
        "spark.sql.warehouse.dir": f"{tmp_path}/warehouse",
    }
    for number in ("1", "2"):
        asked = [sys.executable, "-c", PROCESS, str(tmp_path), number, *map("=".join, said.items())]
        environment = {**submit_environment(), "PYTHONPATH": str(CHECKOUT)}
        run = subprocess.run(asked, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400)
        assert run.returncode == 0, run.stderr[-3_000:]


@pytest.mark.soak
def test_spark_sql_has_the_views_as_the_page_sql_md_says(tmp_path):
    (deployed,) = [code for code in blocks_of("docs/how-to/sql.md", "python") if "deploy_views" in code]
    (asked,) = blocks_of("docs/how-to/sql.md", "sql")
    said = {
        **conf("spark-hive.conf"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={tmp_path}/metastore;create=true",
        "spark.sql.warehouse.dir": f"{tmp_path}/warehouse",
    }
    environment = {**submit_environment(), "PYTHONPATH": str(CHECKOUT)}
    (tmp_path / "views.py").write_text(DEPLOYING.format(deployed=deployed))
    named = [sys.executable, "views.py", *map("=".join, said.items())]
    run = subprocess.run(named, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400)
    assert run.returncode == 0, run.stderr[-3_000:]
    given = [*submit_arguments(small=True), *(f"--conf={name}={value}" for name, value in said.items())]
    shell = [str(Path(environment["SPARK_HOME"]) / "bin" / "spark-sql"), *given, "-e", asked]
    run = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400)
    assert run.returncode == 0, run.stderr[-3_000:]
    lines = [[cell.strip() for cell in line.split("\t")] for line in run.stdout.splitlines()]
    assert lines[0][:3] == ["orders", "worker", "1"]
    assert ["owner", "string", comments_of("in_flight").columns["owner"]] in lines


DEPLOYING = """
import sys
from ledger import Ledger
from ledger.runtime.session import spark_session

named = dict(one.split("=", 1) for one in sys.argv[1:])
# The page looks at what was in January.
Ledger.open("ledger-data", clock=lambda: 1_769_000_000_000).create_queue("early").send("x")
ledger = Ledger.open("ledger-data", spark_session("catalogs", small=True, conf=named), owner="worker")
queue = ledger.create_queue("orders", {{"Lanes": 1}})
queue.send(["a", "b"])
queue.receive(1, 3_600)
ledger.fill_receipts()
{deployed}"""
