"""What grows with the load, and what hangs: told by files, rows and commits, and by every process alike."""

import os
import shutil
from pathlib import Path

import pytest

from ledger import Ledger
from ledger.client.settling import apply
from ledger.delta_log.storage import LOG, StoredFile
from ledger.rules.visibility import Verb
from ledger.store.delta.model.tables import TABLES
from ledger.store.delta.verbs import vitals as vital_signs
from ledger.store.delta.verbs.vitals import DAY_SECONDS, HOUR_SECONDS, measure_files
from ledger.store.protocol import RUNS, Action, Postponed

NOW = 1_000_000_000.0


def vitals(ledger):
    return ledger.health().vitals


def written(*files):
    """Files of so many bytes, written so many seconds ago."""
    return [StoredFile(path, size, NOW - ago) for path, size, ago in files]


@pytest.mark.parametrize(
    ("files", "a_day", "measured"),
    [
        ([], 0, HOUR_SECONDS),
        ([("a", 70, 2 * DAY_SECONDS), ("b", 30, DAY_SECONDS - 1)], 30, DAY_SECONDS),
        ([("a", 70, DAY_SECONDS / 2), ("b", 30, 5)], 200, DAY_SECONDS / 2),
        ([("a", 100, 60)], 2_400, HOUR_SECONDS),
        ([("a", 100, -60)], 2_400, HOUR_SECONDS),
    ],
    ids=["nothing", "a day of several", "half a day", "a minute counts as an hour", "a clock behind"],
)
def test_what_is_written_a_day_is_told_by_the_last_day_or_the_age_of_the_ledger(files, a_day, measured):
    disk = measure_files(written(*files), NOW, None)
    assert (disk.written_a_day, disk.measured_seconds, disk.days_left) == (a_day, measured, None)


def test_the_days_that_are_left_are_those_of_the_free_bytes():
    assert measure_files(written(("a", 100, DAY_SECONDS / 2)), NOW, 1_000).days_left == 5
    assert measure_files([], NOW, 1_000).days_left is None


def test_all_files_of_the_tables_count_with_their_logs_and_their_past(open_ledger, root):
    ledger = open_ledger()
    queue = ledger.create_queue("work")
    queue.send(["a", "b"])
    queue.receive(1).delete()
    (Path(root) / "messages" / "orphan.parquet").write_bytes(bytes(5_000))
    there = [file for table in TABLES for file in (Path(root) / table).rglob("*") if file.is_file()]
    logs = [file for file in there if file.parent.name == LOG]
    disk = vitals(ledger).disk
    assert (disk.files, disk.bytes) == (len(there), sum(file.stat().st_size for file in there))
    assert (disk.log_files, disk.log_bytes) == (len(logs), sum(file.stat().st_size for file in logs))
    assert disk.measured_seconds == HOUR_SECONDS and disk.written_a_day == 24 * disk.bytes and disk.free > 0
    for file in there:
        os.utime(file, (0, file.stat().st_mtime - 3 * DAY_SECONDS))
    queue.send(["c"])
    later = vitals(ledger).disk
    assert later.measured_seconds == DAY_SECONDS and later.written_a_day == later.bytes - disk.bytes


def test_the_oldest_claim_is_told_with_its_last_beat_by_a_process_that_saw_neither(open_ledger, clock):
    queue = open_ledger().create_queue("work", {"VisibilityTimeout": 600})
    queue.send([str(number) for number in range(4)])
    assert vitals(open_ledger()).oldest_claim is None
    first = queue.receive(1)
    clock.advance(1)
    second = queue.receive(1)
    clock.advance(99)
    third = queue.receive(1)
    second.extend(600)
    clock.advance(50)
    for claim, age, beat in ((first, 150, 150), (second, 149, 50), (third, 50, 50)):
        known = vitals(open_ledger()).oldest_claim
        assert (known.queue, known.receipt_id, known.age, known.beat_age) == ("work", claim.receipt_id, age, beat)
        claim.delete()
    assert vitals(open_ledger()).oldest_claim is None


@pytest.mark.parametrize("how", Postponed)
def test_what_ran_out_and_what_was_given_back_for_later_is_no_claim(open_ledger, clock, how):
    queue = open_ledger().create_queue("work", {"VisibilityTimeout": 60})
    queue.send(["a", "b"])
    postponed, access = queue.receive(1), queue.access
    runs = postponed.grant.runs.select(RUNS.names)
    apply(access, access.record(), [Action(Verb.CHANGE, postponed.receipt_id, runs, 1_000, True, postponed=how)])
    assert queue.receive(1).count == 1
    clock.advance(59)
    assert vitals(open_ledger()).oldest_claim.age == 59
    clock.advance(1)
    assert vitals(open_ledger()).oldest_claim is None


def test_a_beat_before_the_newest_commits_is_not_known(open_ledger, clock, monkeypatch):
    monkeypatch.setattr(vital_signs, "MOST_COMMITS", 3)
    ledger = open_ledger()
    queue = ledger.create_queue("work", {"VisibilityTimeout": 600})
    queue.send(["a", "b"])
    held = queue.receive(1)
    assert vitals(ledger).oldest_claim.beat_age == 0
    other = queue.receive(1)
    for _ in range(3):
        clock.advance(1)
        other.extend(600)
    known = vitals(ledger)
    assert known.oldest_claim.receipt_id == held.receipt_id and known.oldest_claim.beat_age is None
    again = vitals(open_ledger())
    assert (known.oldest_claim, known.recent) == (again.oldest_claim, again.recent) and known.recent.seconds == 2


