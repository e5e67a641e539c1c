"""--json of the jobs: a document a line, for programs."""

import dataclasses
import json

import pytest

from jobs import create_queue, show, upkeep, work
from ledger import Ledger
from ledger.store.delta.verbs.upkeep import UpkeepReport


@pytest.fixture
def said(tmp_path, capsys):
    """What a job prints, read line by line."""

    def said(job, *arguments):
        capsys.readouterr()
        job.main(job.parser().parse_args([str(tmp_path / "ledger"), *arguments, "--json"]))
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return said


def test_a_queue_that_is_made_is_told_with_its_attributes(said, tmp_path):
    (document,) = said(create_queue, "work", "--attribute", "VisibilityTimeout=60")
    assert document["queue"] == "work" and document["root"] == str(tmp_path / "ledger")
    assert int(document["attributes"]["VisibilityTimeout"]) == 60


def test_queues_are_shown_a_document_each(said, tmp_path):
    assert said(create_queue, "work") and said(create_queue, "other")
    Ledger.open(str(tmp_path / "ledger")).queue("work").send(["a", "b"])
    documents = said(show)
    assert {one["queue"]: one["visible"] for one in documents} == {"work": 2, "other": 0}
    assert {one["kind"] for one in documents} == {"queue"}


def test_what_is_parked_is_told_apart_from_what_is_held(said, spark, tmp_path):
    said(create_queue, "work")
    queue = Ledger.open(str(tmp_path / "ledger")).queue("work")
    queue.send(["a", "b"])
    queue.receive(1)

    def fail(message):
        if message.body:
            raise ValueError(message.body)

    queue.consume(fail, maximum_receives=1, until="once")
    states = [one["state"] for one in said(show, "--in-flight") if one["kind"] == "receipt"]
    assert sorted(states) == ["held", "parked"]


def test_what_upkeep_did_is_told_by_its_names(said):
    said(create_queue, "work")
    (document,) = said(upkeep)
    assert set(document) == {one.name for one in dataclasses.fields(UpkeepReport)}


def test_the_worker_takes_the_option(tmp_path):
    options = work.parser().parse_args([str(tmp_path), "work", "--function", "a:b", "--output", "c", "--json"])
    assert options.json
