"""Spark's part on S3: it moves the rows of DataFrames through s3a:, and commits to no table of the ledger's."""

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ledger import Ledger
from ledger.delta_log.object_store import ObjectStore
from ledger.delta_log.spark_sessions import storage_options_of
from ledger.errors import InvalidMessageContents, InvalidParameterValue, LedgerError, UnsafeStorage
from ledger.rules.publishable import FOLDER
from ledger.settings import Settings
from ledger.store.delta.dataframes import staging
from ledger.store.delta.dataframes.staging import TaskStaging

#: Where no server is, and how soon that is found.
NOBODY, QUICKLY = "http://127.0.0.1:9", {"client_options": {"allow_http": "true"}, "retry_config": {"max_retries": 0}}
BODIES = [f"message {number}" for number in range(6)]


@pytest.fixture
def ledger(s3_spark, place):
    """Spark's settings are all that it is given: delta-rs has its options from them."""
    return Ledger.open(place, s3_spark)


@pytest.fixture
def queue(ledger, s3_spark):
    """A queue with messages that Spark sent."""
    queue = ledger.create_queue("jobs")
    queue.send(s3_spark.createDataFrame([(body,) for body in BODIES], "body string"))
    return queue


def test_a_dataframe_that_is_sent_is_a_dataframe_when_it_is_received(ledger, queue):
    assert ledger.store.engine.name == "delta-rs"
    claim = queue.receive(None)
    assert sorted(row.body for row in claim.dataframe.collect()) == BODIES
    assert sorted(message.body for message in claim.messages()) == BODIES


@pytest.mark.soak_variants("of the environment")
@pytest.mark.parametrize("keys", ["given", "of the environment"])
def test_tasks_write_the_files_of_a_send_and_those_of_a_send_that_is_refused_are_gone(
    s3_spark, s3, place, monkeypatch, keys
):
    staged, right = [], TaskStaging.stage
    monkeypatch.setattr(TaskStaging, "stage", lambda *given: staged.append(right(*given)) or staged[-1])
    settings = Settings(messages_per_segment=16, messages_per_file=8)
    if keys == "given":
        ledger = Ledger.open(place, s3_spark, storage_options=s3.options, settings=settings)
    else:
        for name in ("aws_access_key_id", "aws_secret_access_key"):
            monkeypatch.setenv(name.upper(), s3.options[name])
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3.options["aws_endpoint"])
        rest = {name: value for name, value in s3.options.items() if "key" not in name}
        ledger = Ledger.open(place, s3_spark, storage_options=rest, settings=settings)
    queue = ledger.create_queue("jobs")
    frame = s3_spark.range(0, 40, 1, 2).selectExpr("'body ' || id AS body")
    assert queue.send(frame, attempt_id="one").count == queue.send(frame, attempt_id="one").count == 40
    with pytest.raises(InvalidMessageContents, match=r"#x1.*Nothing was sent"):
        queue.send(s3_spark.range(0, 40, 1, 1).selectExpr("IF(id = 20, chr(1), 'good') AS body"))
    assert [len(files) for files in staged] == [6]
    store = ObjectStore(f"{place}/messages", s3.options)
    assert sorted(path for path in store.paths("sent")) == sorted(one.path for one in staged[0])
    assert sorted(m.body for m in queue.receive(None)) == sorted(f"body {n}" for n in range(40))


def test_executors_that_may_not_write_there_have_sparks_writer_do_it(s3_spark, s3, place, monkeypatch):
    monkeypatch.setattr(staging, "unable_applications", set())
    opened = ObjectStore.describe_opening

    def opened_elsewhere(self):
        kind, there, options = opened(self)
        return kind, there, {"config": {**options["config"], "endpoint": NOBODY}, **QUICKLY}

    monkeypatch.setattr(ObjectStore, "describe_opening", opened_elsewhere)
    queue = Ledger.open(place, s3_spark, storage_options=s3.options).create_queue("jobs")
    assert queue.send(s3_spark.range(9).selectExpr("'' || id AS body")).count == 9
    assert staging.unable_applications == {s3_spark.sparkContext.applicationId}
    assert sorted(m.body for m in queue.receive(None)) == [str(n) for n in range(9)]


def test_rows_that_are_written_to_s3_acknowledge_their_messages_and_handles_in_a_dataframe_the_others(
    queue, s3_spark, place
):
    claim = queue.receive(None)
    rows = claim.dataframe.select("message_id", "body", "receipt_handle")
    done = rows.where("body < 'message 4'").drop("receipt_handle")
    output = f"{place}-output/done".replace("s3:", "s3a:")
    assert claim.write(done, output, messages="message_id").messages == 4
    written = s3_spark.read.format("delta").load(output)
    assert sorted(row.body for row in written.collect()) == BODIES[:4]
    outcomes = queue.delete(rows.where("body >= 'message 4'").select("receipt_handle")).collect()
    assert len(outcomes) == 2 and queue.counts().deleted == 6