def test_commits_by_a_clock_ahead_do_not_make_an_hour_a_second(open_ledger, clock, monkeypatch):
    monkeypatch.setattr(vital_signs, "MOST_COMMITS", 2)
    ledger = open_ledger()
    queue = ledger.create_queue("work")
    queue.send(["a", "b", "c"])
    clock.advance(600)
    queue.receive(1)
    queue.receive(1)
    clock.advance(-600)
    assert vitals(ledger).recent.seconds == 3_600


def test_the_oldest_message_is_told_of_all_queues_whatever_its_state(open_ledger, clock):
    ledger = open_ledger()
    assert vitals(ledger).oldest_message is None
    dead = ledger.create_queue("dead")
    policy = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1}
    first, second = ledger.create_queue("first", {"RedrivePolicy": policy}), ledger.create_queue("second")
    ledger.create_queue("idle")
    first.send(["a"])
    clock.advance(10)
    second.send(["b"])
    claim = second.receive(1)
    oldest = vitals(ledger).oldest_message
    assert (oldest.queue, oldest.age) == ("first", 10)
    first.receive(1).release()
    assert first.receive(1).count == 0
    oldest = vitals(ledger).oldest_message
    assert (oldest.queue, oldest.age) == ("dead", 10), "a dead letter is as old as it was sent"
    dead.purge()
    clock.advance(5)
    oldest = vitals(ledger).oldest_message
    assert (oldest.queue, oldest.age) == ("second", 5)
    claim.delete()
    assert vitals(ledger).oldest_message is None


def test_receipts_of_acknowledged_claims_count_until_upkeep_joins_them(open_ledger, clock):
    ledger = open_ledger(keep_deleted_receipts=60)
    queue = ledger.create_queue("work", {"Lanes": 1})
    queue.send([str(number) for number in range(10)])
    for _ in range(3):
        queue.receive(2).delete()
    queue.receive(2)
    assert vitals(ledger).unjoined_receipts == 3
    clock.advance(61)
    ledger.upkeep()
    assert vitals(ledger).unjoined_receipts == 0


def test_a_commit_says_how_often_it_lost_so_that_every_process_tells_the_conflicts(open_ledger, clock):
    one, other = open_ledger(), open_ledger()
    queue, same = one.create_queue("work", {"Lanes": 1}), other.queue("work")
    queue.send(["a", "b", "c"])
    meets = [lambda: same.receive(1)]
    one.store.transactions.on_step = lambda step: step == "chosen" and meets and meets.pop()()
    assert queue.receive(1).count == 1 and not meets
    one.store.transactions.on_step = lambda step: None
    for ledger in (one, open_ledger()):
        recent = vitals(ledger).recent
        assert (recent.conflicts, recent.commits, recent.seconds) == (1, 3, 3_600)
        assert recent.conflicts_a_minute == 1 / 60 and recent.merges == {"direct": 2, "statement": 0}
    assert one.store.transactions.tally.conflicts() == {"receive": 1}
    said = [commit.metadata.get("losses") for commit in one.store.engine.history("visibility", 0)]
    assert said == [None, 1], "a commit that lost to nobody says nothing"
    clock.advance(3_601)
    assert vitals(one).recent.conflicts == 0


def test_a_ledger_that_is_replaced_is_measured_anew(open_ledger, root, tmp_path):
    ledger = open_ledger()
    queue = ledger.create_queue("work")
    ledger.backup(str(tmp_path / "backup"))
    for body in "abc":
        queue.send([body])
    assert vitals(ledger).recent.commits == 3
    Ledger.restore_backup(str(tmp_path / "backup"), root, replace=True)
    queue.counts()
    known = vitals(ledger)
    assert known.recent == vitals(open_ledger()).recent and known.oldest_message is None


def test_nothing_is_written_by_a_measurement(open_ledger, root, tmp_path):
    queue = open_ledger().create_queue("work")
    queue.send(["a"])
    shutil.copytree(root, tmp_path / "before")
    assert Ledger.open(root, read_only=True).health().vitals
    before = {file.relative_to(tmp_path / "before"): file.read_bytes() for file in (tmp_path / "before").rglob("*.*")}
    assert before == {file.relative_to(root): file.read_bytes() for file in Path(root).rglob("*.*")}


def test_commits_of_upkeep_itself_wait_for_no_upkeep(open_ledger, clock):
    ledger = open_ledger(keep_deleted_receipts=60)
    queue = ledger.create_queue("work", {"Lanes": 1})
    queue.send([str(number) for number in range(4)])
    assert ledger.health().oldest_without_upkeep is None, "no claim was made"
    queue.receive(2).delete()
    assert ledger.health().oldest_without_upkeep >= 0
    clock.advance(61)
    ledger.upkeep()
    verbs = [one.metadata.get("verb") for one in ledger.store.engine.history("visibility", 0)]
    assert verbs[:2] == ["receive", "delete"] and set(verbs[2:]) == {"upkeep"}, "behind what was filled are its own"
    assert ledger.health().oldest_without_upkeep is None
    queue.receive(1)
    assert ledger.health().oldest_without_upkeep >= 0
