"""Ledgers that are replaced while clients use them, on the simulated log: what the simulation plays, and finds."""

import pytest

from tests.simulation import patching
from tests.simulation.calls import Actor
from tests.simulation.judge import violations
from tests.simulation.programs import generate
from tests.simulation.run import Run
from tests.simulation.searching import play


@pytest.fixture(autouse=True)
def installed():
    with patching.installed():
        yield


def test_a_backup_that_is_put_back_is_another_table_whose_versions_go_on():
    run = Run(generate("by hand@replaced"))
    backup = run.storage.copy(run.storage.clock)
    before = run.storage.tables["messages"]
    run.remove()
    run.put(run.restored(backup))
    after = run.storage.tables["messages"]
    assert (after.version, after.state(after.version)) == (1_000_000, before.state(before.version))
    assert after.identifier != before.identifier and after.since(before.version) == after.changes
    assert len(run.eras()) == 2 and violations(run) == []


def test_ledgers_that_are_made_anew_have_nothing_in_common():
    run = Run(generate("by hand@replaced"))
    queues = []
    for _ in range(3):
        queues.append(
            {
                row["queue"]
                for file in run.storage.tables["queues"].changes[-1].state[()]
                for row in file.rows.to_pylist()
            }
        )
        run.remove()
        run.put(run.made_anew())
    assert len(set.union(*queues)) == sum(map(len, queues))


def test_what_is_of_the_ledger_of_before_is_caught_in_the_one_of_now():
    """A commit of receipts that tell of commits to the log of before."""
    run = Run(generate("by hand@replaced"))
    slot = run.slots[0]
    slot.ledger.fill_receipts()
    filled = run.storage.tables["receipts"].changes[-1]
    run.remove()
    run.put(run.made_anew())
    run.scheduler.steps += 1
    known = run.storage.tables["receipts"]
    actor = Actor(None, run.scheduler.steps, run.scheduler.now, 0)
    told = {"metadata": filled.metadata, "timestamp": run.scheduler.now, "actor": actor}
    known.commit(known.version, (), filled.added, reads=None, blind_appends_matter=True, **told)
    assert any("is filled" in problem for problem in violations(run))


@pytest.mark.parametrize("seed", ["0/206@replaced", "0/227@replaced", "0/239@replaced", "q/2498@replaced"])
def test_what_the_simulation_has_found_is_mended(seed):
    """In this order: a send was answered that landed in a ledger without its queue, which another thread had noticed; a
    ledger that was gone was a bare error; the first send of a process; receipts told of a log that was replaced."""
    assert play(generate(seed)).problems == []
