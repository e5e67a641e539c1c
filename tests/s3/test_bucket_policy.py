"""conf/s3-bucket-policy.json lets through what the ledger asks of S3, and no commit that could overwrite another.

The server here has no policies: what it was asked is held against the file. Amazon's reading of it was not tried.
"""

import fnmatch
import json
from pathlib import Path

from ledger import Ledger
from ledger.store.delta.model.tables import TABLES

POLICY = Path(__file__).resolve().parents[2] / "conf" / "s3-bucket-policy.json"


def test_the_bucket_policy_names_the_logs_of_all_tables_and_puts_without_a_condition():
    (statement,) = json.loads(POLICY.read_text())["Statement"]
    assert statement["Resource"] == [f"arn:aws:s3:::BUCKET/FOLDER/{name}/_delta_log/*.json" for name in sorted(TABLES)]
    # CompleteMultipartUpload makes an object; the calls before it make none, and take no condition.
    condition = {"Null": {"s3:if-none-match": "true"}, "Bool": {"s3:ObjectCreationOperation": "true"}}
    assert (statement["Effect"], statement["Action"], statement["Condition"]) == ("Deny", "s3:PutObject", condition)


def test_all_commits_to_the_ledgers_tables_are_puts_that_the_bucket_policy_lets_through(s3_spark, s3, place):
    _, _, bucket, folder = place.split("/")
    (statement,) = json.loads(POLICY.read_text().replace("BUCKET", bucket).replace("FOLDER", folder))["Statement"]
    patterns = [resource.removeprefix("arn:aws:s3:::") for resource in statement["Resource"]]
    before = len(s3.requests())
    ledger = Ledger.open(place, s3_spark)
    queue = ledger.create_queue("jobs")
    queue.send(s3_spark.createDataFrame([("a",), ("b",)], "body string"))
    queue.receive(None).delete()
    ledger.upkeep()
    puts = [one for one in s3.requests()[before:] if one.method == "PUT" and one.path.endswith(".json")]
    watched = {one for one in puts if any(fnmatch.fnmatchcase(one.path[1:], pattern) for pattern in patterns)}
    assert {one.path.split("/")[3] for one in watched} == set(TABLES)
    assert {one.if_none_match for one in watched} == {"*"}
    # Spark's own log of what it staged, which it puts without a condition, is nobody else's.
    assert {f"/{bucket}/{folder}/messages/sent" for one in set(puts) - watched} == {
        "/".join(one.path.split("/")[:5]) for one in set(puts) - watched if not one.if_none_match
    }
