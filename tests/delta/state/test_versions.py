"""Versions of the engines that were never run are refused when a ledger is opened; installers are told the same."""

import re

import pytest

from ledger.delta_log.spark_sessions import KNOWN, require_known
from ledger.errors import UnsupportedVersion
from tests.sources import CHECKOUT
from tests.versions.run import ROWS


@pytest.mark.parametrize(("package", "version"), [("deltalake", "1.6.3"), ("deltalake", "1.7.0"), ("pyspark", "3.5.6")])
def test_a_version_that_was_never_run_is_refused_with_those_that_were(package, version):
    with pytest.raises(UnsupportedVersion, match=rf"{package} {version}, and the ledger was run with {package} \d"):
        require_known(package, version)


@pytest.mark.parametrize("row", ROWS)
def test_what_is_run_is_taken(row):
    for package in KNOWN.keys() & ROWS[row].packages.keys():
        require_known(package, ROWS[row].packages[package])


@pytest.mark.parametrize("version", ["4.2.0.dev1", "4.0", "4.1.0-amzn-1", "4.1.0rc1"])
def test_what_platforms_add_to_a_version_is_no_part_of_it(version):
    require_known("pyspark", version)


@pytest.mark.parametrize("package", KNOWN)
def test_installers_are_told_the_same_range(package):
    first, end = (".".join(map(str, version)) for version in KNOWN[package])
    said = re.findall(rf'"{package}(>=[^"]+)"', (CHECKOUT / "pyproject.toml").read_text())
    assert said == [f">={first},<{end}"]


@pytest.mark.parametrize("package", KNOWN)
def test_both_ends_of_a_range_are_run(package):
    ran = [tuple(map(int, row.packages[package].split("."))) for row in ROWS.values() if package in row.packages]
    first, end = KNOWN[package]
    assert min(ran)[: len(first)] == first and max(ran)[:2] == (end[0], end[1] - 1)
