"""The types of the rows that handlers return: what was worked out is written, or kept, and is not worked out again."""

from __future__ import annotations

import threading
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ledger.delta_log.protocol import Conflict
from ledger.errors import OutputNotWritten
from ledger.output_tables import publishing, tables_of_delta_rs


def column(table, name="score"):
    return DeltaTable(table).to_pyarrow_table()[name]


def consumed(place, answers, **given):
    """Consume messages that have these answers, one call after the other; return what was done and the calls."""
    place.queue.send([str(n) for n in range(len(answers))])
    calls = []

    def handler(message):
        calls.append(int(message.body))
        return {"score": answers[int(message.body)]}

    given = {"concurrency": 1, "max_messages": len(answers), **given}
    return place.queue.consume(handler, place.table, **given), calls


@pytest.mark.parametrize("first", [0, 1])
def test_whole_numbers_and_fractions_of_one_commit_are_fractions(place, first):
    done, calls = consumed(place, [1, 0.5, 2] if first else [0.5, 1, 2])
    assert done.messages == 3 and len(calls) == 3
    assert column(place.table).type == "double" and sorted(column(place.table).to_pylist()) == sorted([0.5, 1, 2])


def test_a_column_of_whole_numbers_that_consume_made_takes_fractions_that_come_later(place):
    done, calls = consumed(place, [1, 2, 0.5, 3], flush_rows=1, max_messages=1)
    assert (done.messages, done.failed) == (4, 0) and sorted(calls) == [0, 1, 2, 3], "each is paid for once"
    assert column(place.table).type == "double" and sorted(column(place.table).to_pylist()) == [0.5, 1, 2, 3]


def test_so_it_does_in_a_run_that_comes_later_and_inside_of_structs(place):
    for score in (1, 0.5):
        place.queue.send(str(score))
        row = {"usage": {"cost": score}, "n": 1}
        assert place.queue.consume(lambda message, row=row: row, place.table).messages == 1
    assert sorted(row["cost"] for row in column(place.table, "usage").to_pylist()) == [0.5, 1]
    assert column(place.table, "n").type == "int64"


def test_numbers_of_numpy_and_decimals_have_a_type_in_common(place):
    done, calls = consumed(place, [np.int32(1), np.int64(2**40), 7, np.float32(0.5)])
    assert done.messages == len(calls) == 4 and column(place.table).type == "double"


def test_a_column_that_its_owner_gave_a_type_keeps_it(place):
    place.queue.send("0")
    schema = pa.schema([("score", pa.int64())])
    assert place.queue.consume(lambda message: {"score": 1}, place.table, schema=schema).messages == 1
    done, calls = consumed(place, [2, 0.5, 3])
    assert (done.messages, done.failed, calls) == (2, 1, [0, 1, 2]), "and what it refuses is called for once"
    assert column(place.table).type == "int64"


@pytest.mark.parametrize("dead", [False, True])
def test_a_row_of_another_type_fails_once_and_its_row_is_kept_in_the_reason(place, dead):
    if dead:
        arn = place.ledger.create_queue("dead").arn
        place.queue.set_attributes({"RedrivePolicy": {"deadLetterTargetArn": arn, "maxReceiveCount": 9}})
    done, calls = consumed(place, [1, 2, "three", 4], max_messages=1)
    assert (done.messages, done.failed, done.rejected) == (3, 1, 0) and sorted(calls) == [0, 1, 2, 3]
    table = "dead_letters" if dead else "in_flight"
    (reason,) = place.ledger.sql(f"SELECT reason FROM {table}")["reason"].to_pylist()
    assert "column score is string, and bigint in the table" in reason and '{"score": "three"}' in reason
    assert "held as before" not in reason


def test_within_one_commit_most_rows_say_the_type(place):
    answers = [1, date(2026, 1, 1), 2, 0.5, "x", Decimal("1.5"), True, datetime(2026, 1, 1, 12), {"a": 1}, 2**70, 5]
    done, calls = consumed(place, answers)
    assert sorted(calls) == list(range(len(answers))), "none is called for twice"
    assert column(place.table).type == "double" and sorted(column(place.table).to_pylist()) == [0.5, 1, 2, 5]
    assert (done.messages, done.failed) == (4, 7)


