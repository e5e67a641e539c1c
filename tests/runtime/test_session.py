"""The session speaks Delta, in UTC, with the settings that the code and conf/ agree on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.runtime.checks import read_properties
from ledger.runtime.jars import EXCLUDED, EXCLUDED_WITH_S3, coordinates, delta_packages, find_or_fetch_jars, s3_packages
from ledger.runtime.session import (
    LOCAL_DEFAULTS,
    REQUIRED,
    SMALL,
    local_settings,
    spark_session,
    submit_arguments,
    submit_command,
    submit_environment,
)

CONF = Path(__file__).resolve().parents[2] / "conf"
PACKAGES = {"spark.jars.packages": coordinates(delta_packages()), "spark.jars.excludes": EXCLUDED}


def conf(name):
    """The settings in a file of conf/."""
    return read_properties((CONF / name).read_text())


def test_the_local_conf_says_what_the_code_says():
    # The code puts jars and a log configuration from this machine's files in place of these lines.
    stand_ins = {**PACKAGES, "spark.log.level": "ERROR"}
    assert conf("spark-local.conf") == {**LOCAL_DEFAULTS, **stand_ins}


def test_the_cluster_conf_has_all_that_every_session_needs():
    assert {**REQUIRED, **PACKAGES}.items() <= conf("spark-cluster.conf").items()


def test_the_conf_for_s3_asks_for_the_jars_that_the_code_fetches():
    packages = coordinates(delta_packages(), s3_packages())
    assert conf("spark-s3.conf") == {"spark.jars.packages": packages, "spark.jars.excludes": EXCLUDED_WITH_S3}


def test_spark_submit_gets_the_settings_of_a_session():
    arguments = submit_arguments(small=True)
    settings = dict(argument.split("=", 1) for argument in arguments[1::2])
    assert set(arguments[::2]) == {"--conf"}
    assert {**REQUIRED, **SMALL}.items() <= settings.items()
    jars = settings["spark.driver.extraClassPath"].split(os.pathsep)
    assert {str(jar) for jar in find_or_fetch_jars(delta_packages())} <= set(jars)


def test_the_class_path_has_the_jars_of_s3_once_they_were_fetched(tmp_path, monkeypatch):
    delta, s3 = find_or_fetch_jars(delta_packages()), find_or_fetch_jars(s3_packages())
    (tmp_path / delta[0].parent.name).symlink_to(delta[0].parent)
    monkeypatch.setenv("LEDGER_CACHE", str(tmp_path))
    before = local_settings()["spark.driver.extraClassPath"]
    (tmp_path / s3[0].parent.name).symlink_to(s3[0].parent)
    after = local_settings()["spark.driver.extraClassPath"]
    assert (before.count(".jar"), after.count(".jar")) == (len(delta), len(delta) + len(s3))


def test_the_session_has_delta_and_utc(spark):
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark._jvm.java.util.TimeZone.getDefault().getID() == "UTC"
    assert spark.conf.get("spark.databricks.delta.snapshotPartitions") == "1"


def test_a_second_call_returns_the_same_session(spark):
    assert spark_session("another").sparkContext is spark.sparkContext
    assert spark.conf.get("spark.sql.shuffle.partitions") == "1"


def test_merge_into_a_delta_table(spark, tmp_path):
    table = f"delta.`{tmp_path}/table`"
    spark.sql(f"CREATE TABLE {table} (id INT, word STRING) USING delta")
    for word in ("first", "second"):
        spark.sql(
            f"MERGE INTO {table} t USING (SELECT 1 AS id, :word AS word) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET word = s.word WHEN NOT MATCHED THEN INSERT *",
            {"word": word},
        )
    assert [tuple(row) for row in spark.table(table).collect()] == [(1, "second")]


def test_an_error_is_raised_and_not_printed_as_well(spark, capfd):
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match="no_such_column"):
        spark.sql("SELECT no_such_column").collect()
    assert capfd.readouterr() == ("", "")


@pytest.mark.soak
def test_a_script_under_spark_submit_finds_delta_without_java_on_path(tmp_path):
    script = tmp_path / "work.py"
    script.write_text(
        "import sys\n"
        "from ledger.runtime.session import spark_session\n"
        "spark = spark_session('work')\n"
        "spark.range(3).write.format('delta').save(sys.argv[1])\n"
        "print('rows', spark.read.format('delta').load(sys.argv[1]).count())\n"
    )
    run = subprocess.run(
        submit_command(script, str(tmp_path / "table")),
        env={
            **submit_environment(),
            "PYTHONPATH": str(CONF.parent),
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        },
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "rows 3\n"
    assert run.stderr == ""
