"""docs/how-to/operate/moving-to-s3.md: a bucket that keeps versions gives a past state of a ledger back."""

import json
import re
import subprocess
import sys
import time
from datetime import datetime, timezone

import boto3
import pytest

from ledger import Ledger
from ledger.cli import main
from tests.sources import CHECKOUT

PAGE = (CHECKOUT / "docs" / "how-to" / "operate" / "moving-to-s3.md").read_text()
SECOND = 1.1


@pytest.fixture
def bucket(s3, monkeypatch):
    """A bucket that keeps versions, as step 3 of the page has it; the commands find it by the environment."""
    for name, value in s3.options.items():
        monkeypatch.setenv(name.upper(), value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
    client, name = boto3.client("s3", region_name="us-east-1"), "kept"
    client.create_bucket(Bucket=name)
    client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    rules = json.loads((CHECKOUT / "conf" / "s3-lifecycle.json").read_text().replace("FOLDER", "ledger"))
    client.put_bucket_lifecycle_configuration(Bucket=name, LifecycleConfiguration=rules)
    (rule,) = client.get_bucket_lifecycle_configuration(Bucket=name)["Rules"]
    assert rule["NoncurrentVersionExpiration"] == {"NoncurrentDays": 14} and "keeps\nthem for 14 days" in PAGE
    return name


def test_a_past_state_of_a_ledger_comes_back_from_the_versions_of_its_bucket(bucket, tmp_path):
    queue = Ledger.open(f"s3://{bucket}/ledger").create_queue("work")
    queue.send(["done", "held", "waits"])
    queue.receive(1).delete()
    held = queue.receive(1)
    time.sleep(SECOND)
    instant = datetime.now(timezone.utc).replace(microsecond=0).isoformat()
    time.sleep(SECOND)
    held.delete()
    queue.send("later")
    queue.receive(2).delete()
    assert main(["destroy", f"s3://{bucket}/ledger", "--yes"]) == 0

    (program,) = re.findall(r"^```python\n(# restore_s3\.py\n.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "restore_s3.py").write_text(program)
    command = [sys.executable, "restore_s3.py", bucket, "ledger", "restored", instant]
    ran = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert re.fullmatch(r"copied \d+ files, as of .*\n", ran.stdout)
    assert main(["doctor", f"s3://{bucket}/restored", "--deep"]) == 0
    restored = Ledger.open(f"s3://{bucket}/restored").queue("work")
    counts = restored.counts()
    assert (counts.visible, counts.in_flight, counts.deleted) == (1, 1, 1)
    assert [message.body for message in restored.receive(None)] == ["waits"]
    release = ["release", "work", "--receipt", held.receipt_id, "--root", f"s3://{bucket}/restored"]
    assert main(release) == 0, "a receipt of that time still holds"
    assert [message.body for message in restored.receive(None)] == ["held"]

    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 1 and "restored is not empty" in again.stderr
