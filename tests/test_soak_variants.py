"""The marker `soak_variants`: it moves variants to the soak, and a pattern that matches no variant is a mistake."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TEST = """
import pytest

@pytest.mark.soak_variants({marker})
@pytest.mark.parametrize("n", ["one", "two", "three"])
def test_count(n):
    pass

def test_without_variants():
    pass
"""


MISTAKES = {
    '"two", "four"': "test_count: soak_variants names ['four'], and no variant matches",
    '"two", but=("five",)': "test_count: soak_variants names ['five'], and no variant matches",
    '"two", but=("three",)': "test_count: soak_variants names ['three'], and no variant matches",
    '"*"': "test_count: soak_variants leaves the usual run no variant",
}


@pytest.fixture
def collect(tmp_path):
    """Returns what pytest collects of TEST with each of some markers, and this suite's conftest.py."""
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)

    def run(*markers, of=""):
        files = [tmp_path / f"test_{n}.py" for n, _ in enumerate(markers)]
        for file, marker in zip(files, markers, strict=True):
            file.write_text(TEST.format(marker=marker))
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not soak", "-p", "no:cacheprovider"]
        command += [f"{file}{of}" for file in files]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    return run


def test_variants_that_match_are_soak_tests(collect):
    done = collect('"t*", but=("three",)')
    assert [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line] == [
        "test_count[one]",
        "test_count[three]",
        "test_without_variants",
    ]


def test_one_variant_can_be_asked_for(collect):
    done = collect('"t*", but=("three",)', of="::test_count[three]")
    assert done.returncode == 0 and "test_count[three]" in done.stdout


def test_markers_that_say_nothing_true_are_refused(collect):
    done = collect(*MISTAKES)
    assert done.returncode == 2 and [why for why in MISTAKES.values() if why not in done.stdout] == []
