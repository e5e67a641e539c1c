"""`ledger receive`, `peek`, `extend`, `release`, `delete`, `redrive` and `restore`."""

import json

import pytest


@pytest.fixture
def sent(queue):
    queue.send(
        ["a", {"MessageBody": "b\n☃", "MessageAttributes": {"kind": {"DataType": "Binary", "BinaryValue": b"\0"}}}]
    )
    return queue


def test_received_messages_are_printed_with_handles_that_delete_takes_from_stdin(cli, sent):
    ran = cli("receive", "work", "--max", "10", "--json")
    first, second = ran.documents
    assert (first["body"], second["body"], first["receive_count"], first["status"]) == ("a", "b\n☃", 1, "in flight")
    assert second["message_attributes"] == {"kind": {"data_type": "Binary", "binary_value": "AA=="}}
    done = cli("delete", "work", "-", given=ran.out)
    assert (done.code, done.out) == (0, "deleted 2 messages\n")
    assert sent.counts().deleted == 2


def test_for_people_a_message_is_a_block_without_control_characters(cli, sent):
    out = cli("receive", "work", "--all").out
    assert "body               a\n" in out and "b\\n☃" in out and out.count("receipt handle") == 2
    assert cli("receive", "work").out.startswith("no message of work is visible: 2 in flight, the first until 20")
    assert cli("receive", "work", "--json").out == ""


def test_a_long_body_is_cut_for_people_and_whole_for_programs(cli, queue):
    queue.send("x" * 5_000)
    (message,) = cli("receive", "work", "--json", "--visibility-timeout", "0").documents
    assert len(message["body"]) == 5_000
    assert "5,000 characters" in cli("receive", "work").out


def test_a_whole_claim_is_a_receipt_that_every_verb_takes(cli, sent):
    (claim,) = cli("receive", "work", "--all", "--claim", "--json").documents
    assert claim["count"] == 2 and claim["queue"] == "work"
    receipt = claim["receipt"]
    assert cli("extend", "work", "--receipt", receipt, "--visibility-timeout", "900").out == "extended 2 messages\n"
    assert cli("release", "work", "--receipt", receipt, "--json").documents == [
        {"receipt": receipt, "outcome": "released", "messages": 2, "lost": 0}
    ]
    gone = cli("delete", "work", "--receipt", receipt)
    assert gone.code == 1 and receipt in gone.err
    text = cli("receive", "work", "--all", "--claim").out
    receipt = text.split()[1]
    assert "count     2" in text
    assert cli("delete", "work", "--receipt", receipt).out == "deleted 2 messages\n"
    assert cli("restore", "work", receipt).out == "restored 2 messages of work\n"
    again = cli("restore", "work", receipt)
    assert again.code == 1 and f"nothing of work is deleted under the receipt {receipt} (any more)" in again.err
    assert sent.counts().visible == 2


def test_an_attempt_has_its_claim_again(cli, sent):
    first, again = (cli("receive", "work", "--claim", "--json", "--attempt-id", "a 1").documents for _ in range(2))
    assert first[0]["receipt"] == again[0]["receipt"]


def test_handles_stand_on_the_command_line_or_on_stdin_and_what_fails_is_said(cli, sent):
    first, second = (message.receipt_handle for message in sent.receive(2))
    assert cli("extend", "work", first, "--visibility-timeout", "60").out == "extended 1 message\n"
    ran = cli("release", "work", "-", "nonsense", given=f"{first}\n\n{json.dumps({'receipt_handle': second})}\n")
    assert (ran.code, ran.out) == (3, "released 2 messages\n") and "invalid: nonsense" in ran.err
    ran = cli("delete", "work", first, "nonsense", "--json")
    assert ran.code == 3
    assert [(one["receipt_handle"], one["outcome"]) for one in ran.documents] == [
        (first, "deleted"), ("nonsense", "invalid"),
    ]  # fmt: skip
    assert ran.documents[1]["error_code"] == "ReceiptHandleIsInvalid"


@pytest.mark.parametrize("verb", ["extend", "release", "delete"])
def test_a_line_that_has_no_handle_does_nothing_at_all(cli, sent, verb):
    handle = sent.receive().messages()[0].receipt_handle
    for line in ('{"body": "a"}', "{", '{"receipt_handle": ' + "[" * 100_000):
        ran = cli(verb, "work", "-", given=f"{handle}\n{line}\n")
        assert ran.code == 2 and "Line 2" in ran.err and "Nothing was done" in ran.err
    assert sent.counts().in_flight == 1
    both = cli(verb, "work", handle, "--receipt", "b")
    assert both.code == cli(verb, "work").code == 2


def test_a_message_is_shown_whatever_its_state(cli, sent):
    message = sent.receive().messages()[0]
    (shown,) = cli("peek", "work", message.message_id, "--json").documents
    assert (shown["body"], shown["status"]) == ("a", "in flight") and "receipt_handle" not in shown
    assert "in flight" in cli("peek", "work", message.message_id).out
    assert sent.counts().in_flight == 1
    for nobody in ("nonsense", message.message_id[:-1] + "9"):
        ran = cli("peek", "work", nobody)
        assert ran.code in (1, 2) and ran.err.startswith("ledger: ")


