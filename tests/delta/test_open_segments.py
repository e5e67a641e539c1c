"""The open segments of one writer: what it appends to no more it knows no more."""

from ledger.store.delta.verbs.sending import FEW_OPEN

OPEN = 60


def test_segments_that_are_appended_to_no_more_are_let_go_of_and_the_others_go_on(open_ledger, clock):
    sender = open_ledger(open_segment_seconds=OPEN).store.send.__self__._sender
    for n in range(10 * FEW_OPEN):
        sender._next(_queue(f"deleted {n}"), 0, 1, clock())
        clock.advance(1)
        if n == 9 * FEW_OPEN:
            segment, _ = sender._next(_queue("young"), 0, 2, clock())
        if n == 9 * FEW_OPEN + OPEN - 2:
            assert sender._next(_queue("young"), 0, 1, clock()) == (segment, 2)
    assert len(sender._open) <= 2 * FEW_OPEN


def _queue(name):
    return type("Named", (), {"id": name})
