"""The Delta jars are fetched once, checked, and found again without a network."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from ledger.runtime.cache import RuntimeSetupError
from ledger.runtime.jars import (
    AWS_SDKS,
    coordinates,
    delta_packages,
    find_cached_jars,
    find_cached_s3_jars,
    find_half_filled_maven_folders,
    find_or_fetch_jars,
    s3_packages,
)

#: A jar without its version.
NAME = re.compile(r"(.+?)-\d")


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """A cache of its own that already holds the jars."""
    jars = find_or_fetch_jars(delta_packages())
    copy = tmp_path / jars[0].parent.name
    shutil.copytree(jars[0].parent, copy)
    monkeypatch.setenv("LEDGER_CACHE", str(tmp_path))
    return copy


def maven_folder(repository, name, *suffixes):
    """A local Maven repository's folder of one Delta artifact, with one file for each suffix."""
    (version,) = {one.version for one in delta_packages().known}
    folder = repository / "io" / "delta" / name / version
    folder.mkdir(parents=True)
    for suffix in suffixes:
        (folder / f"{name}.{suffix}").write_text("")
    return folder


def test_five_jars_of_one_version_make_spark_speak_delta():
    names = [jar.name for jar in find_or_fetch_jars(delta_packages())]
    assert len(names) == 5
    assert all(name.endswith("-4.4.0.jar") for name in names)
    assert coordinates(delta_packages()) == "io.delta:delta-spark_4.2_2.13:4.4.0"


def test_cached_jars_need_no_network(own_cache, monkeypatch):
    monkeypatch.setattr("ledger.runtime.jars._fetch", lambda packages, folder: pytest.fail("the network was used"))
    assert {jar.parent for jar in find_or_fetch_jars(delta_packages())} == {own_cache}


def test_a_jar_cut_off_in_the_cache_is_noticed(own_cache):
    jar = next(own_cache.glob("delta-storage-*.jar"))
    jar.write_bytes(jar.read_bytes()[:1000])
    assert find_cached_jars(delta_packages()) is None


def test_a_damaged_cache_is_filled_again(own_cache, monkeypatch):
    whole = own_cache.with_name("whole")
    shutil.copytree(own_cache, whole)
    (own_cache / "manifest.json").unlink()
    monkeypatch.setattr(
        "ledger.runtime.jars._fetch", lambda packages, folder: shutil.copytree(whole, folder, dirs_exist_ok=True)
    )
    assert {jar.parent for jar in find_or_fetch_jars(delta_packages())} == {own_cache}


def test_a_jar_without_its_pom_in_the_local_maven_repository_is_named(tmp_path):
    maven_folder(tmp_path, "delta-kernel-api", "jar", "pom")
    half = maven_folder(tmp_path, "delta-storage", "jar")
    assert find_half_filled_maven_folders(delta_packages(), tmp_path) == [half]


def test_no_local_maven_repository_is_fine(tmp_path):
    assert find_half_filled_maven_folders(delta_packages(), tmp_path / "none") == []


def test_a_cache_without_one_of_the_jars_is_not_whole(own_cache):
    manifest = own_cache / "manifest.json"
    sizes = json.loads(manifest.read_text())
    del sizes[next(name for name in sizes if name.startswith("delta-storage"))]
    manifest.write_text(json.dumps(sizes))
    assert find_cached_jars(delta_packages()) is None


def test_the_jars_of_s3_are_for_the_hadoop_that_is_in_spark():
    import pyspark

    (client,) = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
    hadoop = client.stem.removeprefix("hadoop-client-api-")
    parts = ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
    sdk = [f"software.amazon.awssdk:{part}:{AWS_SDKS[hadoop]}" for part in parts]
    assert coordinates(s3_packages()).split(",") == [f"org.apache.hadoop:hadoop-aws:{hadoop}", *sdk]


@pytest.mark.parametrize("hadoop", [[], ["2.7.4"], ["3.4.1", "3.5.0"]])
def test_a_hadoop_that_is_not_known_is_refused_by_name(tmp_path, monkeypatch, hadoop):
    """A hadoop-aws of another release than Spark's Hadoop fails in the middle of a job, by a missing method."""
    package = tmp_path / "pyspark"
    (package / "jars").mkdir(parents=True)
    (package / "__init__.py").touch()
    for release in hadoop:
        (package / "jars" / f"hadoop-client-api-{release}.jar").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    with pytest.raises(RuntimeSetupError, match=r"known for one of 3\.4\.1, .*spark\.jars\.packages"):
        s3_packages()
    assert find_cached_s3_jars() == [], "a session that uses no S3 starts"


def test_the_error_about_a_jar_that_no_repository_has_names_the_jar_first(tmp_path, monkeypatch):
    monkeypatch.setenv("LEDGER_CACHE", str(tmp_path))
    asked = delta_packages().asked[0]
    gone = delta_packages()._replace(asked=[asked._replace(version="0.0.1")], brought=[])
    with pytest.raises(RuntimeSetupError, match=rf"it said: [^;]*unresolved dependency: [^;]*{asked.name};0\.0\.1"):
        find_or_fetch_jars(gone)


def test_the_jars_of_s3_are_few_and_none_is_of_a_library_that_spark_has():
    import pyspark

    jars = find_or_fetch_jars(s3_packages())
    # The SDK's bundle alone is 686.
    assert sum(jar.stat().st_size for jar in jars) < 20_000_000
    libraries = {NAME.match(jar.name)[1] for jar in Path(pyspark.__file__).parent.glob("jars/*.jar")}
    assert {jar.name for jar in jars if NAME.match(jar.name)[1] in libraries} == set()