def test_a_bad_row_does_not_let_the_others_have_other_types(place):
    """Beside a row that the table refuses, the rows of one commit still have the types of all of them."""
    done, _ = consumed(place, [1, "x", 2, 3, 0.5])
    assert (done.messages, done.failed) == (4, 1) and column(place.table).type == "double"


@pytest.mark.parametrize("answer", [{"": 1}, {" ": 1}, {"a": {"": 1}}, 7])
def test_an_answer_that_is_no_row_is_called_for_once(place, answer):
    place.queue.send(["odd", "1", "2"])
    calls = []

    def handler(message):
        calls.append(message.body)
        return answer if message.body == "odd" else {"n": 1}

    done = place.queue.consume(handler, place.table, concurrency=1)
    assert (done.messages, done.failed) == (2, 1) and sorted(calls) == ["1", "2", "odd"]


def test_a_table_that_refuses_every_row_stops_the_consumer_at_its_first_rows(place):
    consumed(place, ["text"])
    place.queue.send([str(n) for n in range(500)])
    calls, said = [], []

    def handler(message):
        calls.append(message.body)
        threading.Event().wait(0.01)  # What a call takes.
        return {"score": 0.5}

    with pytest.raises(OutputNotWritten) as raised:
        place.queue.consume(
            handler, place.table, concurrency=2, max_messages=500, flush_seconds=600, report=said.append
        )
    assert "column score is double, and string in the table" in str(raised.value)
    assert "given back" in str(raised.value) and "held as before" not in str(raised.value)
    assert "gives back 500 messages: the consumer ended with an error: column score is double" in "".join(said)
    assert len(calls) < 50 and place.queue.counts().visible == 500


@pytest.mark.parametrize("kind", [pa.int64(), pa.struct([("", pa.int64())])])
@pytest.mark.parametrize("name", ["", " ", "named"])
def test_columns_without_a_name_are_no_columns_of_a_table(place, name, kind):
    place.queue.send("1")
    claim = place.queue.receive(1)
    named = pa.table({"message_id": [claim.messages()[0].message_id], name: pa.nulls(1, kind)})
    if name == "named" and kind == pa.int64():
        assert claim.write(named, place.table).messages == 1
        return
    with pytest.raises(OutputNotWritten, match="without a name"):
        claim.write(named, place.table)
    assert not DeltaTable.is_deltatable(place.table)


