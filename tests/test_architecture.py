"""The shape of the code: imports point down, files stay small, and what is public says what it does."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

import ledger
from tests.sources import (
    CHECKOUT,
    a_cycle,
    all_imports,
    code_lines,
    imports_in,
    privates_of_others,
    python_files,
    top,
)

#: Of code, without imports. Most files have about 150. No file is divided, or kept apart, for a number's sake.
MOST_LINES = 400
#: Longer than MOST_LINES, and why.
LONG = {"ledger.store.memory": "the oracle is one file, so that it can be read as one"}
#: What tests of a part's own insides look at, or take out, by the module that they do it in.
INSIDES = {
    "tests.test_architecture": {"_HOMES"},
    "tests.benchmarks.neighbours": {"_edits"},
    "tests.benchmarks.sends": {"_gateway"},
    "tests.delta.state.test_fifo_order": {"_read"},
    "tests.delta.commit.test_followed": {"_seen"},
    "tests.delta.dataframes.test_frames_fifo": {"_gateway"},
    "tests.delta.state.test_groups": {"_own", "_kept"},
    "tests.delta.state.test_segment_ends": {"_sender", "_segments", "_sends"},
    "tests.delta.verbs.test_sharing": {"_turns", "_reader"},
    "tests.endpoint.test_fairness": {"_turns"},
    "tests.delta.views.test_sql": {"_add"},
    "tests.delta.commit.test_turns": {"_queues"},
    "tests.rules.test_attempts": {"_number"},
    "tests.simulation.background": {"_beat"},
    "tests.simulation.broken": {"_find_finished", "_members", "_members_of"},
    "tests.simulation.broken_rows": {"_newest"},
    "tests.simulation.forking": {"_renewals"},
    "tests.simulation.patching": {"_engine", "_make_durable"},
    "tests.simulation.shared": {"_commit"},
}


#: The ledger's tables, and their columns: no other word names them in the code.
OUR_WORDS = (
    *("queues", "messages", "visibility", "receipts", "tasks"),
    *("queue", "lane", "segment", "seq", "sent_at", "available_at", "receipt_id", "bits", "ledger.format"),
)


@pytest.mark.timeout(120)
def test_imports_point_down():
    """The contracts of pyproject.toml, [tool.importlinter]."""
    run = lint_imports_of(CHECKOUT)
    assert run.returncode == 0, run.stdout


#: The command `lint-imports`, wherever it is installed.
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"


def lint_imports_of(folder):
    """Run `lint-imports` on the package and the pyproject.toml of a folder."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run([sys.executable, "-c", LINT], cwd=folder, env=environment, capture_output=True, text=True)


def contracts():
    with (CHECKOUT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["tool"]["importlinter"]["contracts"]


def layers():
    """The modules that the first contract puts into an order."""
    return {module.strip() for layer in contracts()[0]["layers"] for module in re.split("[|:]", layer)}


@pytest.mark.parametrize("name", [name for name in python_files("ledger") if not name.startswith("ledger.runtime.")])
def test_every_module_has_a_layer(name):
    """Another contract is about those of ledger.runtime: the command line and the jobs alone import them."""
    parts = name.split(".")
    above = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
    is_front = name == "ledger" or any(layer.startswith(f"{name}.") for layer in layers())
    assert is_front or above & layers(), f"{name} has no layer: give it one in pyproject.toml"


def test_every_module_of_the_runtime_is_in_a_layer_or_for_the_command_line_alone():
    (private,) = [one["forbidden_modules"] for one in contracts() if one["name"].startswith("What a machine has")]
    runtime = {name for name in python_files("ledger") if name.startswith("ledger.runtime.")}
    assert runtime == {one for one in layers() if one.startswith("ledger.runtime.")} | set(private)


def test_the_client_of_deltas_log_names_no_table_and_no_column_of_ours():
    """It gets its tables as TableSpecs."""
    for name, file in python_files("ledger").items():
        if name.startswith("ledger.delta_log"):
            texts = [node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant)]
            assert not set(OUR_WORDS).intersection(text for text in texts if isinstance(text, str)), name


def test_nothing_imports_pyspark_when_it_is_itself_imported_but_what_always_has_a_session():
    allowed = {"ledger.delta_log.by_spark", "ledger.delta_log.spark_commits", "ledger.store.delta.by_spark"}
    wrong = {
        each.importer
        for each in all_imports()
        if each.when == "module" and top(each.importer) == "ledger" and top(each.imported) in ("pyspark", "delta")
    }
    assert wrong <= allowed


def test_no_module_imports_itself_in_a_circle():
    edges: dict[str, set[str]] = {}
    for each in all_imports():
        if each.when in ("module", "typing") and top(each.imported) in ("ledger", "jobs"):
            edges.setdefault(each.importer, set()).add(each.imported)
    assert len(edges) > 30, "the imports were found"
    assert a_cycle(edges) == []


def test_the_product_imports_neither_jobs_nor_tests_and_the_jobs_no_tests():
    wrong = [
        str(each)
        for each in all_imports()
        if top(each.imported) in {"ledger": ("jobs", "tests"), "jobs": ("tests",)}[top(each.importer)]
    ]
    assert wrong == []


@pytest.mark.parametrize("name", python_files("ledger", "jobs", "notebooks", "tests"))
def test_what_is_private_to_a_module_is_used_in_it_alone(name):
    found = privates_of_others(python_files(top(name))[name].read_text())
    assert [f"line {line}: {text}" for line, used, text in found if used not in INSIDES.get(name, ())] == []


