"""What pages say beyond their blocks: rules and their tests, states and events, the README, the generated reference."""

from __future__ import annotations

import re

import pytest

import ledger
from ledger import errors as ledger_errors
from ledger.rules.attributes import ATTRIBUTES, OURS
from ledger.rules.visibility import Status
from ledger.settings import Settings
from ledger.store.delta.views.statements import VIEWS, comments_of
from tests.docs.pages import DOCS, all_pages, page
from tests.sources import CHECKOUT, python_files

RULES = [f"V{n}" for n in range(1, 15)] + [f"Q{n}" for n in range(1, 8)] + ["F1", "F2", "F3", "F4", "D1", "D2"]
RULES += [f"M{n}" for n in range(1, 5)]
TABLE = page("docs/reference/rules.md").text
ROWS = re.findall(r"^\| ([VQFDM]\d+)(?: to ([VQFDM]\d+))? \|[^|]*\|([^|]*)\|([^|]*)\|$", TABLE, re.MULTILINE)
#: The errors of `ledger.errors` that the package does not export, each with the reason.
UNEXPORTED: dict[str, str] = {}
#: The rules on texts and batches have tests that are not named after them.
UNNAMED = ("M1", "M2", "M3", "M4")


def named(cell):
    return re.findall(r"`([^`]+)`", cell)


def is_error(value):
    return isinstance(value, type) and issubclass(value, ledger.LedgerError) and not value.__name__.startswith("_")


def covers(row, rule):
    first, last = row[0], row[1] or row[0]
    return first[0] == rule[0] and int(first[1:]) <= int(rule[1:]) <= int(last[1:])


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_row_with_a_module_and_a_test_named_after_it(rule):
    (row,) = [row for row in ROWS if covers(row, rule)]
    # By their names alone: a module that moves keeps its row. A module says the number of a rule that it has.
    modules = {}
    for file in python_files("ledger").values():
        modules.setdefault(file.name, []).append(file.read_text())
    assert [module for module in named(row[2]) if module not in modules] == []
    of_row = "|".join(one for one in RULES if covers(row, one))
    assert any(re.search(rf"\b(?:{of_row})\b", text) for module in named(row[2]) for text in modules[module])
    texts = [(CHECKOUT / test).read_text() for test in named(row[3])]
    assert texts
    if rule not in UNNAMED:
        assert any(f"def test_{rule.lower()}_" in text for text in texts), f"no test_{rule.lower()}_... in {row[3]}"


def test_the_page_of_views_has_every_state_and_every_event():
    text = page("docs/reference/views.md").text
    states, events = text.split("| state | |")[1].split("| event | |")
    assert re.findall(r"^\| ([a-z ]+) \|", states, re.MULTILINE) == [status.value for status in Status]
    known = re.findall(r"^\| ([a-z, ]+) \|", events.split("\n## ")[0], re.MULTILINE)
    said = comments_of("receipts").columns["event"]
    assert sorted(", ".join(known).split(", ")) == sorted(said.split(", "))


def test_the_readme_is_short_and_has_six_guarantees_a_picture_and_a_way_to_every_kind_of_page():
    readme = page("README.md").text
    assert len((CHECKOUT / "README.md").read_bytes()) <= 8_192
    guarantees = readme.split("\n## What is guaranteed\n")[1].split("\n## ")[0]
    assert len(re.findall(r"^\d\. ", guarantees, re.MULTILINE)) == 6
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", readme)
    assert 10_000 < (CHECKOUT / picture).stat().st_size < 150_000
    (block,) = [block for block in page("README.md").blocks if block.language == "python"]
    assert len(block.code.splitlines()) <= 32
    for folder in ("tutorials", "how-to", "how-to/operate", "reference", "explanation"):
        assert f"](docs/{folder}/" in readme
    for command in re.findall(r"`python3 (\S+?)`", readme):
        assert (CHECKOUT / command).is_file()
    assert "tests/run.py" in (CHECKOUT / ".ci" / "run").read_text()


