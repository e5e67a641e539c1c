"""One suite for every store. A test that asks for `queue` or `ledger` runs on each, with a clock that stands still.

On Spark a verb takes about a second, so by default only tests marked `spark_too` run there; `--soak` runs all of them.
Stores by statements commit each verb by a MERGE statement of their engine. By default delta-rs's run the tests of the
modules in BY_STATEMENT, and Spark's those that are marked `spark_statement_too`; `--soak` runs all on both.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from ledger import Ledger, Queue
from tests.clock import FrozenClock

STORES = ("memory", "delta-rs", "spark", "delta-rs by statements", "spark by statements")
#: Modules whose tests are about verbs alone.
BY_STATEMENT = ("test_visibility", "test_life")
_numbers = itertools.count()


@dataclass
class World:
    """A ledger under test, its clock, and how another process would open the same one."""

    ledger: Ledger
    clock: FrozenClock
    open_another: Callable[[], Ledger]
    #: Makes queues; beside a Spark ledger it is delta-rs, which is faster.
    maker: Ledger


def pytest_configure(config):
    config.addinivalue_line("markers", "spark_too: runs on the Spark engine by default, not only with --soak")
    config.addinivalue_line("markers", "spark_statement_too: the same, by Spark's MERGE statements")


def pytest_generate_tests(metafunc):
    if "world" in metafunc.fixturenames:
        stores = [
            pytest.param(store, marks=() if runs_by_default(store, metafunc) else (pytest.mark.soak,))
            for store in STORES
        ]
        metafunc.parametrize("world", stores, indirect=True)


def runs_by_default(store, metafunc):
    """Whether a test runs on a store without --soak."""
    if store == "spark":
        return metafunc.definition.get_closest_marker("spark_too") is not None
    if store == "spark by statements":
        return metafunc.definition.get_closest_marker("spark_statement_too") is not None
    return store != "delta-rs by statements" or metafunc.module.__name__.rpartition(".")[2] in BY_STATEMENT


@pytest.fixture(scope="session")
def empty_ledger(tmp_path_factory):
    """A folder with the ledger's empty tables, to be copied: a millisecond instead of a CREATE TABLE each."""
    root = tmp_path_factory.mktemp("template") / "ledger"
    Ledger.open(str(root), engine="delta-rs")
    return root


@pytest.fixture(scope="session")
def spark_world(request, tmp_path_factory):
    """One ledger on Spark for the whole session; each test has a queue of its own there."""
    return on_spark(request, tmp_path_factory, "auto")


@pytest.fixture(scope="session")
def spark_statement_world(request, tmp_path_factory):
    """The same, by Spark's MERGE statements."""
    return on_spark(request, tmp_path_factory, "statement")


def on_spark(request, tmp_path_factory, merge):
    spark, clock = request.getfixturevalue("spark"), FrozenClock()
    root = str(tmp_path_factory.mktemp("spark") / "ledger")

    def open_another():
        return Ledger.open(root, spark, engine="spark", clock=clock, merge=merge)

    return World(open_another(), clock, open_another, Ledger.open(root, engine="delta-rs", clock=clock))


@pytest.fixture
def world(request, tmp_path):
    if request.param == "spark":
        return request.getfixturevalue("spark_world")
    if request.param == "spark by statements":
        return request.getfixturevalue("spark_statement_world")
    merge = "statement" if request.param == "delta-rs by statements" else "auto"
    clock = FrozenClock()
    if request.param == "memory":
        ledger = Ledger.in_memory(clock)
        return World(ledger, clock, lambda: ledger, ledger)
    root = str(shutil.copytree(request.getfixturevalue("empty_ledger"), tmp_path / "ledger"))

    def open_another():
        return Ledger.open(root, engine="delta-rs", clock=clock, merge=merge)

    ledger = open_another()
    return World(ledger, clock, open_another, ledger)


@pytest.fixture
def clock(world):
    return world.clock


@pytest.fixture
def ledger(world):
    return world.ledger


@pytest.fixture
def make_queue(world) -> Callable[..., Queue]:
    """A new queue of its own name, with attributes as keywords."""

    def make(**attributes) -> Queue:
        name = f"queue-{next(_numbers)}"
        world.maker.create_queue(name, attributes)
        return world.ledger.queue(name)

    return make


@pytest.fixture
def make_fifo(world) -> Callable[..., Queue]:
    """A new FIFO queue with content-based deduplication and attributes as keywords."""

    def make(**attributes) -> Queue:
        name = f"fifo-{next(_numbers)}.fifo"
        world.maker.create_queue(name, {"FifoQueue": "true", "ContentBasedDeduplication": "true", **attributes})
        return world.ledger.queue(name)

    return make


@pytest.fixture
def queue(make_queue):
    return make_queue(Lanes=2)
