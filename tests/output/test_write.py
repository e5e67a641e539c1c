"""claim.write: a claim's rows are in the output exactly as often as its messages are acknowledged, once."""

import subprocess
import sys
from decimal import Context, Decimal
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, Field, QueryBuilder, Schema

from ledger import Ledger
from ledger.errors import InvalidParameterValue, LeaseLost, LedgerError, OutputNotWritten, SparkIsNeeded
from tests.output.conftest import rows_of


class Crash(Exception):
    """The process is gone, as far as the ledger can tell."""


def crash():
    raise Crash


#: Every step of a write: which step, for the how-many-th time, and whether the rows are in by then.
STEPS = [
    ("chosen", 1, False), ("committed", 1, False), ("begun", 1, False),
    ("written", 1, True), ("chosen", 2, True), ("committed", 2, True),
]  # fmt: skip


def test_a_write_stores_the_rows_and_deletes_the_messages(place):
    ids = place.queue.send(["a", "b", "c"])
    claim = place.queue.receive(None)
    settled = claim.write(rows_of(claim), place.table)
    assert (settled.messages, settled.lost) == (3, 0)
    assert place.written() == dict.fromkeys(ids, 1) and place.queue.counts().deleted == 3


@pytest.mark.parametrize(("step", "times", "rows_are_in"), STEPS)
def test_after_a_crash_at_any_step_others_do_exactly_what_is_missing(place, at_step, step, times, rows_are_in):
    ids = place.queue.send(["a", "b", "c"])
    claim = place.queue.receive(None)
    at_step(step, crash, times)
    with pytest.raises(Crash):
        claim.write(rows_of(claim), place.table)
    place.clock.advance(31)
    queue = place.another().queue("work")
    taken = queue.receive(None)
    assert taken.count == (0 if rows_are_in else 3)
    taken.write(rows_of(taken), place.table)
    assert place.written() == dict.fromkeys(ids, 1) and queue.counts().deleted == 3


@pytest.mark.parametrize("theirs", [None, "their job"])
@pytest.mark.parametrize("own", [None, "own job"])
def test_a_write_under_way_is_nobody_elses_business_while_its_messages_are_held(place, at_step, own, theirs):
    """Who receives meanwhile, as an attempt or not, neither asks the table nor fences the write off."""
    ids = place.queue.send(["a", "b"])
    claim = place.queue.receive(2, attempt_id=own)
    others = []
    at_step("begun", lambda: others.append(place.another().queue("work").receive(None, attempt_id=theirs)))
    assert claim.write(rows_of(claim), place.table).messages == 2
    assert [other.count for other in others] == [0]
    assert place.written() == dict.fromkeys(ids, 1) and place.queue.counts().deleted == 2
    assert not claim and claim.held == 0, "what was written is acknowledged, and held no more"


def test_a_retry_that_is_refused_for_asking_for_fewer_leaves_the_write_of_the_earlier_run_alone(place, at_step):
    ids = place.queue.send(["a", "b"])
    claim = place.queue.receive(2, attempt_id="job")

    def retry():
        with pytest.raises(InvalidParameterValue, match="claim of 2 messages"):
            place.another().queue("work").receive(1, attempt_id="job")

    at_step("begun", retry)
    assert claim.write(rows_of(claim), place.table).messages == 2
    assert place.written() == dict.fromkeys(ids, 1)


def test_who_receives_at_the_very_instant_of_the_deadline_asks_the_table_first(place, at_step):
    """A deadline that equals now has passed: the messages are free, and still in doubt."""
    ids = place.queue.send(["a", "b", "c"])
    claim = place.queue.receive(None)
    at_step("written", crash)
    with pytest.raises(Crash):
        claim.write(rows_of(claim), place.table)
    place.clock.advance(30)
    assert place.another().queue("work").receive(None).count == 0
    assert place.written() == dict.fromkeys(ids, 1) and place.queue.counts().deleted == 3


@pytest.mark.parametrize(("step", "times", "rows_are_in"), STEPS)
def test_a_retry_with_the_same_attempt_does_exactly_what_is_missing(place, at_step, step, times, rows_are_in):
    ids = place.queue.send(["a", "b", "c"])
    claim = place.queue.receive(None, attempt_id="job")
    at_step(step, crash, times)
    with pytest.raises(Crash):
        claim.write(rows_of(claim), place.table)
    again = place.another().queue("work").receive(None, attempt_id="job")
    assert again.count == (0 if rows_are_in else 3)
    again.write(rows_of(again), place.table)
    assert place.written() == dict.fromkeys(ids, 1) and place.queue.counts().deleted == 3


