"""The shape of the code: imports point down, files stay small, and what is public says what it does."""

from __future__ import annotations

import ast
import importlib
import inspect

import pytest

import ledger
from tests.sources import (
    CHECKOUT,
    Import,
    a_cycle,
    all_imports,
    code_lines,
    imports_in,
    privates_of_others,
    python_files,
    top,
)

#: Of code: see `code_lines`. Most files have about 100. No file is divided, or kept apart, for a number's sake.
MOST_LINES = 400
#: A module belongs to the layer with the longest name that it begins with. It may import what has a lower number, and
#: its own layer. -1 is for everybody; RUNTIME is a leaf beside them, for the command line and the jobs, and may
#: import the rules.
RUNTIME = 90
LAYERS = {
    "ledger.errors": -1,
    "ledger.notebook.html_view": -1,
    "ledger.runtime.progress": -1,
    "ledger.notebook.timeline": 1,
    "ledger.notebook.timeline_plot": 6.1,
    "ledger.clock": -1,
    "ledger.runtime.forks": -1,
    "ledger.runtime.threads": -1,
    "ledger.version": -1,
    "ledger.rules": 0,
    "ledger.settings": 1,
    "ledger.place": 0,
    "ledger.backup_folder": 0,
    "ledger.store.delta.model.arrow_values": 0,
    "ledger.delta_log": 1,
    "ledger.store": 2,
    "ledger.store.memory": 3,
    "ledger.store.delta": 3,
    "ledger.store.delta.model": 3,
    "ledger.store.delta.engine": 3.1,
    "ledger.store.delta.by_delta_rs": 3.1,
    "ledger.store.delta.by_spark": 3.1,
    "ledger.store.delta.commit_metadata": 3.1,
    "ledger.store.delta.spark_jobs": 3.1,
    "ledger.outputs": 3.15,
    "ledger.outputs.targets": 3.5,
    "ledger.outputs.column_casts": 3.5,
    "ledger.outputs.staging": 3.5,
    "ledger.outputs.named_messages": 3.5,
    "ledger.outputs.messages": 6,
    "ledger.outputs.reasons": 6.02,
    "ledger.outputs.arrow_writer": 6.02,
    "ledger.outputs.spark_writers": 6.02,
    "ledger.outputs.writers": 6.05,
    "ledger.outputs.write": 6.1,
    "ledger.outputs.failures": 6.1,
    "ledger.store.delta.commit": 3.2,
    "ledger.store.delta.state": 3.3,
    "ledger.store.delta.verbs": 3.4,
    "ledger.store.delta.dataframes": 3.5,
    "ledger.store.delta.views": 3.5,
    "ledger.store.delta.schemas": 3.6,
    "ledger.store.delta.backups": 3.6,
    "ledger.store.delta.destruction": 3.6,
    "ledger.store.delta.permissions": 3.6,
    "ledger.store.delta.opening": 3.7,
    "ledger.message": 4,
    "ledger.results": 4,
    "ledger.client.tables": 4,
    "ledger.client.move_tasks": 4,
    "ledger.heartbeat": 4,
    "ledger.client.settlements": 4,
    "ledger.client.handles": 5,
    "ledger.client.arrow_rows": 5,
    "ledger.client.attribute_columns": 4.5,
    "ledger.client.sending": 6,
    "ledger.client.access": 5,
    "ledger.client.export_file": 4,
    "ledger.client.transfers": 6,
    "ledger.client.settling": 6.1,
    "ledger.client.queue_settings": 6,
    "ledger.client.explanation": 6.1,
    "ledger.claim": 7,
    "ledger.client.receiving": 7.1,
    "ledger.outputs.row_errors": 3.1,
    "ledger.work.row_types": 4,
    "ledger.work.backlog": 4.2,
    "ledger.work.consumer_claim": 7.16,
    "ledger.work.worker": 7.2,
    "ledger.work.isolation": 7.1,
    "ledger.work.claim_work": 7.15,
    "ledger.work.verdicts": 4,
    "ledger.work.handler_rows": 4,
    "ledger.work.consumption": 4.2,
    "ledger.work.group_limits": 4.2,
    "ledger.work.handler_evidence": 7.15,
    "ledger.work.handler_calls": 4.3,
    "ledger.work.claim_source": 7.15,
    "ledger.work.consumer": 7.2,
    "ledger.work.functions": 4.2,
    "ledger.work.consumer_processes": 7.3,
    "ledger.runtime.termination": 2,
    "ledger.queue": 8,
    "ledger.ledger": 9,
    "ledger.client.upkeep_daemon": 9.1,
    "ledger": 10,
    "ledger.airflow": 11,
    "ledger.endpoint.wire": 11,
    "ledger.endpoint.refusals": 11,
    "ledger.endpoint.statuses": 11.1,
    "ledger.endpoint.service_model": 11.1,
    "ledger.endpoint.json_protocol": 11.2,
    "ledger.endpoint.query_protocol": 11.2,
    "ledger.endpoint.query_json": 11.3,
    "ledger.endpoint.callers": 11.2,
    "ledger.endpoint.keys": 11.6,
    "ledger.endpoint.addresses": 11.2,
    "ledger.endpoint.shapes": 11.2,
    "ledger.endpoint.actions": 11.4,
    "ledger.endpoint.signed_requests": 11.3,
    "ledger.endpoint.signatures": 11.4,
    "ledger.endpoint.handling": 11.5,
    "ledger.endpoint.pool": 11.5,
    "ledger.endpoint.metrics": 11.5,
    "ledger.endpoint.polls": 11.6,
    "ledger.endpoint.access_log": 11.6,
    "ledger.endpoint.application": 11.7,
    "ledger.endpoint.serving": 11.8,
    "ledger.endpoint.command": 11.9,
    "ledger.endpoint": 11.9,
    "ledger.cli": 100,
    "ledger.__main__": 101,
    "ledger.runtime.bootstrap": RUNTIME,
    "ledger.runtime": RUNTIME,
}
#: What each layer that must run without Spark or storage keeps out, at whatever depth of a function.
FORBIDDEN = {
    "ledger.rules": ("pyspark", "delta", "deltalake", "pyarrow", "numpy", "pandas"),
    "ledger.errors": ("pyspark", "delta", "deltalake", "pyarrow", "numpy", "pandas"),
    "ledger.clock": ("pyspark", "delta", "deltalake", "pyarrow", "numpy", "pandas"),
    "ledger.place": ("pyspark", "delta", "deltalake", "pyarrow", "numpy", "pandas"),
    "ledger.settings": ("pyspark", "delta", "deltalake", "pyarrow", "numpy", "pandas"),
    "ledger.store.memory": ("pyspark", "delta", "deltalake"),
    "ledger.message": ("pyspark", "delta", "deltalake", "pyarrow"),
    "ledger.results": ("pyspark", "delta", "deltalake", "pyarrow"),
    "ledger.heartbeat": ("pyspark", "delta", "deltalake", "pyarrow"),
    "ledger.client.handles": ("pyspark", "delta", "deltalake"),
    "ledger.client.tables": ("pyspark", "delta", "deltalake", "pandas"),
    "ledger.client.arrow_rows": ("pyspark", "delta", "deltalake", "pandas"),
    "ledger.client.sending": ("pyspark", "delta", "deltalake"),
    "ledger.client.access": ("pyspark", "delta", "deltalake", "pyarrow"),
    "ledger.client.settling": ("pyspark", "delta", "deltalake"),
    "ledger.client.receiving": ("pyspark", "delta", "deltalake", "pyarrow"),
    "ledger.claim": ("pyspark", "delta", "deltalake"),
    "ledger.client.settlements": ("pyspark", "delta", "deltalake"),
    "ledger.queue": ("pyspark", "delta", "deltalake"),
    "ledger.client.queue_settings": ("pyspark", "delta", "deltalake"),
    "ledger.ledger": ("pyspark", "delta", "deltalake", "pyarrow"),
    "ledger.endpoint": ("pyspark", "delta", "deltalake", "pyarrow", "pandas", "numpy"),
    "ledger.runtime": ("deltalake", "pyarrow"),
    "ledger.runtime.bootstrap": ("pyspark", "delta", "deltalake", "pyarrow", "numpy", "pandas"),
}
#: What tests of a part's own insides look at, or take out, by the module that they do it in.
INSIDES = {
    "tests.test_architecture": {"_HOMES"},
    "tests.benchmarks.neighbours": {"_edits"},
    "tests.benchmarks.sends": {"_gateway"},
    "tests.delta.test_fifo_order": {"_read"},
    "tests.delta.test_followed": {"_seen"},
    "tests.delta.test_frames_fifo": {"_gateway"},
    "tests.delta.test_groups": {"_own", "_kept"},
    "tests.delta.test_segment_ends": {"_sender", "_segments"},
    "tests.delta.test_sharing": {"_turns", "_reader"},
    "tests.endpoint.test_fairness": {"_turns"},
    "tests.delta.test_sql": {"_add"},
    "tests.delta.test_turns": {"_queues"},
    "tests.rules.test_attempts": {"_number"},
    "tests.simulation.background": {"_beat"},
    "tests.simulation.broken": {"_finished", "_members", "_members_of"},
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


def layer_of(module: str) -> float:
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        if (prefix := ".".join(parts[:length])) in LAYERS:
            # `ledger` alone is the package's front, not a home for modules that nobody has put anywhere.
            if prefix == "ledger" and module != "ledger":
                break
            return LAYERS[prefix]
    raise AssertionError(f"{module} has no layer: give it one in LAYERS")


def points_up(each: Import) -> bool:
    """Whether an import of one of our modules by another breaks the order of the layers."""
    importer, imported = layer_of(each.importer), layer_of(each.imported)
    if importer == RUNTIME:
        return imported not in (RUNTIME, layer_of("ledger.rules"), -1)
    return imported > importer


@pytest.mark.parametrize("name", python_files("ledger"))
def test_every_module_has_a_layer_and_imports_point_down(name):
    layer_of(name)
    mine = [each for each in all_imports() if each.importer == name and top(each.imported) == "ledger"]
    assert [str(each) for each in mine if points_up(each)] == []


def test_the_store_seam_knows_none_of_its_stores_and_the_stores_not_each_other():
    stores = ("ledger.store.memory", "ledger.store.delta")
    wrong = [
        str(each)
        for each in all_imports()
        for store in stores
        if each.imported.startswith(store) and each.importer.startswith("ledger.store")
        if not each.importer.startswith(store)
    ]
    assert wrong == []


def test_the_client_of_deltas_log_knows_nothing_of_queues():
    """It gets its tables as TableSpecs. It may use what is for everybody, and rules that are about places and Delta."""
    allowed = {f"ledger.rules.{name}" for name in ("limits", "location", "publishable", "storage", "version_numbers")}
    for name, file in python_files("ledger").items():
        if not name.startswith("ledger.delta_log"):
            continue
        imported = {each.imported for each in all_imports() if each.importer == name}
        ours = {one for one in imported if top(one) == "ledger" and not one.startswith("ledger.delta_log")}
        assert {one for one in ours if one not in allowed and layer_of(one) != -1} <= {"ledger"}, name
        texts = [node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant)]
        assert not set(OUR_WORDS).intersection(text for text in texts if isinstance(text, str)), name


