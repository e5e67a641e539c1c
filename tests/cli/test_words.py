"""Errors say what one typed: options and commands, and no names of Python's."""

import re
import sys

import pytest

from tests.cli.running import run

PYTHON = re.compile(
    r"create_queue|destination=|max_messages|attempt_id|MaxNumberOfMessages|WaitTimeSeconds|datetime|tzinfo|hashlib|"
    r"timestamp=|DeltaError|entry 0|None|set_attributes|Ledger\.|parameter (keys|query|version|timestamp|where)"
)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("receive", "nobody"), "`ledger queues create nobody` makes one"),
        (("receive", "work", "--max", "0"), "--max 0 is invalid. Must be a whole number >= 1."),
        (("receive", "work", "--wait", "-1"), "--wait -1.0 is invalid. Must be >= 0"),
        (("receive", "work", "--visibility-timeout", "-1"), "--visibility-timeout -1 is invalid. Must be between 0"),
        (("receive", "work", "--attempt-id", ""), "--attempt-id"),
        (("peek", "work", "x"), "MESSAGE_ID x is invalid. Must be a message id"),
        (("redrive", "work"), "No queue's RedrivePolicy names work. Say where to: --to QUEUE."),
        (("redrive", "work", "--max", "0"), "--max 0 is invalid"),
        (
            ("redrive", "work", "--where", "nope = 1"),
            "--where 'nope = 1' is invalid. Schema error: No field",
        ),
        (("redrive", "work", "--to", "nobody"), "`ledger queues create nobody` makes one"),
        (("history", "work", "--message", "x"), "MESSAGE_ID x is invalid"),
        (("sql", "SELECT nope FROM messages"), "QUERY 'SELECT nope FROM messages' is invalid. Schema error"),
        (("sql", "DROP TABLE messages"), "QUERY 'DROP TABLE messages' is invalid. Must be one that reads"),
        (
            ("sql", "SELECT 1", "--version", "99"),
            "--version 99 is invalid. The visibility table has",
        ),
        (
            ("sql", "SELECT 1", "--timestamp", "noon"),
            "--timestamp 'noon' is invalid. Must be an instant with",
        ),
        (("sql", "SELECT 1", "--timestamp", "2999-01-01T00:00:00Z"), "is invalid. Is later than now"),
        (("send", "work", "-m", ""), "line 1 was refused: MissingParameter"),
        (("send", "work", "-m", "a", "--delay", "-1"), "--delay -1 is invalid"),
        (("send", "work", "-m", "a", "--attempt-id", ""), "--attempt-id"),
        (("queues", "create", "a b"), "QUEUE a b is invalid"),
        (("queues", "set", "work", "-a", "FifoQueue=true"), "It is given when a queue is made, and cannot be changed."),
        (("queues", "list", "--settings", "nowhere.toml"), "--settings 'nowhere.toml' is invalid"),
    ],
)
def test_what_was_typed_wrong_is_named_as_it_was_typed(cli, arguments, said):
    ran = cli(*arguments)
    assert ran.code and said in ran.err
    assert not PYTHON.search(ran.err), ran.err


def test_a_missing_group_is_asked_for_by_its_option(cli, ledger):
    ledger.create_queue("events.fifo", {"FifoQueue": True})
    ran = cli("send", "events.fifo", "-m", "a")
    assert ran.code == 2 and "MessageGroupId. (--group)" in ran.err


def test_a_row_is_named_by_one_number(ledger, root, tmp_path):
    """By its line: the entry of a call, and the only line of what is read at once, were numbers beside it."""
    ledger.create_queue("events.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True})
    given = '{"body": "a", "message_group_id": "g"}\n{"body": "b"}\n'
    ran = run("send", "events.fifo", "-", "--format", "json", given=given, root=root)
    assert ran.code == 2 and "Line 2: " in ran.err and "Nothing was sent." in ran.err and "entry" not in ran.err
    ran = run("send", "events.fifo", "-", "--format", "json", given='"a"\n{"body"; 1}\n', root=root)
    assert "line 2 is not JSON: Expecting ':' delimiter: column 8\n" in ran.err


def test_a_server_for_a_ledger_that_is_not_there_names_its_own_option(tmp_path):
    ran = run("serve", str(tmp_path / "nothing"), "--without-signatures", "--port", "0")
    assert ran.code == 1 and "--create makes one here" in ran.err


def test_a_job_that_nobody_knows_is_a_wrong_argument():
    ran = run("submit", "wrok")
    assert ran.code == 2 and "none of the jobs: create_queue" in ran.err


def test_a_server_without_keys_says_which_option_gives_them(tmp_path):
    ran = run("serve", str(tmp_path / "ledger"), "--create")
    assert ran.code == 2 and "ledger: --keys is not given. Requests are signed" in ran.err


def test_submit_says_that_a_queue_is_missing_before_it_starts_a_jvm(root, queue, monkeypatch):
    monkeypatch.setattr("os.execvpe", lambda *_: pytest.fail("a JVM was to be started"))
    for arguments, said in (
        ((root, "nobody"), "There is no queue 'nobody' in this ledger (queues: work)"),
        ((f"{root}-mistyped", "work"), "There is no ledger at"),
    ):
        ran = run("submit", "work", *arguments, "--function", "x:y", "--output", "./out")
        assert ran.code == 1 and said in ran.err


def test_submit_says_what_to_install_where_there_is_no_spark(root, queue, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    ran = run("submit", "show", root)
    assert ran.code == 1 and "package pyspark is missing: pip install 'ledger-queue[spark]'" in ran.err


def test_all_that_the_command_line_knows_of_python_is_said_somewhere():
    """A phrase that no error says any more would be translated for nobody."""
    from ledger.cli.words import _PHRASES
    from tests.sources import CHECKOUT

    sources = "".join(file.read_text() for file in (CHECKOUT / "ledger").rglob("*.py") if file.name != "words.py")
    joined = re.sub(r'"\s*\n\s*f?"', "", sources)
    assert all(python in joined for python, _ in _PHRASES[:-1])
