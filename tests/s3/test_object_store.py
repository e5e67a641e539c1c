"""What lies beside the tables on an object store: files that are there once, folders that follow from them."""

from datetime import timedelta

import pytest

from ledger.delta_log.object_store import ObjectStore, split_options
from ledger.errors import InvalidParameterValue, StorageFailed


@pytest.fixture
def files(s3, place):
    return ObjectStore(place, s3.options)


def test_of_two_puts_of_one_new_file_the_first_is_kept(files):
    assert files.get("a/b") is None
    assert files.put_new("a/b", b"first") and not files.put_new("a/b", b"second")
    assert files.get("a/b") == b"first"


def test_folders_are_what_names_of_files_begin_with_and_go_with_them(files):
    for path in ("one/x", "one/deep/y", "two/z"):
        files.put_new(path, b"")
    assert files.names() == ["one", "two"] and files.names("one") == ["deep"] and files.names("three") == []
    files.remove_folder("one")
    assert files.names() == ["two"] and list(files.paths()) == ["two/z"]
    files.remove_folder("three")


@pytest.mark.parametrize("spelling", [str.lower, str.upper, lambda name: name.lower().removeprefix("aws_")])
def test_options_are_those_of_delta_rs_in_each_of_its_spellings(s3, place, spelling):
    options = {spelling(name): value for name, value in s3.options.items()}
    options |= {"AWS_S3_ALLOW_UNSAFE_RENAME": "true", "max_retries": "3", "timeout": "30s"}
    assert ObjectStore(place, options).put_new("x", b"")


def test_options_are_parted_into_those_of_the_storage_of_http_and_of_retries():
    options = {"AWS_REGION": "x", "aws_allow_http": "true", "retry_timeout": "1m 30s", "max_retries": "4"}
    assert split_options({**options, "backoff_config.init_backoff": "50ms"}) == (
        {"region": "x"},
        {"allow_http": "true"},
        {
            "retry_timeout": timedelta(seconds=90),
            "max_retries": 4,
            "backoff": {"init_backoff": timedelta(milliseconds=50)},
        },
    )


@pytest.mark.parametrize("option", [("retry_timeout", "30"), ("retry_timeout", "soon"), ("max_retries", "many")])
def test_an_option_that_cannot_be_read_is_refused_by_its_name(s3, place, option):
    with pytest.raises(InvalidParameterValue, match="=".join(option)):
        ObjectStore(place, {**s3.options, option[0]: option[1]}).get("x")


def test_a_fraction_is_refused_where_only_a_whole_number_can_be(s3, place):
    with pytest.raises(InvalidParameterValue, match=r"max_retries=1\.5.*Must be a whole number"):
        ObjectStore(place, {**s3.options, "max_retries": "1.5"}).get("x")


def test_a_bucket_that_is_missing_is_no_empty_one(s3):
    with pytest.raises(StorageFailed, match="NoSuchBucket"):
        ObjectStore("s3://another/x", s3.options).get("x")