def test_dead_letters_go_back_all_or_by_their_ids(cli, ledger, queue):
    dead = ledger.create_queue("dead")
    queue.set_attributes({"RedrivePolicy": {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1}})
    queue.send(["a", "b", "c"])
    queue.receive(3, 0)
    assert not queue.receive(3) and dead.counts().visible == 3
    one = dead.receive(1, 0).messages()[0].message_id
    assert cli("redrive", "dead", one).out == "moved 1 message out of dead\n"
    again = cli("redrive", "dead", one)
    assert (again.code, again.out) == (3, "moved 0 messages out of dead\n") and "1 message of those named" in again.err
    assert cli("redrive", "dead", "--max", "1", "--to", "work", "--json").documents == [{"queue": "dead", "moved": 1}]
    assert cli("redrive", "dead").out == "moved 1 message out of dead\n"
    assert queue.counts().visible == 3
    assert cli("redrive", "dead", "--to", "nobody").code == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("queues", "create", "x", "-a", "DelaySeconds=1", "-a", "DelaySeconds=2"), 2),
        (("receive", "nobody"), 1),
        (("receive", "work", "-n", "0"), 2),
        (("receive", "work", "--visibility-timeout", "-1"), 2),
        (("receive", "work", "--wait", "x"), 2),
        (("extend", "work", "nonsense", "--visibility-timeout", "99999999"), 2),
        (("queues", "create", "a queue"), 2),
        (("queues", "create", "q", "-a", "Nothing=1"), 2),
        (("queues", "create", "q", "-a", "Nothing"), 2),
        (("queues", "set", "work"), 2),
        (("queues", "set", "work", "-a", "DelaySeconds=x"), 2),
        (("queues", "show", "nobody"), 1),
        (("queues", "delete", "nobody", "--yes"), 1),
        (("receive", "work", "--wait", "inf"), 2),
        (("receive", "work", "--wait", "nan"), 2),
        (("receive", "work", "--max", "3", "--all"), 2),
        (("restore", "work", "nobody"), 2),
        (("restore", "work", "0" * 32), 1),
        (("top", "wrk", "--once"), 1),
        (("top", "wrk"), 1),
        (("history", "--message", "x"), 2),
        (("history", "nobody"), 1),
        (("history", "work", "--message", "x"), 2),
        (("top", "--interval", "0"), 2),
        (("nothing",), 2),
        ((), 2),
    ],
)
def test_nothing_that_is_done_wrong_ends_in_a_traceback(cli, arguments, code):
    ran = cli(*arguments)
    assert ran.code == code and "Traceback" not in ran.err
    assert ran.err or not code


def test_a_root_that_is_nonsense_is_an_error_in_a_line(cli, tmp_path):
    (tmp_path / "file").touch()
    for root in (tmp_path / "file", "hdfs://name/x", "schema:x", "nope://x", "s3a:/x"):
        ran = cli("receive", "work", "--root", root)
        assert ran.code in (1, 2) and ran.err.startswith("ledger: ") and "Traceback" not in ran.err


def test_a_receipt_may_come_on_stdin_and_that_of_nothing_does_nothing(cli, sent):
    found = cli("receive", "work", "--all", "--claim", "--json")
    assert cli("extend", "work", "--receipt", "-", given=found.out).out == "extended 2 messages\n"
    assert (
        cli("delete", "work", "--receipt", "-", given=f"{found.documents[0]['receipt']}\n").out
        == "deleted 2 messages\n"
    )
    nothing = cli("receive", "work", "--claim", "--json")
    ran = cli("delete", "work", "--receipt", "-", given=nothing.out)
    assert (ran.code, ran.out) == (0, "deleted 0 messages\n")
    for given in ("", "a\nb\n", '{"count": 1}\n'):
        ran = cli("delete", "work", "--receipt", "-", given=given)
        assert ran.code == 2 and "Nothing was done" in ran.err


def test_a_stale_handle_is_not_counted_as_deleted(cli, sent):
    """SQS answers it as a success, and nothing is deleted: a script has to see that."""
    (old,) = cli("receive", "work", "--json", "--visibility-timeout", "0").documents
    found = cli("receive", "work", "--all", "--json").documents
    (new,) = (one for one in found if one["message_id"] == old["message_id"])
    ran = cli("delete", "work", old["receipt_handle"])
    assert (ran.code, ran.out) == (3, "deleted 0 messages\n") and ran.err.startswith("stale: ")
    ran = cli("delete", "work", old["receipt_handle"], "--json")
    assert (ran.code, ran.documents[0]["outcome"]) == (3, "stale")
    assert cli("delete", "work", new["receipt_handle"]).code == 0
