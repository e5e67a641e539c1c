"""What a restore and a lock do with messages in doubt: the output table is asked first, as at a takeover."""

import pytest

from ledger.errors import LeaseLost, LedgerError, OutputUnreadable
from tests.output.conftest import rows_of
from tests.output.silent_tables import gone, made_anew, there_again
from tests.output.test_doubts import doubt


def test_its_owner_may_say_what_became_of_a_table_that_is_gone(place, at_step):
    claim = doubt(place, at_step, ["a", "b", "c"])
    gone(place)
    place.clock.advance(31)
    queue = place.another().queue("work")
    (first, *_) = [m.receipt_handle for m in claim]
    queue.delete([first])
    assert queue.counts().stored == 2
    assert queue.restore(claim.receipt_id) == 3
    assert queue.receive(None).count == 3


@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_restore_beside_a_writer_that_stands_still_fences_it_off(place, at_step, acknowledged):
    """It took the writer for dead and asked nobody: the row was in the table twice."""
    ids = place.queue.send(["a", "b"])
    first = place.queue.receive(None)
    handles = [m.receipt_handle for m in first]

    def meanwhile():
        queue = place.another().queue("work")
        if acknowledged:
            queue.delete(handles)
        else:
            place.clock.advance(31)
        assert queue.restore(first.receipt_id) == 2
        second = queue.receive(None)
        assert second.write(rows_of(second), place.table).messages == 2

    at_step("begun", meanwhile)
    with pytest.raises(LeaseLost):
        first.write(rows_of(first), place.table)
    assert place.written() == dict.fromkeys(ids, 1) and place.queue.counts().deleted == 2


def test_a_restore_gives_back_what_is_in_doubt_whether_its_rows_are_in_or_not(place, at_step):
    for step in ("begun", "written"):
        claim = doubt(place, at_step, step=step)
        queue = place.another().queue("work")
        assert queue.restore(claim.receipt_id) == 0, "it is held"
        place.clock.advance(31)
        assert queue.restore(claim.receipt_id) == 2 and queue.restore(claim.receipt_id) == 0
        assert queue.receive(None).count == 2
        queue.purge()


@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_restore_is_refused_where_the_table_is_there_and_cannot_tell(place, at_step, silent, acknowledged):
    breaks, step = silent
    claim = doubt(place, at_step, step=step)
    queue = place.another().queue("work")
    if acknowledged:
        queue.delete([m.receipt_handle for m in claim])
    place.clock.advance(31)
    breaks(place)
    if breaks in (gone, made_anew):
        assert queue.restore(claim.receipt_id) == 2, "its owner says that it is gone for good"
        return
    before = queue.counts()
    with pytest.raises(OutputUnreadable, match=place.table):
        queue.restore(claim.receipt_id)
    assert queue.counts() == before
    there_again(place)
    assert queue.restore(claim.receipt_id) == 2


def test_a_lock_of_what_is_in_doubt_asks_the_table_first(place, at_step):
    for step in ("begun", "written"):
        claim = doubt(place, at_step, step=step)
        ids = [m.message_id for m in claim]
        place.clock.advance(31)
        queue = place.another().queue("work")
        if step == "begun":
            queue.lock(ids[0], 60)
            assert [m.message_id for m in queue.receive(None)] == [ids[1]]
            queue.purge()
        else:
            with pytest.raises(LedgerError, match="deleted"):
                queue.lock(ids[0], 60)
            assert queue.peek(ids[0]).status.value == "deleted"


def test_a_lock_of_what_nobody_can_tell_about_is_refused_and_its_owner_can_have_it_back(place, at_step, silent):
    """The lock dropped the receipt: no restore found the message, and nobody could ever receive it again."""
    breaks, step = silent
    claim = doubt(place, at_step, step=step)
    (other,) = place.queue.send("other")
    place.clock.advance(31)
    breaks(place)
    queue = place.another().queue("work")
    for message_id in [m.message_id for m in claim]:
        with pytest.raises(OutputUnreadable, match=place.table):
            queue.lock(message_id, 1)
    queue.lock(other, 1)
    if breaks in (gone, made_anew):
        assert queue.restore(claim.receipt_id) == 2 and queue.receive(None).count == 2