@pytest.mark.parametrize("name", python_files("ledger", "jobs"))
def test_no_file_is_longer_than_it_should_be(name):
    lines = code_lines(python_files(top(name))[name].read_text(), imports=False)
    assert lines < MOST_LINES or name in LONG, f"{name} has {lines} lines of code: which of its jobs is another one's?"


@pytest.mark.parametrize("name", ledger.__all__)
def test_every_public_name_and_method_has_a_docstring_of_its_own(name):
    public = getattr(ledger, name)
    assert inspect.getdoc(public) and public.__doc__, name
    assert not public.__doc__.startswith(f"{name}("), "dataclass wrote it, not an author"
    for attribute, value in vars(public).items():
        method = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        if not attribute.startswith("_") and (inspect.isfunction(method) or isinstance(method, property)):
            assert method.__doc__, f"{name}.{attribute}"


def test_the_public_names_are_those_that_the_package_knows_a_home_for():
    assert set(ledger.__all__) == set(ledger._HOMES)
    for name, home in ledger._HOMES.items():
        assert getattr(importlib.import_module(home), name) is getattr(ledger, name)


# The checks above can fail: here they meet what they are there to find.


@pytest.mark.parametrize(
    ("source", "imported", "when"),
    [
        ("import ledger.queue", "ledger.queue", "module"),
        ("from ledger import queue", "ledger.queue", "module"),
        ("from ledger.queue import Queue", "ledger.queue", "module"),
        ("from ..queue import Queue", "ledger.queue", "module"),
        ("from .. import queue", "ledger.queue", "module"),
        ("def f():\n    from ledger.queue import Queue", "ledger.queue", "function"),
        ("class C:\n    def f(self):\n        import ledger.queue", "ledger.queue", "function"),
        ("try:\n    import ledger.queue\nexcept ImportError:\n    pass", "ledger.queue", "module"),
        ("if TYPE_CHECKING:\n    from ledger.queue import Queue", "ledger.queue", "typing"),
    ],
)
def test_an_import_is_found_however_it_is_written(source, imported, when):
    modules = frozenset(python_files("ledger"))
    (found,) = imports_in("ledger.rules.limits", source, modules)
    assert (found.imported, found.when) == (imported, when)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("queue._store.act()", ["_store"]),
        ("f(claim)._grant = 1", ["_grant"]),
        ("class C:\n    def f(self):\n        return self._queue._store", ["_store"]),
        ("class C:\n    def f(self, other):\n        self._parts = other._parts", []),
        ("class C:\n    def _f(self, other):\n        return other._f()", []),
        ("record._replace(a=1)", []),
        ("value.__class__", []),
    ],
)
def test_the_private_part_of_another_is_found(source, found):
    assert [name for _, name, _ in privates_of_others(source)] == found


def test_lines_of_code_are_counted_and_no_others():
    source = """
'''A docstring
of two lines.'''

from typing import overload

class C:
    # A comment.
    @overload
    def f(
        self, x: int
    ) -> int: ...
    def f(self, x):  # beside code
        '''Another.'''
        text = '''two
        lines'''
        return text
"""
    assert (code_lines(source), code_lines(source, imports=False)) == (6, 5)


def test_a_relative_import_of_a_package_is_found():
    (found,) = imports_in(
        "ledger.store",
        "from .delta.model import message_runs",
        frozenset(["ledger.store.delta.model.message_runs"]),
        is_package=True,
    )
    assert found.imported == "ledger.store.delta.model.message_runs"


def test_a_cycle_is_found():
    assert a_cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert a_cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_what_airflow_is_told_of_the_package_exists():
    """Airflow is not installed here: the names are looked up in the sources."""
    from ledger.airflow.provider import provider_info

    files, told = python_files("ledger"), provider_info()
    modules = [
        name
        for kind in ("operators", "sensors", "hooks", "triggers")
        for one in told[kind]
        for name in one["python-modules"]
    ]
    classes = [*told["queues"], *(one["hook-class-name"] for one in told["connection-types"])]
    assert len(modules) >= 4 and [name for name in modules if name not in files] == []
    for module, _, name in (one.rpartition(".") for one in classes):
        assert f"class {name}(" in files[module].read_text(), name


@pytest.mark.timeout(120)
def test_an_import_that_points_up_is_found(tmp_path):
    package = tmp_path / "ledger"
    shutil.copytree(CHECKOUT / "ledger", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "rules" / "arns.py").write_text("import ledger.queue\n")
    shutil.copy(CHECKOUT / "pyproject.toml", tmp_path)
    run = lint_imports_of(tmp_path)
    assert run.returncode == 1 and "ledger.rules.arns -> ledger.queue" in run.stdout


def test_no_class_name_stands_twice():
    seen: dict[str, list[str]] = {}
    for name, file in python_files("ledger").items():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                seen.setdefault(node.name, []).append(name)
    assert {one: where for one, where in seen.items() if len(where) > 1} == {}


@pytest.mark.parametrize(
    "name", ["ledger", "queue", "claim", "heartbeat", "client/settling", "message", "results", "settings"]
)
def test_no_public_signature_says_any(name):
    vague = [
        node.name
        for node in ast.walk(ast.parse((CHECKOUT / "ledger" / f"{name}.py").read_text()))
        if isinstance(node, ast.FunctionDef) and (not node.name.startswith("_") or node.name == "__init__")
        for said in (node.returns, *(argument.annotation for argument in (*node.args.args, *node.args.kwonlyargs)))
        if said is not None and "Any" in ast.unparse(said)
    ]
    assert vague == []
