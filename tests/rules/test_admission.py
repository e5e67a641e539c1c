"""Q2, Q3: how many messages a receive may take under the quota; and what a send may add to a bounded queue."""

import pytest

from ledger.errors import OverLimit
from ledger.rules.attributes import complete_attributes, limits_of
from ledger.rules.limits import SQS, UNBOUNDED, Limits, admit, require_bytes, require_room

FIVE = Limits(maximum_in_flight=5)


@pytest.mark.parametrize("fifo", [False, True])
@pytest.mark.parametrize(
    ("asked", "in_flight", "admitted"), [(3, 0, 3), (5, 0, 5), (6, 0, 5), (None, 0, 5), (3, 4, 1), (None, 4, 1)]
)
def test_q2_q3_a_receive_takes_at_most_what_the_quota_leaves(asked, in_flight, admitted, fifo):
    assert admit(asked, in_flight, FIVE, fifo=fifo) == admitted


@pytest.mark.parametrize("in_flight", [5, 6])
def test_q2_at_the_quota_a_standard_queue_is_over_its_limit(in_flight):
    with pytest.raises(OverLimit, match=f"{in_flight} messages are in flight.*limit is 5.*UNBOUNDED") as raised:
        admit(1, in_flight, FIVE, fifo=False)
    assert raised.value.code == "OverLimit"
    assert raised.value.message == "The maximum number of in flight messages is reached."


@pytest.mark.parametrize("in_flight", [5, 6])
def test_q3_at_the_quota_a_fifo_queue_answers_nothing(in_flight):
    assert admit(1, in_flight, FIVE, fifo=True) == admit(None, in_flight, FIVE, fifo=True) == 0


@pytest.mark.parametrize("asked", [1, None])
def test_q4_an_unbounded_queue_has_no_quota(asked):
    assert admit(asked, 10**9, UNBOUNDED, fifo=False) == asked


def test_q2_q3_the_quotas_are_those_of_the_service():
    assert SQS.maximum_in_flight == 120_000
    assert limits_of(complete_attributes({"Limits": "SQS"})).maximum_in_flight == 120_000
    assert limits_of(complete_attributes({"Limits": "SQS", "FifoQueue": "true"})).maximum_in_flight == 20_000
    assert limits_of(complete_attributes({"FifoQueue": "true"})).maximum_in_flight is None


@pytest.mark.parametrize(("require", "bounds"), [
    (require_room, Limits(maximum_messages=10)), (require_bytes, Limits(maximum_stored_bytes=10))
])  # fmt: skip
def test_a_send_may_reach_a_queues_bound_and_not_pass_it(require, bounds):
    for stored, added in ((0, 10), (7, 3), (9, 1), (10, 0), (30, 0)):
        require("q", stored, added, bounds)
    for stored, added, advice in ((0, 11, "at most 10"), (8, 3, "at most 2"), (10, 1, "wait"), (30, 1, "wait")):
        with pytest.raises(OverLimit, match=f"{added} more would pass its Maximum.* of 10") as refused:
            require("q", stored, added, bounds)
        assert advice in refused.value.advice and "Nothing was sent" in refused.value.advice
    require("q", 10**15, 10**15, UNBOUNDED)


def test_a_queue_has_the_bounds_that_it_was_given():
    bounds = limits_of(complete_attributes({"MaximumMessages": 7, "MaximumStoredBytes": 999_999_999_999_999}))
    assert (bounds.maximum_messages, bounds.maximum_stored_bytes) == (7, 999_999_999_999_999)
    old = {name: value for name, value in complete_attributes({}).items() if not name.startswith("MaximumStored")}
    assert limits_of(old).maximum_stored_bytes is limits_of(complete_attributes({})).maximum_stored_bytes is None
