"""The stores against the oracle on random programs. Long runs with --soak."""

import shutil
import tempfile

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from ledger import Ledger
from ledger.rules import limits
from ledger.store.delta.model import message_runs
from ledger.store.delta.verbs import upkeep
from tests.properties.programs import Programs


def run(machine, examples, steps, random):
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=not random,
            database=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )


@pytest.fixture(autouse=True)
def small_numbers(monkeypatch):
    """Quotas that a few messages reach, files that upkeep finds worth joining, and sets of two runs."""
    monkeypatch.setattr(limits, "MAXIMUM_IN_FLIGHT", 12)
    monkeypatch.setattr(limits, "MAXIMUM_IN_FLIGHT_FIFO", 4)
    monkeypatch.setattr(upkeep, "FILES_WORTH_COMPACTING", 2)
    monkeypatch.setattr(message_runs, "MOST_RUNS", 1)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    root = tmp_path_factory.mktemp("template") / "ledger"
    Ledger.open(str(root), engine="delta-rs")
    return root


@pytest.fixture
def on_delta_rs(template):
    class OnDeltaRs(Programs):
        def open(self, clock, settings):
            self.folder = tempfile.mkdtemp()
            shutil.copytree(template, self.folder, dirs_exist_ok=True)
            return self.reopen()

        def reopen(self):
            return Ledger.open(self.folder, engine="delta-rs", clock=self.clock, settings=self.settings)

        def keep(self):
            self.ledger.upkeep(vacuum=False)

        def teardown(self):
            super().teardown()
            shutil.rmtree(getattr(self, "folder", ""), ignore_errors=True)

    return OnDeltaRs


@pytest.fixture
def on_spark(spark, tmp_path):
    class OnSpark(Programs):
        looks = 1

        def open(self, clock, settings):
            return self.reopen()

        def reopen(self):
            root = str(tmp_path / "ledger")
            return Ledger.open(root, spark, engine="spark", clock=self.clock, settings=self.settings)

    return OnSpark


def test_the_rules_in_memory_agree_with_themselves():
    class InMemory(Programs):
        def open(self, clock, settings):
            return Ledger.in_memory(clock)

    run(InMemory, 60, 40, random=False)


def test_delta_rs_agrees_with_the_rules(on_delta_rs):
    run(on_delta_rs, 15, 30, random=False)


@pytest.mark.soak
def test_delta_rs_agrees_with_the_rules_for_long(on_delta_rs):
    run(on_delta_rs, 250, 60, random=True)


def test_spark_agrees_with_the_rules(on_spark):
    run(on_spark, 2, 7, random=False)


@pytest.mark.soak
def test_spark_agrees_with_the_rules_for_long(on_spark):
    run(on_spark, 20, 30, random=True)
