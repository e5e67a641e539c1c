"""conf/ledger-alerts.yml: its rules are about metrics that there are, fire when they should, and are in the runbook.

`alert_rules.test.yml` has the series that each rule fires on. Prometheus's own promtool runs it, where it is installed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import urllib.error
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
ALERTS, CASES = CHECKOUT / "conf" / "ledger-alerts.yml", CHECKOUT / "tests" / "endpoint" / "alert_rules.test.yml"
PROMTOOL = shutil.which("promtool")
#: What Go builds promtool from.
MODULE = "github.com/prometheus/prometheus/cmd/promtool@v0.316.0"
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (CONTRIBUTING.md says how)")
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


def test_each_rule_has_series_that_it_fires_on_and_series_that_it_does_not_fire_on():
    cases = [case for group in yaml.safe_load(CASES.read_text())["tests"] for case in group["alert_rule_test"]]
    fires, rests = ({c["alertname"] for c in cases if bool(c["exp_alerts"]) is does} for does in (True, False))
    assert fires == rests == {rule["alert"] for rule in RULES}


def promtool(program, *arguments, given=None):
    """Run promtool, and return what it said. It ends with 1 for an error, and with 3 for advice about a metric."""
    ran = subprocess.run([program, *map(str, arguments)], input=given, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


@needs_promtool
def test_promtool_finds_no_fault_in_the_rules_and_each_fires_when_it_should():
    assert f"{len(RULES)} rules found" in promtool(PROMTOOL, "check", "rules", ALERTS)
    assert "SUCCESS" in promtool(PROMTOOL, "test", "rules", CASES)


@needs_promtool
def test_promtool_sees_a_rule_that_does_not_fire(tmp_path):
    """The proof that the test above can fail."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "tests" / "endpoint").mkdir(parents=True)
    (tmp_path / "conf" / ALERTS.name).write_text(ALERTS.read_text().replace("< 1e9", "< 1e8"))
    cases = shutil.copy(CASES, tmp_path / "tests" / "endpoint")
    with pytest.raises(AssertionError, match="LedgerDiskFull"):
        promtool(PROMTOOL, "test", "rules", cases)


def busy(watched):
    """Both texts of metrics, after requests of each kind: of `ledger serve`, and of `ledger top --prometheus`."""
    queue = watched.ledger.create_queue("watched")
    queue.send(["a", "b"])
    queue.receive(1)
    for action in ("ListQueues", "ReceiveMessage&QueueUrl=none"):
        request = urllib.request.Request(watched.url, f"Action={action}".encode())
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(request)
    scraped = urllib.request.urlopen(f"{watched.url}/metrics").read().decode()
    return scraped, run("top", "--prometheus", root=watched.root).out


@needs_promtool
def test_promtool_has_nothing_to_say_about_the_metrics(watched):
    for text in busy(watched):
        assert not promtool(PROMTOOL, "check", "metrics", given=text)


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("go") is None, reason="builds promtool, which needs Go")
def test_the_newest_promtool_says_the_same(watched, tmp_path):
    subprocess.run(["go", "install", MODULE], env={**os.environ, "GOBIN": str(tmp_path)}, check=True)
    program = tmp_path / "promtool"
    assert f"{len(RULES)} rules found" in promtool(program, "check", "rules", ALERTS)
    assert "SUCCESS" in promtool(program, "test", "rules", CASES)
    for text in busy(watched):
        assert not promtool(program, "check", "metrics", given=text)


def test_every_metric_of_a_rule_is_one_that_the_endpoint_and_the_command_line_give(watched):
    watched.ledger.create_queue("dead")
    policy = {"deadLetterTargetArn": "dead", "maxReceiveCount": 3}
    queue = watched.ledger.create_queue("watched", {"RedrivePolicy": policy})
    queue.send(["a", "b"])
    queue.receive(1)
    scraped = urllib.request.urlopen(f"{watched.url}/metrics").read().decode()
    told = run("top", "--prometheus", root=watched.root).out
    named = set().union(*(metrics_in(rule["expr"]) for rule in RULES))
    assert named <= described(scraped) and named - OF_A_SERVICE <= described(told)
    for text in (scraped, told):
        assert 'ledger_dead_letters{queue="dead"} 0' in text and 'ledger_dead_letters{queue="watched"}' not in text
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