def test_processes_that_write_numbers_of_other_types_at_once_pay_for_each_once(place):
    """Each makes the table, or widens its column, while others append to it."""
    place.queue.send([str(n) for n in range(80)])
    calls, results = [], []

    def handler(message):
        calls.append(message.body)
        n = int(message.body)
        return {"score": n + 0.5 if n % 4 == 3 else n, **{f"c{one}": n / one for one in range(1, 4) if n > 20}}

    def consume(queue):
        given = {"flush_rows": 3, "max_messages": 6, "concurrency": 2, "schema": None}
        results.append(queue.consume(handler, place.table, **given))

    place.queue.consume(
        lambda message: {"score": 1, "c1": 1, "c2": 1, "c3": 1}, place.table, max_messages=1, until="once"
    )
    queues = [place.another().queue("work") for _ in range(3)]
    threads = [threading.Thread(target=consume, args=(queue,)) for queue in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert sum(done.messages for done in results) == 79 == len(calls) and not any(done.failed for done in results)
    assert place.written().total() == 80 == len(place.written())
    assert column(place.table).type == "double"


def test_consumers_that_make_the_table_at_once_with_other_types_lose_no_row(place):
    place.queue.send([str(n) for n in range(12)])
    start, results, calls = threading.Barrier(4, timeout=60), [], []

    def consume(queue, value):
        def handler(message):
            calls.append(message.body)
            start.wait()
            return {"score": value}

        results.append(queue.consume(handler, place.table, max_messages=3, concurrency=1, flush_rows=1, until="once"))

    values = [1, 0.5, np.float32(0.25), np.int32(7)]
    threads = [threading.Thread(target=consume, args=(place.another().queue("work"), one)) for one in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert sum(done.messages for done in results) == 12 == len(calls) and column(place.table).type == "double"
    assert sorted(column(place.table).to_pylist()) == sorted([1, 0.5, 0.25, 7] * 3)


@pytest.fixture
def beside(place, monkeypatch):
    """Has others consume a message with an answer, when a function of the delta-rs tables has returned twice: at first
    the rows alone are looked at."""

    def register(function, answer):
        unhindered, seen = getattr(tables_of_delta_rs, function), []

        def hindered(*arguments, **given):
            result = unhindered(*arguments, **given)
            seen.append(function)
            if len(seen) == 2:
                queue = place.another().queue("others")
                assert queue.consume(lambda message: {"score": answer}, place.table, until="once").messages == 1
            return result

        place.ledger.create_queue("others").send("1")
        monkeypatch.setattr(tables_of_delta_rs, function, hindered)

    return register


def test_a_table_that_others_made_of_whole_numbers_meanwhile_takes_the_fractions(place, beside, caplog):
    caplog.set_level("INFO")
    beside("load_output", 1)
    done, calls = consumed(place, [0.5])
    assert (done.messages, done.parked, len(calls)) == (1, 0, 1)
    assert sorted(column(place.table).to_pylist()) == [0.5, 1] and "in parts" not in caplog.text


def test_a_column_that_others_made_wider_still_meanwhile_stays_so(place, beside):
    place.queue.send("first")
    place.queue.consume(lambda message: {"score": np.int32(7)}, place.table, until="once")
    beside("columns_for", 8.0)
    done, calls = consumed(place, [2**40])
    assert (done.messages, done.parked, len(calls)) == (1, 0, 1)
    assert column(place.table).type == "double" and sorted(column(place.table).to_pylist()) == [7, 8, 2**40]


def test_a_table_that_is_another_one_by_now_is_written_to_and_no_row_is_blamed(place, monkeypatch):
    """Of a write that lost a race nothing is in the table: it is tried again."""
    unhindered, lost = publishing.commit_files, list[bool]()

    def hindered(*arguments, **given):
        if len(lost) < 2:
            lost.append(True)
            raise Conflict("another table lies there by now")
        return unhindered(*arguments, **given)

    monkeypatch.setattr(publishing, "commit_files", hindered)
    done, calls = consumed(place, [1])
    assert len(lost) == 2 and (done.messages, done.parked, len(calls)) == (1, 0, 1)


@pytest.mark.parametrize(("row", "warns"), [({"token": 1}, True), ({"tokens": "1"}, True), ({"tokens": 1}, False)])
def test_a_cost_that_no_row_has_is_warned_of(place, caplog, row, warns):
    place.queue.send(["a", "b"])
    place.queue.consume(lambda message: row, place.table, cost="tokens", flush_rows=1)
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert any("no row has a number in the column 'tokens'" in line for line in said) == warns


def test_a_batch_whose_answers_are_not_as_many_is_warned_of(place, caplog):
    place.queue.send(["a", "b"])
    calls = []

    def handler(messages):
        calls.append(len(messages))
        return [{"n": 1}]

    done = place.queue.consume(handler, place.table, batch=2, concurrency=1)
    assert done.messages == 2 and calls == [2, 1, 1]
    assert "a list of 1 for a batch of 2 messages" in caplog.text and "gets the batch again in halves" in caplog.text


def test_half_a_character_fails_its_message_alone_and_is_not_paid_for_again(place):
    done, calls = consumed(place, ["a", "\ud800", "b"])
    assert (done.messages, len(calls)) == (2, 3) and sorted(column(place.table).to_pylist()) == ["a", "b"]
    counts = place.queue.counts()
    assert (counts.visible, counts.deleted) == (0, 2), "it is parked, with its answer in the reason"


def test_an_instant_inside_a_dict_never_becomes_the_date_that_another_row_has(place):
    day, instant = date(2024, 1, 1), datetime(2024, 1, 1, 5)
    done, calls = consumed(place, [{"d": day}, {"d": day}, {"d": instant}, {"d": [day, instant]}])
    assert len(calls) == 4 and done.messages + done.failed == 4
    kept = [row["d"] for row in column(place.table).to_pylist()]
    assert kept in ([day, day], [datetime(2024, 1, 1), datetime(2024, 1, 1), instant]), kept
