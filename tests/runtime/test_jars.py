"""The Delta jars are fetched once, checked, and found again without a network."""

import shutil

import pytest

from ledger.runtime.jars import cached_delta_jars, delta_artifacts, delta_jars, delta_package, half_filled_maven_folders


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """A cache of its own that already holds the jars."""
    jars = delta_jars()
    copy = tmp_path / jars[0].parent.name
    shutil.copytree(jars[0].parent, copy)
    monkeypatch.setenv("LEDGER_CACHE", str(tmp_path))
    return copy


def maven_folder(repository, name, *suffixes):
    """A local Maven repository's folder of one Delta artifact, with one file for each suffix."""
    folder = repository / "io" / "delta" / name / delta_artifacts()[name]
    folder.mkdir(parents=True)
    for suffix in suffixes:
        (folder / f"{name}.{suffix}").write_text("")
    return folder


def test_five_jars_of_one_version_make_spark_speak_delta():
    names = [jar.name for jar in delta_jars()]
    assert len(names) == 5
    assert all(name.endswith("-4.4.0.jar") for name in names)
    assert delta_package() == "io.delta:delta-spark_4.2_2.13:4.4.0"


def test_cached_jars_need_no_network(own_cache, monkeypatch):
    monkeypatch.setattr("ledger.runtime.jars._fetch", lambda folder: pytest.fail("the network was used"))
    assert {jar.parent for jar in delta_jars()} == {own_cache}


def test_a_jar_cut_off_in_the_cache_is_noticed(own_cache):
    jar = next(own_cache.glob("delta-storage-*.jar"))
    jar.write_bytes(jar.read_bytes()[:1000])
    assert cached_delta_jars() is None


def test_a_damaged_cache_is_filled_again(own_cache, monkeypatch):
    whole = own_cache.with_name("whole")
    shutil.copytree(own_cache, whole)
    (own_cache / "manifest.json").unlink()
    monkeypatch.setattr("ledger.runtime.jars._fetch", lambda folder: shutil.copytree(whole, folder, dirs_exist_ok=True))
    assert {jar.parent for jar in delta_jars()} == {own_cache}


def test_a_jar_without_its_pom_in_the_local_maven_repository_is_named(tmp_path):
    maven_folder(tmp_path, "delta-kernel-api", "jar", "pom")
    half = maven_folder(tmp_path, "delta-storage", "jar")
    assert half_filled_maven_folders(tmp_path) == [half]


def test_no_local_maven_repository_is_fine(tmp_path):
    assert half_filled_maven_folders(tmp_path / "none") == []
