"""docs/how-to/operate: the commands of each page run as they stand, on a ledger in use; its links lead somewhere."""

import re
import subprocess
from pathlib import Path

import pytest

from ledger import Ledger
from ledger.endpoint import keys
from ledger.settings import Settings
from tests.cli.running import run, shell
from tests.sources import CHECKOUT

FOLDER = CHECKOUT / "docs" / "how-to" / "operate"
PAGES = sorted(file.name for file in FOLDER.glob("*.md"))
#: Where pages name a place on S3, these tests have a folder.
BUCKET = "s3://bucket/ledger"


def text_of(page):
    return (FOLDER / page).read_text()


def blocks(page, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", text_of(page), re.DOTALL | re.MULTILINE)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a ledger whose queue `work` holds a claim; the claim's receipt."""
    monkeypatch.chdir(tmp_path)
    ledger = Ledger.open("./my-ledger")
    ledger.create_queue("dead")
    queue = ledger.create_queue("work", {"VisibilityTimeout": 600})
    queue.send([f"body {number}" for number in range(4)])
    return queue.receive(1).receipt_id


def run_line(line):
    """Run a line of a page: of the ledger in this process, of others in the shell. Raises where it fails."""
    if " && ledger " in line:
        for part in line.split(" && "):
            run_line(part)
    elif not line.startswith("ledger "):
        subprocess.run(line, shell=True, check=True, capture_output=True)
    elif " > " in line:
        command, _, file = line.partition(" > ")
        Path(file).write_text(shell(command).out)
    elif " < " in line:
        command, _, file = line.partition(" < ")
        shell(f"cat {file} | {command}")
    else:
        shell(line.removesuffix(" || true"))


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run_as_they_stand(page, place, tmp_path, monkeypatch):
    for block in blocks(page, "toml"):
        (tmp_path / block.splitlines()[0].removeprefix("# ")).write_text(block)
    if BUCKET in text_of(page):
        Ledger.open("./on-s3")
    ran = 0
    for block in blocks(page, "sh"):
        for line in block.replace("RECEIPT_ID", place).replace(BUCKET, "./on-s3").splitlines():
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
        assert sorted(message.body for message in moved) == ["body 1", "body 2", "body 3"], "one was in flight"
        assert Ledger.open("./my-ledger").queue("work").counts().visible == 0
    elif page == "hung-workers.md":
        assert Ledger.open("./my-ledger").queue("work").counts().in_flight == 0
    else:
        assert run("doctor", "./my-ledger").code == 0
    if page == "sizing.md":
        assert Ledger.open("./my-ledger").health().log_retention == 43_200, "other processes go by it, too"


@pytest.mark.parametrize("page", PAGES)
def test_the_links_of_a_page_lead_somewhere_and_the_index_names_it(page):
    for link, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", text_of(page)):
        if "://" in link:
            continue
        target = (FOLDER / link).resolve() if link else FOLDER / page
        assert target.exists(), link
        if anchor:
            plain = re.sub(r"```.*?```", "", target.read_text(), flags=re.DOTALL)
            titles = re.findall(r"^##+ (.*)$", plain, re.MULTILINE)
            assert anchor in [re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-") for one in titles], anchor
    assert page == "index.md" or f"]({page})" in text_of("index.md")
    assert "docs/how-to/operate/index.md" in (CHECKOUT / "README.md").read_text()


def test_the_settings_and_keys_of_the_pages_are_read(tmp_path):
    for page, name in (("sizing.md", "small"), ("deletion.md", "soon")):
        (block,) = blocks(page, "toml")
        (tmp_path / name).write_text(block)
        assert Settings.read(str(tmp_path / name)).deleted_file_retention >= 3_600
    (block,) = blocks("keys.md", "toml")
    (tmp_path / "keys").write_text(block)
    known = keys.read(str(tmp_path / "keys"), "123456789012")
    assert set(known.known) == {"worker", "worker_2"}