def test_the_figures_of_the_readme_are_those_of_the_page_that_has_them_all():
    rows = page("README.md").text.split("| | ledger | PostgreSQL")[1].split("\n\n")[0].splitlines()[2:]
    measured = page("docs/explanation/measured.md").text.split("## A sync to the disk")[1].split("\n## ")[0]
    of_page = [line.split(" | ") for line in measured.splitlines() if line.startswith("| ")]
    assert len(rows) == 4
    for row in rows:
        name, ours, theirs = row.split(" | ")
        (same,) = [cells for cells in of_page if cells[0] == name]
        assert (same[1], same[3]) == (ours, theirs)


def test_every_page_begins_with_what_its_reader_can_do_after_it_and_is_in_the_navigation():
    navigation = (CHECKOUT / "mkdocs.yml").read_text()
    for one in all_pages():
        if one.name == "README.md":
            continue
        text = re.sub(r"<!-- .*? -->\n", "", one.text)
        title, first = text.split("\n\n")[:2]
        assert title.startswith("# "), one.name
        assert re.match(r"After (this|these|reading)\b", first), (one.name, first[:60])
        assert "examples" in one.name or one.name.removeprefix("docs/") in navigation


def test_the_names_that_a_newcomer_looks_for_are_in_the_modules_that_the_page_says():
    table = page("docs/explanation/theory-of-operation.md").text.split("## Where to look in the code")[1]
    files = {}
    for file in python_files("ledger").values():
        files.setdefault(file.name, []).append(file.read_text())
    found = re.findall(r"[Tt]he (class|function) `(\w+)`, in (?:the rules' )?`(\w+\.py)`", table)
    assert len(found) >= 6
    for kind, name, file in found:
        keyword = "class" if kind == "class" else "def"
        assert any(re.search(rf"^{keyword} {name}\b", text, re.MULTILINE) for text in files[file]), (name, file)
    receivers = [text for text in files["receiving.py"] if "class Receiver" in text]
    assert len(receivers) == 1 and "    def _decide(" in receivers[0]


def test_each_how_to_has_steps():
    for file in sorted((DOCS / "how-to").glob("*.md")):
        if file.name != "index.md":
            text = file.read_text()
            steps = re.findall(r"^(?:## |\*\*)(\d+)\. ", text, re.MULTILINE)
            assert steps[:3] == ["1", "2", "3"], file.name


def test_the_generated_reference_has_every_setting_attribute_view_command_error_and_public_name():
    hooks = pytest.importorskip("mkdocs") and _hooks()
    texts = {file.name: hooks.filled_in(file.read_text()) for file in (DOCS / "reference").glob("*.md")}
    assert re.findall(r"^### `(\w+)`$", texts["settings.md"], re.MULTILINE) == list(Settings.__dataclass_fields__)
    assert [name for name in ATTRIBUTES if f"| `{name}` |" not in texts["attributes.md"]] == []
    assert all(f"`{name}`" in texts["attributes.md"] for name in OURS)
    assert re.findall(r"^### `(\w+)`$", texts["views.md"], re.MULTILINE) == list(VIEWS)
    from ledger.cli.app import application

    assert [name for name in application.commands if f"`ledger {name}`" not in texts["command-line.md"]] == []
    errors = [name for name, value in vars(ledger_errors).items() if is_error(value) and name not in UNEXPORTED]
    assert len(errors) > 20 and [name for name in errors if f"| `{name}` |" not in texts["errors.md"]] == []
    assert sorted(errors) == [name for name in ledger.__all__ if is_error(getattr(ledger, name))]
    others = sorted(set(ledger.__all__) - set(errors))
    shown = re.findall(r"^::: [\w.]+\.(\w+)$", texts["python-api.md"], re.MULTILINE)
    assert sorted(shown) == others
    files = {file.name for file in python_files("ledger").values()} - {"__init__.py"}
    assert files == set(re.findall(r"^\| `(\w+\.py)` \|", texts["module-map.md"], re.MULTILINE))


def test_the_glossary_has_the_words_of_the_code():
    text = page("docs/glossary.md").text
    for word in (
        "segment",
        "lane",
        "run",
        "set",
        "head row",
        "claim",
        "receipt",
        "turn",
        "gate",
        "staging",
        "publishing",
    ):
        assert f"| **{word}** |" in text
    assert "| **fence** |" in text and "| **in doubt** |" in text


def _hooks():
    import importlib.util

    spec = importlib.util.spec_from_file_location("docs_hooks", DOCS / "hooks.py")
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    return hooks
