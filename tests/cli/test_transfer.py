"""`ledger copy`, `ledger export` and `ledger import`."""

import pytest

from ledger import Ledger


@pytest.fixture
def sent(queue):
    queue.set_attributes({"DelaySeconds": 3})
    queue.tag({"team": "data"})
    queue.send(["a", "b", "c"], delay_seconds=0)
    return queue


def bodies(root, name="work"):
    return sorted(message.body for message in Ledger.open(root).queue(name).receive(None).messages())


def test_a_queue_is_copied_to_another_ledger_and_made_there(cli, sent, tmp_path):
    there = str(tmp_path / "there")
    missing = cli("copy", "work", "--to", there)
    assert missing.code == 1 and "There is no ledger" in missing.err
    Ledger.open(there)
    refused = cli("copy", "work", "--to", there)
    assert refused.code == 1 and "work" in refused.err
    done = cli("copy", "work", "--to", there, "--create")
    assert (done.code, done.out) == (0, f"copied 3 messages of work to work of {there}\n")
    again = cli("copy", "work", "--to", there, "--create")
    assert again.out.startswith("copied 0 messages") and "--attempt-id" in again.out
    (said,) = cli("copy", "work", "--to", there, "--attempt-id", "2", "--json").documents
    assert said == {"queue": "work", "to": there, "to_queue": "work", "messages": 3, "before": 0}
    made = Ledger.open(there).queue("work")
    assert (made.attributes()["DelaySeconds"], made.tags()) == ("3", {"team": "data"})
    assert bodies(there) == ["a", "a", "b", "b", "c", "c"] and sent.counts().visible == 3


def test_a_ledger_is_made_around_the_queue_where_that_is_asked_for(cli, sent, tmp_path):
    there = str(tmp_path / "there")
    assert cli("copy", "work", "--to", there, "--create").out == f"copied 3 messages of work to work of {there}\n"
    assert bodies(there) == ["a", "b", "c"]


def test_a_queue_is_copied_within_its_ledger(cli, sent, root):
    assert cli("copy", "work").code == 2
    assert cli("copy", "work", "--to-queue", "work").code == 2
    assert cli("copy", "work", "--to-queue", "more", "--create").out == f"copied 3 messages of work to more of {root}\n"
    assert bodies(root, "more") == ["a", "b", "c"]


def test_an_export_is_imported_again(cli, sent, root, tmp_path):
    file = str(tmp_path / "work.parquet")
    written = cli("export", "work", file)
    assert (written.code, written.out) == (0, f"wrote 3 messages of work to {file}\n")
    assert cli("export", "work", file).code == 2
    cli("queues", "create", "more")
    assert cli("import", "more", file).out == f"imported 3 messages of {file} to more\n"
    (said,) = cli("import", "more", file, "--json").documents
    assert said == {"queue": "more", "path": file, "messages": 0, "before": 3}
    assert bodies(root, "more") == ["a", "b", "c"]
    assert cli("import", "more", str(tmp_path / "none.parquet")).code == 2


@pytest.mark.parametrize("command", ["export", "import"])
def test_a_stream_is_no_file_of_an_export(cli, sent, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    ran = cli(command, "work", "-")
    assert ran.code == 2 and "name a file" in ran.err and not (tmp_path / "-").exists()


@pytest.mark.parametrize("words", [["backup", "-"], ["restore-backup", "-", "new"], ["restore-backup", "saved", "-"]])
def test_a_stream_is_no_folder_of_a_backup(cli, sent, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    assert cli("backup", "saved").code == 0
    ran = cli(*words)
    assert ran.code == 2 and "must be a folder" in ran.err and not (tmp_path / "-").exists()
    assert cli("backup", "./-").code == 0, "a folder of that name can be named"
