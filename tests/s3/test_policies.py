"""conf/s3-bucket-policy.json and conf/s3-iam-policy.json let through what the ledger asks of S3, and no commit that
could overwrite another.

The server here has no policies: what it was asked is held against the files. Amazon's reading of them was not tried.
"""

import fnmatch
import json
from pathlib import Path

import pytest

from ledger import Ledger
from ledger.store.delta.model.tables import TABLES

CONF = Path(__file__).resolve().parents[2] / "conf"


def statements(name, bucket="BUCKET", folder="FOLDER"):
    """The statements of a policy, filled in."""
    return json.loads((CONF / name).read_text().replace("BUCKET", bucket).replace("FOLDER", folder))["Statement"]


def is_about(statement, resource):
    """Whether a statement is about a bucket, or a file of one."""
    named = statement["Resource"]
    patterns = [named] if isinstance(named, str) else named
    return any(fnmatch.fnmatchcase(f"arn:aws:s3:::{resource}", pattern) for pattern in patterns)


def asked(request):
    """The action and the resource of a request."""
    bucket, _, key = request.path.strip("/").partition("/")
    if not key:
        actions = {("GET", True): "s3:ListBucket", ("POST", False): "s3:DeleteObject"}
        resource = bucket if request.method == "GET" else None
        return actions[request.method, "list-type" in request.query], resource
    if request.method == "DELETE":
        return "s3:AbortMultipartUpload" if "uploadId" in request.query else "s3:DeleteObject", f"{bucket}/{key}"
    return {"GET": "s3:GetObject", "HEAD": "s3:GetObject"}.get(request.method, "s3:PutObject"), f"{bucket}/{key}"


@pytest.fixture
def requests(s3_spark, s3, place):
    """What is asked while a ledger is made and used, through Spark too."""
    before = len(s3.requests())
    ledger = Ledger.open(place, s3_spark)
    queue = ledger.create_queue("jobs")
    queue.send(s3_spark.createDataFrame([("a",), ("b",)], "body string"))
    # Its files are written by Spark's own writer.
    fifo = ledger.create_queue("jobs.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True})
    fifo.send(s3_spark.createDataFrame([("a", "g")], "body string, message_group_id string"))
    queue.receive(None).delete()
    ledger.upkeep()
    return s3.requests()[before:]


def test_the_bucket_policy_names_the_logs_of_all_tables_and_puts_without_a_condition():
    (statement,) = statements("s3-bucket-policy.json")
    assert statement["Resource"] == [f"arn:aws:s3:::BUCKET/FOLDER/{name}/_delta_log/*.json" for name in sorted(TABLES)]
    # CompleteMultipartUpload makes an object; the calls before it make none, and take no condition.
    condition = {"Null": {"s3:if-none-match": "true"}, "Bool": {"s3:ObjectCreationOperation": "true"}}
    assert (statement["Effect"], statement["Action"], statement["Condition"]) == ("Deny", "s3:PutObject", condition)


def test_what_the_ledger_asks_of_s3_is_let_through_by_the_policies(requests, place):
    _, _, bucket, folder = place.split("/")
    (watching,) = statements("s3-bucket-policy.json", bucket, folder)
    puts = {one for one in requests if one.method == "PUT" and one.path.endswith(".json")}
    watched = {one for one in puts if is_about(watching, one.path[1:])}
    assert {one.path.split("/")[3] for one in watched} == set(TABLES)
    assert {one.if_none_match for one in watched} == {"*"}
    # Spark puts without a condition, into its log of what it stages, which is nobody else's.
    unconditional = {one.path for one in puts if not one.if_none_match}
    assert unconditional and all(path.startswith(f"/{bucket}/{folder}/messages/sent/") for path in unconditional)

    allowed = statements("s3-iam-policy.json", bucket, folder)
    for action, resource in set(map(asked, requests)):
        assert any(action in one["Action"] and (resource is None or is_about(one, resource)) for one in allowed), (
            action, resource,
        )  # fmt: skip
