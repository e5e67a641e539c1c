"""Messages whose rows are gone from the table, while a claim holds them, are never acknowledged unread."""

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ledger.errors import LeaseLost, LedgerDamaged
from tests.output.conftest import rows_of


@pytest.fixture
def claim(place):
    place.queue.send([f"{n}" for n in range(6)])
    return place.queue.receive(None)


def take_out(place, predicate):
    """What somebody's DELETE does, which the ledger knows nothing of."""
    DeltaTable(f"{place.root}/messages").delete(predicate)


LOST = {"in the middle": ("seq = 2", 1), "the last": ("seq >= 4", 2), "all": ("true", 6)}


@pytest.fixture(params=LOST)
def lost(request, place, claim):
    """How many of the claim's messages were taken out."""
    predicate, count = LOST[request.param]
    take_out(place, predicate)
    return count


def told(claim, lost):
    return f"Of the 6 messages of the claim {claim.receipt_id}, {lost} have no row in the table .*/messages"


def held(place):
    """How many are recorded as held: counts are of what has a row."""
    return place.ledger.store.leases(place.ledger.store.queue("work"), place.clock)[0].messages


def test_a_claim_that_is_read_tells_of_them(place, claim, lost):
    for read in (claim.messages, lambda: list(claim), place.another().queue("work").claim(claim.receipt_id).messages):
        with pytest.raises(LedgerDamaged, match=told(claim, lost)) as raised:
            read()
    assert "claim.release()" in raised.value.advice


def test_a_write_of_the_whole_claim_is_refused(place, claim, lost):
    with pytest.raises(LedgerDamaged, match=told(claim, lost)):
        claim.write(pa.table({"sum": [15]}), place.table)
    assert held(place) == 6 and not place.log.exists()


def test_a_write_of_all_but_the_failed_is_refused(place, claim, lost):
    with pytest.raises(LedgerDamaged, match=told(claim, lost)):
        claim.write(pa.table({"sum": [15]}), place.table, failed=[])
    assert held(place) == 6


def test_what_is_left_is_received_again_once_the_claim_is_released(place, claim, lost):
    claim.release()
    again = place.queue.receive(None)
    assert again.count == len(again.messages()) == 6 - lost
    if again.count:
        assert again.write(rows_of(again), place.table).messages == 6 - lost


def test_a_part_that_has_its_rows_is_written(place, claim):
    rows = rows_of(claim).slice(3)
    take_out(place, "seq = 2")
    assert claim.write(rows, place.table, messages="message_id").messages == 3


def test_all_of_it_can_be_deleted_without_being_read(place, claim, lost):
    assert claim.delete().messages == 6
    assert (place.queue.counts().in_flight, len(claim.messages())) == (0, 6 - lost)


def test_a_message_that_was_deleted_and_dropped_since_is_not_missing(place):
    place.queue.send(["a", "b"])
    claim = place.queue.receive(None)
    claim.delete()
    place.clock.advance(40 * 86_400)
    place.ledger.upkeep()
    place.ledger.upkeep()
    assert DeltaTable(f"{place.root}/messages").to_pyarrow_table().num_rows == 0, "it was dropped"
    assert claim.messages() == []
    with pytest.raises(LeaseLost):
        claim.write(pa.table({"sum": [1]}), place.table)


def test_a_dead_letter_is_read_where_it_was_sent_to(place):
    dead = place.ledger.create_queue("dead")
    queue = place.ledger.create_queue("few", {"RedrivePolicy": {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1}})
    queue.send(["a", "b"])
    queue.receive(None).release()
    assert queue.receive(None).count == 0
    claim = dead.receive(None)
    assert claim.write(rows_of(claim), place.table).messages == 2


def test_receipts_of_a_claim_s_parts_are_read_one_by_one(place, claim):
    """A grant of some messages of a file, of which others are gone, lacks none."""
    claim.release()
    few = place.queue.receive(2)
    taken = {message.message_id for message in few}
    assert len(taken) == 2
    take_out(place, f"seq NOT IN ({', '.join(str(int(one[-8:], 16)) for one in taken)})")
    assert len(few.messages()) == 2 and few.write(rows_of(few), place.table).messages == 2
