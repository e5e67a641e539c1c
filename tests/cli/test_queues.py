"""`ledger queues`."""

import time

import pytest

from tests.cli.running import run


def test_a_queue_is_made_with_the_ledger_around_it_and_shown(root):
    made = run("queues", "create", "work", "-a", "VisibilityTimeout=77", "-t", "team=data", "--json", root=root)
    assert (made.code, made.err.count("made a new ledger")) == (0, 1)
    (known,) = run("queues", "show", "work", "--json", root=root).documents
    assert (known["attributes"]["VisibilityTimeout"], known["tags"]) == ("77", {"team": "data"})
    assert "77" in run("queues", "show", "work", root=root).out
    again = run("queues", "create", "work", "-a", "VisibilityTimeout=77", root=root)
    assert (again.code, again.err) == (0, "")


def test_a_queue_that_exists_with_another_value_says_which_command_changes_it(cli):
    ran = cli("queues", "create", "work", "-a", "VisibilityTimeout=1")
    assert ran.code == 1 and "`ledger queues set work -a VisibilityTimeout=1`" in ran.err
    ran = cli("queues", "create", "work", "-t", "a=b")
    assert ran.code == 1 and "attribute tags" in ran.err and "`ledger queues set work -t KEY=VALUE`" in ran.err
    assert cli("queues", "set", "work", "-a", "VisibilityTimeout=1", "-t", "a=b", "-t", "c=d", "--untag", "a").code == 0
    (known,) = cli("queues", "show", "work", "--json").documents
    assert (known["attributes"]["VisibilityTimeout"], known["tags"]) == ("1", {"c": "d"})


def test_queues_are_listed_with_their_counts_for_people_and_for_programs(cli, ledger, queue):
    queue.send(["a", "b", "c"])
    queue.receive(2)
    ledger.create_queue("other")
    table = cli("queues", "list").out.splitlines()
    assert [line.split()[0] for line in table] == ["queue", "-----", "other", "work"]
    (row,) = cli("queues", "list", "wo", "--json").documents
    assert (row["queue"], row["visible"], row["in_flight"]) == ("work", 1, 2) and row["age_of_oldest"] >= 0
    assert cli("queues", "list", "nobody").out == "no queues\n"


def test_what_destroys_needs_a_yes_where_there_is_no_terminal(cli, ledger, queue):
    queue.send(["a", "b"])
    for what in ("delete", "purge"):
        ran = cli("queues", what, "work", given="y\n")
        assert ran.code == 2 and "2 messages" in ran.err and "--yes" in ran.err
    assert queue.counts().visible == 2
    assert cli("queues", "purge", "work", "--yes").out == "deleted 2 messages of work\n"
    assert cli("queues", "delete", "work", "--yes", "--json").documents == [
        {"queue": "work", "deleted": True, "messages": 0}
    ]
    assert ledger.list_queues() == []


def test_who_deletes_a_dead_letter_queue_is_warned_and_the_doctor_names_it_until_it_is_there_again(cli, ledger, queue):
    dead = ledger.create_queue("dead")
    queue.set_attributes({"RedrivePolicy": {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1}})
    assert not [line for line in cli("doctor").out.splitlines() if "dead letters" in line]
    ran = cli("queues", "delete", "dead", "--yes")
    assert (ran.code, ran.out) == (0, "deleted dead\n")
    assert "dead is the dead-letter queue of work" in ran.err and "set work -a RedrivePolicy=`" in ran.err
    (line,) = [line for line in cli("doctor").out.splitlines() if "dead letters" in line]
    assert line.startswith("WARN") and "1 dead-letter queue does not exist (dead of work)" in line
    assert "`ledger queues create dead`" in line
    assert ledger.health().lost_dead_letter_queues == {"work": "dead"}
    assert cli("queues", "set", "work", "-a", "RedrivePolicy=").code == 0
    assert ledger.health().lost_dead_letter_queues == {}
    assert cli("queues", "delete", "work", "--yes").err == ""


def test_the_root_may_stand_before_the_command_or_behind_it_and_both_come_before_the_environment(root, queue, tmp_path):
    for ran in (
        run("--root", root, "queues", "list", root=tmp_path / "none"),
        run("queues", "list", "-r", root, root=tmp_path / "none"),
        run("--root", str(tmp_path / "none"), "queues", "list", "-r", root),
    ):
        assert ran.code == 0 and "work" in ran.out


def test_settings_are_a_file(cli, tmp_path, root):
    (tmp_path / "settings.toml").write_text('[ledger]\naccount_id = "999999999999"\n')
    (known,) = cli("queues", "show", "work", "--json", "--settings", tmp_path / "settings.toml").documents
    assert known["attributes"]["QueueArn"].endswith(":999999999999:work")
    wrong = cli("queues", "list", "--settings", tmp_path / "none.toml")
    assert wrong.code == 2 and "none.toml" in wrong.err


def test_a_mistyped_root_is_an_error_and_no_new_ledger(tmp_path):
    for arguments in (
        ("queues", "list"),
        ("send", "work", "-m", "a"),
        ("receive", "work"),
        ("upkeep",),
        ("top", "--once"),
    ):
        ran = run(*arguments, root=tmp_path / "ledgr")
        assert ran.code == 1 and "queues create" in ran.err
    assert not (tmp_path / "ledgr").exists()


def test_without_a_root_the_error_says_how_to_name_one(tmp_path):
    ran = run("queues", "list")
    assert ran.code == 2 and "--root" in ran.err and "LEDGER_ROOT" in ran.err


def test_a_purge_by_age_asks_and_takes_only_what_is_old(cli, queue):
    queue.send(["a", "b"])
    assert cli("queues", "purge", "work", "--older-than", "7d").code == 2
    done = cli("queues", "purge", "work", "--older-than", "7d", "--yes")
    assert done.out == "deleted 0 messages of work\n"
    time.sleep(0.01)
    assert cli("queues", "purge", "work", "--older-than", "0s", "--yes", "--json").documents == [
        {"queue": "work", "messages": 2}
    ]


@pytest.mark.parametrize("age", ["week", "7w", "-1d", ""])
def test_a_purge_by_an_age_that_is_none_is_refused(cli, queue, age):
    queue.send("a")
    refused = cli("queues", "purge", "work", f"--older-than={age}", "--yes")
    assert refused.code == 2 and "7d" in refused.err and queue.counts().visible == 1
