"""Ledgers on Delta tables of their own, on either engine, with a clock that stands still."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from ledger import Ledger
from ledger.settings import Settings
from tests.clock import FrozenClock

ENGINES = ("delta-rs", "spark")


@pytest.fixture(scope="session")
def empty_ledger(tmp_path_factory):
    """A folder with the ledger's empty tables, to be copied."""
    root = tmp_path_factory.mktemp("template") / "ledger"
    Ledger.open(str(root), engine="delta-rs")
    return root


@pytest.fixture(scope="session")
def frames_ledger(empty_ledger, tmp_path_factory, spark):
    """One ledger for DataFrames, with a clock of its own; each test has a queue of its own there. Segments and files
    are so small that a few hundred rows fill several."""
    root = str(shutil.copytree(empty_ledger, tmp_path_factory.mktemp("frames") / "ledger"))
    settings = Settings(messages_per_segment=64, messages_per_file=32)
    return Ledger.open(root, spark, "delta-rs", settings=settings, clock=FrozenClock())


@pytest.fixture
def root(empty_ledger, tmp_path):
    return str(shutil.copytree(empty_ledger, tmp_path / "ledger"))


@pytest.fixture
def clock():
    return FrozenClock()


@pytest.fixture
def open_ledger(request, root, clock) -> Callable[..., Ledger]:
    """Opens the test's ledger on an engine; `frames` gives it Spark for DataFrames; further keywords are settings."""

    def open_one(engine: str = "delta-rs", frames: bool = False, **settings) -> Ledger:
        spark = request.getfixturevalue("spark") if frames or engine == "spark" else None
        return Ledger.open(root, spark, engine, settings=Settings(**settings), clock=clock, owner="tester")

    return open_one


@pytest.fixture
def engine_of(open_ledger) -> Callable[[str], object]:
    """The bare engine of a newly opened ledger."""
    return lambda name: open_ledger(name)._opened.engine


@pytest.fixture(params=ENGINES)
def engine(request):
    """The name of each engine in turn."""
    return request.param
