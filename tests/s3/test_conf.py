"""conf/spark-s3.conf resolves to the jars that the code fetches: with them Spark has S3, and without it is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.runtime.jars import delta_packages, find_or_fetch_jars, s3_packages
from ledger.runtime.session import submit_environment

CHECKOUT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys
from ledger.runtime.session import spark_session

spark = spark_session("conf")
spark.range(3).write.format("delta").save(sys.argv[1])
print(spark.read.format("delta").load(sys.argv[1]).count(), spark.conf.get("spark.jars"))
"""


@pytest.mark.soak
def test_spark_submit_with_the_conf_for_s3_has_its_jars_and_no_others_and_reads_what_it_wrote(s3, tmp_path):
    import pyspark

    properties, script = tmp_path / "spark.conf", tmp_path / "script.py"
    # As its first lines tell users.
    parts = [(CHECKOUT / "conf" / name).read_text() for name in ("spark-local.conf", "spark-s3.conf")]
    # Ivy's folder is the user's: one of its own, so that everything is resolved.
    settings = {"spark.jars.ivy": f"{tmp_path}/ivy", **s3.spark_settings}
    properties.write_text("\n".join([*parts, *(f"{name} {value}" for name, value in settings.items())]))
    script.write_text(SCRIPT)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    run = subprocess.run(
        [submit, "--properties-file", properties, script, "s3a://bucket/conf"],
        env={**submit_environment(), "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    count, jars = run.stdout.split()
    expected = {jar.name for packages in (delta_packages(), s3_packages()) for jar in find_or_fetch_jars(packages)}
    assert (count, {Path(jar).name.partition("_")[2] for jar in jars.split(",")}) == ("3", expected)


@pytest.mark.soak
def test_a_session_without_the_jars_of_s3_is_refused_with_the_fix(tmp_path):
    delta = find_or_fetch_jars(delta_packages())[0].parent
    (tmp_path / delta.name).symlink_to(delta)
    script = (
        "from ledger import Ledger\n"
        "from ledger.errors import InvalidParameterValue\n"
        "from ledger.runtime.session import spark_session\n"
        "try:\n"
        "    Ledger.open('s3://bucket/ledger', spark_session('bare', small=True))\n"
        "except InvalidParameterValue as error:\n"
        "    print(error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "LEDGER_CACHE": str(tmp_path)},
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
    )
    assert "spark_session(s3=True)" in run.stdout and "conf/spark-s3.conf" in run.stdout, run.stderr
