"""What is kept of a ledger's past: for how long, and at what cost; and that all of it can be read."""

import os
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from ledger.delta_log import maintenance
from ledger.delta_log.maintenance import DAY, SPARED, LogFile, find_unneeded_checkpoints, is_due
from ledger.delta_log.storage import LocalFiles, table_files
from ledger.errors import InvalidParameterValue
from ledger.settings import YEAR_SECONDS, Settings
from ledger.store.delta.model.tables import TABLES, Where
from ledger.store.delta.verbs import upkeep
from ledger.store.delta.verbs.upkeep import FILE_RETENTION, LOG_RETENTION, kept
from tests.delta.commit.test_engines import CHANGED, HELD, QUEUE, Decision


def checkpoint(version, at, part=""):
    return LogFile(f"_delta_log/{version:020d}.checkpoint.{part}parquet", at)


def commit(version, at):
    return LogFile(f"_delta_log/{version:020d}.json", at)


def test_of_replaced_checkpoints_one_a_day_stays_and_the_oldest_and_the_two_newest():
    files = [checkpoint(50 * n, n * DAY / 4) for n in range(1, 12)] + [commit(600, 3 * DAY)]
    gone = {int(path.split("/")[1][:20]) // 50 for path in find_unneeded_checkpoints(files)}
    assert gone == {2, 4, 5, 6, 8, 9}, "3, 7 and 11 are the last of their day, 1 is the oldest, 10 and 11 the newest"


def test_a_checkpoint_that_somebody_may_be_about_to_read_stays():
    latest = 10 * DAY + 5_000
    files = [checkpoint(50 * n, latest - 5_000 + n) for n in range(1, 9)] + [commit(600, latest)]
    assert len(find_unneeded_checkpoints(files)) == 5
    assert find_unneeded_checkpoints([*files, checkpoint(700, latest - 5_000 + SPARED)]) != []
    assert find_unneeded_checkpoints([one._replace(at=latest - SPARED) for one in files]) == []


def test_a_checkpoint_of_several_files_goes_or_stays_as_a_whole():
    parts = ("0000000001.0000000002.", "0000000002.0000000002.")
    files = [checkpoint(n, n, part) for n in (1, 2, 3, 4) for part in parts] + [commit(9, DAY - 1)]
    assert find_unneeded_checkpoints(files) == [checkpoint(2, 2, part).path for part in parts]


def test_what_is_no_checkpoint_stays():
    others = ["_last_checkpoint", "_commit_1.json.tmp", f"{1:020d}.json", f"{1:020d}.crc"]
    assert (
        find_unneeded_checkpoints([LogFile(f"_delta_log/{name}", 0.0) for name in others] + [commit(9, 90 * DAY)]) == []
    )


@pytest.mark.parametrize(
    ("last", "version", "due"),
    [
        (None, 50, True),
        ("{", 50, True),
        ("{}", 50, True),
        ('{"version": 50, "size": 100}', 100, True),
        ('{"version": 50, "size": 5000}', 100, False),
        ('{"version": 50, "size": 5000}', 150, True),
        ('{"version": 50, "size": 100000000}', 2_000, False),
        ('{"version": 50, "size": 100000000}', 2_050, True),
    ],
)
def test_a_checkpoint_is_due_after_as_many_commits_as_pay_for_its_lines(tmp_path, last, version, due):
    (tmp_path / "_delta_log").mkdir()
    if last is not None:
        (tmp_path / "_delta_log" / "_last_checkpoint").write_text(last)
    assert is_due(table_files(str(tmp_path), None), version) is due


def test_with_many_dead_files_there_are_few_checkpoints(engine_of, root, monkeypatch):
    """And however many there are, the table is what it is."""
    monkeypatch.setattr(maintenance, "LINES_A_COMMIT", 1)
    engine = engine_of("delta-rs")
    for last in range(260):
        Decision(engine, CHANGED if last % 2 else HELD, last=last).commit()
    log = Path(root, "visibility", "_delta_log")
    found = sorted(int(path.name[:20]) for path in log.glob("*.checkpoint.parquet"))
    assert found == [50, 150], "that of 150 has 150 dead files: the next one is worth it at 300"
    assert engine_of("delta-rs").load("visibility", Where(QUEUE.id)).rows["last_seq"].to_pylist()[-1] == 259


def test_every_version_can_be_read_after_an_upkeep(open_ledger, root):
    ledger = open_ledger("delta-rs")
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    queue.send(["a"])
    claim = queue.receive(1)
    for timeout in range(100, 320):
        claim.extend(timeout)
    table, log = f"{root}/visibility", Path(root, "visibility", "_delta_log")
    yesterday = (time.time() // DAY - 1) * DAY
    for number, path in enumerate(sorted(log.iterdir())):
        os.utime(path, (yesterday + number, yesterday + number))
    before = len(list(log.glob("*.checkpoint.parquet")))
    (log / f"{DeltaTable(table).version():020d}.json").touch()
    ledger.upkeep()
    left = sorted(int(path.name[:20]) for path in log.glob("*.checkpoint.parquet"))
    assert (before, len(left)) == (4, 3)
    newest = DeltaTable(table).version()
    for version in range(1, newest + 1):
        assert DeltaTable(table, version).version() == version


def properties(ledger, table):
    known = ledger.store.engine.layout(table).properties
    return known["delta.logRetentionDuration"], known["delta.deletedFileRetentionDuration"]


@pytest.mark.parametrize("engine", ["delta-rs", pytest.param("spark", marks=pytest.mark.soak)])
def test_an_upkeep_sets_what_its_settings_say_and_once(open_ledger, engine):
    ledger = open_ledger(engine, log_retention=86_400, deleted_file_retention=7_200)
    assert properties(ledger, "visibility") == ("interval 30 days", "interval 7 days")
    ledger.upkeep()
    assert {properties(ledger, table) for table in TABLES} == {("interval 86400 seconds", "interval 7200 seconds")}
    ledger.upkeep()
    # To `tasks` upkeep also commits that a round was done: of two rounds where Spark's VACUUM has committed.
    others = [table for table in TABLES if table != "tasks"]
    commits = [commit for table in others for commit in ledger.store.engine.history(table, -1)]
    assert sum(commit.metadata.get("verb") == "upkeep" for commit in commits) == len(others)


@pytest.mark.parametrize("engine", ["delta-rs", pytest.param("spark", marks=pytest.mark.soak)])
def test_an_upkeep_whose_settings_do_not_say_it_keeps_what_those_of_another_said(open_ledger, engine):
    """It removed for good, with the defaults, what others meant to keep for a year."""
    ledger = open_ledger(engine, log_retention=YEAR_SECONDS, deleted_file_retention=YEAR_SECONDS)
    ledger.upkeep()
    open_ledger(engine).upkeep()
    year = (f"interval {YEAR_SECONDS} seconds",) * 2
    assert {properties(ledger, table) for table in TABLES} == {year}
    assert ledger.health().log_retention == YEAR_SECONDS
    open_ledger(engine, deleted_file_retention=7_200).upkeep()
    assert {properties(ledger, table) for table in TABLES} == {(year[0], "interval 7200 seconds")}


def test_what_a_table_has_from_before_and_settings_that_go_with_nothing_of_it_change_nothing(open_ledger):
    ledger = open_ledger("delta-rs", log_retention=86_400)
    ledger.create_queue("jobs").send("x")
    before = ledger.store.engine.version("visibility"), ledger.store.engine.version("receipts")
    with pytest.raises(InvalidParameterValue, match=r"deleted_file_retention.*log_retention, which is 86400.*set both"):
        ledger.upkeep()
    with pytest.raises(InvalidParameterValue, match="log_retention, which is 2592000"):
        open_ledger("delta-rs", deleted_file_retention=YEAR_SECONDS).upkeep()
    assert (ledger.store.engine.version("visibility"), ledger.store.engine.version("receipts")) == before


def test_intervals_that_are_not_understood_count_as_deltas_own(open_ledger):
    ledger = open_ledger("delta-rs")
    day = 86_400
    assert kept(ledger.store.engine, "visibility") == (30 * day, 7 * day)
    odd = {LOG_RETENTION: "interval 2 weeks", FILE_RETENTION: "a while"}
    ledger.store.engine.configure("visibility", odd, {})
    assert kept(ledger.store.engine, "visibility") == (14 * day, 7 * day)


@pytest.mark.parametrize("name", ["deletion_interval", "deleted_file_retention"])
def test_what_the_log_does_not_reach_back_to_is_no_setting(name):
    with pytest.raises(InvalidParameterValue, match="log_retention"):
        Settings(**{name: 86_401}, **{"log_retention": 86_400})


def test_a_log_is_listed_with_the_time_of_each_file(engine_of, root):
    engine_of("delta-rs")
    files = {one.path: one.at for one in LocalFiles.log_files(table_files(f"{root}/visibility", None))}
    path = Path(root, "visibility", "_delta_log", f"{0:020d}.json")
    assert files[f"_delta_log/{path.name}"] == path.stat().st_mtime


def test_no_commit_is_cleaned_away_before_its_receipts_are_filled(open_ledger, root, monkeypatch):
    """An upkeep stands still for longer than log_retention, between its first fill and what it cleans."""
    ledger, other = open_ledger(log_retention=3_600, deleted_file_retention=3_600), open_ledger().create_queue("jobs")
    other.send(["x"] * 60)
    ledger.upkeep()
    remove, log = upkeep.remove_abandoned, Path(root, "visibility", "_delta_log")

    def stand_still(*arguments):
        for _ in range(60):
            other.receive(1)
        for file in log.iterdir():
            os.utime(file, (time.time() - 7_200,) * 2)
        return remove(*arguments)

    monkeypatch.setattr(upkeep, "remove_abandoned", stand_still)
    ledger.upkeep()
    assert len(list(log.glob("*.json"))) < 60, "old commits are gone"
    granted = DeltaTable(f"{root}/receipts").to_pyarrow_table(filters=[("event", "=", "granted")])
    assert granted.num_rows == 60
