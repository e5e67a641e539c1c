"""DataFrames that are sent under an attempt id: what is stored is what was counted, or nothing."""

import random

import pytest
from pyspark.sql import functions as F

from ledger.errors import InvalidParameterValue
from ledger.store.delta.verbs.staged_sends import open_staged_folders

ROWS = 200


@pytest.fixture
def random_text(spark):
    """A UDF with another value for each row and each evaluation."""
    return F.udf(lambda number: str(random.random()), "string").asNondeterministic()


@pytest.fixture
def frames(spark, random_text):
    """DataFrames that are other ones at each evaluation, by how the error tells it."""
    numbers = spark.range(ROWS)
    texts = numbers.select(random_text("id").alias("body"))
    attributes = F.create_map(F.lit("kind"), random_text("id"))
    return {
        r"differently: \d+ rows and then \d+\.": texts.where("body < '0.5'"),
        r"differently: other values\.": texts,
        "other values": numbers.select(F.lit("x").alias("body"), attributes.alias("message_attributes")),
    }


@pytest.mark.soak_variants("0", "1")
@pytest.mark.parametrize("number", range(3))
def test_rows_that_come_out_differently_when_they_are_written_are_refused_and_nothing_is_sent(
    open_ledger, frames, number
):
    ledger = open_ledger(frames=True)
    queue = ledger.create_queue("jobs")
    said, frame = list(frames.items())[number]
    with pytest.raises(InvalidParameterValue, match=f"computed twice.*{said}.*Nothing was sent") as error:
        queue.send(frame, attempt_id="a")
    assert error.value.field == "messages"
    assert queue.counts().stored == 0 and open_staged_folders(ledger.store).names() == []
    kept = frame.localCheckpoint()
    sent = queue.send(kept, attempt_id="a")
    assert sent.count == queue.counts().stored == kept.count() > 0
    assert queue.send(kept, attempt_id="a").segments == sent.segments, "a retry"
    assert queue.counts().stored == sent.count


def test_without_an_attempt_id_what_is_written_is_what_counts(open_ledger, frames):
    queue = open_ledger(frames=True).create_queue("jobs")
    for sent in map(queue.send, frames.values()):
        assert sent.count == sent.ids().count() > 0


def test_where_spark_commits_the_rows_are_computed_once(open_ledger, frames):
    queue = open_ledger("spark").create_queue("jobs")
    frame = next(iter(frames.values()))
    sent = queue.send(frame, attempt_id="a")
    assert sent.count == sent.ids().count() == queue.counts().stored > 0
    with pytest.raises(InvalidParameterValue, match="Another send was committed under it"):
        queue.send(frame, attempt_id="a")
    assert queue.counts().stored == sent.count
