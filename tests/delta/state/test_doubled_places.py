"""Two different messages of one place, as forks of earlier releases left them: upkeep keeps both, and says so."""

import pyarrow as pa
import pytest

from ledger.delta_log.join import split_by_ordinal
from ledger.errors import LedgerDamaged
from ledger.rules.message import Entry
from ledger.store.delta.model.tables import SEGMENT_FILES, TABLES
from ledger.store.delta.state.listing import Listing
from ledger.store.delta.state.sent_messages import message_rows
from tests.delta.commit.test_engines import NOW, QUEUE, SEGMENT


@pytest.fixture
def queue(open_ledger):
    return open_ledger().create_queue("work", {"Lanes": 1})


@pytest.fixture
def sent_twice(open_ledger, queue, clock):
    """A parent and its child send under the same ordinals: 0 alone, 1 both, 2 both."""
    ledger = open_ledger()
    record = ledger.store.queue("work")
    for who, bodies in (("parent", "abc"), ("child", "xyz")):
        for n, body in enumerate(bodies):
            first = n if who == "parent" or n else 3
            rows = message_rows(record, 0, SEGMENT, first, [Entry(f"{who} {body}")], clock())
            ledger.store.engine.append("messages", rows, {"operation": f"{who} {n}"})
        clock.advance(1)
    return sorted(f"{who} {body}" for who, bodies in (("parent", "abc"), ("child", "xyz")) for body in bodies)


@pytest.mark.parametrize("maximum", [10, 3, 1])
def test_a_receive_of_two_messages_of_one_place_says_what_is_wrong_and_what_repairs_it(sent_twice, queue, maximum):
    """Whoever deleted one of the two would delete the other one, too."""
    with pytest.raises(LedgerDamaged, match=r"Two messages of the table messages have the same place.*Run upkeep"):
        while queue.receive(maximum):
            pass


def test_upkeep_gives_the_later_of_two_messages_a_place_of_its_own(sent_twice, queue, open_ledger, caplog):
    open_ledger().upkeep(vacuum=False)
    assert (
        "2 rows of messages" in caplog.text and "None is lost" in caplog.text and "were there twice" not in caplog.text
    )
    assert sorted(message.body for message in queue.receive(10).messages()) == sent_twice
    assert open_ledger().upkeep(vacuum=False).lanes_compacted == 0


def test_upkeep_mends_places_before_it_looks_at_what_has_expired(sent_twice, queue, open_ledger, clock):
    clock.advance(20 * 86_400)
    open_ledger().upkeep(vacuum=False)
    assert queue.counts().visible == 0


def test_what_was_recorded_of_the_earlier_message_is_not_said_of_the_later(queue, open_ledger, clock):
    ledger = open_ledger()
    (sent,) = queue.send(["first"])
    queue.receive(1).delete()
    segment = str(sent)[:28]
    clock.advance(1)
    rows = message_rows(ledger.store.queue("work"), 0, segment, 0, [Entry("of the child")], clock())
    ledger.store.engine.append("messages", rows, {"operation": "child"})
    ledger.upkeep(vacuum=False)
    assert [message.body for message in queue.receive(10).messages()] == ["of the child"]


def test_files_of_which_the_log_tells_no_ordinals_are_not_taken_for_doubled():
    columns = [("segment", ["s", "s", "t", "t", "u"]), ("first_seq", [None, None, 0, 2, 0])]
    rows = pa.table([pa.array(values) for _, values in columns], names=[name for name, _ in columns])
    files = pa.table(
        [
            rows[kind.name].cast(kind.type) if kind.name in rows.column_names else pa.nulls(5, kind.type)
            for kind in SEGMENT_FILES
        ],
        schema=SEGMENT_FILES,
    )
    place, last, messages = (files.schema.get_field_index(name) for name in ("queue", "last_seq", "messages"))
    files = files.set_column(place, SEGMENT_FILES.field("queue"), pa.array(["q"] * 5))
    files = files.set_column(messages, SEGMENT_FILES.field("messages"), pa.array([1, 1, 2, 1, 5], pa.int64()))
    for ends, doubled in (([None, None, 1, 2, 4], set()), ([None, None, 2, 2, 3], {"t", "u"})):
        listed = files.set_column(last, SEGMENT_FILES.field("last_seq"), pa.array(ends, pa.int64()))
        assert Listing(None, 0, listed).doubled("q") == doubled


def test_equal_rows_are_one_and_all_others_stay():
    def row(seq, body, sent=NOW):
        return message_rows(QUEUE, 0, SEGMENT, seq, [Entry(body)], sent)

    rows = pa.concat_tables([row(0, "a"), row(1, "b"), row(1, "b"), row(1, "c", NOW + 1), row(1, "c", NOW + 1)])
    firsts, others = split_by_ordinal(rows, TABLES["messages"].ordinals)
    assert firsts["body"].to_pylist() == ["a", "b"] and others["body"].to_pylist() == ["c"]
    firsts, others = split_by_ordinal(rows.slice(0, 3), TABLES["messages"].ordinals)
    assert firsts["body"].to_pylist() == ["a", "b"] and others.num_rows == 0
