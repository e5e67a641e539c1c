"""`ledger serve` as a process: started, used, told to stop; and what it refuses to start with."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import urllib.request

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ConnectionClosedError, EndpointConnectionError

from ledger import Ledger
from ledger.endpoint import keys
from tests.cli.running import run
from tests.sources import CHECKOUT

SECRET, BODY = "a secret nobody may read", "a body nobody may read"
STARTED = re.compile(r"serving at (https?://\S+)")


class Process:
    """A server in a process of its own."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        command = [sys.executable, *arguments, "--port", "0"]
        pipes = {
            "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True,
        }  # fmt: skip
        self.process = subprocess.Popen(command, cwd=CHECKOUT, env={**os.environ, **(environment or {})}, **pipes)
        self.said = ""
        while not (found := STARTED.search(self.said)):
            line = self.process.stdout.readline()
            assert line, f"it ended: {self.said}"
            self.said += line
        self.url = found[1]

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.said += self.process.communicate(timeout=60)[0]
        return self.process.returncode


def client_of(url, secret=SECRET, key="AKID", **more):
    return boto3.client(
        "sqs", region_name="us-east-1", endpoint_url=url, aws_access_key_id=key, aws_secret_access_key=secret, **more
    )


@pytest.mark.soak_variants("cli")
@pytest.mark.parametrize("command", [("-m", "ledger.cli", "serve"), ("jobs/serve.py",)], ids=["cli", "job"])
def test_with_json_the_first_line_says_where_it_serves(tmp_path, command):
    root = str(tmp_path / "ledger")
    arguments = (*command, root, "--create", "--without-signatures", "--json", "--port", "0")
    with subprocess.Popen([sys.executable, *arguments], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
        said = json.loads(process.stdout.readline())
        assert (said["root"], said["pid"]) == (root, process.pid) and said["url"].startswith("http://127.0.0.1:")
        assert urllib.request.urlopen(f"{said['url']}/health").read() == b"ok\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "" and process.wait(60) == 0


@pytest.mark.soak_variants("job")
@pytest.mark.parametrize("command", [("-m", "ledger.cli", "serve"), ("jobs/serve.py",)], ids=["cli", "job"])
def test_it_serves_until_it_is_told_to_stop_and_says_no_body_and_no_secret(tmp_path, command):
    root = str(tmp_path / "ledger")
    environment = {keys.ACCESS_KEY: "AKID", keys.SECRET_KEY: SECRET, "LEDGER_LOG": "debug"}
    served = Process(*command, root, "--create", "--receipts", "recorded", environment=environment)
    client = client_of(served.url)
    url = client.create_queue(QueueName="q")["QueueUrl"]
    assert url == f"{served.url}/123456789012/q"
    client.send_message(
        QueueUrl=url, MessageBody=BODY, MessageAttributes={"a": {"DataType": "String", "StringValue": BODY}}
    )
    with pytest.raises(client.exceptions.ClientError) as found:
        client_of(served.url, "another secret").list_queues()
    assert found.value.response["Error"]["Code"] == "SignatureDoesNotMatch"
    with pytest.raises(client.exceptions.ReceiptHandleIsInvalid):
        client.delete_message(QueueUrl=url, ReceiptHandle="none")
    assert served.end() == 0
    assert SECRET not in served.said and BODY not in served.said and "Traceback" not in served.said
    queue = Ledger.open(root, create=False).queue("q")
    known = queue.attributes()
    assert (known["Limits"], known["Lanes"], known["Receipts"]) == ("SQS", "1", "recorded")
    assert queue.receive().messages()[0].body == BODY


def test_what_was_accepted_when_it_is_told_to_stop_is_done_and_answered(tmp_path):
    """Clients send while it stops: what is in the queue then is what they were told is in it."""
    root, told, lock = str(tmp_path / "ledger"), [], threading.Lock()
    served = Process("-m", "ledger.cli", "serve", root, "--create", "--without-signatures")
    url = client_of(served.url).create_queue(QueueName="q")["QueueUrl"]
    sending = threading.Barrier(5)

    def send():
        client, begun = client_of(served.url, config=Config(retries={"total_max_attempts": 1})), False
        try:
            while True:
                sent = client.send_message(QueueUrl=url, MessageBody="body")
                with lock:
                    told.append(sent["MessageId"])
                if not begun:
                    sending.wait(60)
                    begun = True
        except (ConnectionClosedError, EndpointConnectionError):
            pass

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    sending.wait(60)
    assert served.end() == 0
    for thread in threads:
        thread.join()
    claims = Ledger.open(root, create=False).queue("q").receive_many([(10,)] * (len(told) // 10 + 2))
    there = [message.message_id for claim in claims for message in claim]
    assert sorted(there) == sorted(told) and len(told) >= 4


def test_with_a_certificate_it_speaks_tls(tmp_path):
    certificate, key = made_certificate(tmp_path)
    root, tls = str(tmp_path / "ledger"), ("--certificate", certificate, "--certificate-key", key)
    served = Process("-m", "ledger.cli", "serve", root, "--create", "--without-signatures", *tls)
    try:
        assert served.url.startswith("https://")
        context = ssl.create_default_context(cafile=certificate)
        with urllib.request.urlopen(f"{served.url}/ready", context=context) as response:
            assert response.read() == b"ready\n"
        client = client_of(served.url, verify=certificate)
        assert client.create_queue(QueueName="q")["QueueUrl"].startswith(served.url)
    finally:
        assert served.end() == 0


def made_certificate(folder):
    """A certificate of 127.0.0.1, and its key: their files."""
    import ipaddress
    from datetime import datetime, timedelta, timezone

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, name, now = ec.generate_private_key(ec.SECP256R1()), x509.Name([]), datetime.now(timezone.utc)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        .add_extension(names, critical=True).sign(key, hashes.SHA256())
    )  # fmt: skip
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
    return str(folder / "cert.pem"), str(folder / "key.pem")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Give --keys FILE"),
        (("--without-signatures", "--host", "0.0.0.0"), "serves this machine alone"),
        (("--keys", "nowhere.toml"), "cannot be read"),
        (("--without-signatures", "--certificate", "cert.pem"), "Give both"),
        (("--without-signatures", "--port", "70000"), "0 to 65535"),
        (("--without-signatures", "--threads", "0"), "1 to 256"),
        (("--without-signatures", "--url", "sqs.example"), "http or https"),
        (("--without-signatures", "--url", "http://["), "with a host"),
        (("--without-signatures", "--url", "https://"), "with a host"),
        (("--keys", "KEYS", "--host", ""), "0.0.0.0 is all addresses"),
        (("--keys", "KEYS", "--without-signatures"), "Give one of them"),
        (("--keys", "KEYS", "--certificate", "KEYS", "--certificate-key", "KEYS"), "Both are PEM"),
    ],
)
def test_what_does_not_go_together_is_refused_before_it_listens(tmp_path, monkeypatch, arguments, said):
    for name in (keys.ACCESS_KEY, keys.SECRET_KEY):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "keys.toml").write_text('[AKID]\nsecret = "long enough"\n')
    given = [str(tmp_path / "keys.toml") if one == "KEYS" else one for one in arguments]
    ran = run("serve", str(tmp_path / "ledger"), "--create", *given)
    assert ran.code == 2 and said in ran.err
    assert not (tmp_path / "ledger").exists(), "nothing is made for a server that does not start"


def test_a_mistyped_root_becomes_no_ledger(tmp_path):
    ran = run("serve", str(tmp_path / "mistyped"), "--without-signatures", "--port", "0")
    assert ran.code == 1 and "There is no ledger" in ran.err and not (tmp_path / "mistyped").exists()


def test_a_port_that_is_taken_is_said(tmp_path):
    from ledger.endpoint.serving import listen

    with listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        ran = run("serve", str(tmp_path / "ledger"), "--create", "--without-signatures", "--port", port)
    assert ran.code == 1 and f"Cannot listen on 127.0.0.1:{port}" in ran.err
    assert not (tmp_path / "ledger").exists()