@pytest.mark.parametrize(("step", "times", "rows_are_in"), STEPS)
def test_the_same_write_again_writes_nothing_twice(place, at_step, step, times, rows_are_in):
    ids = place.queue.send(["a", "b", "c"])
    claim = place.queue.receive(None)
    rows = rows_of(claim)
    at_step(step, crash, times)
    with pytest.raises(Crash):
        claim.write(rows, place.table)
    assert claim.write(rows, place.table).messages == 3
    assert place.written() == dict.fromkeys(ids, 1) and place.queue.counts().deleted == 3


def test_one_that_lost_its_lease_before_it_wrote_writes_nothing(place, at_step):
    ids = place.queue.send(["a", "b"])
    slow = place.queue.receive(None)
    rows, takers = rows_of(slow), []

    def taken_over():
        place.clock.advance(31)
        takers.append(place.another().queue("work").receive(None))

    at_step("begun", taken_over)
    with pytest.raises(LeaseLost, match="nothing of this write"):
        slow.write(rows, place.table)
    (taker,) = takers
    assert not place.written() and taker.count == 2
    taker.write(rows_of(taker), place.table)
    assert place.written() == dict.fromkeys(ids, 1)


def test_one_that_wrote_before_it_lost_its_lease_is_done(place, at_step):
    ids = place.queue.send(["a", "b"])
    slow = place.queue.receive(None)
    takers = []

    def too_late():
        place.clock.advance(31)
        takers.append(place.another().queue("work").receive(None))

    at_step("written", too_late)
    assert slow.write(rows_of(slow), place.table).messages == 2
    assert not takers[0] and place.written() == dict.fromkeys(ids, 1) and place.queue.counts().deleted == 2


def test_a_decimal_of_many_digits_is_found_by_its_value(place):
    """delta-rs writes the bounds of a file's decimals as floats: a reader that filters would pass the file by."""
    place.queue.send("a")
    claim = place.queue.receive()
    rows = {"d": pa.array([Decimal("0.1234567890123456789")], pa.decimal128(20, 19))}
    rows["n"] = pa.array([Decimal("1.5")], pa.decimal128(5, 1))
    claim.write(pa.table({**rows, "message_id": [message.message_id for message in claim]}), place.table)
    found = QueryBuilder().register("output", DeltaTable(place.table))
    assert (
        found.execute("SELECT * FROM output WHERE d = arrow_cast('0.1234567890123456789', 'Decimal128(20, 19)')")
        .read_all()
        .num_rows
        == 1
    )
    (bounds,) = pa.table(DeltaTable(place.table).get_add_actions(flatten=True))["min.n"].to_pylist()
    assert bounds == Decimal("1.5")


@pytest.mark.parametrize("value", ["0.1234567890123456789", "999999999999.999", "99999999999999999999.5", "-1e-18"])
def test_every_reader_that_filters_finds_a_decimal(place, value):
    kind = pa.decimal128(38, 18)
    value = Decimal(value).quantize(Decimal(1).scaleb(-18), context=Context(prec=38))
    for others in ([], ["1.5"], [None]):
        place.queue.send(["a"] * (1 + len(others)))
        claim = place.queue.receive(10)
        values = [value, *(one and Decimal(one) for one in others)]
        rows = {"d": pa.array(values, kind), "s": pa.array([{"d": one} for one in values], pa.struct([("d", kind)]))}
        claim.write(pa.table({**rows, "message_id": [message.message_id for message in claim]}), place.table)
    wanted, table = pa.scalar(value, kind), DeltaTable(place.table)
    assert table.to_pyarrow_dataset().to_table(filter=pc.field("d") == wanted).num_rows == 3
    assert table.to_pyarrow_dataset().to_table(filter=pc.field("s", "d") == wanted).num_rows == 3
    assert pl.scan_delta(place.table).filter(pl.col("d") == value).collect().height == 3
    found = QueryBuilder().register("output", table)
    wanted = f"arrow_cast('{value:f}', 'Decimal128(38, 18)')"
    for column in ("d", "s['d']"):
        assert found.execute(f"SELECT * FROM output WHERE {column} = {wanted}").read_all().num_rows == 3


