"""Random concurrent programs on the simulated log: no promise is broken, and what is found plays again."""

import pytest

from tests.simulation import patching
from tests.simulation.broken import without
from tests.simulation.programs import generate
from tests.simulation.searching import play, search, smaller
from tests.simulation.worlds import NAMED, WORLDS


@pytest.fixture(autouse=True)
def installed():
    with patching.installed():
        yield


def told(found):
    """A run as text: every call and every commit."""
    calls = [str((call.client, call.verb, call.queue, call.began, call.ended, call.error)) for call in found.run.calls]
    for name, table in sorted(found.run.storage.tables.items()):
        for change in table.changes[1:]:
            calls.append(f"{name} {change.version} {change.metadata} {[file.rows for _, file in change.added]}")
    return "\n".join(calls)


@pytest.mark.parametrize("world", WORLDS)
def test_a_seed_tells_all_of_a_run(world):
    first, again, another = (play(generate(f"{seed}@{world}")) for seed in ("x", "x", "y"))
    assert told(first) == told(again) != told(another)


def test_what_is_found_is_made_small_and_is_still_there():
    with without("a lane has one head row") as expected:
        found = next(found for found in search("small", 2_000, "quota") if any(expected in p for p in found.problems))
        small = smaller(found)
    steps = sum(map(len, small.schedule.programs))
    assert steps <= 3 and len(small.events) <= 3
    assert any(expected in problem for problem in small.problems)
    assert play(small.schedule).problems == []


def test_what_one_move_brings_from_two_queues_is_in_the_order_in_which_it_was_sent():
    """The judge took the numbers that each queue had given for comparable."""
    assert play(generate("session22/2246")).problems == []


def test_a_change_of_a_queue_that_was_deleted_since_is_none_of_the_queue_made_anew():
    """Both had been changed as often, and Spark's MERGE finds them by their name: the new one's row gave way."""
    assert play(generate("soak/8062")).problems == []


def test_what_was_released_may_be_fenced_off_by_a_clock_that_went_back():
    """The judge took the clock's word, where the store takes the queue's last commit for the time."""
    assert play(generate("soak/13974")).problems == []


def test_a_retry_is_not_given_what_its_earlier_run_wrote():
    """The judge counted what the receive acknowledges, as its rows are in, among what it grants again."""
    assert play(generate("soak/66673")).problems == []


def test_a_receive_may_come_before_a_send_that_lands_meanwhile_with_an_older_clock_than_a_moves():
    """The judge put the message sent, which the receive could not see, before the one moved, which was there."""
    assert play(generate("soak/95263")).problems == []


def test_two_tasks_that_start_at_once_on_one_source_are_one():
    """By a MERGE of Spark's both were inserted: their keys differed, and nothing else of theirs met."""
    assert play(generate("t/42@tasks")).problems == []


def test_a_move_task_does_not_move_what_has_expired_since_it_began():
    """It knew its source as it was when it began, and how long messages were kept then."""
    assert play(generate("t/63@tasks")).problems == []


def test_a_send_that_stood_still_is_not_refused_for_its_own_clock():
    """It read the clock, then stood still, then looked at the lanes: others had committed there meanwhile."""
    assert play(generate("suite/41@threads")).problems == []


def test_a_receive_may_acknowledge_what_is_written_and_give_what_comes_after_it():
    """The judge took the messages whose rows the receive had found for messages that it had passed by."""
    assert play(generate("find/84@power")).problems == []


def test_an_upkeep_that_stood_still_behind_its_look_at_the_clock_drops_nothing_for_its_age():
    """The time for which it stood still counted as time for which its clock had been seen to be steady."""
    assert play(generate("final/1082@clocks")).problems == []


@pytest.mark.parametrize("seed", ["final/187@clocks", "final/320@clocks", "final/452@clocks", "final/688@clocks"])
def test_a_step_of_a_clock_that_an_upkeep_with_the_same_clock_confirms_is_believed(seed):
    """The judge did not know what clocks.md says: a step that another owner's commit confirms is not refused."""
    assert play(generate(seed)).problems == []


@pytest.mark.parametrize(
    "seed", ["t/55@waiting", "a/267@handles", "a/516@retention", "a/2286@handles", "a/2429@handles"]
)
def test_what_the_judge_was_wrong_about_in_worlds_of_their_own_is_allowed(seed):
    """In this order: a receive was served by another thread's look, which came before its wait for the turn was over;
    a deadline became what it was; upkeep looked at a clock that went back since; a retry of one of several receives had
    nothing to record; and one that got its claim again, of a group of which it had given back the first message, was
    given nothing."""
    assert play(generate(seed)).problems == []


def test_receipts_tell_of_no_grant_that_a_power_cut_took_back():
    """They were filled from a commit of another process in the moment before it was on the disk."""
    assert play(generate("s29-4000/3929@power")).problems == []


@pytest.mark.parametrize("seed", ["s29-4000/392@clocks", "s29-4000/2355@clocks"])
def test_what_is_old_by_two_wrong_clocks_that_agree_may_expire(seed):
    """The judge of time knew that such clocks are believed, that of retention did not."""
    assert play(generate(seed)).problems == []


@pytest.mark.parametrize("seed", ["s29-4000/355@replaced", "s29-4000/438@replaced", "s29-4000/3968@replaced"])
def test_a_call_that_began_before_its_ledger_was_replaced_may_have_come_before_that(seed):
    """What it commits to the new ledger, whose queues are others, is nobody's. The judge minded it."""
    assert play(generate(seed)).problems == []


def test_two_receives_that_are_decided_at_once_may_acknowledge_what_is_written():
    """The judge took apart what each of them was granted, and left out what both found written."""
    assert play(generate("s29-10000/2969")).problems == []


@pytest.mark.parametrize("seed", [4, 147, 218])
def test_an_upkeep_that_stands_still_before_it_judges_has_looked_at_its_clock_once(seed):
    """It read the clock for its record before, and so had looked twice: one that was ahead was believed."""
    assert play(generate(f"s46/{seed}@clocks")).problems == []


@pytest.mark.soak_variants("100", "200")
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("first", range(0, 300, 100))
def test_no_schedule_breaks_a_promise(first):
    for found in search("suite", 100, first=first):
        assert not found.problems, str(found)


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("world", NAMED)
def test_no_schedule_of_a_world_of_its_own_breaks_a_promise(world):
    for found in search("suite", 20, world):
        assert not found.problems, str(found)


@pytest.mark.soak
@pytest.mark.timeout(18_000)
def test_no_schedule_of_many_breaks_a_promise():
    for found in search("soak", 100_000):
        assert not found.problems, str(found)


@pytest.mark.soak
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("world", NAMED)
def test_no_schedule_of_many_of_a_world_of_its_own_breaks_a_promise(world):
    for found in search("soak", 10_000, world):
        assert not found.problems, str(found)
