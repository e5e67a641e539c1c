"""An S3 server on loopback for tests: moto's, in a process of its own, as delta-rs keeps Python's threads waiting.

Its writes are serialised, so a conditional put is one; every request is written down in the order of arrival.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

BUCKET = "bucket"
FAULTS = ("puts without conditions", "keys are looked at")
#: How an answer fails that is not a status alone.
CUT, LATE = "the connection is cut", "nothing comes for a while"
#: Seconds.
A_WHILE = 3.0
FORBIDDEN = b"<Error><Code>InvalidAccessKeyId</Code><Message>There is no such key</Message></Error>"

#: What is written down of a request: the fields of Request.
LOGGED = ("REQUEST_METHOD", "PATH_INFO", "QUERY_STRING", "HTTP_IF_NONE_MATCH")


class Request(NamedTuple):
    """One request as the server saw it."""

    method: str
    path: str
    query: str
    if_none_match: str


class S3Server:
    """What a test has of the server: where it is, how to get in, and what was asked of it."""

    def __init__(self, port: int, log: Path) -> None:
        self.url, self._log, self._failures = f"http://127.0.0.1:{port}", log, log.with_name("failures")
        #: As delta-rs's users write them.
        self.options = {
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
            "aws_region": "us-east-1",
            "aws_endpoint": self.url,
            "aws_allow_http": "true",
        }

    @property
    def spark_settings(self) -> dict[str, str]:
        """The same for Spark, as conf/spark-s3.conf names them."""
        return {
            "spark.hadoop.fs.s3a.access.key": self.options["aws_access_key_id"],
            "spark.hadoop.fs.s3a.secret.key": self.options["aws_secret_access_key"],
            "spark.hadoop.fs.s3a.endpoint.region": self.options["aws_region"],
            "spark.hadoop.fs.s3a.endpoint": self.url,
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }

    def root(self, name: str) -> str:
        """A place for a ledger of this name."""
        return f"s3://{BUCKET}/{name}"

    def fail(self, method: str, path: str, how: str, times: int = 1, *, stored: bool = False) -> None:
        """Lets the next `times` requests whose path matches a pattern fail as one of FAILURES, or with a status;
        `stored`: what they ask for is done nevertheless. Nothing else fails any more."""
        self._failures.write_text(json.dumps([method, path, how, times, stored]))

    def ignore_conditions(self, *, ignored: bool = True) -> None:
        """From now on a put with a condition is one without; or no more."""
        file = self._log.with_name("careless")
        file.touch() if ignored else file.unlink(missing_ok=True)

    def requests(self) -> list[Request]:
        """All requests so far."""
        return [Request(*line.split("\t")) for line in self._log.read_text().splitlines()]


@contextlib.contextmanager
def s3_server(delay: float = 0.0, fault: str = "") -> Iterator[S3Server]:
    """Runs a server with an empty bucket; each request takes `delay` seconds more. `fault`: one of FAULTS, or none."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "requests")
        log.touch()
        # Nothing asks for credentials elsewhere: no request leaves this machine.
        environment = {**os.environ, "AWS_EC2_METADATA_DISABLED": "true"}
        server = subprocess.Popen(
            [sys.executable, __file__, str(log), str(delay), fault], stdout=subprocess.PIPE, text=True, env=environment
        )
        try:
            assert server.stdout is not None
            found = S3Server(int(server.stdout.readline()), log)
            known = {"Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request"}
            made = urllib.request.Request(f"{found.url}/{BUCKET}", method="PUT", headers=known)
            urllib.request.urlopen(made).close()
            yield found
        finally:
            server.kill()
            server.wait()


def serve(log: Path, delay: float, fault: str) -> None:
    """Serves until it is killed; prints its port first."""
    import logging

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    backend, one_at_a_time = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def application(environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        time.sleep(delay)
        if fault == "puts without conditions" or log.with_name("careless").exists():
            environment.pop("HTTP_IF_NONE_MATCH", None)
        if fault == "keys are looked at" and "Credential=test/" not in environment.get("HTTP_AUTHORIZATION", ""):
            start("403 Forbidden", [("Content-Type", "application/xml"), ("Content-Length", str(len(FORBIDDEN)))])
            return [FORBIDDEN]
        with one_at_a_time, log.open("a") as file:
            file.write("\t".join(environment.get(name, "") for name in LOGGED) + "\n")
            how, stored = next_failure(log.with_name("failures"), environment)
            answer: Iterable[bytes] = []
            if stored:
                answer = backend(environment, start if how is None else lambda *_: None)
            else:
                environment["wsgi.input"].read(int(environment.get("CONTENT_LENGTH") or 0))
            if how is None:
                return answer
            b"".join(answer)
        if how == LATE:
            time.sleep(A_WHILE)
        if how in (CUT, LATE):
            environment["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            start("500 Cut", [])
            return []
        words = f"<Error><Code>Fault</Code><Message>{how}</Message></Error>".encode()
        start(f"{how} Fault", [("Content-Type", "application/xml"), ("Content-Length", str(len(words)))])
        return [words]

    server = make_server("127.0.0.1", 0, application, threaded=True)
    print(server.port, flush=True)
    server.serve_forever()


def next_failure(file: Path, environment: dict[str, Any]) -> tuple[str | None, bool]:
    """How this request fails, and whether what it asks for is done nevertheless; (None, True) when it does not fail."""
    if not file.exists():
        return None, True
    method, path, how, times, stored = json.loads(file.read_text())
    if times <= 0 or environment["REQUEST_METHOD"] != method or not re.search(path, environment["PATH_INFO"]):
        return None, True
    file.write_text(json.dumps([method, path, how, times - 1, stored]))
    return how, stored


if __name__ == "__main__":
    serve(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
