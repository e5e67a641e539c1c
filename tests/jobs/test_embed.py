"""The job that embeds texts, small: the model, the server, the kill and the proof of it are real."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.embed_demo import handler
from jobs.embed_demo.front import Front
from jobs.embed_demo.texts import first_sentence
from tests.sources import code_lines

CHECKOUT = Path(__file__).resolve().parents[2]


def embed(*arguments):
    return subprocess.run([sys.executable, "jobs/embed.py", *arguments], cwd=CHECKOUT, capture_output=True, text=True)


def test_a_process_is_killed_and_every_text_is_embedded_exactly_once(tmp_path):
    run = embed("--root", tmp_path / "run", "--texts", "300", "--visibility-timeout", "5")
    assert run.returncode == 0, run.stdout + run.stderr[-2_000:]
    assert "was killed by signal 9" in run.stdout and "NO  " not in run.stdout
    assert len(re.findall("^yes  ", run.stdout, re.MULTILINE)) == 6
    assert re.search(r"[1-9]\d* answers 429", run.stdout), "the front refused some"
    assert (tmp_path / "run" / "embed.png").stat().st_size > 10_000


def test_a_folder_that_is_in_use_and_too_few_texts_are_refused(tmp_path):
    (tmp_path / "mine").write_text("precious")
    for arguments, said in (["--root", tmp_path], "is not empty"), (["--texts", "3"], "must be 200 to"):
        run = embed(*arguments)
        assert run.returncode == 2 and said in run.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]


def test_the_front_bills_what_it_does_not_refuse_and_says_what_was_billed_again():
    with Front(seed=42) as front:
        statuses = [front.answer(7, [[str(n % 20), 3]]) for n in range(40)]
    assert set(statuses) == {200, 429, 500}
    assert len(front.bills) == statuses.count(200) and front.paid == 3 * len(front.bills)
    different = {bill.text for bill in front.bills}
    assert len(front.paid_again()) == len(front.bills) - len(different) > 0


@pytest.mark.parametrize(
    ("documentation", "sentence"),
    [
        ("<p>The ARN of the &lt;queue&gt;. Required.</p>", "The ARN of the <queue>."),
        ("<p>Valid values: <code>a</code>,\n <code>b</code></p>", "Valid values: a , b"),
        ("", ""),
    ],
)
def test_a_text_is_the_first_sentence(documentation, sentence):
    assert first_sentence(documentation) == sentence


def test_the_page_shows_the_handler_and_counts_the_lines_that_there_are():
    page = (CHECKOUT / "docs" / "how-to" / "batch-inference.md").read_text()
    (shown,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    body = [line for line in shown.splitlines() if not line.startswith("def ")]
    assert all(line in inspect.getsource(handler.embed) for line in body)
    rows = re.findall(r"\((\.\./\.\./tests/benchmarks/embedding/\w+\.py)\)[^|]*\| (\d+) \|", page)
    assert len(rows) == 3
    for file, lines in rows:
        assert code_lines((CHECKOUT / "docs" / "how-to" / file).read_text()) == int(lines), file