#: Rows that are a slice of longer ones, with a struct inside a struct: delta-rs ends the process for them.
SLICED = """
import sys
import pyarrow as pa
from ledger import Ledger
queue = Ledger.open(sys.argv[1]).create_queue("work")
queue.send([str(n) for n in range(8)])
claim = queue.receive(8)
ids = [message.message_id for message in claim]
table = pa.table({"message_id": ids, "x": [{"f": {"a": str(n)}, "l": [{"b": n}]} for n in range(8)]})
claim.write(table.slice(2, 3), sys.argv[2], messages="message_id")
claim.write(table.to_batches(max_chunksize=3)[2], sys.argv[2], messages="message_id")
"""


def test_slices_of_nested_rows_are_written(tmp_path):
    output = str(tmp_path / "output")
    done = subprocess.run([sys.executable, "-c", SLICED, str(tmp_path / "ledger"), output], capture_output=True)
    assert done.returncode == 0, done.stderr[-2_000:]
    rows = DeltaTable(output).to_pyarrow_table()["x"].to_pylist()
    assert sorted(row["f"]["a"] for row in rows) == ["2", "3", "4", "6", "7"]
    assert all(str(row["l"][0]["b"]) == row["f"]["a"] for row in rows)


def test_an_interrupt_within_a_generator_of_rows_is_an_interrupt(place):
    place.queue.send("a")
    claim = place.queue.receive()
    schema = pa.schema([("message_id", pa.string())])

    def batches():
        yield pa.record_batch([["m"]], schema=schema)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        claim.write(pa.RecordBatchReader.from_batches(schema, batches()), place.table)


@pytest.mark.parametrize(
    ("kind", "text", "said", "stored"),
    [
        ("char(3)", "ü", None, "ü  "), ("char(3)", None, None, None), ("char(3)", "four", "4 characters", None),
        ("varchar(3)", "ü", None, "ü"), ("varchar(3)", "four", "4 characters", None),
        ("array<char(3)>", "four", "write a DataFrame", None),
    ],
)  # fmt: skip
def test_texts_of_an_arrow_table_have_the_length_that_their_column_asks_for(place, kind, text, said, stored):
    """Spark alone knows of it: it is no constraint to Delta."""
    place.queue.send("a")
    claim = place.queue.receive()
    fields = [Field("message_id", "string"), Field("code", "string", metadata={"__CHAR_VARCHAR_TYPE_STRING": kind})]
    DeltaTable.create(place.table, Schema(fields))
    ids = [message.message_id for message in claim]
    rows = pa.table({"message_id": ids, "code": pa.array([text], pa.string())})
    if said is None:
        claim.write(rows, place.table)
        assert DeltaTable(place.table).to_pyarrow_table()["code"].to_pylist() == [stored]
        return
    with pytest.raises(OutputNotWritten, match=said):
        claim.write(rows, place.table)
    assert not place.written() and place.queue.counts().in_flight == 1


def test_a_part_of_a_claim_is_written_and_the_rest_stays_held(place):
    place.queue.send(["a", "b", "c"])
    claim = place.queue.receive(None)
    first, *rest = list(claim)
    assert claim.write(rows_of(claim).slice(0, 1), place.table, messages=[first.receipt_handle]).messages == 1
    assert place.written() == {first.message_id: 1}
    assert (place.queue.counts().deleted, place.queue.counts().in_flight) == (1, 2)
    with pytest.raises(LeaseLost, match="written by an earlier call"):
        claim.write(rows_of(claim), place.table)
    claim.write(rows_of(claim).slice(1), place.table, messages=[m.receipt_handle for m in rest])
    assert sum(place.written().values()) == 3 and place.queue.counts().deleted == 3


def test_after_a_crash_in_a_part_only_the_other_messages_come_back(place, at_step):
    place.queue.send(["a", "b", "c"])
    claim = place.queue.receive(None)
    done = [m.receipt_handle for m in claim][:2]
    at_step("written", crash)
    with pytest.raises(Crash):
        claim.write(rows_of(claim).slice(0, 2), place.table, messages=done)
    place.clock.advance(31)
    assert place.queue.receive(None).count == 1 and place.queue.counts().deleted == 2


def test_what_was_acknowledged_without_its_rows_is_not_written_afterwards(place):
    place.queue.send(["a", "b"])
    claim = place.queue.receive(None)
    place.queue.delete(next(iter(claim)).receipt_handle)
    with pytest.raises(LeaseLost):
        claim.write(rows_of(claim), place.table)
    assert not place.written() and place.queue.counts().in_flight == 1


