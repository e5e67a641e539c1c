"""The environment is made when it is lacking, by one process at a time, and otherwise left alone."""

import os
import subprocess
import sys
import venv

import pytest

from ledger.runtime.bootstrap import CHECKOUT, BootstrapError, Environment


@pytest.fixture
def checkout(tmp_path):
    """A checkout with no environment yet."""
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'ledger'\n")
    (tmp_path / "constraints.lock").write_text("")
    return tmp_path


@pytest.fixture
def environment(checkout):
    """The environment of that checkout, made by hand and stamped for one extra."""
    environment = Environment(checkout)
    venv.create(environment.folder, with_pip=False)
    environment.record(["tests"])
    return environment


def test_a_fresh_checkout_lacks_everything(checkout):
    assert Environment(checkout).lacks([])


def test_a_stamped_environment_is_left_alone(environment):
    environment.bring_up_to_date(["tests"])
    assert not environment.lacks(["tests"])
    assert not environment.lacks([])


def test_an_extra_that_was_never_installed_is_lacking(environment):
    assert environment.lacks(["tests", "flights"])


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.lock"])
def test_a_changed_requirement_makes_it_stale(environment, name):
    (environment.checkout / name).write_text("# changed")
    assert environment.lacks(["tests"])


def test_a_checkout_that_was_moved_is_stale(environment, tmp_path):
    moved = tmp_path.with_name(f"{tmp_path.name}-moved")
    tmp_path.rename(moved)
    assert Environment(moved).lacks(["tests"])


def test_a_damaged_stamp_is_no_stamp(environment):
    next(environment.folder.glob("*stamp*")).write_text("{")
    assert environment.lacks([])


def test_an_install_that_fails_says_so_and_leaves_no_stamp(environment, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(BootstrapError, match=r"failed \(see above\)\. It needs the network"):
        environment.bring_up_to_date(["flights"])
    assert environment.lacks(["flights"])


def test_the_script_starts_again_in_the_environment_with_its_arguments(environment, tmp_path):
    runtime = tmp_path / "ledger" / "runtime"
    runtime.mkdir(parents=True)
    for package in (runtime.parent, runtime):
        (package / "__init__.py").write_text("")
    (runtime / "bootstrap.py").write_text((CHECKOUT / "ledger" / "runtime" / "bootstrap.py").read_text())
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nsys.path.insert(0, sys.argv[1])\nfrom ledger.runtime.bootstrap import ensure_environment\n"
        "ensure_environment(['tests'])\nprint(sys.prefix, sys.argv[1:])\n"
    )
    outside = {name: value for name, value in os.environ.items() if not name.startswith("LEDGER_BOOTSTRAP")}
    command = [sys.executable, str(script), str(tmp_path), "two words"]
    run = subprocess.run(command, capture_output=True, text=True, env=outside)
    assert run.stdout == f"{environment.folder} {[str(tmp_path), 'two words']}\n", run.stderr


def test_it_is_plain_python_that_needs_nothing_installed():
    code = f"import sys; sys.path.insert(0, {str(CHECKOUT)!r}); import ledger.runtime.bootstrap"
    run = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
