"""The faults of delta-rs that delta-rs-faults.md reports are there: each of its programs shows one."""

import re

import deltalake
import pytest

from tests.sources import CHECKOUT

PAGE = (CHECKOUT / "docs" / "explanation" / "delta-rs-faults.md").read_text()
FAULTS = dict(re.findall(r"^## ([^\n]+)\n.*?```python\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_still_there(fault, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names = {}
    exec(compile(FAULTS[fault], fault, "exec"), names)
    assert names["expected"] != names["actual"], f"gone with deltalake {deltalake.__version__}: the work-around can go"
    assert set(names["actual"]) == {1, 2, 3}


def test_the_page_names_the_version_that_runs_here_and_reports_three_faults():
    assert len(FAULTS) == 3 and f"deltalake=={deltalake.__version__}" in PAGE
