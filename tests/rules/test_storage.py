"""Which log stores keep the commits of several drivers on S3 apart."""

import pytest

from ledger.rules import storage


@pytest.mark.parametrize(
    ("log_store", "orders"),
    [
        ("io.delta.storage.S3DynamoDBLogStore", True),
        ("io.delta.storage.S3SingleDriverLogStore", False),
        ("io.delta.storage.S3DynamoDBLogStore.Not", False),
        ("", False),
    ],
)
def test_only_the_log_store_with_a_database_orders_commits_on_s3(log_store, orders):
    assert storage.orders_commits(log_store) is orders


def test_options_that_are_no_text_are_taken_as_what_delta_rs_calls_them():
    given = {"aws_allow_http": True, "aws_skip_signature": False, "max_retries": 3, "aws_region": "eu-central-1"}
    assert list(storage.as_text(given).values()) == ["true", "false", "3", "eu-central-1"]


@pytest.mark.parametrize("scheme", storage.S3)
def test_a_log_store_is_set_for_each_scheme_as_delta_reads_it(scheme):
    assert storage.log_store_setting(scheme) == f"spark.delta.logStore.{scheme}.impl"
