"""What others wrote, unmodified: the AWS CLI, kombu's transport, a Celery worker. Only the endpoint's URL is ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from kombu import Connection

from tests.endpoint.conftest import KEY, REGION, SECRET

AWS = Path(sys.executable).with_name("aws")
CREDENTIALS = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": REGION}
OPTIONS = {"is_secure": False, "region": REGION, "wait_time_seconds": 1, "polling_interval": 0.05}


@pytest.fixture
def aws(endpoint, monkeypatch, capsys):
    """The AWS CLI, run in this process: what it prints."""
    from awscli.clidriver import create_clidriver

    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    driver = create_clidriver()

    def run(*arguments):
        capsys.readouterr()
        command = ["sqs", *arguments, "--endpoint-url", endpoint.url, "--output", "json"]
        code = driver.main(command)
        said = capsys.readouterr()
        assert code == 0, said.err
        return json.loads(said.out) if said.out.strip() else None

    return run


def test_the_aws_cli_is_a_program_that_works_by_changing_the_endpoint_url(endpoint, tmp_path):
    environment = {**os.environ, **CREDENTIALS, "HOME": str(tmp_path)}

    def run(*arguments):
        command = [AWS, "--endpoint-url", endpoint.url, "sqs", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout, done.stderr

    code, said, _ = run("create-queue", "--queue-name", "of-the-program")
    assert code == 0 and json.loads(said)["QueueUrl"] == f"{endpoint.url}/123456789012/of-the-program"
    code, _, said = run("get-queue-url", "--queue-name", "nowhere")
    assert code != 0 and "The specified queue does not exist" in said


def test_the_aws_cli_plays_the_examples_of_the_documentation(endpoint, aws):
    """S0: 20 s into a timeout of 30 s it is extended by 60 s, and ends 60 s from then. S4: 15 s into one of 60 s it is
    changed to 10 s, and ends after 25 s in all. S0: a change to 0 makes it visible at once."""
    dead = aws("create-queue", "--queue-name", "cli-dead")["QueueUrl"]
    arn = aws("get-queue-attributes", "--queue-url", dead, "--attribute-names", "QueueArn")["Attributes"]["QueueArn"]
    policy = json.dumps({"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "5"})})
    url = aws("create-queue", "--queue-name", "cli", "--attributes", policy, "--tags", "team=data")["QueueUrl"]
    assert aws("list-queue-tags", "--queue-url", url)["Tags"] == {"team": "data"}
    attributes = json.dumps({"kind": {"DataType": "String", "StringValue": "a value"}})
    body = "Information about the largest city in Any Region."
    sent = aws("send-message", "--queue-url", url, "--message-body", body, "--message-attributes", attributes)

    def receive(*more):
        found = aws("receive-message", "--queue-url", url, "--attribute-names", "All", *more)
        return found and found["Messages"][0]

    def change(message, seconds):
        handle = message["ReceiptHandle"]
        given = ("--queue-url", url, "--receipt-handle", handle, "--visibility-timeout", str(seconds))
        assert aws("change-message-visibility", *given) is None

    message = receive("--message-attribute-names", "All", "--max-number-of-messages", "10")
    assert (message["MessageId"], message["Body"]) == (sent["MessageId"], body)
    assert message["MessageAttributes"]["kind"]["StringValue"] == "a value"
    endpoint.clock.advance(20)
    change(message, 60)
    endpoint.clock.advance(59)
    assert receive() is None
    endpoint.clock.advance(1)
    message = receive("--visibility-timeout", "60")
    assert message["Attributes"]["ApproximateReceiveCount"] == "2"
    endpoint.clock.advance(15)
    change(message, 10)
    endpoint.clock.advance(9)
    assert receive() is None
    endpoint.clock.advance(1)
    message = receive()
    change(message, 0)
    message = receive()
    assert aws("delete-message", "--queue-url", url, "--receipt-handle", message["ReceiptHandle"]) is None
    assert aws("purge-queue", "--queue-url", url) is None
    assert aws("list-dead-letter-source-queues", "--queue-url", dead)["queueUrls"] == [url]
    assert url in aws("list-queues", "--queue-name-prefix", "cli")["QueueUrls"]


@pytest.fixture
def broker(endpoint):
    """The endpoint as kombu names it."""
    return f"sqs://{KEY}:{SECRET.replace(' ', '%20')}@127.0.0.1:{endpoint.port}//"


def test_kombu_sends_receives_acknowledges_and_puts_back(endpoint, broker):
    with Connection(broker, transport_options={**OPTIONS, "visibility_timeout": 30}) as connection:
        queue = connection.SimpleQueue("of-kombu")
        queue.put({"work": "one"}, serializer="json")
        message = queue.get(timeout=20)
        assert message.payload == {"work": "one"}
        counts = endpoint.ledger.queue("of-kombu").counts()
        assert (counts.visible, counts.in_flight) == (0, 1)
        endpoint.clock.advance(31)
        again = queue.get(timeout=20)
        assert again.payload == {"work": "one"}, "its worker took longer than the timeout: it comes again"
        again.ack()
        message.ack()
        queue.close()
    assert endpoint.ledger.queue("of-kombu").counts().stored == 0


def test_a_celery_task_that_outlives_its_visibility_timeout_is_run_again_and_acknowledged_once(endpoint, broker):
    from celery import Celery
    from celery.contrib.testing.worker import start_worker
    from celery.signals import setup_logging

    def no_logging(**settings):
        """With a receiver of this signal a worker leaves the root logger, which is all tests', as it is."""

    setup_logging.connect(no_logging)
    app = Celery("of-celery", broker=broker)
    app.conf.update(
        broker_transport_options={**OPTIONS, "visibility_timeout": 30},
        task_default_queue="of-celery", task_acks_late=True, task_ignore_result=True, worker_prefetch_multiplier=1,
        worker_enable_remote_control=False, broker_connection_retry_on_startup=False,
    )  # fmt: skip
    runs, first_may_end, second_ended = [], threading.Event(), threading.Event()

    @app.task(name="slow")
    def slow(text):
        runs.append(text)
        if len(runs) == 1:
            first_may_end.wait(60)
        else:
            second_ended.set()

    begun = threading.Event()
    with start_worker(app, pool="threads", concurrency=2, perform_ping_check=False, shutdown_timeout=60):
        slow.delay("a task")
        while not runs:
            begun.wait(0.05)
        endpoint.clock.advance(31)
        assert second_ended.wait(60), "the message came again to another thread"
        first_may_end.set()
        while endpoint.ledger.queue("of-celery").counts().in_flight:
            begun.wait(0.05)
    assert runs == ["a task"] * 2 and endpoint.ledger.queue("of-celery").counts().stored == 0
