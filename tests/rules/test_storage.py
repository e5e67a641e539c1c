"""What is said to a storage."""

import pytest

from ledger.errors import InvalidParameterValue
from ledger.rules import location


def test_options_that_are_no_text_are_taken_as_what_delta_rs_calls_them():
    given = {"aws_allow_http": True, "aws_skip_signature": False, "max_retries": 3, "aws_region": "EU-1"}
    assert list(location.convert_options(given).values()) == ["true", "false", "3", "EU-1"]


@pytest.mark.parametrize("given", [7, "aws_region=x", ["aws_region"]])
def test_options_are_values_by_names(given):
    with pytest.raises(InvalidParameterValue, match="Must be a mapping of names to values") as raised:
        location.convert_options(given)
    assert (raised.value.field, raised.value.value) == ("storage_options", type(given).__name__)
    assert raised.value.fix == "Give a dictionary."


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"aws_secret_access_key": b"secret"}, "aws_secret_access_key: bytes"),
        ({7: "x"}, "7: str"),
        ({"a": None}, "a: NoneType"),
    ],
)
def test_an_option_that_has_no_text_of_its_own_is_refused_and_its_value_not_shown(given, shown):
    with pytest.raises(
        InvalidParameterValue, match="Names must be text, and values text, numbers or booleans"
    ) as raised:
        location.convert_options(given)
    assert (raised.value.field, raised.value.value) == ("storage_options", shown)
    assert raised.value.fix == "Write the option as text, or leave it out."


def test_a_place_in_s3_is_called_by_each_engine_as_it_knows_it():
    assert location.name_for_delta_rs("s3a://b/x") == location.name_for_delta_rs("s3://b/x") == "s3://b/x"
    assert location.name_for_spark("s3a://b/x") == location.name_for_spark("s3://b/x") == "s3a://b/x"
    for other in ("/s3a:/x", "gs://b/s3:", "/s3:/x"):
        assert location.name_for_delta_rs(other) == location.name_for_spark(other) == other


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("fs.s3a.access.key", "delta-rs's option is aws_access_key_id."),
        ("spark.hadoop.fs.s3a.endpoint.region", "delta-rs's option is aws_region."),
        ("FS.S3A.Secret.Key", "delta-rs's option is aws_secret_access_key."),
        ("fs.s3a.threads.max", "Give it to Spark's session."),
        ("Spark.Executor.Memory", "Give it to Spark's session."),
    ],
)
def test_an_option_of_hadoops_is_told_with_what_delta_rs_calls_it(name, fix):
    assert location.find_hadoop_option({"aws_region": "x", name: "y"}) == (name, fix)
    assert location.find_hadoop_option({"aws_region": "x", "my_fs.x": "y"}) is None


def test_a_scheme_that_is_not_known_is_refused_with_those_that_are():
    bound, fix = location.explain_unknown_scheme("ftp")
    assert bound == "ftp: is no storage that is known here"
    assert "abfs, abfss, az, adl, gs, hdfs, viewfs, wasb, wasbs, dbfs, s3, s3a; " in fix
    assert location.explain_unknown_scheme("s3n") == (
        "s3n: has gone from Hadoop, and no other engine ever knew it",
        "Write s3a://..., which is the same place.",
    )


@pytest.mark.parametrize(
    ("scheme", "option"),
    [
        *((scheme, "aws_access_key_id") for scheme in location.S3),
        *((scheme, "azure_storage_account_name") for scheme in location.AZURE),
        *((scheme, "google_service_account") for scheme in location.GCS),
    ],
)
def test_where_a_store_is_not_reached_its_own_options_are_to_be_looked_at(scheme, option):
    said = location.advise_on_reaching(scheme)
    others = {"aws_access_key_id", "azure_storage_account_name", "google_service_account"} - {option}
    assert option in said and not any(other in said for other in others)


def test_a_default_gives_way_to_the_same_option_in_any_spelling():
    for name in ("retry_timeout", "aws_retry_timeout", "AZURE_STORAGE_RETRY_TIMEOUT", "google_Retry_Timeout"):
        assert location.with_defaults({name: "1s"}, location.DEFAULT_OPTIONS) == {name: "1s"}
    others = {"aws_region": "x", "my_retry_timeout": "1s", "retry_timeout_aws_": "1s"}
    assert location.with_defaults(others, location.DEFAULT_OPTIONS) == {**others, "retry_timeout": "30s"}
    assert (
        location.strip_prefix("azure_storage_account_name") == "account_name"
        and location.strip_prefix("azure_key") == "key"
    )
    assert location.strip_prefix("My_Option") == "my_option"
