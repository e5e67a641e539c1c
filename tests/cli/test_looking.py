"""`ledger history`, `top`, `doctor` and `upkeep`: what one looks at."""

import json
import shutil

import pytest

from ledger import Ledger
from ledger.cli.look import Rates
from tests.cli.running import run
from tests.clock import FrozenClock


def test_history_says_who_was_granted_what_and_what_became_of_it_before_and_after_upkeep(cli, ledger, queue):
    queue.send(["a", "b"])
    claim = queue.receive(2)
    claim.extend(700)
    claim.delete()
    for _ in range(2):
        events = cli("history", "work", "--json").documents
        assert [(one["event"], one["messages"]) for one in events] == [("granted", 2), ("extended", 2), ("deleted", 2)]
        assert {one["receipt_id"] for one in events} == {claim.receipt_id}
        assert {one["queue"] for one in events} == {"work"} and all(one["owner"] for one in events)
        assert cli("upkeep").code == 0
        assert not cli("history", "work").err
    ran = cli("history", "--last", "1")
    assert ran.out.splitlines()[-1].split()[2:5] == ["work", "deleted", "2"]
    assert "the last 1 of 3 events" in ran.err and "--last shows more" in ran.err


def test_history_follows_a_receipt_or_the_receipts_of_a_message(cli, ledger, queue):
    ids = queue.send(["a", "b"])
    first, second = queue.receive(), queue.receive()
    (event,) = cli("history", "--receipt", second.receipt_id, "--json").documents
    assert event["receipt_id"] == second.receipt_id
    (event,) = cli("history", "work", "--message", ids[0], "--json").documents
    assert event["receipt_id"] in (first.receipt_id, second.receipt_id)
    never = queue.send("c")[0]
    ran = cli("history", "work", "--message", never)
    assert ran.code == 1 and "never received" in ran.err
    ran = cli("history", "--receipt", "nobody")
    assert ran.code == 1 and "nothing is known of a receipt nobody" in ran.err


def test_the_history_of_a_message_has_every_receipt_that_it_had_and_no_others(cli, ledger, queue):
    one, other = queue.send(["a", "b"])
    first = queue.receive(2)
    first.release()
    second = queue.receive(2)
    handles = {message.message_id: message.receipt_handle for message in second}
    queue.settle(release=[handles[one]])
    third = queue.receive(1)
    events = cli("history", "work", "--message", one, "--json").documents
    seen = [(event["event"], event["receipt_id"]) for event in events]
    assert [name for name, _ in seen] == ["granted", "released", "granted", "released", "granted"]
    assert [receipt for name, receipt in seen if name == "granted"] == [
        claim.receipt_id for claim in (first, second, third)
    ]
    of_other = {event["receipt_id"] for event in cli("history", "work", "--message", other, "--json").documents}
    assert of_other == {first.receipt_id, second.receipt_id}
    assert len(cli("history", "work", "--message", one, "-n", "2", "--json").documents) == 2


def test_the_history_of_a_dead_letter_tells_what_it_died_of(cli, ledger, queue):
    dead = ledger.create_queue("dead")
    queue.set_attributes({"RedrivePolicy": {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 2}})
    one, other = queue.send(["a", "b"])
    claims = []
    for reason in ("bad", "worse"):
        claims.append(queue.receive(2))
        claims[-1].release(reason)
    assert not queue.receive(2)
    events = cli("history", "dead", "--message", one, "--json").documents
    assert [(event["queue"], event["event"], event["reason"]) for event in events] == [
        ("work", "granted", None), ("work", "released", "bad"), ("work", "granted", None), ("work", "released", "worse")
    ]  # fmt: skip
    dead.receive(2).release("still bad")
    dead.redrive([one])
    claims.append(queue.receive(1))
    seen = cli("history", "work", "--message", one, "--json").documents
    assert [event["reason"] for event in seen if event["event"] == "released"] == ["bad", "worse", "still bad"]
    assert [event["queue"] for event in seen if event["event"] == "granted"] == ["work", "work", "dead", "work"]
    assert other not in str(seen) and seen[-1]["receipt_id"] == claims[-1].receipt_id


def test_a_message_whose_receipts_a_backup_does_not_have_was_not_never_received(cli, ledger, queue, tmp_path):
    dead = ledger.create_queue("dead")
    queue.set_attributes({"RedrivePolicy": {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1}})
    (one,) = queue.send(["a"])
    queue.receive(1).release()
    assert not queue.receive(1)
    assert cli("backup", tmp_path / "backup").code == 0
    assert run("restore-backup", tmp_path / "backup", tmp_path / "restored").code == 0
    ran = run("history", "dead", "--message", one, root=tmp_path / "restored")
    assert ran.code == 1 and f"no receipt of the message {one} is known" in ran.err
    assert "never received" not in ran.err and "not kept any more" in ran.err


