"""Settings, and conf/ledger.toml, which is their documentation and must say what the code does."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ledger import Ledger, Settings
from ledger.delta_log.protocol import COMMIT_DAYS, FILE_DAYS
from ledger.errors import InvalidParameterValue
from ledger.rules.location import AZURE, GCS, OBJECT_STORES, S3
from ledger.settings import (
    ALLOWED_WORDS,
    GREATEST_VALUES,
    MAY_BE_0,
    SETTINGS_TABLE,
    SMALLEST_VALUES,
    TEXT_PATTERNS,
    YEAR_SECONDS,
    tomllib,
)
from ledger.store.delta.dataframes import bulk_send

CHECKOUT = Path(__file__).resolve().parents[1]
FILE = CHECKOUT / "conf" / "ledger.toml"
FIELDS = {field.name: field.default for field in dataclasses.fields(Settings)}


@pytest.fixture
def written(tmp_path):
    """Writes a settings file and answers its path."""

    def write(text: str) -> Path:
        path = tmp_path / "mine.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def refusal(path) -> InvalidParameterValue:
    with pytest.raises(InvalidParameterValue) as raised:
        Settings.read(path)
    assert str(path) in str(raised.value), "the message names the file"
    return raised.value


def test_the_file_says_every_default():
    said = {name: value for name, value in FIELDS.items() if value is not None}
    assert tomllib.loads(FILE.read_text()) == {SETTINGS_TABLE: said}
    assert Settings.read(FILE) == Settings()


def test_what_the_file_says_of_the_tables_of_a_new_ledger_is_what_they_say():
    text = re.sub("^# (.*_retention = )", r"\1", FILE.read_text(), flags=re.MULTILINE)
    said = tomllib.loads(text)[SETTINGS_TABLE]
    assert said["log_retention"] == COMMIT_DAYS * 86_400 and said["deleted_file_retention"] == FILE_DAYS * 86_400


@pytest.mark.parametrize("name", FIELDS)
def test_every_setting_stands_in_the_file_once_below_a_comment_with_its_bound(name):
    mark = "# " if FIELDS[name] is None else ""
    stands = re.findall(rf"((?:^#.*\n)+){mark}{name} = ", FILE.read_text(), re.MULTILINE)
    assert len(stands) == 1
    assert len(re.findall(rf"^\W*{name}\s*=", FILE.read_text(), re.MULTILINE)) == 1, "not in a comment either"
    comment = " ".join(line.lstrip("# ") for line in stands[0].splitlines())
    if name in GREATEST_VALUES:
        assert re.search(rf"({SMALLEST_VALUES.get(name, 1):_} to|at most) {GREATEST_VALUES[name]:_}\b", comment), (
            comment
        )
        assert re.search(r"\b(Attempts|Messages|Seconds), ", comment), "it says the unit"
    elif isinstance(FIELDS[name], bool):
        assert "true or false" in comment
    elif name in TEXT_PATTERNS:
        assert TEXT_PATTERNS[name][1].removeprefix("Must be ") in comment
    else:
        assert all(f'"{word}"' in comment for word in ALLOWED_WORDS[name])


def test_the_file_says_of_the_engine_and_of_clocks_which_storages_the_code_means():
    """Both comments stayed behind when S3 became delta-rs's."""
    said = {}
    for name in ("engine", "maximum_clock_skew"):
        (comment,) = re.findall(rf"((?:^#.*\n)+){name} = ", FILE.read_text(), re.MULTILINE)
        said[name] = " ".join(line.lstrip("# ") for line in comment.splitlines())
    (listed,) = re.findall(r"auto takes delta-rs.*?\(local paths, (.*?)\)", said["engine"])
    named = {scheme.rstrip(":") for scheme in listed.split(", ")}
    assert named <= set(OBJECT_STORES)
    assert all(named & set(kind) for kind in (S3, AZURE, GCS)), "each kind by one of its names"
    assert "on an object store where delta-rs commits" in said["maximum_clock_skew"]


def test_every_number_has_a_bound_and_keeps_it():
    numbers = {name for name, default in FIELDS.items() if type(default) in (int, float)}
    assert set(GREATEST_VALUES) == numbers | {name for name, default in FIELDS.items() if default is None}
    for name, most in GREATEST_VALUES.items():
        assert getattr(Settings(**{"log_retention": YEAR_SECONDS, name: most}), name) == most
        least = SMALLEST_VALUES.get(name, 0)
        for beyond in (most + 1, *(() if name in MAY_BE_0 else (least - 1 if least else 0,)), -1):
            with pytest.raises(InvalidParameterValue, match=rf"parameter {name} .*>=? {least} and <= {most}"):
                Settings(**{name: beyond})
    for name, least in SMALLEST_VALUES.items():
        assert getattr(Settings(**{"deleted_file_retention": 3_600, name: least}), name) == least
    for name in MAY_BE_0:
        assert getattr(Settings(**{name: 0}), name) == 0


