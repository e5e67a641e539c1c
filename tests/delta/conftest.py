"""Ledgers on Delta tables of their own, on either engine, with a clock that stands still."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from ledger import Ledger
from ledger.settings import Settings
from tests.clock import FrozenClock
from tests.simulation.engine import SimulatedEngine
from tests.simulation.log import Storage

ENGINES = ("delta-rs", "spark")
#: The same, where each commit of rows is a statement of theirs.
BY_STATEMENT = tuple(f"{name} by statements" for name in ENGINES)
#: The engine of tests/simulation, by the rules of the one and of the other.
SIMULATED = tuple(f"simulated {name}" for name in ENGINES)


@pytest.fixture(scope="session")
def empty_ledger(tmp_path_factory):
    """A folder with the ledger's empty tables, to be copied."""
    root = tmp_path_factory.mktemp("template") / "ledger"
    Ledger.open(str(root), engine="delta-rs")
    return root


@pytest.fixture(scope="session")
def frames_clock():
    """The clock of `frames_ledger`."""
    return FrozenClock()


@pytest.fixture(scope="session")
def frames_ledger(empty_ledger, tmp_path_factory, spark, frames_clock):
    """One ledger for DataFrames, with a clock of its own; each test has a queue of its own there. Segments and files
    are so small that a few hundred rows fill several."""
    root = str(shutil.copytree(empty_ledger, tmp_path_factory.mktemp("frames") / "ledger"))
    settings = Settings(messages_per_segment=64, messages_per_file=32)
    return Ledger.open(root, spark, "delta-rs", settings=settings, clock=frames_clock)


@pytest.fixture
def root(empty_ledger, tmp_path):
    return str(shutil.copytree(empty_ledger, tmp_path / "ledger"))


@pytest.fixture
def clock():
    return FrozenClock()


@pytest.fixture
def open_ledger(request, root, clock) -> Callable[..., Ledger]:
    """Opens the test's ledger on an engine; `frames` gives it Spark for DataFrames; further keywords are settings. One
    look at the clock is enough for upkeep, where a test does not say otherwise: it stands still."""

    def open_one(engine: str = "delta-rs", frames: bool = False, **settings) -> Ledger:
        spark = request.getfixturevalue("spark") if frames or engine == "spark" else None
        known = Settings(**{"mark_seconds": 0, **settings})
        return Ledger.open(root, spark, engine, settings=known, clock=clock, owner="tester")

    return open_one


@pytest.fixture
def engine_of(request, clock) -> Callable[[str], object]:
    """The bare engine of a newly opened ledger; all those of one test are about the same tables."""
    storage = Storage(clock)

    def one(name: str) -> object:
        if name in SIMULATED:
            return SimulatedEngine(storage, name.removeprefix("simulated "))
        engine, _, by_statement = name.partition(" by ")
        merge = "statement" if by_statement else "auto"
        return request.getfixturevalue("open_ledger")(engine, merge=merge).store.engine

    return one


@pytest.fixture(params=ENGINES)
def engine(request):
    """The name of each engine in turn."""
    return request.param


@pytest.fixture(params=[*ENGINES, BY_STATEMENT[0], pytest.param(BY_STATEMENT[1], marks=pytest.mark.soak), *SIMULATED])
def every_engine(request):
    """The name of each engine in turn, the simulated ones included."""
    return request.param


@pytest.fixture
def one(engine_of, every_engine):
    """Each engine in turn, bare."""
    return engine_of(every_engine)


@pytest.fixture
def other(engine_of, every_engine):
    """Another writer to the same tables, on delta-rs."""
    return engine_of("simulated delta-rs" if every_engine in SIMULATED else "delta-rs")
