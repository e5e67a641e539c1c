"""An endpoint, served on a real socket by a thread of the tests, and unmodified clients of both protocols."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import boto3
import botocore.session
import pytest
from botocore.config import Config

from ledger import Ledger
from ledger.clock import system_clock
from ledger.endpoint import keys, serving
from ledger.endpoint.application import Bounds
from ledger.endpoint.handling import Endpoint
from ledger.endpoint.signatures import Signatures
from tests.clock import FrozenClock
from tests.endpoint.query_model import written_to

KEY, SECRET, REGION = "AKIDOFTHETESTS", "a secret of the tests", "us-east-1"
OTHER_KEY, OTHER_ACCOUNT = "AKIDOFANOTHER", "210987654321"
NEW_QUEUES = {"Limits": "SQS", "Lanes": "1"}
KNOWN = keys.Keys(
    {
        KEY: keys.Key(SECRET, keys.Caller("123456789012")),
        OTHER_KEY: keys.Key(SECRET, keys.Caller(OTHER_ACCOUNT, f"arn:aws:iam::{OTHER_ACCOUNT}:user/other")),
    }
)


@dataclass
class Served:
    """An endpoint that is being served: its ledger and clock, where it is, and how clients are made."""

    ledger: Ledger
    clock: FrozenClock
    url: str
    server: serving.Server
    query_models: str
    root: str = ""
    _clients: dict[tuple[str, str], Any] = field(default_factory=dict)

    def client(self, protocol: str = "json", key: str = KEY) -> Any:
        """A boto3 client, unmodified; for `query` with the model of when it spoke that. The same each time."""
        if (protocol, key) not in self._clients:
            self._clients[protocol, key] = self.new_client(protocol, key)
        return self._clients[protocol, key]

    def new_client(self, protocol: str = "json", key: str = KEY, **more: Any) -> Any:
        """Another one, of the test's own."""
        core = botocore.session.Session()
        if protocol == "query":
            core.set_config_variable("data_path", self.query_models)
        session = boto3.Session(botocore_session=core)
        given = {"retries": {"total_max_attempts": 1}, "read_timeout": 30, **more}
        return session.client(
            "sqs", region_name=REGION, endpoint_url=self.url, aws_access_key_id=key, aws_secret_access_key=SECRET,
            config=Config(**given),
        )  # fmt: skip

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])


@contextmanager
def served(
    ledger: Ledger, clock: Any, query_models: str, change: Callable[[Endpoint], Endpoint] = lambda one: one, **more: Any
) -> Iterator[Served]:
    """Serves a ledger until the end of the block."""
    signatures = Signatures(KNOWN, ledger.settings.region, system_clock)
    endpoint = change(Endpoint(ledger, signatures, NEW_QUEUES))
    sock = serving.listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    begun, found = threading.Event(), []

    def started(server: serving.Server) -> None:
        found.append(server)
        begun.set()

    bounds = more.pop("bounds", Bounds(threads=8))
    given = {"bounds": bounds, "started": started, **more}
    thread = threading.Thread(target=serving.serve, args=(endpoint, sock), kwargs=given, name="served")
    thread.start()
    assert begun.wait(60), "the server does not start"
    try:
        yield Served(ledger, clock, url, found[0], query_models)
    finally:
        found[0].stop()
        thread.join(60)
        assert not thread.is_alive(), "the server does not stop"


@pytest.fixture(scope="session")
def query_models(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(written_to(tmp_path_factory.mktemp("models")))


@pytest.fixture(scope="session")
def empty_root(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder with a ledger's empty tables, to be copied."""
    root = tmp_path_factory.mktemp("template") / "ledger"
    Ledger.open(str(root), engine="delta-rs")
    return root


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory, empty_root: Any, query_models: str) -> Iterator[Served]:
    """One endpoint for the tests of a module, whose clock stands still unless they move it."""
    root = tmp_path_factory.mktemp("served") / "ledger"
    shutil.copytree(empty_root, root)
    clock = FrozenClock()
    with served(Ledger.open(str(root), engine="delta-rs", clock=clock), clock, query_models) as found:
        yield found


@pytest.fixture(params=["json", "query"])
def client(request: pytest.FixtureRequest, endpoint: Served) -> Any:
    """A client of each protocol."""
    return endpoint.client(request.param)


def unsigned(endpoint: Endpoint) -> Endpoint:
    """Without signatures: every caller is the owner."""
    return replace(endpoint, signatures=None)


def as_recorded(endpoint: Endpoint) -> Endpoint:
    """With the switch on: queues that do as the real service was recorded to."""
    return replace(endpoint, new_queues={**endpoint.new_queues, "Receipts": "recorded"})
