"""Every page: its blocks run, its links lead somewhere, and the site is built without a warning."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.pages import OUTPUT, RUN, all_pages, page
from tests.docs.scenes import SCENES
from tests.sources import CHECKOUT

PAGES = {one.name: one for one in all_pages()}
LINKS = re.compile(r"\]\(([^)\s]*)\)")
#: Pages whose blocks are run elsewhere have nothing for the runner.
RUNNABLE = [name for name, one in PAGES.items() if one.to_run]
WITH_SPARK = [name for name, scene in SCENES.items() if scene.spark]


def commands_in(folder: Path) -> str:
    """Make `ledger` and `python` of this environment commands; return the PATH that has them."""
    folder.mkdir()
    for name, what in (("ledger", "-m ledger.cli"), ("python", ""), ("python3", "")):
        command = folder / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {what} "$@"\n')
        command.chmod(command.stat().st_mode | stat.S_IEXEC)
    return f"{folder}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def run_pages(names: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith("LEDGER_")}
    environment = {**kept, "PATH": commands_in(tmp_path / "bin"), "PYTHONPATH": str(CHECKOUT)}
    command = [sys.executable, "-m", "tests.docs.run_page", *names]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)
    assert run.returncode == 0, run.stderr[-4_000:]


@pytest.mark.parametrize("name", [name for name in RUNNABLE if name not in WITH_SPARK])
def test_the_blocks_of_a_page_run_one_after_the_other(name, tmp_path):
    run_pages([name], tmp_path)


def test_the_pages_and_the_example_with_spark_run_in_one_jvm(tmp_path):
    assert len(WITH_SPARK) == 3
    run_pages(WITH_SPARK, tmp_path)


@pytest.mark.parametrize("name", PAGES)
def test_a_block_that_is_not_run_says_why_and_one_that_a_test_runs_names_the_test(name):
    for block in PAGES[name].blocks:
        if block.elsewhere is None:
            assert block.language in (*RUN, *OUTPUT) or block.file, f"a block of {block.language} without a marker"
        elif block.elsewhere[0] == "run by":
            test = CHECKOUT / block.elsewhere[1]
            names = (Path(name).name, f'"{Path(name).parent.name}"')
            assert test.is_file() and any(one in test.read_text() for one in names), f"{test} does not name {name}"
        else:
            assert len(block.elsewhere[1]) > 10, "the reason"


#: How many programs of a page the suite does not run; their reasons are in the page.
NOT_RUN = {"README.md": 1, "docs/how-to/s3.md": 1, "docs/how-to/serve.md": 1}


def test_few_blocks_are_not_run():
    """Whoever adds one counts it here."""
    programs = ("python", "sh", "sql")
    blocks = [(name, block) for name, one in PAGES.items() for block in one.blocks if block.language in programs]
    skipped = Counter(name for name, block in blocks if (block.elsewhere or ("",))[0] == "not run")
    assert skipped == NOT_RUN
    assert len(blocks) > 10 * skipped.total()


@pytest.mark.parametrize("name", PAGES)
def test_the_links_of_a_page_lead_to_files_and_to_titles(name):
    one = PAGES[name]
    text = re.sub(r"^```.*?^```$", "", one.text, flags=re.M | re.S)
    for link in LINKS.findall(text):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        file = (one.path.parent / target).resolve() if target else one.path
        assert file.exists(), link
        if anchor:
            titles = page(file.relative_to(CHECKOUT).as_posix()).titles
            assert anchor in titles, f"{link}: {titles}"


def test_a_page_names_no_module_that_is_not_there():
    """Names of files without a folder stay right when a module moves; a name that is gone does not."""
    here = {file.name for file in CHECKOUT.rglob("*.py") if ".venv" not in file.parts}
    for name, one in PAGES.items():
        made = {Path(block.file).name for block in one.blocks if block.file}
        named = set(re.findall(r"`(?:[\w.]+/)*([a-z_]+\.py)`", one.text))
        assert named <= here | made, (name, named - here - made)


def test_the_site_is_built_without_a_warning(tmp_path):
    # Not --quiet: mkdocs counts no warning then.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    run = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    built = (tmp_path / "site" / "reference" / "settings.html").read_text()
    assert "keep_deleted_receipts" in built, "the generated parts are in the pages"
    assert "<!-- generated:" not in built
