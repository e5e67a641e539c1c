"""Processes on one ledger on S3, which share no lock: a success is one commit, nothing is lost or comes twice."""

import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deltalake import DeltaTable

from ledger import Ledger

CHECKOUT = Path(__file__).resolve().parents[2]
WORKERS, SENDS, MESSAGES = 4, 3, 4
#: Makes the ledger, if it is first, and sends, then receives and deletes until nothing is left; says what it did.
WORKER = f"""
import json, sys
from ledger import Ledger

root, name, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
import ledger.store.delta.opening, deltalake, obstore
print("ready", flush=True)
sys.stdin.readline()
queue = Ledger.open(root, storage_options=options).create_queue("jobs", {{"Lanes": 3}})
sent, done, commits = [], [], 0
for send in range({SENDS}):
    bodies = [f"{{name}} {{send}} {{n}}" for n in range({MESSAGES})]
    assert all(queue.send(bodies))
    sent += bodies
while claim := queue.receive(6, visibility_timeout=600):
    done += [message.body for message in claim]
    commits += 2
    assert claim.delete().messages == claim.count
print(json.dumps([sent, done, commits]))
"""


def test_of_many_processes_each_success_is_one_commit_and_each_message_one_processs(s3, place):
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, place, str(number), json.dumps(s3.options)],
            cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for number in range(WORKERS)
    ]  # fmt: skip
    try:
        assert [worker.stdout.readline() for worker in workers] == ["ready\n"] * WORKERS
        for worker in workers:
            worker.stdin.write("\n")
            worker.stdin.flush()
        said = [json.loads(worker.communicate(timeout=120)[0]) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    sent = Counter(body for bodies, _, _ in said for body in bodies)
    assert sum(sent.values()) == len(sent) == WORKERS * SENDS * MESSAGES
    assert Counter(body for _, bodies, _ in said for body in bodies) == sent
    assert Ledger.open(place, storage_options=s3.options, create=False).queue("jobs").counts().stored == 0

    def versions(table):
        return DeltaTable(f"{place}/{table}", storage_options=s3.options).version()

    assert (versions("queues"), versions("tasks")) == (1, 0), "each table was made once"
    assert versions("messages") == WORKERS * SENDS
    assert versions("visibility") == sum(commits for *_, commits in said)


READER = """
import json, sys
from ledger import Ledger

queue = Ledger.open(sys.argv[1], storage_options=json.loads(sys.argv[2]), create=False).queue("jobs")
assert [message.body for message in queue.claim(sys.argv[3])] == ["a", "b"]
"""


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_of_200_processes_that_open_read_and_end_none_is_aborted(s3, place):
    queue = Ledger.open(place, storage_options=s3.options).create_queue("jobs", {"Lanes": 1})
    queue.send(["a", "b"])
    receipt = queue.receive(2, visibility_timeout=3_600).receipt_id

    def code(_):
        asked = [sys.executable, "-c", READER, place, json.dumps(s3.options), receipt]
        return subprocess.run(asked, cwd=CHECKOUT, capture_output=True, timeout=120).returncode

    with ThreadPoolExecutor(4) as threads:
        assert Counter(threads.map(code, range(200))) == {0: 200}
