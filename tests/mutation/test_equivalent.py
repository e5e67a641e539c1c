"""The mutants that are explained are of code that there is."""

import re
from pathlib import Path

import pytest

from tests.mutation.run import GROUPS
from tests.sources import CHECKOUT

tomllib = pytest.importorskip("tomllib")

FOLDER = Path(__file__).parent
EXPLAINED = tomllib.loads((FOLDER / "equivalent.toml").read_text())["equivalent"]


@pytest.mark.parametrize("entry", EXPLAINED, ids=lambda entry: entry["function"])
def test_an_explained_mutant_is_of_a_line_of_its_function(entry):
    module, name = re.fullmatch(r"ledger\.([\w.]+)\.xǁ?_?(.+)", entry["function"]).groups()
    source = (FOLDER.parents[1] / "ledger" / f"{module.replace('.', '/')}.py").read_text()
    function = re.split(r"[ǁ]", name)[-1].lstrip("_")
    bodies = re.split(r"\n(?=\s*def )", source)
    body = "".join("".join(body.split()) for body in bodies if re.search(rf"def _*{function}\b", body))
    # Spaces apart: mutmut writes an expression of several lines as one.
    missing = [line for line, _ in entry["changes"] if "".join(line.split()) not in body]
    assert missing == []


@pytest.mark.parametrize("name", GROUPS)
def test_every_module_of_a_group_and_every_test_that_judges_it_exists(name):
    group = GROUPS[name]
    assert [module for module in group.modules if not (CHECKOUT / "ledger" / module).is_file()] == []
    assert [test for test in (*group.judges, *group.anew) if not (CHECKOUT / test).exists()] == []