def test_the_runtime_is_a_leaf_for_the_command_line_and_the_jobs():
    users = {each.importer for each in all_imports() if layer_of_or_none(each.imported) == RUNTIME}
    inside = {user for user in users if top(user) == "ledger" and layer_of(user) != RUNTIME}
    assert inside == {"ledger.cli.diagnosis", "ledger.cli.submit"}


def test_airflow_is_imported_in_its_package_alone_and_that_by_nothing_else():
    outside = [each for each in all_imports() if not f"{each.importer}.".startswith("ledger.airflow.")]
    assert [str(each) for each in outside if top(each.imported) == "airflow"] == []
    assert [str(each) for each in outside if f"{each.imported}.".startswith("ledger.airflow.")] == []
    assert any(top(each.imported) == "airflow" for each in all_imports()), "the imports were found"


def layer_of_or_none(module: str) -> float | None:
    return layer_of(module) if top(module) == "ledger" else None


@pytest.mark.parametrize("part", FORBIDDEN)
def test_what_must_do_without_a_library_never_imports_it(part):
    wrong = [
        str(each)
        for each in all_imports()
        if each.when != "typing" and f"{each.importer}.".startswith(f"{part}.")
        if top(each.imported) in FORBIDDEN[part]
    ]
    assert wrong == []


