"""conf/ledger-alerts.yml: its rules are about metrics that there are, and the runbook has a line for each."""

from __future__ import annotations

import re
import shutil
import urllib.request

import pytest

from ledger import Ledger
from tests.cli.running import run
from tests.endpoint.conftest import served
from tests.sources import CHECKOUT

yaml = pytest.importorskip("yaml")
RULES = [
    rule for group in yaml.safe_load((CHECKOUT / "conf" / "ledger-alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]  # fmt: skip
PAGE = (CHECKOUT / "docs" / "how-to" / "operate" / "monitoring.md").read_text()
#: Of requests and commits of one process: `ledger top` has none.
OF_A_SERVICE = {"ledger_commit_paths_total"}


@pytest.fixture
def watched(query_models, empty_root, tmp_path):
    """An endpoint with a ledger of its own, by the machine's clock, as `ledger top` has it."""
    root = str(shutil.copytree(empty_root, tmp_path / "ledger"))
    ledger = Ledger.open(root, engine="delta-rs")
    with served(ledger, ledger.clock, query_models) as endpoint:
        endpoint.root = root
        yield endpoint


def metrics_in(text):
    """The metrics that an expression names, outside of its labels and texts."""
    return set(re.findall(r"\bledger_\w+", re.sub(r"\{.*?\}|\".*?\"", "", text)))


def described(text):
    return set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_says_what_it_watches_for_how_long_and_what_it_means(rule):
    assert set(rule) == {"alert", "expr", "for", "labels", "annotations"} and rule["alert"].startswith("Ledger")
    assert metrics_in(rule["expr"]) and rule["labels"]["severity"] in ("critical", "warning")
    assert re.fullmatch(r"\d+[mh]", rule["for"]) and rule["annotations"]["summary"]


def test_every_metric_of_a_rule_is_one_that_the_endpoint_and_the_command_line_give(watched):
    queue = watched.ledger.create_queue("watched")
    queue.send(["a", "b"])
    queue.receive(1)
    scraped = urllib.request.urlopen(f"{watched.url}/metrics").read().decode()
    told = run("top", "--prometheus", root=watched.root).out
    named = set().union(*(metrics_in(rule["expr"]) for rule in RULES))
    assert named <= described(scraped) and named - OF_A_SERVICE <= described(told)
    for text in (scraped, told):
        there = {line.split("{")[0].split()[0] for line in text.splitlines() if line and line[0] != "#"}
        assert named - there <= {"ledger_table_refused", *OF_A_SERVICE}, "all others have a sample"
    assert {"ledger_disk_bytes", "ledger_files", "ledger_recent_merges"} <= described(scraped) & described(told)


def test_the_load_is_measured_once_a_minute_and_not_at_each_scrape(watched):
    def files():
        scraped = urllib.request.urlopen(f"{watched.url}/metrics").read().decode()
        return re.search(r"^ledger_files (\d+)$", scraped, re.MULTILINE)[1]

    before = files()
    watched.ledger.create_queue("another").send(["a"])
    assert files() == before


def test_the_runbook_has_a_line_for_each_rule_and_no_other():
    rows = re.findall(r"^\| (Ledger\w+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    assert [row[0] for row in rows] == [rule["alert"] for rule in RULES]
    assert all("`" in row[2] or "](" in row[2] or "fewer" in row[2] for row in rows), (
        "what to do is a command or a page"
    )


def test_metrics_that_the_page_names_are_there():
    code = "\n".join(file.read_text() for file in (CHECKOUT / "ledger" / "endpoint").glob("*.py"))
    assert all(name in code for name in metrics_in(PAGE))
