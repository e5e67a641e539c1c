"""The README's map names every module, and nothing else."""

import re
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
#: The map says of these folders what is in them, and not each file.
AS_A_WHOLE = ("rules", "runtime")


def named_in_the_map():
    """Every file that the map's tree of ledger/ names."""
    text = (CHECKOUT / "README.md").read_text()
    tree = text[text.index("\nledger/\n") : text.index("\ntests/  ")]
    return sorted(re.findall(r"[a-z_]+\.py", tree.replace("store/__init__.py", "")))


def test_the_map_names_every_module_and_no_other():
    files = [file.relative_to(CHECKOUT / "ledger") for file in (CHECKOUT / "ledger").rglob("*.py")]
    modules = sorted(file.name for file in files if file.name != "__init__.py" and file.parts[0] not in AS_A_WHOLE)
    assert named_in_the_map() == modules
