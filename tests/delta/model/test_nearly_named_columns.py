"""Columns of data frames whose names are nearly those of columns that mean something."""

import itertools
import logging

import pandas as pd
import pytest

from ledger import Ledger
from ledger.errors import InvalidParameterValue

_numbers = itertools.count()


@pytest.fixture(params=["without Spark", "Spark"])
def make(request):
    ledger = Ledger.in_memory() if request.param == "without Spark" else request.getfixturevalue("frames_ledger")

    def make(*, fifo=False):
        name = f"nearly-{next(_numbers)}"
        return ledger.create_queue(f"{name}.fifo", {"FifoQueue": True}) if fifo else ledger.create_queue(name)

    return make


@pytest.mark.soak_variants("Spark*", but=("Spark-messageGroupId*",))
@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("messageGroupId", "message_group_id"),
        ("message-group-id", "message_group_id"),
        ("group_id", "message_group_id"),
        ("GroupId", "message_group_id"),
        ("messageDeduplicationId", "message_deduplication_id"),
        ("dedup_id", "message_deduplication_id"),
        ("delaySeconds", "delay_seconds"),
        ("delay", "delay_seconds"),
        ("attributes", "message_attributes"),
    ],
)
def test_a_column_beside_the_bodies_is_told_of_with_the_one_that_is_meant(make, caplog, name, meant):
    with caplog.at_level(logging.WARNING, "ledger.send"):
        make().send(pd.DataFrame({"body": ["a"], name: ["x"], "colour": ["red"]}))
    assert f"left out: {name} (is {meant} meant?), colour" in caplog.text


@pytest.mark.parametrize("name", ["messageGroupId", "group_id"])
def test_a_fifo_queue_that_misses_its_group_names_the_column_that_is_meant(make, name):
    for columns in ({"body": ["a"]}, {"order": ["a"]}):
        with pytest.raises(InvalidParameterValue, match=f"message_group_id.*Rename {name}, if it is meant"):
            make(fifo=True).send(pd.DataFrame({**columns, name: ["x"]}))


@pytest.mark.parametrize("name", ["MessageGroupId", "MessageDeduplicationId", "DelaySeconds", "MessageBody", "Body"])
def test_the_names_of_entries_are_refused_in_tables(make, name):
    with pytest.raises(InvalidParameterValue, match="Rename"):
        make().send(pd.DataFrame({"text": ["a"], name: ["x"]}))


@pytest.mark.soak_variants("Spark*")
def test_of_rows_that_are_sent_whole_the_names_that_would_count_are_told_of(make, caplog):
    with caplog.at_level(logging.WARNING, "ledger.send"):
        make().send(pd.DataFrame({"bdy": ["a"], "group_id": ["x"]}))
        assert "sent whole, as JSON, with its columns: bdy (is body meant?)" in caplog.messages[-1]
        frame = pd.DataFrame({"order": ["a"], "message_group_id": ["x"], "dedup_id": ["y"]})
        queue = make(fifo=True)
        queue.set_attributes({"ContentBasedDeduplication": True})
        queue.send(frame)
        assert "with its columns: dedup_id (is message_deduplication_id meant?)" in caplog.messages[-1]
        before = len(caplog.messages)
        make().send(pd.DataFrame({"order": ["a"], "colour": ["x"]}))
        assert len(caplog.messages) == before


@pytest.mark.soak_variants("Spark*")
def test_columns_that_are_not_applied_to_rows_sent_whole_are_told(make, caplog):
    caplog.set_level(logging.WARNING)
    make().send(pd.DataFrame({"colour": ["red"], "delay_seconds": [5], "message_attributes": [{"a": "b"}]}))
    told = "with its columns: delay_seconds (is not applied), message_attributes (is not applied)"
    assert told in caplog.text


def test_a_column_of_bodies_beside_another_body_is_left_out_and_told(make, caplog):
    caplog.set_level(logging.WARNING)
    queue = make()
    queue.send(pd.DataFrame({"body": ["a"], "text": ["b"]}), body="text")
    assert [message.body for message in queue.receive(1)] == ["b"]
    assert "the column text is sent; left out: body" in caplog.text
