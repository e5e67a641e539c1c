"""`ledger consume`."""

from __future__ import annotations

import sys

import pytest
from deltalake import DeltaTable

from ledger import GroupLimit
from ledger.cli.consume import parse_group_limits

pytestmark = pytest.mark.usefixtures("short_waits")
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
    assert ran.code == 0 and ran.out == "consumed 2 messages of work, 2 rows, 3 failed, 1 parked, tokens 6\n"
    assert "`ledger history work` says why messages failed" in ran.err
    assert "invalid literal for int()" in cli("history", "work").out
    assert sorted(DeltaTable("rows").to_pyarrow_table()["n"].to_pylist()) == [1, 2]
    ran = cli("consume", "work", "--function", f"{handlers}:row", "--output", "./rows", "--json")
    assert ran.documents[0]["messages"] == 0 and "says why" not in ran.err


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


@pytest.mark.parametrize("source", ["raise RuntimeError('no key')", "def f(:"])
def test_a_module_that_cannot_be_imported_is_wrong_usage(cli, queue, handlers, tmp_path, source):
    (tmp_path / "broken_module_of_a_user.py").write_text(source)
    ran = cli("consume", "work", "--function", "broken_module_of_a_user:f")
    assert ran.code == 2 and "Its module raises when it is imported" in ran.err
    assert "broken_module_of_a_user.py" in ran.err, "its traceback"


def test_what_cannot_be_done_is_wrong_usage(cli, queue, handlers):
    queue.send("1")
    for wrong in (["--concurrency", "0"], ["--cost", "tokens"], ["--batch", "0"], ["--park", "600"], ["--until", "x"]):
        assert cli("consume", "work", "--function", f"{handlers}:row", *wrong).code == 2
    assert queue.counts().visible == 1


@pytest.mark.parametrize(
    ("text", "group", "limit"),
    [
        ("tenant 7=5", "tenant 7", GroupLimit(rate=5)),
        ("a=b=0.5/s,2", "a=b", GroupLimit(rate=0.5, concurrency=2)),
        ("*=300/m", None, GroupLimit(rate=5)),
        ("a=36/h", "a", GroupLimit(rate=0.01)),
        ("a=,3", "a", GroupLimit(concurrency=3)),
    ],
)
def test_limits_of_groups_are_read(text, group, limit):
    assert parse_group_limits([text]) == {group: limit}


def test_a_group_at_its_limit_is_hidden_and_the_others_are_done(cli, queue, handlers):
    queue.send([{"MessageBody": str(n), "MessageGroupId": group} for n in range(3) for group in "ab"])
    given = ["--group-limit", "a=1/h", "--group-limit", "*=,4", "--until", "once"]
    ran = cli("consume", "work", "--function", f"{handlers}:row", "--output", "./rows", *given)
    assert ran.code == 0 and ran.out == "consumed 4 messages of work, 4 rows, 2 over a limit\n"


@pytest.mark.parametrize(
    "wrong", ["a", "=5", "a=", "a=x", "a=5/d", "a=5,x", "a=0", "a=5,0", "a=-1", "a=nan", "a=5/", "a=5,", "a=,9999"]
)
def test_a_limit_that_is_none_is_refused_with_the_form_and_an_example(cli, queue, handlers, wrong):
    queue.send("1")
    ran = cli("consume", "work", "--function", f"{handlers}:row", "--output", "./rows", "--group-limit", wrong)
    assert ran.code == 2 and queue.counts().visible == 1
    assert "--group-limit" in ran.err and "GROUP=RATE" in ran.err and "tenant-7=5,2" in ran.err


def test_a_group_has_one_limit(cli, queue, handlers):
    twice = ["--group-limit", "a=1", "--group-limit", "a=2"]
    ran = cli("consume", "work", "--function", f"{handlers}:row", "--output", "./rows", *twice)
    assert ran.code == 2 and "has a limit already" in ran.err


def test_what_was_parked_is_released_without_a_handle(cli, queue, handlers):
    queue.send(["1", "poison"])
    ran = cli("consume", "work", "--function", f"{handlers}:row", "--output", "./rows", "--max-receives", "1")
    assert ran.code == 0 and ran.out == "consumed 1 message of work, 1 rows, 1 failed, 1 parked\n"
    assert "1 messages are parked" in ran.err and "`ledger release work --postponed`" in ran.err
    assert cli("release", "work", "HANDLE", "--postponed").code == 2
    ran = cli("release", "work", "--postponed", "--receipt", "another", "--json")
    assert ran.documents[0] == {"receipt": "another", "outcome": "released", "messages": 0}
    nothing = cli("receive", "work", "--all", "--claim", "--json")
    ran = cli("release", "work", "--postponed", "--receipt", "-", "--json", given=nothing.out)
    assert ran.documents[0] == {"receipt": None, "outcome": "released", "messages": 0}, "not those of all receipts"
    assert cli("release", "work", "--postponed", "--receipt", "-", given='{"receipt": 5}').code == 2
    ran = cli("release", "work", "--postponed", "--reason", "mended")
    assert ran.code == 0 and ran.out == "released 1 message\n" and queue.counts().visible == 1
    assert "mended" in cli("history", "work").out
