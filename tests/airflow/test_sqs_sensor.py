"""Amazon's own SqsSensor, unmodified, on a ledger that is served: only the connection's endpoint URL is ours."""

import json
import threading

import pytest

from ledger import Ledger

pytest.importorskip("airflow.providers.amazon.aws.sensors.sqs", reason="Amazon's provider is not installed")
serving = pytest.importorskip("ledger.endpoint.serving", reason="the extra endpoint is not installed")
KEY, SECRET = "AKIDOFAIRFLOW", "the secret of a connection"


@pytest.fixture
def served(tmp_path):
    """A queue, and its URL at an endpoint."""
    from ledger.endpoint import keys
    from ledger.endpoint.handling import Endpoint
    from ledger.endpoint.signatures import Signatures

    ledger = Ledger.open(str(tmp_path / "ledger"))
    queue = ledger.create_queue("work", {"Limits": "SQS", "Lanes": 1})
    known = keys.Keys({KEY: keys.Key(SECRET, keys.Caller(ledger.settings.account_id))})
    endpoint = Endpoint(ledger, Signatures(known, ledger.settings.region, ledger.clock))
    sock, begun, found = serving.listen("127.0.0.1", 0), threading.Event(), []
    started = lambda server: (found.append(server), begun.set())  # noqa: E731 - both, when it serves
    thread = threading.Thread(target=serving.serve, args=(endpoint, sock), kwargs={"started": started})
    port = sock.getsockname()[1]
    thread.start()
    assert begun.wait(60)
    yield queue, f"http://127.0.0.1:{port}"
    found[0].stop()
    thread.join(60)


class Pushed:
    """What a task instance keeps of what a sensor finds."""

    def __init__(self):
        self.values = {}

    def xcom_push(self, key, value, **_):
        self.values[key] = value


def test_amazons_sensor_finds_what_was_sent_and_deletes_it(served, monkeypatch):
    from airflow.providers.amazon.aws.sensors.sqs import SqsSensor

    queue, url = served
    connection = {
        "conn_type": "aws", "login": KEY, "password": SECRET,
        "extra": {"region_name": "us-east-1", "endpoint_url": url},
    }  # fmt: skip
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(connection))
    sensor = SqsSensor(task_id="s", sqs_queue=f"{url}/123456789012/work", max_messages=5, wait_time_seconds=1)
    pushed = Pushed()
    assert not sensor.poke({"ti": pushed, "task_instance": pushed})
    queue.send(["one", "two"])
    assert sensor.poke({"ti": pushed, "task_instance": pushed})
    assert sorted(message["Body"] for message in pushed.values["messages"]) == ["one", "two"]
    counts = queue.counts()
    assert (counts.stored, counts.in_flight) == (0, 0)
