"""The notebooks run, from the first cell to the last, in the suite's own session; what they claim they assert."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import jupytext
import pytest

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.py"))


def test_there_are_notebooks_and_none_with_outputs():
    assert [path.name for path in NOTEBOOKS] == ["investigation.py", "timeout.py", "tour.py"]
    assert list(FOLDER.rglob("*.ipynb")) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_a_notebook_that_says_of_each_step_what_to_notice(path):
    notebook = jupytext.read(path)
    assert notebook.metadata["jupytext"]["text_representation"]["format_name"] == "percent"
    kinds = [cell.cell_type for cell in notebook.cells]
    assert kinds[0] == "markdown" and set(kinds) == {"markdown", "code"}
    assert kinds.count("markdown") >= 10 and path.read_text().count("\nassert ") >= 10
    for cell in notebook.cells:
        assert cell.source.strip() and len(cell.source.splitlines()) <= 20, cell.source


@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if path.stem != "tour"], ids=lambda path: path.stem)
def test_it_runs_without_spark(path):
    names = run(path)
    assert "spark" not in names and not Path(names["root"]).exists()


def test_the_tour_runs(spark):
    names = run(FOLDER / "tour.py")
    assert names["spark"].sparkContext is spark.sparkContext, "no second JVM"
    assert not Path(names["root"]).exists(), "it cleans up"
    assert spark.range(1).count() == 1, "and leaves the session running"


def run(path: Path) -> dict:
    """Executes the code cells one by one, as Jupyter does: an expression at the end of a cell is displayed."""
    names: dict = {"__name__": "__main__"}
    for number, cell in enumerate(jupytext.read(path).cells):
        if cell.cell_type != "code":
            continue
        where = f"{path.name}, cell {number}"
        statements = ast.parse(cell.source, where).body
        shown = statements.pop() if isinstance(statements[-1], ast.Expr) else None
        exec(compile(ast.Module(statements, []), where, "exec"), names)
        if shown is not None:
            value = eval(compile(ast.Expression(shown.value), where, "eval"), names)
            if value is not None:
                print(value, file=sys.stdout)
    return names