def test_a_write_in_doubt_is_decided_before_a_dead_letter_is_moved_or_redriven(place, at_step):
    dead = place.ledger.create_queue("dead")
    place.queue.set_attributes({"RedrivePolicy": {"deadLetterTargetArn": "dead", "maxReceiveCount": 1}})
    place.queue.send("a")
    claim = place.queue.receive()
    at_step("written", crash)
    with pytest.raises(Crash):
        claim.write(rows_of(claim), place.table)
    place.clock.advance(31)
    assert not place.queue.receive() and dead.counts().stored == 0 and place.queue.counts().deleted == 1


def test_restored_messages_are_received_and_may_be_written_anew(place):
    (message_id,) = place.queue.send("a")
    claim = place.queue.receive()
    claim.write(rows_of(claim), place.table)
    assert place.queue.restore(claim.receipt_id) == 1
    again = place.queue.receive()
    again.write(rows_of(again), place.table)
    assert place.written() == {message_id: 2}, "its owner asked for it"


def test_of_a_claim_that_is_over_when_it_is_found_again_no_row_is_lost_in_silence(place):
    place.queue.send(["a", "b"])
    claim = place.queue.receive(None)
    rows = rows_of(claim)
    place.clock.advance(31)
    assert place.another().queue("work").receive(None).count == 2
    again = place.queue.claim(claim.receipt_id)
    assert not again
    with pytest.raises(LeaseLost, match=f"under the receipt {claim.receipt_id}.*None of these rows"):
        again.write(rows, place.table)
    assert again.write(rows.slice(0, 0), place.table).messages == 0 and place.written() == {}
    assert place.queue.receive(None).write(rows, place.table).messages == 0, (
        "nothing was received, and nothing is wrong"
    )


def test_who_writes_a_claim_in_parts_without_naming_their_messages_is_told(place, caplog):
    place.queue.send(["a", "b"])
    claim = place.queue.receive(None)
    rows = rows_of(claim)
    claim.write(rows.slice(0, 1), place.table)
    assert "not in" not in caplog.text
    assert claim.write(rows.slice(1), place.table).messages == 2
    assert f"the rows of this call are not in {place.table}" in caplog.text and "messages=" in caplog.text
    assert len(place.written()) == 1


def test_a_write_that_fails_leaves_the_claim_as_it_was(place):
    place.queue.send("a")
    claim = place.queue.receive()
    claim.write(rows_of(claim).slice(0, 0), place.table)
    place.queue.send("b")
    claim = place.queue.receive()
    with pytest.raises(Exception, match=r"(?i)schema|field|cast"):
        claim.write(pa.table({"something": [1], "else": ["x"]}), place.table)
    assert place.queue.counts().in_flight == 1
    assert claim.write(rows_of(claim), place.table).messages == 1 and sum(place.written().values()) == 1


def test_bad_input_is_refused_and_changes_nothing(place):
    place.queue.send(["a", "b"])
    claim, other = place.queue.receive(), place.queue.receive()
    for rows, table, messages, error in (
        ([1, 2], place.table, None, InvalidParameterValue),
        (rows_of(claim), "", None, InvalidParameterValue),
        (rows_of(claim), "some.table", None, SparkIsNeeded),
        (rows_of(claim), place.table, [next(iter(other)).receipt_handle], InvalidParameterValue),
        (rows_of(claim), place.table, ["no handle"], ValueError),
    ):
        with pytest.raises(error):
            claim.write(rows, table, messages=messages)
    assert not place.written() and place.queue.counts().in_flight == 2
    assert place.queue.receive().write(rows_of(claim), place.table).messages == 0


def test_no_output_is_laid_around_the_tables_of_the_ledger(place):
    """On an object store, too, where no folder is looked into: a VACUUM of the output would remove the files."""
    outputs = place.ledger.store.outputs
    for table in (place.root, str(Path(place.root).parent), f"{place.root}/messages", f"{place.root}/messages/x"):
        with pytest.raises(InvalidParameterValue, match="ledger's own"):
            outputs.require_allowed(table)
    outputs.require_allowed(f"{place.root}/output")


def test_a_ledger_in_memory_says_that_it_cannot(place):
    queue = Ledger.in_memory().create_queue("work")
    queue.send("a")
    claim = queue.receive()
    with pytest.raises(LedgerError, match="in memory"):
        claim.write(rows_of(claim), place.table)
