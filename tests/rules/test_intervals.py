"""M3: how soon a queue may be purged again, and a queue be made under the name of one that was deleted."""

import pytest

from ledger.errors import PurgeQueueInProgress, QueueDeletedRecently
from ledger.rules import limits
from ledger.rules.limits import SQS, UNBOUNDED

NOW = 1_000_000
MINUTE = 60_000


@pytest.mark.parametrize("require", [limits.require_purge, limits.require_name])
def test_m3_what_was_never_done_or_an_interval_ago_may_be_done_and_without_limits_at_once(require):
    require("jobs", None, SQS, 60, NOW)
    require("jobs", None, UNBOUNDED, 60, NOW)
    require("jobs", NOW, SQS, 60, NOW + MINUTE)
    require("jobs", NOW, SQS, 0, NOW)
    require("jobs", NOW, UNBOUNDED, 60, NOW)


@pytest.mark.parametrize("since", [0, MINUTE - 1])
def test_m3_recorded_a_queue_is_not_purged_again_within_the_interval(since):
    with pytest.raises(PurgeQueueInProgress) as raised:
        limits.require_purge("jobs", NOW, SQS, 60, NOW + since)
    assert raised.value.message == "Only one PurgeQueue operation on jobs is allowed every 60 seconds."
    assert "Nothing was purged." in raised.value.advice and "purge_interval at 0" in raised.value.advice


@pytest.mark.parametrize("since", [0, MINUTE - 1])
def test_m3_the_name_of_a_deleted_queue_is_not_given_again_within_the_interval(since):
    with pytest.raises(QueueDeletedRecently) as raised:
        limits.require_name("jobs", NOW, SQS, 60, NOW + since)
    assert raised.value.message == (
        "You must wait 60 seconds after deleting a queue before you can create another with the same name."
    )
    assert "It is jobs." in raised.value.advice and "deletion_interval at 0" in raised.value.advice
