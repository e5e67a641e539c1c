"""docs/how-to/operate: the commands of each page run as they stand, on a ledger in use; its links lead somewhere."""

import grp
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from ledger import Ledger
from ledger.endpoint import keys
from ledger.settings import Settings
from ledger.store.delta.model.tables import COMMIT_DAYS, FILE_DAYS
from tests.cli.running import run, shell
from tests.sources import CHECKOUT

FOLDER = CHECKOUT / "docs" / "how-to" / "operate"
#: The page on upkeep has tests of its own: test_upkeep_page.py.
PAGES = sorted(file.name for file in FOLDER.glob("*.md") if file.name != "upkeep.md")
DAY = 86_400
#: Where pages name a place on S3, these tests have a folder.
BUCKET = "s3://bucket/ledger"


def text_of(page):
    return (FOLDER / page).read_text()


def blocks(page, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", text_of(page), re.DOTALL | re.MULTILINE)


#: A worker's function that some messages are bad for, as on the page of dead letters.
MODULE = """
def my_function(message):
    if not message.body.startswith("body"):
        raise KeyError("total")
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with the ledger that the page of first steps makes, whose queue `work` holds a claim; its receipt."""
    monkeypatch.chdir(tmp_path)
    make = [line for line in blocks("first-steps.md", "sh")[0].splitlines() if line.startswith("ledger queues create ")]
    assert [line.split()[3] for line in make] == ["dead", "work"]
    for line in make:
        shell(f"{line} --root ./my-ledger")
    queue = Ledger.open("./my-ledger").queue("work")
    queue.send([f"body {number}" for number in range(4)])
    return queue.receive(1).receipt_id


def make_dead_letters():
    """Have messages fail as often as the queue allows; return the id of one."""
    Path("my_module.py").write_text(MODULE)
    queue = Ledger.open("./my-ledger").queue("work")
    first = queue.send(['{"id": 2}', '{"id": 3}', "four"])[0]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    command = "-m ledger consume work --function my_module:my_function --until once --root ./my-ledger"
    for _ in range(4):
        subprocess.run([sys.executable, *command.split()], check=True, capture_output=True, env=environment)
    assert Ledger.open("./my-ledger").queue("dead").counts().visible == 3
    return first


def run_line(line):
    """Run a line of a page: of the ledger in this process, of others in the shell. Raises where it fails."""
    if " && ledger " in line:
        for part in line.split(" && "):
            run_line(part)
    elif not line.startswith(("ledger ", "echo ")):
        subprocess.run(line, shell=True, check=True, capture_output=True)
    else:
        shell(line.removesuffix(" || true"))


@pytest.fixture
def hung():
    """A process that the page on hung workers ends."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run_as_they_stand(page, place, hung, tmp_path, monkeypatch):
    names = {"RECEIPT_ID": place, " PID": f" {hung.pid}", BUCKET: "./on-s3"}
    names[" GROUP"] = f" {grp.getgrgid(os.getgid()).gr_name}"
    for block in blocks(page, "toml"):
        (tmp_path / block.splitlines()[0].removeprefix("# ")).write_text(block)
    if BUCKET in text_of(page):
        Ledger.open("./on-s3")
    if page == "first-steps.md":
        shutil.rmtree("my-ledger")
    if page == "dead-letters.md":
        names["MESSAGE_ID"] = make_dead_letters()
    ran = 0
    for block in blocks(page, "sh"):
        for name, meant in names.items():
            block = block.replace(name, meant)
        for line in block.splitlines():
            if line.startswith("export "):
                monkeypatch.setenv(*line.removeprefix("export ").split("=", 1))
                continue
            run_line(line)
            ran += 1
    assert ran or page in ("index.md", "keys.md"), "pages without commands are known"
    monkeypatch.delenv("LEDGER_ROOT", raising=False)
    if page == "deletion.md":
        assert not Path("my-ledger").exists()
    elif page == "moving-to-s3.md":
        moved = Ledger.open("./on-s3").queue("work").receive(10)
        assert sorted(message.body for message in moved) == [f"body {number}" for number in range(4)]
        counts = Ledger.open("./my-ledger").queue("work").counts()
        assert (counts.visible, counts.in_flight) == (0, 0)
    elif page == "hung-workers.md":
        assert Ledger.open("./my-ledger").queue("work").counts().in_flight == 0
        assert hung.wait(10) == -9
    else:
        assert run("doctor", "./my-ledger").code == 0
    if page == "dead-letters.md":
        counts = {name: Ledger.open("./my-ledger").queue(name).counts() for name in ("dead", "work")}
        assert (counts["dead"].visible, counts["work"].visible) == (0, 3), "the redrive moved all of them"
    if page == "first-steps.md":
        assert Ledger.open("./my-ledger").queue("work").counts().deleted == 1, "the worker did its message"
    if page == "sizing.md":
        assert Ledger.open("./my-ledger").health().log_retention == 43_200, "other processes go by it, too"


def test_the_index_names_every_page():
    pages = [page for page in (*PAGES, "upkeep.md") if page != "index.md"]
    assert [page for page in pages if f"]({page})" not in text_of("index.md")] == []
    assert "docs/how-to/operate/index.md" in (CHECKOUT / "README.md").read_text()


def test_the_settings_and_keys_of_the_pages_are_read(tmp_path):
    read = []
    for block in blocks("sizing.md", "toml") + blocks("deletion.md", "toml"):
        (tmp_path / "settings").write_text(block)
        read.append(Settings.read(str(tmp_path / "settings")))
    small, soon, back = read
    assert min(small.deleted_file_retention, soon.deleted_file_retention) >= 3_600
    kept = (back.deleted_file_retention, back.log_retention)
    assert kept == (FILE_DAYS * DAY, COMMIT_DAYS * DAY), "what a new table has"
    (block,) = blocks("keys.md", "toml")
    (tmp_path / "keys").write_text(block)
    known = keys.read(str(tmp_path / "keys"), "123456789012")
    assert set(known.known) == {"worker", "worker_2"}
    assert len({key.caller.arn for key in known.known.values()}) == 2, "the access log tells them apart"


def test_what_the_page_on_repair_runs_takes_an_altered_table_back(place):
    (block,) = blocks("repair.md", "python")
    DeltaTable("./my-ledger/messages").alter.set_table_properties({"delta.appendOnly": "true"})
    ran = run("doctor", "./my-ledger", "--json")
    found = {one["subject"]: one for one in ran.documents[0]["findings"]}
    assert (ran.code, found["altered"]["outcome"], found["commits"]["outcome"]) == (1, "FAIL", "WARN")
    assert "upkeep fails when it has messages to drop" in found["altered"]["found"]
    assert Ledger.open("./my-ledger").queue("work").send("goes on")
    assert "table_refused{" not in run("top", "--prometheus", root="./my-ledger").out
    exec(block, {})
    ran = run("doctor", "./my-ledger", "--json")
    assert ran.code == 0
    tables = ran.documents[0]["ledger"]["tables"]
    assert {table["format"] for table in tables.values()} == {"1"}, "upgrade.md has it"


@pytest.mark.parametrize(("code", "kept"), [(0, "new"), (1, None)])
def test_the_line_of_cron_leaves_no_old_metrics(tmp_path, code, kept):
    (line,) = blocks("monitoring.md", "cron")
    command = tmp_path / "ledger"
    command.write_text(f"#!/bin/sh\necho new\nexit {code}\n")
    command.chmod(0o755)
    for name, meant in (("/opt/ledger/bin/ledger", command), ("/var/lib/node_exporter", tmp_path), ("* * * * * ", "")):
        assert name in line
        line = line.replace(name, str(meant))
    metrics = tmp_path / "ledger.prom"
    metrics.write_text("old")
    subprocess.run(line, shell=True, check=True)
    assert (metrics.read_text().strip() if metrics.exists() else None) == kept