def test_nothing_imports_pyspark_when_it_is_itself_imported_but_what_always_has_a_session():
    allowed = {"ledger.delta_log.by_spark", "ledger.store.delta.by_spark"}
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
    lines = code_lines(python_files(top(name))[name].read_text())
    assert lines < MOST_LINES, f"{name} has {lines} lines of code: which of its jobs is another one's?"


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
    assert points_up(found)


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
    assert code_lines(source) == 6


def test_a_relative_import_of_a_package_is_found():
    (found,) = imports_in(
        "ledger.store",
        "from .delta.model import run_algebra",
        frozenset(["ledger.store.delta.model.run_algebra"]),
        is_package=True,
    )
    assert found.imported == "ledger.store.delta.model.run_algebra" and points_up(found)


def test_a_runtime_module_may_use_the_errors_and_the_rules_and_nothing_else_of_the_ledger():
    def runtime(imported: str, when: str = "module") -> bool:
        return points_up(Import("ledger.runtime.java", imported, 1, when))

    assert not any(map(runtime, ("ledger.errors", "ledger.rules.storage", "ledger.place", "ledger.runtime.cache")))
    assert runtime("ledger.settings") and runtime("ledger.queue", "function") and runtime("ledger.cli", "typing")


def test_a_cycle_is_found():
    assert a_cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert a_cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_a_new_module_must_be_given_a_layer():
    with pytest.raises(AssertionError, match=r"ledger\.novelty has no layer"):
        layer_of("ledger.novelty")


@pytest.mark.parametrize(
    "name", ["ledger", "queue", "claim", "heartbeat", "settling", "message", "results", "settings"]
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
