"""What `ledger submit` finds: files, and the jobs by their names."""

import pytest

from ledger.runtime.cache import RuntimeSetupError
from ledger.runtime.shipped import find_script, find_shipped_folder
from tests.sources import CHECKOUT


def test_a_job_is_found_by_its_name_and_a_file_by_its_path(tmp_path, monkeypatch):
    assert find_script("work") == find_script("work.py") == CHECKOUT / "jobs" / "work.py"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work.py").touch()
    assert find_script("work.py").read_text() == "", "a file here comes first"


def test_what_is_neither_is_refused_with_the_names_of_the_jobs():
    with pytest.raises(RuntimeSetupError, match=r"create_queue, .*work"):
        find_script("wrok")
    with pytest.raises(RuntimeSetupError):
        find_script("common")


def test_an_installed_wheel_has_them_below_its_environment(tmp_path, monkeypatch):
    monkeypatch.setattr("ledger.runtime.shipped.CHECKOUT", tmp_path / "nowhere")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    with pytest.raises(RuntimeSetupError, match="wheel"):
        find_shipped_folder("jobs")
    (tmp_path / "share" / "ledger" / "conf").mkdir(parents=True)
    assert find_shipped_folder("conf") == tmp_path / "share" / "ledger" / "conf"
