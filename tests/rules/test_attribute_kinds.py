"""Each queue attribute is read by a rule, shown to users, and tested on both stores."""

import ast
import re

import pytest

from ledger.rules.attributes import ATTRIBUTES, FIFO_ATTRIBUTES, KEY, KEY_PERIOD, MANAGED, OURS, SQS_ATTRIBUTES
from tests.sources import CHECKOUT, python_files

#: Stored and answered, and without an effect: docs/reference/attributes.md says so.
WITHOUT_EFFECT = {KEY, KEY_PERIOD, MANAGED}
#: What a new attribute needs, for the message of a test that fails.
NEEDS = (
    "it needs: a rule that reads it, with attributes.get(name, default), as queues that were made before it lack it; a "
    "conformance test on both stores (tests/conformance); its place in docs/reference/attributes.md. Then run "
    "tests/rules, tests/conformance and tests/delta/model/test_formats.py"
)
PAGE = (CHECKOUT / "docs" / "reference" / "attributes.md").read_text()


@pytest.mark.parametrize("name", sorted({*ATTRIBUTES, *FIFO_ATTRIBUTES} - WITHOUT_EFFECT))
def test_a_rule_reads_each_attribute(name):
    files = dict(python_files("ledger"))
    # Its own module reads it in a function.
    tree = ast.parse(files.pop("ledger.rules.attributes").read_text())
    functions = "".join(ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    sources = [functions, *(file.read_text() for file in files.values())]
    assert any(re.search(rf"[\"']{name}[\"']", source) for source in sources), f"nothing reads {name}: {NEEDS}"


def test_what_has_no_effect_is_said_to_have_none():
    section = PAGE.split("## Attributes that are stored and not acted on")[1]
    assert [name for name in sorted(WITHOUT_EFFECT) if f"`{name}`" not in section] == []


@pytest.mark.parametrize("name", sorted(OURS))
def test_the_page_of_attributes_says_which_are_ours(name):
    sentence = PAGE.split(" are ours. All others are SQS's")[0].rpartition("\n\n")[2]
    assert f"`{name}`" in sentence, f"{name} is not among ours on the page: {NEEDS}"


@pytest.mark.parametrize("name", sorted(OURS))
def test_a_test_of_conformance_names_each_attribute_of_ours(name):
    tests = [file.read_text() for file in (CHECKOUT / "tests" / "conformance").glob("*.py")]
    assert any(name in text for text in tests), f"no test on both stores names {name}: {NEEDS}"


def test_attributes_are_sqss_or_ours_and_not_both():
    assert not set(SQS_ATTRIBUTES) & OURS and set(ATTRIBUTES) == set(SQS_ATTRIBUTES) | OURS
