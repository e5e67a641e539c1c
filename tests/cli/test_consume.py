"""`ledger consume`."""

from __future__ import annotations

import sys

import pytest
from deltalake import DeltaTable

HANDLERS = """
def row(message):
    return {"n": int(message.body), "tokens": 3}

def broken(message):
    raise KeyError("no such column")
"""


@pytest.fixture
def handlers(tmp_path, monkeypatch):
    """A module in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = "handlers_of_a_user"
    (tmp_path / f"{name}.py").write_text(HANDLERS)
    yield name
    sys.modules.pop(name, None)


def test_it_writes_rows_and_says_what_it_did(cli, queue, handlers):
    queue.send(["1", "2", "poison"])
    ran = cli("consume", "work", "--function", f"{handlers}:row", "--output", "./rows", "--cost", "tokens")
    assert ran.code == 0 and ran.out == "consumed 2 messages of work, 2 rows, 3 failed, tokens 6\n"
    assert sorted(DeltaTable("rows").to_pyarrow_table()["n"].to_pylist()) == [1, 2]
    ran = cli("consume", "work", "--function", f"{handlers}:row", "--output", "./rows", "--json")
    assert ran.documents[0]["messages"] == 0


def test_a_function_that_raises_for_everything_is_an_error_with_its_traceback(cli, queue, handlers):
    queue.send([str(n) for n in range(50)])
    ran = cli("consume", "work", "--function", f"{handlers}:broken")
    assert ran.code == 1 and "KeyError: 'no such column'" in ran.err and "Traceback" in ran.err
    assert queue.counts().visible == 50


@pytest.mark.parametrize("function", ["nowhere:f", "json:nothing", "json", ":", "json:__doc__"])
def test_what_is_no_function_is_refused_before_a_message_is_claimed(cli, queue, function):
    queue.send("1")
    ran = cli("consume", "work", "--function", function)
    assert ran.code == 2 and queue.counts().visible == 1


def test_what_cannot_be_done_is_wrong_usage(cli, queue, handlers):
    queue.send("1")
    for wrong in (["--concurrency", "0"], ["--cost", "tokens"], ["--batch", "0"], ["--park", "600"], ["--until", "x"]):
        assert cli("consume", "work", "--function", f"{handlers}:row", *wrong).code == 2
    assert queue.counts().visible == 1
