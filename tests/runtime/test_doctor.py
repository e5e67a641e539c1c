"""The doctor finds what is wrong, says what to do, and works when things are missing."""

import importlib.util
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest

from ledger import Ledger, Settings
from ledger.cli import main
from ledger.runtime.checks import MOST_SECONDS_APART, SPARK_PACKAGES, examine
from ledger.runtime.storage import check_storage

CHECKOUT = Path(__file__).resolve().parents[2]


def test_a_sound_machine_passes(tmp_path, capsys):
    Ledger.open(str(tmp_path / "ledger"))
    assert main(["doctor", str(tmp_path / "ledger")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith(("OK", "WARN")) for line in lines)
    assert any("storage" in line for line in lines)


def test_every_finding_that_is_not_ok_says_what_to_do():
    findings = list(examine("s3a:/bucket/ledger"))
    assert [finding.subject for finding in findings if finding.outcome == "FAIL"] == ["storage"]
    assert all(finding.advice for finding in findings if finding.outcome != "OK")


def test_it_works_where_nothing_is_installed(tmp_path):
    bare = [sys.executable, "-I", "-S", "-c"]
    code = f"import sys; sys.path.insert(0, {str(CHECKOUT)!r}); from ledger.cli import main; sys.exit(main(['doctor']))"
    run = subprocess.run([*bare, code], capture_output=True, text=True, env={"PATH": "", "LEDGER_CACHE": str(tmp_path)})
    assert run.returncode == 1, run.stderr
    assert "FAIL  ledger-queue: not installed" in run.stdout
    assert "java" not in run.stdout, "without Spark there is no need of one"
    assert run.stderr == ""


def test_a_machine_without_the_extra_for_spark_is_sound(monkeypatch):
    version, find_spec = metadata.version, importlib.util.find_spec

    def version_without_spark(name):
        if name in SPARK_PACKAGES:
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(metadata, "version", version_without_spark)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyspark" else find_spec(name))
    half = {one.subject: one for one in examine("s3://bucket/ledger")}
    assert {half[name].outcome for name in SPARK_PACKAGES} == {"WARN"}, "delta-spark's module is there, without pyspark"
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in ("pyspark", "delta") else find_spec(name)
    )
    found = {one.subject: one for one in examine("s3://bucket/ledger")}
    assert {found[name].outcome for name in SPARK_PACKAGES} == {"OK"} and not {"java", "s3 jars"} & {*found}
    assert found["pyspark"].found == "not installed: only DataFrames need it"


@pytest.mark.parametrize(
    ("root", "outcome"),
    [
        ("hdfs://name/ledger", "OK"),
        ("abfss://box@account/ledger", "OK"),
        ("gs://bucket/ledger", "OK"),
        ("s3a://bucket/ledger", "OK"),
        ("s3n://bucket/ledger", "WARN"),
        ("ftp://host/ledger", "WARN"),
        ("/proc/ledger", "FAIL"),
        ("s3a:/bucket", "FAIL"),
        ("hdfs:/x/y", "OK"),
        ("schema:ops", "WARN"),
    ],
)
def test_storage_is_judged_by_what_its_commits_survive(root, outcome):
    assert check_storage(root)[0] == outcome


def test_another_time_zone_in_spark_defaults_is_named(tmp_path, monkeypatch):
    (tmp_path / "spark-defaults.conf").write_text("spark.sql.session.timeZone=Europe/Berlin\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (finding,) = (finding for finding in examine() if finding.subject == "time zone")
    assert finding.outcome == "WARN"
    assert "Europe/Berlin" in finding.found


def test_a_root_without_a_ledger_is_said(tmp_path):
    """A mistyped root can be written and locked: everything was OK."""
    (tmp_path / "file").touch()
    Ledger.open(str(tmp_path / "ledger"))
    for root, outcome, found in (
        ("ledgr", "FAIL", "nothing there"), ("", "FAIL", "other things"), ("file", "FAIL", "a file"),
        ("ledger", "OK", "there are tables"),
    ):  # fmt: skip
        (finding,) = (finding for finding in examine(str(tmp_path / root)) if finding.subject == "ledger")
        assert finding.outcome == outcome and found in finding.found and str(tmp_path / root) in finding.found
        assert finding.advice or outcome == "OK"
    (storage,) = (finding for finding in examine(str(tmp_path / "ledgr")) if finding.subject == "storage")
    assert storage.found == f"{tmp_path / 'ledgr'} is not there; {tmp_path} can be written and locked"


@pytest.mark.parametrize(("ahead", "outcome"), [(0, "OK"), (10, "WARN"), (20, "FAIL"), (-20, "FAIL")])
def test_a_clock_by_which_verbs_are_refused_is_a_failure(tmp_path, monkeypatch, ahead, outcome):
    assert Settings().maximum_clock_skew / 2 == MOST_SECONDS_APART
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + ahead)
    (found,) = [one for one in examine(str(tmp_path)) if one.subject == "clock"]
    assert found.outcome == outcome, found
