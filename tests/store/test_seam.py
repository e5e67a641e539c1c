"""The seam of the stores: what an action asks of the rules, and how a queue changes."""

import itertools

import pyarrow as pa
import pytest

from ledger.rules import attributes, visibility
from ledger.rules.limits import Limits
from ledger.rules.visibility import UNTOUCHED, Outcome, Receipts, Verb
from ledger.store.protocol import RUNS, Action, QueueRecord, apply_action, count_messages

NOW = 1_000_000
SECOND = 1_000
HELD = visibility.receive(UNTOUCHED, "mine", None, 30, NOW - 10 * SECOND)
RELEASED = HELD._replace(released_at=NOW - 1, visible_at=NOW - 1)
LATE = HELD._replace(visible_at=NOW - 1)
NOTHING = RUNS.empty_table()


def queue(**given):
    return QueueRecord("jobs-0", "jobs", attributes.complete_attributes(given), {"a": "b"}, NOW, NOW)


@pytest.mark.parametrize("record", [HELD, RELEASED, LATE, UNTOUCHED])
@pytest.mark.parametrize("fifo", [False, True])
def test_v10_an_action_of_deleting_is_the_rule_for_the_queues_type(record, fifo):
    of = queue(FifoQueue=True) if fifo else queue()
    for whole in (False, True):
        action = Action(Verb.DELETE, "mine", NOTHING, whole_claim=whole)
        found = apply_action(of, action, record, Limits(), Receipts.FENCED, NOW)
        assert found == visibility.delete(record, "mine", NOW, whole_claim=whole, fifo=fifo)


@pytest.mark.parametrize("record", [HELD, RELEASED, LATE, UNTOUCHED])
def test_v4_to_v9_an_action_of_changing_is_the_rule_under_the_queues_limits(record):
    flags = itertools.product((0, 60, 5), Receipts, (False, True), (False, True), (None, 40))
    for timeout, receipts, whole, only_later, ceiling in flags:
        action = Action(Verb.CHANGE, "mine", NOTHING, timeout, whole, only_later)
        found = apply_action(queue(), action, record, Limits(maximum_visibility_timeout=ceiling), receipts, NOW)
        assert found == visibility.change(
            record, "mine", timeout, NOW,
            ceiling=ceiling, receipts=receipts, whole_claim=whole, only_later=only_later,
        )  # fmt: skip
    assert (
        apply_action(queue(), Action(Verb.CHANGE, "other", NOTHING, 60), HELD, Limits(), Receipts.FENCED, NOW)[0]
        is Outcome.STALE
    )


def test_an_action_is_of_one_receipt_and_of_single_messages_unless_it_says_otherwise():
    action = Action(Verb.CHANGE, "mine", NOTHING)
    assert (action.timeout, action.whole_claim, action.only_later) == (0, False, False)


def test_a_change_of_a_queue_counts_its_revision_up_and_what_changes_nothing_is_the_same_queue():
    before = queue(VisibilityTimeout=5)
    assert before.changed(dict(before.attributes), {"a": "b"}, NOW + 1) is before
    for changed in (
        before.changed(attributes.complete_attributes({"VisibilityTimeout": 6}), before.tags, NOW + 1),
        before.changed(before.attributes, {}, NOW + 1),
    ):
        assert (changed.id, changed.name, changed.created_at) == ("jobs-0", "jobs", NOW)
        assert (changed.revision, changed.modified_at) == (2, NOW + 1)
    assert before.changed(before.attributes, {"c": "d"}, NOW - 1) == QueueRecord(
        "jobs-0", "jobs", before.attributes, {"c": "d"}, NOW, NOW, 2
    ), "time never goes back"


def test_q7_what_has_expired_when_the_period_is_raised_stays_so():
    before = queue(MessageRetentionPeriod=60)
    raised = before.changed(attributes.complete_attributes({"MessageRetentionPeriod": 600}), before.tags, NOW)
    assert raised.expired_before == raised.retention.expired_before == NOW - 60 * SECOND
    assert raised.retention.period == 600 * SECOND
    assert before.changed(before.attributes, {}, NOW).expired_before == -1, "another change says nothing about it"


def test_q7_what_an_upkeep_found_expired_is_noted_once():
    before = queue(MessageRetentionPeriod=60)
    noted = before.expired(NOW)
    assert (noted.expired_before, noted.revision) == (NOW - 60 * SECOND, 2)
    assert noted.expired(NOW) is noted and noted.expired(NOW - 1) is noted


def test_runs_hold_their_first_message_their_last_and_all_between():
    rows = [("s", 0, 0), ("s", 2, 5), ("t", 7, 16)]
    runs = pa.Table.from_pylist(
        [{"lane": 0, "segment": s, "first_seq": first, "last_seq": last} for s, first, last in rows], schema=RUNS
    )
    assert count_messages(runs) == 15 and count_messages(NOTHING) == 0
