"""`ledger explain`, and what the doctor says of the path that commits take."""

import pytest
from deltalake import DeltaTable, Field, TableFeatures

from ledger import Ledger
from tests.cli.running import run


@pytest.fixture
def by_statement(tmp_path):
    """A settings file that asks for statements."""
    file = tmp_path / "statement.toml"
    file.write_text('[ledger]\nmerge = "statement"\n')
    return str(file)


def test_it_shows_a_statement_and_its_rows_and_changes_nothing(cli, queue):
    queue.send(["a", "b", "c"])
    shown = cli("explain", "receive", "work", "--max", "2")
    assert shown.code == 0 and "MERGE INTO delta.`" in shown.out and "\nsource:\noperation " in shown.out
    (document,) = cli("explain", "receive", "work", "-n", "2", "--json").documents
    assert document["table"] == "visibility" and document["engine"] == "delta-rs" and document["why_statement"] == ""
    assert [row["operation"] for row in document["rows"]] == ["insert", "insert"]
    assert queue.counts().visible == 3


def test_each_verb_is_about_handles_or_a_claim(cli, queue):
    queue.send(["a", "b"])
    claim, single = queue.receive(1), queue.receive(1)
    (message,) = single.messages()
    for verb in ("extend", "release", "delete"):
        for about in ((message.receipt_handle,), ("--receipt", claim.receipt_id)):
            shown = cli("explain", verb, "work", *about).out
            assert shown.startswith(f"{verb}: one commit to visibility") and "MERGE INTO" in shown
            assert "\nexpected_revision: the revision that the row must still have" in shown
        assert cli("explain", verb, "work").code == 2
    assert "MERGE INTO" in cli("explain", "purge", "work").out and queue.counts().in_flight == 2


def test_a_send_a_restore_and_a_redrive_are_shown_and_change_nothing(cli, ledger, queue):
    before = queue.counts()
    (document,) = cli("explain", "send", "work", "order 7", "order 8", "--json").documents
    assert document["table"] == "messages" and [row["body"] for row in document["rows"]] == ["order 7", "order 8"]
    assert queue.counts().visible == before.visible == 0
    queue.send(["a", "b"])
    claim = queue.receive(2)
    claim.delete()
    shown = cli("explain", "restore", "work", "--receipt", claim.receipt_id).out
    assert shown.startswith("restore: one commit to visibility") and queue.counts().deleted == 2
    queue.send("late")
    ledger.create_queue("others")
    assert cli("explain", "redrive", "work", "--to", "others").out.startswith("redrive: one commit to ")
    assert queue.counts().visible == 1
    for wrong in (("send", "work"), ("restore", "work"), ("purge", "work", "x")):
        assert cli("explain", *wrong).code == 2


def test_a_settings_file_asks_for_statements_and_the_doctor_says_so(root, queue, by_statement):
    queue.send("a")
    assert run("receive", "work", "--settings", by_statement, root=root).code == 0
    assert "runs it (setting: " in run("explain", "purge", "work", "--settings", by_statement, root=root).out
    (said,) = run("doctor", root, "--json").documents
    assert said["ledger"]["vitals"]["recent"]["merges"] == {"direct": 0, "statement": 1}
    (found,) = [one for one in said["findings"] if one["subject"] == "commits"]
    assert (
        found["outcome"] == "OK"
        and "directly; of the newest MERGEs into visibility 0 were direct, 1 by" in found["found"]
    )
    (said,) = run("doctor", root, "--json", "--settings", by_statement).documents
    (found,) = [one for one in said["findings"] if one["subject"] == "commits"]
    assert found["outcome"] == "OK" and "(setting: the user asks for statements)" in found["found"]


def test_the_doctor_fails_for_a_table_that_no_verb_can_use(root, queue):
    queue.send("a")
    switched_on = TableFeatures.DeletionVectors
    DeltaTable(f"{root}/visibility").alter.add_feature(switched_on, allow_protocol_versions_increase=True)
    result = run("doctor", root, "--json")
    (said,) = result.documents
    (found,) = [one for one in said["findings"] if one["subject"] == "altered"]
    assert result.code == 1 and not said["healthy"] and found["outcome"] == "FAIL"
    assert "somebody gave the table visibility deletionVectors" in found["found"]
    assert f"ALTER TABLE delta.`{root}/visibility` DROP FEATURE deletionVectors" in found["advice"]
    assert run("receive", "work", root=root).code == 1


def test_the_doctor_warns_of_a_table_whose_commits_take_statements(root, queue):
    queue.send("a")
    DeltaTable(f"{root}/visibility").alter.add_columns([Field("note", "string")])
    Ledger.open(root).queue("work").receive()
    (said,) = run("doctor", root, "--json").documents
    (found,) = [one for one in said["findings"] if one["subject"] == "commits"]
    assert found["outcome"] == "WARN" and "(visibility: altered: the column note)" in found["found"]
    assert "0 were direct, 1 by statements" in found["found"] and found["advice"]
