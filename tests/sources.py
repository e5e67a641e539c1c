"""The project's own sources, read: what they import, use of one another, and how long they are."""

from __future__ import annotations

import ast
import io
import tokenize
from functools import cache
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[1]
#: Names with an underscore that libraries have and users need: named tuples', Spark's own JVM, argparse's type.
NOT_PRIVATE = {"_replace", "_fields", "_asdict", "_jvm", "_jsparkSession", "_jdf", "_jsc", "_active_spark_context"}
NOT_PRIVATE |= {"_gateway"}
NOT_PRIVATE |= {"_SubParsersAction"}


class Import(NamedTuple):
    """That `importer` names the module `imported` in line `line`; `when`: module, function, or typing."""

    importer: str
    imported: str
    line: int
    when: str

    def __str__(self) -> str:
        return f"{self.importer}, line {self.line}, imports {self.imported}"


def module_name(file: Path) -> str:
    name = ".".join(file.relative_to(CHECKOUT).with_suffix("").parts)
    return name.removesuffix(".__init__")


def python_files(*folders: str) -> dict[str, Path]:
    return {module_name(file): file for folder in folders for file in sorted((CHECKOUT / folder).rglob("*.py"))}


def imports_in(name: str, source: str, modules: frozenset[str], *, is_package: bool = False) -> list[Import]:
    """Every import of a module's source. `from a import b` is of a.b when that is one of `modules`, else of a."""
    found: list[Import] = []

    def visit(node: ast.AST, when: str) -> None:
        if isinstance(node, ast.Import):
            found.extend(Import(name, alias.name, node.lineno, when) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = name.split(".")[: len(name.split(".")) - node.level + is_package] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                found.append(Import(name, whole if whole in modules else base, node.lineno, when))
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                visit(child, "typing")
            for child in node.orelse:
                visit(child, when)
        else:
            inside = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) and when == "module"
            for child in ast.iter_child_nodes(node):
                visit(child, "function" if inside else when)

    visit(ast.parse(source), "module")
    return found


@cache
def all_imports() -> tuple[Import, ...]:
    files = python_files("ledger", "jobs", "tests")
    modules = frozenset(files)
    return tuple(
        each
        for name, file in python_files("ledger", "jobs").items()
        for each in imports_in(name, file.read_text(), modules, is_package=file.name == "__init__.py")
    )


def top(module: str) -> str:
    return module.partition(".")[0]


def a_cycle(edges: dict[str, set[str]]) -> list[str]:
    """Some cycle of the graph as a path, or nothing."""
    done: set[str] = set()

    def search(path: list[str]) -> list[str]:
        for following in sorted(edges.get(path[-1], ())):
            if following in path:
                return [*path[path.index(following) :], following]
            if following not in done and (cycle := search([*path, following])):
                return cycle
        done.add(path[-1])
        return []

    return next((cycle for start in sorted(edges) if start not in done and (cycle := search([start]))), [])


def privates_of_others(source: str) -> list[tuple[int, str, str]]:
    """(line, name, text) where a module uses `x._name`, x being neither self nor cls, and defines no `_name` itself."""
    tree = ast.parse(source)
    own, used = set(NOT_PRIVATE), []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            own.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.Attribute):
            is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if is_own and isinstance(node.ctx, ast.Store):
                own.add(node.attr)
            elif not is_own and node.attr.startswith("_") and not node.attr.startswith("__"):
                used.append((node.lineno, node.attr, ast.unparse(node)))
    return [one for one in used if one[1] not in own]


def code_lines(source: str, *, imports: bool = True) -> int:
    """How many lines of a source are code: no docstring, comment, empty line or stub of an overload."""
    nothing = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in nothing:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        is_text = (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )
        if is_text or (not imports and isinstance(node, (ast.Import, ast.ImportFrom))):
            lines.difference_update(range(node.lineno, node.end_lineno + 1))
        elif isinstance(node, ast.FunctionDef) and "overload" in map(ast.unparse, node.decorator_list):
            lines.difference_update(range(node.decorator_list[0].lineno, node.end_lineno + 1))
    return len(lines)