def test_the_greatest_number_of_attempts_can_be_paused_for(monkeypatch):
    """2.0**1024 is an OverflowError: a bound beyond that would break a verb after so many losses."""
    from ledger.store.delta.commit import transactions

    monkeypatch.setattr(transactions.time, "sleep", lambda seconds: None)
    transactions.pause(GREATEST_VALUES["maximum_attempts"], transactions.FIRST_PAUSE, transactions.LONGEST_PAUSE)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("maximum_attempts", "1.5"),
        ("maximum_attempts", '"60"'),
        ("maximum_attempts", "true"),
        ("maximum_attempts", "[60]"),
        ("poll_interval", "nan"),
        ("poll_interval", "inf"),
        ("poll_interval", '"0.2"'),
        ("single_driver", "1"),
        ("single_driver", '"yes"'),
        ("engine", '"delta"'),
        ("engine", "1"),
        ("engine", "[]"),
        ("account_id", "123456789012"),
        ("account_id", '"12345678901"'),
        ("account_id", '"12345678901x"'),
        ("region", '"US-EAST-1"'),
        ("region", '""'),
        ("keep_deleted_receipts", "2020-01-01"),
    ],
)
def test_a_wrong_value_is_refused_with_field_bound_fix_and_file(written, name, text):
    error = refusal(written(f"[ledger]\n{name} = {text}\n"))
    default = FIELDS[name]
    shown = {bool: f"{default}".lower(), str: f'"{default}"'}.get(
        type(default), f"{default:_}" if name in GREATEST_VALUES else ""
    )
    assert error.field == name and error.bound.startswith("Must be") and f"Its default is {shown}." in error.fix


@pytest.mark.parametrize(
    ("name", "meant"), [("max_attempts", "maximum_attempts"), ("Engine", "engine"), ("colour", None)]
)
def test_an_unknown_setting_is_refused_and_the_known_ones_are_named(written, name, meant):
    error = refusal(written(f"[ledger]\n{name} = 1\n"))
    assert error.field == name and all(known in error.bound for known in FIELDS)
    assert f"Is it {meant}?" in error.fix if meant else "Is it" not in error.fix


@pytest.mark.parametrize("text", ["maximum_attempts = 3", "[leger]\nmaximum_attempts = 3", "[ledger]\n[other]\na = 1"])
def test_what_stands_outside_the_table_is_refused_and_not_passed_over(written, text):
    assert "[ledger]" in refusal(written(text)).fix


def test_what_is_no_settings_file_is_refused(written, tmp_path):
    assert "TOML" in refusal(written("[ledger")).bound
    assert "TOML" in refusal(written("[ledger]\nengine = 'auto'\nengine = 'auto'")).bound
    assert "table" in refusal(written("ledger = 1")).bound
    (tmp_path / "latin").write_bytes(b"[ledger]\nengine = '\xe9'\n")
    assert "TOML" in refusal(tmp_path / "latin").bound
    assert "cannot be read" in refusal(tmp_path / "nowhere.toml").bound
    assert "cannot be read" in refusal(tmp_path).bound


def test_what_a_file_leaves_out_has_its_default(written):
    assert Settings.read(written("")) == Settings.read(written("[ledger]")) == Settings()
    some = Settings.read(written("[ledger]\nmaximum_attempts = 7\npoll_interval = 1\nsingle_driver = true\n"))
    assert some == Settings(maximum_attempts=7, poll_interval=1, single_driver=True)
    assert some.engine == "auto"


def test_a_ledger_works_with_the_settings_it_was_given(written, tmp_path):
    settings = Settings.read(written('[ledger]\nengine = "delta-rs"\nmaximum_attempts = 7\n'))
    ledger = Ledger.open(str(tmp_path / "ledger"), settings=settings)
    assert ledger.settings is settings and ledger.store.settings.maximum_attempts == 7


@pytest.mark.parametrize("by_variable", [False, True])
def test_a_job_takes_a_settings_file_and_refuses_a_wrong_one(written, tmp_path, by_variable):
    def job(text: str) -> subprocess.CompletedProcess:
        script, file = CHECKOUT / "jobs" / "create_queue.py", written(text)
        command = [sys.executable, str(script), str(tmp_path / "ledger"), "q"]
        if not by_variable:
            return subprocess.run([*command, "--settings", str(file)], capture_output=True, text=True)
        known = {**os.environ, "LEDGER_SETTINGS": str(file)}
        return subprocess.run(command, env=known, capture_output=True, text=True)

    wrong = job("[ledger]\nmax_attempts = 7\n")
    assert wrong.returncode == 2 and "Is it maximum_attempts?" in wrong.stderr and "Traceback" not in wrong.stderr
    assert not (tmp_path / "ledger").exists()
    right = job(FILE.read_text())
    assert right.returncode == 0, right.stderr


def test_a_send_of_more_segments_than_have_names_is_refused_and_sends_nothing(spark, tmp_path, monkeypatch):
    """Beyond the bound, 2**18, the names would run into those of other sends. Here it is one a task and one more."""
    tasks = max(1, spark.sparkContext.defaultParallelism)
    monkeypatch.setattr(bulk_send.ids, "ORDINAL_BOUND", tasks + 1)
    queue = Ledger.open(str(tmp_path / "ledger"), spark, settings=Settings(messages_per_segment=1)).create_queue("q")
    frame = spark.range(0, 3, numPartitions=1).selectExpr("string(id) AS body")
    with pytest.raises(InvalidParameterValue, match=f"messages_per_segment .*more than {tasks + 1} segments"):
        queue.send(frame)
    assert queue.counts().stored == 0
    assert queue.send(frame.limit(2)).count == queue.counts().stored == 2