def test_the_views_show_who_holds_what(ledger, queue):
    claim = queue.receive(2)
    (depth,) = ledger.view("queue_depth").collect()
    assert (depth.visible, depth.in_flight) == (4, 2)
    assert {row.receipt_id for row in ledger.view("in_flight").collect()} == {claim.receipt_id}
    assert ledger.view("messages").count() == 6


def test_an_output_that_spark_would_have_to_commit_to_is_refused_and_a_single_driver_may(queue, s3, s3_spark, place):
    claim = queue.receive(None)
    output = f"{place}-output/mapped"
    DeltaTable.create(output, pa.schema([("message_id", pa.string())]), storage_options=s3.options)
    mapping = {"delta.universalFormat.enabledFormats": "hudi"}
    DeltaTable(output, storage_options=s3.options).alter.set_table_properties(mapping, raise_if_not_exists=False)
    rows = claim.dataframe.select("message_id")
    with pytest.raises(UnsafeStorage, match=r"universalFormat.*single_driver"):
        claim.write(rows, output)
    assert not list(ObjectStore(f"{output}/{FOLDER}", s3.options).paths()) and claim.extend(60).messages == len(BODIES)
    alone = Ledger.open(place, s3_spark, settings=Settings(single_driver=True)).queue("jobs").claim(claim.receipt_id)
    assert alone.write(rows, output).messages == len(BODIES)


def test_a_name_of_a_catalog_whose_tables_lie_on_s3_is_refused_before_it_is_made(queue, s3_spark, place):
    claim = queue.receive(None)
    s3_spark.sql(f"CREATE SCHEMA away LOCATION '{place.replace('s3:', 's3a:')}-warehouse'")
    try:
        for name in ("away.done", "`away`.`done`"):
            with pytest.raises(UnsafeStorage, match=r"has no table .* yet.*single_driver"):
                claim.write(claim.dataframe.select("message_id"), name)
        assert not s3_spark.catalog.tableExists("away.done") and claim.extend(60).messages == len(BODIES)
    finally:
        s3_spark.sql("DROP SCHEMA away CASCADE")


def test_what_a_store_says_of_a_write_that_it_refuses_is_said(queue, s3_spark, place):
    claim = queue.receive(None)
    with pytest.raises(LedgerError, match=r"(?i)bucket"):
        claim.write(claim.dataframe.select("message_id"), "s3a://no-such-bucket-here/done")
    assert claim.extend(60).messages == len(BODIES)


@pytest.mark.soak_variants("s3")
@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_the_ledgers_own_tables_are_no_output_under_either_name_of_s3(queue, place, scheme):
    claim = queue.receive(None)
    with pytest.raises(InvalidParameterValue, match="the ledger's own"):
        claim.write(claim.dataframe, f"{scheme}{place.removeprefix('s3')}/messages")


def test_delta_rs_gets_what_the_session_was_told(s3_spark, s3):
    assert storage_options_of(s3_spark, "bucket") == s3.options


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"endpoint": "https://s3.eu-west-1.amazonaws.com"}, {"aws_region": "eu-west-1"}),
        ({"endpoint": "s3.amazonaws.com", "endpoint.region": "us-west-2"}, {"aws_region": "us-west-2"}),
        (
            {"endpoint": "store:9000", "path.style.access": "true"},
            {"aws_endpoint": "https://store:9000"},
        ),
        (
            {"endpoint": "store:9000", "connection.ssl.enabled": "false"},
            {
                "aws_endpoint": "http://other.store:9000",
                "aws_virtual_hosted_style_request": "true",
                "aws_allow_http": "true",
            },
        ),
        (
            {"endpoint": "http://127.0.0.1:9000"},
            {"aws_endpoint": "http://127.0.0.1:9000", "aws_allow_http": "true"},
        ),
        ({"endpoint": "https://[::1]:9000"}, {"aws_endpoint": "https://[::1]:9000"}),
        (
            {"access.key": "a", "secret.key": "b", "session.token": "c"},
            {"aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_session_token": "c"},
        ),
        ({}, {}),
    ],
)
def test_what_is_set_for_a_bucket_is_told_to_delta_rs_in_its_words(spark, settings, expected):
    # A session of its own, on which nothing is set: the suite's may have the server's address.
    fresh = spark.newSession()
    for name, value in settings.items():
        fresh.conf.set(f"fs.s3a.bucket.other.{name}", value)
    assert storage_options_of(fresh, "other") == expected


def test_a_ledger_elsewhere_writes_to_s3_by_what_the_session_knows_of_it(s3_spark, s3, place, tmp_path):
    queue = Ledger.open(str(tmp_path / "ledger"), s3_spark).create_queue("jobs")
    queue.send(BODIES)
    claim = queue.receive(None)
    output = f"{place}-output/done"
    assert claim.write(claim.dataframe.select("message_id", "body"), output).messages == len(BODIES)
    assert DeltaTable(output, storage_options=s3.options).to_pyarrow_table().num_rows == len(BODIES)
