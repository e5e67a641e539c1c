"""The doctor tries an object store out, with the keys of the environment, and leaves nothing there."""

import pytest

from ledger.cli import main
from ledger.delta_log.object_store import ObjectStore
from ledger.store.delta.commit import readiness
from ledger.store.delta.commit.readiness import report
from tests.s3.server import s3_server


@pytest.fixture
def environment(s3, monkeypatch):
    for name, value in s3.options.items():
        monkeypatch.setenv(name.upper(), value)


def lines(capsys, *subjects):
    said = capsys.readouterr().out.splitlines()
    return [line.split(":")[0] for line in said if any(f" {subject}:" in line for subject in subjects)]


def test_a_storage_that_does_what_a_ledger_needs_is_ok_in_each_of_it(place, s3, environment, capsys):
    # There is no ledger yet, which is all that is wrong.
    assert main(["doctor", place.replace("s3:", "s3a:")]) == 1
    assert lines(capsys, "storage", "credentials", "conditional put", "storage clock", "tables") == [
        "OK    storage",
        "OK    credentials",
        "OK    conditional put",
        "OK    storage clock",
        "FAIL  tables",
    ]
    assert not list(ObjectStore(place, s3.options).paths())


def test_a_storage_that_is_not_reached_is_a_failure_with_the_advice(place, environment, monkeypatch, capsys):
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:9")
    assert main(["doctor", place]) == 1
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("FAIL"))
    assert "credentials" in line and "127.0.0.1:9" in line and "AWS_ENDPOINT_URL, and AWS_ALLOW_HTTP" in line


def test_a_bucket_that_is_not_there_is_named_by_the_code_of_the_answer(environment, capsys):
    assert main(["doctor", "s3://other-bucket/ledger"]) == 1
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("FAIL"))
    assert line == (
        "FAIL  credentials: s3://other-bucket/ledger cannot be read and written: the store answers NoSuchBucket "
        "-> is the bucket's name mistyped? No command of ledger makes a bucket"
    )


def test_a_storage_without_conditional_puts_is_a_failure(place):
    with s3_server(fault="puts without conditions") as careless:
        found = {subject: outcome for outcome, subject, *_ in report(place, careless.options)}
    assert found == {"credentials": "OK", "conditional put": "FAIL"}


def test_a_clock_that_is_off_and_a_storage_that_is_far_are_warnings(place, s3, monkeypatch):
    monkeypatch.setattr(readiness, "make_object_probe", lambda files: lambda: 0)
    monkeypatch.setattr(readiness, "SLOW", 0.0)
    found = {subject: (outcome, advice) for outcome, subject, _, advice in report(place, s3.options)}
    assert [found[subject][0] for subject in ("storage clock", "latency")] == ["WARN", "WARN"]
    assert all(advice for outcome, advice in found.values() if outcome != "OK")
