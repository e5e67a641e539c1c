"""The servers that the wire benchmark compares, each a process of its own: `ledger serve`, ElasticMQ, moto."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

CHECKOUT = Path(__file__).resolve().parents[2]
KEY, SECRET = "AKIDOFTHELOAD", "the secret of the load"
#: Where the jars of ElasticMQ are kept between runs.
JARS = Path(tempfile.gettempdir()) / "ledger-benchmark-elasticmq"
ELASTICMQ_VERSION = "1.6.12"
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ledger</groupId>
  <artifactId>peers</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.elasticmq</groupId>
      <artifactId>elasticmq-server_2.13</artifactId>
      <version>{ELASTICMQ_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


class Unavailable(Exception):
    """This machine lacks what a peer needs."""


@dataclass(frozen=True)
class Running:
    """A server that answers. `keeps` says what its answers are worth after a power cut."""

    name: str
    url: str
    keeps: str
    process: psutil.Process

    def processor_seconds(self) -> float:
        """Return the processor time that the server and its workers have used so far."""
        return sum(_seconds_of(one) for one in (self.process, *self.process.children(recursive=True)))


def _seconds_of(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def ledger_server(root: Path, options: Sequence[str] = ()) -> Iterator[Running]:
    """Run `ledger serve` on a new ledger at `root`, with signatures verified and commits synced."""
    environment = {**os.environ, "LEDGER_ACCESS_KEY_ID": KEY, "LEDGER_SECRET_ACCESS_KEY": SECRET}
    command = [sys.executable, "-m", "ledger.cli", "serve", str(root), "--create", "--port", "0", *options]
    process = subprocess.Popen(command, cwd=CHECKOUT, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    found = None
    while not found:
        line = process.stderr.readline()
        if not line:
            sys.exit("ledger serve does not start")
        found = re.search(r"serving at (\S+)", line)
    with _ended(process):
        yield Running("ledger", found[1], "synced to the disk", psutil.Process(process.pid))
    if process.returncode != 0:
        sys.exit("ledger serve did not end well")


@contextmanager
def elasticmq_server(root: Path) -> Iterator[Running]:
    """Run ElasticMQ in memory; Maven brings its jars. Needs java and mvn."""
    _require_jars()
    port = _free_port()
    settings = {
        "rest-sqs.bind-port": port, "rest-sqs.bind-hostname": "127.0.0.1", "rest-stats.enabled": "false",
        "node-address.host": "127.0.0.1", "node-address.port": port,
    }  # fmt: skip
    command = ["java", *(f"-D{name}={value}" for name, value in settings.items())]
    command += ["-cp", f"{JARS}/*", "org.elasticmq.server.Main"]
    with _quiet(command, root, port) as process:
        yield Running(f"ElasticMQ {ELASTICMQ_VERSION}", f"http://127.0.0.1:{port}", "in memory", process)


@contextmanager
def moto_server(root: Path) -> Iterator[Running]:
    """Run moto's server, in memory."""
    port = _free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with _quiet(command, root, port) as process:
        yield Running("moto", f"http://127.0.0.1:{port}", "in memory", process)


SERVERS = {"ledger": ledger_server, "elasticmq": elasticmq_server, "moto": moto_server}


def _require_jars() -> None:
    missing = [name for name in ("java", "mvn") if shutil.which(name) is None]
    if missing:
        raise Unavailable(f"ElasticMQ needs {' and '.join(missing)}")
    if any(JARS.glob("elasticmq-server*.jar")):
        return
    JARS.mkdir(parents=True, exist_ok=True)
    (JARS / "pom.xml").write_text(_POM)
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={JARS}"]
    if subprocess.run(["mvn", "-q", "-B", "-f", str(JARS / "pom.xml"), *goal]).returncode:
        raise Unavailable("Maven does not bring ElasticMQ's jars")


@contextmanager
def _quiet(command: Sequence[str], root: Path, port: int) -> Iterator[psutil.Process]:
    """Run a server whose log goes to a file in `root`, from when it listens on."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / "server.log").open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    with _ended(process):
        _await_port(port, process)
        yield psutil.Process(process.pid)


@contextmanager
def _ended(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"{process.args!r} does not listen")
