"""The same queue, for clients of the endpoint and for a Spark job at the same time."""

from __future__ import annotations

import pytest

from ledger import Ledger
from ledger.clock import system_clock
from tests.endpoint.conftest import served, unsigned


@pytest.mark.soak
def test_a_spark_job_claims_what_boto3_sends_and_boto3_sees_it_in_flight_and_gone(tmp_path, spark, query_models):
    root = str(tmp_path / "ledger")
    with served(Ledger.open(root), system_clock, query_models, unsigned) as endpoint:
        client = endpoint.client()
        url = client.create_queue(QueueName="work")["QueueUrl"]
        for batch in range(20):
            entries = [{"Id": str(n), "MessageBody": f"{batch}/{n}"} for n in range(10)]
            assert len(client.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == 10
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]

        def counts():
            told = client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
            return tuple(int(told[name]) for name in names)

        assert counts() == (200, 0)
        queue = Ledger.open(root, spark=spark).queue("work")
        # A queue that clients made has the service's limits: ten for each receive, as many as there are at once.
        claims = queue.receive_many([(10, 600)] * 20)
        rows = {row.body for claim in claims for row in claim.dataframe.collect()}
        assert rows == {f"{batch}/{n}" for batch in range(20) for n in range(10)}
        assert counts() == (0, 200)
        assert "Messages" not in client.receive_message(QueueUrl=url)
        queue.delete(claims[0].dataframe.select("receipt_handle"))
        claims[1].release()
        assert counts() == (10, 180)
        got = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
        assert {one["Body"] for one in got} == {message.body for message in claims[1].messages()}

        # And the other way round: a queue of a job, without limits, claimed whole by one commit.
        wide = Ledger.open(root, spark=spark).create_queue("wide")
        wide.send(spark.range(5_000).selectExpr("cast(id as string) as body"))
        wide_url = client.get_queue_url(QueueName="wide")["QueueUrl"]
        (message,) = client.receive_message(QueueUrl=wide_url)["Messages"]
        assert wide.receive(None).count == 4_999
        told = client.get_queue_attributes(QueueUrl=wide_url, AttributeNames=names)["Attributes"]
        assert told == {names[0]: "0", names[1]: "5000"}
        client.delete_message(QueueUrl=wide_url, ReceiptHandle=message["ReceiptHandle"])
        assert wide.counts().in_flight == 4_999