def test_the_history_of_a_restored_message_tells_who_had_it(cli, queue):
    (one,) = queue.send(["a"])
    claim = queue.receive(1)
    claim.delete()
    queue.restore(claim.receipt_id)
    events = cli("history", "work", "--message", one, "--json").documents
    assert [event["event"] for event in events] == ["granted", "deleted", "restored"]
    again = queue.receive(1)
    events = cli("history", "work", "--message", one, "--json").documents
    assert [event["receipt_id"] for event in events] == [claim.receipt_id] * 3 + [again.receipt_id]


def test_top_shows_depth_flight_age_and_verbs_of_each_queue_the_fullest_first(cli, ledger, queue):
    ledger.create_queue("empty")
    queue.send(["a", "b", "c"])
    queue.receive()
    first, second = cli("top", "--json").documents
    assert (first["queue"], first["depth"], first["in_flight"]) == ("work", 2, 1)
    assert first["verbs_per_second"] == round(2 / 60, 2) and second["verbs_per_second"] == 0
    assert cli("top", "--once").out.split()[:2] == ["queue", "depth"]
    for more in ("--once", "--json", "--prometheus"):
        ran = cli("top", "nobody", more)
        assert ran.code == 1 and "no queue's name begins with 'nobody'" in ran.err and not ran.out


def test_rates_count_each_commit_once_however_often_one_looks(root):
    ledger = Ledger.open(root, clock=FrozenClock())
    queue, rates = ledger.create_queue("work"), Rates(ledger)
    assert rates.now().get(queue.id, 0) == 0
    for number in (1, 2, 3):
        queue.send("a")
        assert rates.now()[queue.id] == number / 60
    assert Rates(ledger).now()[queue.id] == 3 / 60


def test_top_is_read_by_prometheus_by_the_names_of_the_endpoint(cli, queue):
    queue.send(["a", "b"])
    lines = cli("top", "--prometheus").out.splitlines()
    assert 'ledger_queue_messages{queue="work",state="visible"} 2' in lines
    assert any(line.startswith('ledger_queue_age_of_oldest_seconds{queue="work"} ') for line in lines)
    assert not any(line.startswith("ledger_dead_letters{") for line in lines)
    assert [line.split()[0] for line in lines if "upkeep" in line and line[0] != "#"] == [
        "ledger_without_upkeep_seconds",
        "ledger_commits_without_upkeep",
        "ledger_upkeep_overdue",
    ]
    assert "ledger_commits_without_upkeep 1" in lines and "ledger_upkeep_overdue 0" in lines
    assert all(line.startswith(("# HELP ", "# TYPE ", "ledger_")) for line in lines)
    assert cli("top", "--prometheus", "--json").code == 2


def test_dead_letters_are_counted_in_the_queues_that_a_policy_names(cli, root):
    ledger = Ledger.open(root)
    ledger.create_queue("dead")
    policy = {"deadLetterTargetArn": "dead", "maxReceiveCount": 1}
    jobs = ledger.create_queue("jobs", {"RedrivePolicy": policy, "VisibilityTimeout": 0})
    jobs.send(["a", "b"])
    assert 'ledger_dead_letters{queue="dead"} 0' in cli("top", "--prometheus").out.splitlines()
    jobs.receive(1)
    jobs.receive(2)
    counted = [line for line in cli("top", "--prometheus").out.splitlines() if line.startswith("ledger_dead_letters{")]
    assert counted == ['ledger_dead_letters{queue="dead"} 1']


def test_upkeep_says_what_it_did(cli, queue):
    queue.send("a")
    queue.receive()
    (did,) = cli("upkeep", "--no-vacuum", "--json").documents
    assert did["receipts_filled"] == 1
    assert "receipts filled" in cli("upkeep").out


def test_upkeep_if_due_runs_a_round_or_says_that_none_is_due(cli, queue):
    queue.send("a")
    queue.receive()
    (did,) = cli("upkeep", "--if-due", "--json").documents
    assert did["ran"] and did["receipts_filled"] == 1 and "ran" not in cli("upkeep", "--json").documents[0]
    ran = cli("upkeep", "--if-due", "--every", "5m")
    assert ran.code == 2 and "leave --if-due out" in ran.err
    ran = cli("upkeep", "--every", "5 minutes")
    assert ran.code == 2 and "Must be a time from 1s to 24h" in ran.err


def test_upkeep_takes_the_ledger_as_its_argument_like_the_other_commands(root, queue):
    queue.send("a")
    queue.receive()
    (did,) = run("upkeep", root, "--if-due", "--json").documents
    assert did["ran"] and did["receipts_filled"] == 1


def test_upkeep_if_due_says_that_no_round_is_due(cli, ledger):
    assert "No round is due" in cli("upkeep", "--if-due").out and "is due" not in cli("upkeep").out
    assert cli("upkeep", "--if-due", "--json").documents == [
        {"ran": False, "reason": "No round is due, or another process runs one."}
    ]


