"""What needs no JVM starts none, and imports are quick: each in a process of its own: this one has imported all."""

import json
import subprocess
import sys

from tests.sources import CHECKOUT, top

USES_A_LEDGER = """
import json, subprocess, sys, time

started = []
class Watched(subprocess.Popen):
    def __init__(self, arguments, *more, **named):
        started.append(str(arguments))
        super().__init__(arguments, *more, **named)
subprocess.Popen = Watched

from ledger import Ledger
queue = Ledger.open(sys.argv[1]).create_queue("q")
queue.send(["a", "b"])
claim = queue.receive(2)
[message.body for message in claim]
with claim.heartbeat():
    claim.extend(60)
claim.settle(delete=[claim.messages()[0].receipt_handle])
claim.release()
Ledger.open(sys.argv[1]).upkeep()
print(json.dumps({"modules": sorted(sys.modules), "started": started}))
"""


def answer_of(code: str, *arguments: str) -> dict:
    run = subprocess.run([sys.executable, "-c", code, *arguments], cwd=CHECKOUT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2_000:]
    return json.loads(run.stdout.splitlines()[-1])


def test_a_ledger_on_delta_rs_imports_no_pyspark_and_starts_no_process(tmp_path):
    answer = answer_of(USES_A_LEDGER, str(tmp_path / "ledger"))
    assert "deltalake" in answer["modules"], "it did use Delta tables"
    assert [name for name in answer["modules"] if top(name) in ("pyspark", "py4j", "delta")] == []
    assert answer["started"] == []


def test_importing_the_package_imports_none_of_its_parts_but_its_version_and_no_library():
    new = "sorted(set(sys.modules) - before)"
    imported = answer_of(f"import json, sys; before = set(sys.modules); import ledger; print(json.dumps({new}))")
    assert [name for name in imported if name.startswith("ledger")] == ["ledger", "ledger.version"]
    assert not {top(name) for name in imported} & {"pyspark", "deltalake", "pyarrow", "numpy", "pandas"}


def test_imports_are_quick():
    """Processor time, which a busy machine does not stretch much: the package in itself, and the rules."""
    code = """
import json, time
start = time.process_time(); import ledger; package = time.process_time() - start
import ledger.rules.attributes, ledger.rules.visibility, ledger.rules.receipt_handle, ledger.settings
print(json.dumps({"package": package, "rules": time.process_time() - start}))
"""
    answers = [answer_of(code) for _ in range(3)]
    assert min(answer["package"] for answer in answers) < 0.1
    assert min(answer["rules"] for answer in answers) < 0.3
