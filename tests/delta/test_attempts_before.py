"""Sends under attempt ids of ledgers that did not compare contents yet are still known."""

from ledger.delta_log.protocol import Conflict
from ledger.rules import message_id as ids
from ledger.rules.message import Entry
from ledger.store.delta.state.record_rows import message_rows


def test_a_send_that_was_committed_before_contents_counted_is_not_sent_again(open_ledger, clock):
    ledger = open_ledger()
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    segment = ids.segment(ids.send_key("send", queue.id, "run-1"), 0)
    rows = message_rows(queue.access.made, 0, segment, 0, [Entry("a"), Entry("b")], clock())
    ledger.store.engine.append("messages", rows, {}, (f"send/{queue.id}/run-1", 1))
    assert queue.send(["a", "b"], attempt_id="run-1") == [ids.message_id(segment, seq) for seq in (0, 1)]
    assert queue.counts().stored == 2


def test_of_one_application_a_transaction_follows_the_one_before_or_is_a_conflict(open_ledger, clock):
    """Also one that was begun before the other committed: that is how two sends of one attempt meet."""
    ledger, other = open_ledger(), open_ledger()
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    for number, (engine, version, lands) in enumerate(
        [
            (ledger, 6, True),
            (other, 6, False),
            (other, 8, False),
            (ledger, 4, False),
            (other, 7, True),
            (ledger, 7, False),
        ]
    ):
        rows = message_rows(queue.access.made, 0, ids.segment(ids.new_send_key(), 0), 0, [Entry(f"{number}")], clock())
        try:
            engine.store.engine.append("messages", rows, {}, ("attempt/x", version))
            assert lands
        except Conflict:
            assert not lands
    assert queue.counts().stored == 2
