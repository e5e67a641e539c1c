"""One reading of locations: what means one place, and what is refused because it could mean two."""

from pathlib import Path

import pytest

from ledger.errors import InvalidParameterValue
from ledger.rules.location import Location, is_name, is_relative, locate, locate_beside, of_spark, recorded


def at(given):
    return locate("root", given, "/work dir", "/home/me")


@pytest.mark.parametrize(
    "given",
    [
        "/a b/out", "/a b/out/", "//a b//./out", "/a b/x/../out", "../a b/out", "file:/a b/out", "file:///a%20b/out",
        "file:/a%20b/out/", "file://localhost/a%20b/out", "FILE:///a%20b/out", Path("/a b/out"),
    ],
)  # fmt: skip
def test_spellings_of_one_folder_are_one_place(given):
    assert at(given) == Location("file", "/a b/out") and at(given).is_local


@pytest.mark.parametrize(
    "given, text",
    [
        ("results", "/work dir/results"), ("./out.d", "/work dir/out.d"), (".", "/work dir"), ("~", "/home/me"),
        ("~/x", "/home/me/x"), ("/a%b", "/a%b"), ("./~x", "/work dir/~x"), ("./s3a:b", "/work dir/s3a:b"),
        ("file:///100%25", "/100%"), (Path("s3a:") / "b", "/work dir/s3a:/b"), ("/", "/"), ("/a/../../b", "/b"),
    ],
)  # fmt: skip
def test_a_path_is_made_absolute_and_keeps_its_name(given, text):
    assert at(given) == Location("file", text)


@pytest.mark.parametrize(
    "given, text",
    [
        ("s3a://bucket/x/", "s3a://bucket/x"), ("S3://b//x/./y", "s3://b/x/y"), ("gs://b", "gs://b/"),
        ("abfss://box@account.net/x", "abfss://box@account.net/x"), ("s3://b/../../x", "s3://b/x"),
        ("hdfs:/x/y", "hdfs:/x/y"), ("hdfs:///x/y", "hdfs:/x/y"), ("hdfs://name:8020/x", "hdfs://name:8020/x"),
        ("dbfs:/mnt/x", "dbfs:/mnt/x"),
    ],
)  # fmt: skip
def test_a_uri_is_never_a_folder_of_this_machine(given, text):
    assert at(given) == Location(text.partition(":")[0], text) and not at(given).is_local


@pytest.mark.parametrize(
    "given, why",
    [
        ("s3a:/b", "s3a: says no bucket"), ("s3a:b/x", "no /.*./s3a:b/x"), ("gs:///x", "says no bucket"),
        ("sa3:/b", "sa3: says no bucket"), ("C:\\x", "no /"), ("file:a/b", "begins with file:/"),
        ("file://server/a", "'server' would be another machine"), ("file:///a?b", "%3F"), ("file:///a#b", "%23"),
        ("file:/100%/a", "%25"), ("file:/a%2Fb", "cannot have %00 or %2F"), ("file:/a%ff", "UTF-8"),
        ("s3a://b/a%b", "do not agree"), ("s3a://b/a?b", "do not agree"),
        ("~other/x", "begin it with ./"), ("", "Must be a path"), ("  ", "Must be a path"), (None, "Must be a path"),
        (7, "Must be a path"), ("/a`b", "'`'"), ("/a[1]", r"'\['"),
        ("/a%20b", "'%20'"), ("file:/a%2520b", "'%20'"), ("/a\\b", "cannot use"), ("/a\0b", "cannot use"),
        ("s3a://b/x`", "cannot use"), ("s3a:/b", "a path without s3a:"), ("~other/x", "own home"),
    ],
)  # fmt: skip
def test_what_could_mean_two_places_is_refused_with_the_field_and_the_fix(given, why):
    with pytest.raises(InvalidParameterValue, match=why) as refused:
        at(given)
    assert (refused.value.field, refused.value.value) == ("root", given)
    assert bool(refused.value.fix) == (why != "Must be a path")
    with pytest.raises(InvalidParameterValue) as refused:
        at("file:///a%60b")
    assert refused.value.field == "root"


def test_a_place_inside_another():
    assert at("/a/").below("queues").text == "/a/queues" and at("gs://b").below("queues").text == "gs://b/queues"
    assert at("/BOX/X").below("queues") == Location("file", "/BOX/X/queues"), "a / is all that is taken from a name"
    assert at("gs://b/X").below("queues") == Location("gs", "gs://b/X/queues")


def test_what_was_recorded_means_the_same_in_every_folder_or_nothing():
    assert recorded("/a b%c") == Location("file", "/a b%c")
    assert recorded("s3a://b/x").text == "s3a://b/x" and recorded("file:///a%20b").text == "/a b"
    for relative in ("out", "./out", "~/out"):
        with pytest.raises(InvalidParameterValue, match="relative") as refused:
            recorded(relative)
        assert (refused.value.field, refused.value.value) == ("location", relative)
    with pytest.raises(InvalidParameterValue) as refused:
        recorded("s3a:/b")
    assert refused.value.field == "location"


def test_what_spark_answers_looks_like_a_uri_and_has_no_escapes():
    assert of_spark("file:/a b/x%y") == of_spark("file:///a b/x%y") == Location("file", "/a b/x%y")
    assert of_spark("file:/X/x").text == "/X/x"
    with pytest.raises(InvalidParameterValue) as refused:
        of_spark("file:/a`b")
    assert (refused.value.field, refused.value.value) == ("location", "file:/a`b")
    assert of_spark("dbfs:/mnt/x").text == "dbfs:/mnt/x" and of_spark("/a").text == "/a"


def test_names_of_a_catalog_are_told_from_paths():
    assert all(map(is_name, ("results", "a.b", "main.a.b", "`my schema`.b", "größe")))
    assert not any(
        map(is_name, ("a/b", "./a", ".", "a.", "a b", "a-b", "s3a:b", "~", "delta.`/x`", "", None, Path("a")))
    )


@pytest.mark.parametrize(
    ("root", "given", "place"),
    [
        ("/data/ledger", "results/lengths", "/data/results/lengths"),
        ("/data/ledger", "./lengths", "/data/lengths"),
        ("/data/ledger/", "../lengths/", "/lengths"),
        ("s3://bucket/team/ledger", "results/lengths", "s3://bucket/team/results/lengths"),
        ("s3://bucket/ledger", "results/lengths", "s3://bucket/results/lengths"),
        ("s3://bucket", "../../lengths", "s3://bucket/lengths"),
        ("hdfs:/team/ledger", "results/lengths", "hdfs:/team/results/lengths"),
    ],
)
def test_a_relative_path_begins_beside_the_root_wherever_a_process_works(root, given, place):
    assert is_relative(given)
    assert locate_beside("output_table", given, locate("root", root, "/elsewhere", "/home")).text == place


@pytest.mark.parametrize("given", ["/data/x", "~/x", "s3://bucket/x", "file:/x", "schema.table", "table"])
def test_what_says_where_it_begins_is_not_relative(given):
    assert not is_relative(given)
