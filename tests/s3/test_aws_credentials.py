"""Where obstore's keys to AWS come from: what delta-rs finds by the SDK's rules is found for it as well."""

import os
import sys

import pytest

from ledger.delta_log.object_store import credential_provider
from ledger.errors import InvalidParameterValue

ROLE = "arn:aws:iam::123456789012:role/queue"


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def profile(tmp_path, monkeypatch):
    keys = "[queue]\naws_access_key_id = one\naws_secret_access_key = two\n"
    (tmp_path / "credentials").write_text(keys)
    monkeypatch.setenv("AWS_PROFILE", "queue")


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"access_key_id": "one"},
        {"skip_signature": "true"},
        {"web_identity_token_file": "/token"},
        {"container_credentials_full_uri": "http://169.254.170.23/x"},
    ],
)
def test_obstore_finds_for_itself_keys_tokens_and_the_role_of_a_machine(config):
    assert credential_provider(config) is None


def test_a_profiles_keys_are_taken_where_there_are_no_others(profile):
    found = credential_provider({})()
    assert (found["access_key_id"], found["secret_access_key"]) == ("one", "two")
    assert credential_provider({"access_key_id": "three"}) is None
    assert credential_provider({"endpoint": "http://localhost:9000"}) is None, "nor does delta-rs ask a profile there"


@pytest.mark.parametrize("option", ["iam_role_arn", "s3_assume_role_arn"])
def test_a_role_to_assume_is_assumed_with_the_keys_that_are_given(option):
    found = credential_provider({option: ROLE, "access_key_id": "one", "secret_access_key": "two"})
    assert found.kwargs["RoleArn"] == ROLE and found.session.get_credentials().access_key == "one"


def test_without_boto3_the_error_says_which_options_to_give(profile, monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(InvalidParameterValue, match=r"queue.*storage_options.*a profile.*boto3.*aws_access_key_id"):
        credential_provider({})
    with pytest.raises(
        InvalidParameterValue, match=r"a role to assume.*Install boto3, or set no role.*aws_access_key_id"
    ):
        credential_provider({"iam_role_arn": ROLE})