def test_the_doctor_is_a_health_answer_for_programs(root, queue):
    queue.send("a")
    queue.receive()
    ran = run("doctor", root, "--json")
    (said,) = ran.documents
    assert ran.code == 0 and said["healthy"] is True and said["root"] == root
    assert {"ledger", "deltalake", "python"} <= set(said["versions"])
    assert {one["subject"] for one in said["findings"]} >= {"clock", "storage", "tables", "upkeep", "orphan files"}
    tables = said["ledger"]["tables"]
    assert set(tables) == {"queues", "messages", "visibility", "receipts", "tasks"}
    assert tables["messages"]["files"] == 1 and tables["visibility"]["version"] == 1 and said["ledger"]["queues"] == 1
    assert said["ledger"]["oldest_without_upkeep"] >= 0
    assert run("upkeep", root=root).code == 0
    assert run("doctor", "--json", root=root).documents[0]["ledger"]["oldest_without_upkeep"] is None


def test_the_doctor_takes_the_root_from_wherever_it_is_given(root, queue, tmp_path):
    for ran in (
        run("doctor", root, "--json", root=tmp_path / "none"),
        run("doctor", "--root", root, "--json", root=tmp_path / "none"),
        run("--root", str(tmp_path / "none"), "doctor", "--json", "--root", root),
        run("--root", root, "doctor", "--json", root=tmp_path / "none"),
        run("--root", root, "doctor", root, "--json"),
    ):
        assert ran.documents[0]["root"] == root
    assert run("--root", str(tmp_path / "none"), "doctor", root).code == 2
    assert run("doctor", "--json").documents[0]["root"] is None


def test_the_doctor_finds_a_ledger_that_upkeep_forgot(tmp_path, root, queue):
    queue.send("a")
    queue.receive()
    for name in ("00000000000000000001.json",):
        file = tmp_path / "ledger-data" / "visibility" / "_delta_log" / name
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines:
            if "commitInfo" in line:
                line["commitInfo"]["timestamp"] -= 40 * 86_400_000
        file.write_text("\n".join(map(json.dumps, lines)))
    ran = run("doctor", root, "--json")
    (finding,) = (one for one in ran.documents[0]["findings"] if one["subject"] == "upkeep")
    assert ran.code == 1 and finding["outcome"] == "FAIL" and "ledger upkeep" in finding["advice"]


def test_the_doctor_warns_by_load_and_names_the_command(root, queue, monkeypatch):
    monkeypatch.setattr("ledger.rules.upkeep.COMMITS_OVERDUE", 3)
    queue.send("a")
    queue.receive()
    (finding,) = (one for one in run("doctor", root, "--json").documents[0]["findings"] if one["subject"] == "upkeep")
    assert finding["outcome"] == "OK" and finding["found"].startswith("2 commits since the last round")
    queue.send("b")
    ran = run("doctor", root, "--json")
    (finding,) = (one for one in ran.documents[0]["findings"] if one["subject"] == "upkeep")
    assert ran.code == 0 and finding["outcome"] == "WARN" and "overdue: 3 commits" in finding["found"]
    assert "`ledger upkeep --every 5m`" in finding["advice"]
    said = ran.documents[0]["ledger"]
    assert said["commits_without_upkeep"] == 3 and said["upkeep_overdue"].startswith("3 commits")
    assert "ledger_upkeep_overdue 1" in run("top", "--prometheus", root=root).out


def test_the_doctor_fails_for_tables_that_cannot_be_read(tmp_path, root, queue):
    (tmp_path / "ledger-data" / "queues" / "_delta_log" / "00000000000000000000.json").write_text("nonsense")
    ran = run("doctor", root, "--json")
    (finding,) = (one for one in ran.documents[0]["findings"] if one["subject"] == "tables")
    assert ran.code == 1 and finding["outcome"] == "FAIL" and ran.documents[0]["healthy"] is False


@pytest.mark.parametrize("table", ["receipts", "visibility"])
def test_the_doctor_fails_for_a_ledger_that_lacks_a_table(tmp_path, root, queue, table):
    shutil.rmtree(tmp_path / "ledger-data" / table)
    ran = run("doctor", root, "--json")
    (finding,) = (one for one in ran.documents[0]["findings"] if one["subject"] == "tables")
    assert ran.code == 1 and finding["outcome"] == "FAIL" and table in finding["found"]
    assert ran.documents[0]["healthy"] is False


def test_the_doctor_tries_out_a_root_where_no_ledger_is_and_does_not_call_it_healthy(tmp_path):
    """A monitor is told so of a root that is mistyped, or not mounted."""
    (tmp_path / "lake" / "others" / "_delta_log").mkdir(parents=True)
    for root in ("nothing", "lake"):
        ran = run("doctor", str(tmp_path / root), "--json")
        outcomes = {one["subject"]: one["outcome"] for one in ran.documents[0]["findings"]}
        assert ran.code == 1 and ran.documents[0]["healthy"] is False and outcomes["storage"] == "OK"
        assert "FAIL" in (outcomes["ledger"], outcomes.get("tables"))
