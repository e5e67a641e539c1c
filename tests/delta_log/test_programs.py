"""Random programs on random tables: the client, delta-rs, DuckDB and a reader by hand tell what plain Python says."""

import json
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.delta_log import by_hand as hand
from tests.delta_log.programs import PROGRAMS, Program, instant, within
from tests.delta_log.readers import require_same, spark_reader, told, told_of


def run(program, *readers):
    """Runs a program, and reads its table by whoever can."""
    partitions, values, steps = program
    with tempfile.TemporaryDirectory() as folder:
        one = Program(Path(folder), partitions, values)
        for step, seed in steps:
            one.run(step, seed)
        rows = [*one.rows.values()]
        assert require_same(one.location, *readers) == told_of(rows)
        for version, expected in one.at_version.items():
            assert told(hand.rows_of(one.location, version)) == expected
        require_reads(one, rows, random.Random(len(rows)))


def require_reads(one, rows, dice):
    """What the client tells of its table from the log, and of a part of it."""
    low, high = sorted(dice.choices(range(2 * len(rows) + 2), k=2))
    above = dice.randint(0, 5_000_000_000_000)
    found = one.tables.rows(
        "things", one.everything, ["id", "at", "text"], between={"id": (low, high)}, above={"at": above}
    )
    wanted = [{name: row[name] for name in ("id", "at", "text")} for row in within(rows, low, high, instant(above))]
    assert told(found) == told_of(wanted)
    assert one.tables.greatest("things", "id") == max((row["id"] for row in rows), default=None)
    state = hand.replay(one.location)
    assert one.tables.version("things") == state.version
    assert len(one.tables.history("things", -1)) == len(hand.versions_of(one.location))
    if one.table.facts:
        version, facts = one.tables.file_facts("things")
        counts = [json.loads(added["stats"])["numRecords"] for added in state.files.values()]
        assert version == state.version and sorted(facts["rows"].to_pylist()) == sorted(counts)


def configured(examples, *, random=False):
    """Hypothesis for so many examples; `random`: others each time."""
    phases = (Phase.explicit, Phase.generate) if not random else tuple(Phase)
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(
        max_examples=examples, deadline=None, derandomize=not random, phases=phases, suppress_health_check=checks
    )


@configured(8)
@given(PROGRAMS)
def test_what_is_in_a_table_is_what_its_commits_mean(program):
    run(program)


@pytest.mark.soak
@configured(1_000, random=True)
@given(PROGRAMS)
def test_what_is_in_a_table_is_what_its_commits_mean_for_long(program):
    run(program)


@pytest.mark.soak
def test_spark_reads_what_is_in_a_table_as_the_others_do(spark):
    @configured(40, random=True)
    @given(PROGRAMS)
    def read(program):
        run(program, spark_reader(spark))

    read()
