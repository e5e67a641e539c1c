"""Every verb on S3, without Spark and without a lock of anybody's: as on a local path."""

import decimal
import json
from contextlib import nullcontext

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from ledger import Ledger
from ledger.client.move_tasks import continue_abandoned_tasks
from ledger.delta_log.object_store import ObjectStore
from ledger.delta_log.protocol import Conflict, StagedFile
from ledger.delta_log.storage import table_files
from ledger.errors import ReceiptHandleIsInvalid, StorageFailed
from ledger.output_tables.publishing import DeltaRsOutputs
from ledger.output_tables.tables_of_delta_rs import DeltaRsOutputTables
from ledger.rules import staging
from ledger.rules.output_columns import NOTHING_ASKED
from ledger.rules.publishable import demands_of_new
from ledger.store.delta.dataframes.placed_rows import IN_FILES
from ledger.store.delta.dataframes.staging import ORDINAL
from ledger.store.delta.verbs.staged_sends import open_staged_folders
from tests.clock import FrozenClock


@pytest.fixture
def clock():
    return FrozenClock()


@pytest.fixture
def ledger(s3, place, clock):
    return Ledger.open(place, storage_options=s3.options, clock=clock)


def bodies(claim):
    return [message.body for message in claim]


def test_messages_are_sent_received_extended_released_restored_and_deleted(ledger, clock):
    queue = ledger.create_queue("jobs", {"Lanes": 2, "VisibilityTimeout": 30})
    assert all(queue.send([f"m{n}" for n in range(5)]))
    claim = queue.receive(3, attempt_id="task")
    assert queue.receive(3, attempt_id="task").receipt_id == claim.receipt_id
    claim.extend(100)
    clock.advance(60)
    assert queue.counts().in_flight == 3
    first, *others = claim.messages()
    queue.delete(first.receipt_handle)
    assert queue.restore(claim.receipt_id) == 1
    queue.change_visibility([message.receipt_handle for message in others], 0)
    everything = queue.receive(None)
    assert sorted(bodies(everything)) == [f"m{n}" for n in range(5)]
    everything.release()
    (claim, other) = queue.receive_many([[4], [4]])
    assert (claim.count, other.count) == (4, 1)
    with pytest.raises(ReceiptHandleIsInvalid):
        queue.delete("no handle")
    assert claim.delete().messages == 4
    last = other.messages()[0].message_id
    other.release()
    queue.lock(last, 10)
    assert queue.peek(last).body in {f"m{n}" for n in range(5)}
    assert queue.purge() == 1 and queue.counts().stored == 0
    ledger.delete_queue("jobs")
    assert ledger.list_queues() == []


def test_fifo_queues_deduplicate_and_keep_the_order_of_a_group(ledger):
    queue = ledger.create_queue("events.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True})
    entries = [{"MessageBody": f"{group}{n}", "MessageGroupId": group} for n in range(3) for group in "ab"]
    sent = queue.send(entries)
    again = queue.send(entries)
    assert [one.message_id for one in again] == [one.message_id for one in sent]
    claim = queue.receive(1)
    assert bodies(claim) == ["a0"] and bodies(queue.receive(10)) == ["b0", "b1", "b2"]
    claim.delete()
    assert bodies(queue.receive(10)) == ["a1", "a2"]


def test_dead_letters_are_redriven_at_once_and_by_a_task(ledger, clock, by_hand):
    dead = ledger.create_queue("dead")
    policy = {"RedrivePolicy": {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1}}
    queue = ledger.create_queue("jobs", {"VisibilityTimeout": 5, **policy})
    queue.send(["x", "y"])
    for move in (dead.redrive, lambda: carried_on(ledger, dead, clock)):
        assert queue.receive(2).count == 2
        clock.advance(6)
        assert queue.receive(2).count == 0 and dead.counts().visible == 2
        move()
        assert dead.counts().stored == 0 and queue.counts().visible == 2


def carried_on(ledger, dead, clock):
    dead.start_message_move_task(max_messages_per_second=1)
    clock.advance(61)
    assert continue_abandoned_tasks(ledger.store, clock) == 1
    (task,) = dead.list_message_move_tasks()
    assert (task.status, task.moved) == ("COMPLETED", 2)


def test_upkeep_frees_the_space_and_fills_the_receipts(ledger, s3, place, clock):
    queue = ledger.create_queue("jobs")
    for _ in range(3):
        queue.send(["x"] * 10)
        queue.receive(None).delete()
    clock.advance(3 * 3_600)
    assert ledger.upkeep()
    messages = DeltaTable(f"{place}/messages", storage_options=s3.options)
    assert messages.to_pyarrow_table().num_rows == 0
    receipts = DeltaTable(f"{place}/receipts", storage_options=s3.options).to_pyarrow_table()
    assert receipts["event"].to_pylist().count("deleted") == 3


def staged(ledger, s3, clock):
    """A bulk send that has written its files, and was never heard of again."""
    folder = staging.new_folder(clock())
    schema = pa.schema([ORDINAL, *IN_FILES])
    made = ledger.store.engine.publishing().stage("messages", f"{staging.FOLDER}/{folder}", schema, [], 0)
    rows = pa.Table.from_pylist([{"ordinal": 0, "seq": 0, "body": "lost"}], schema)
    write_deltalake(made, rows, mode="append", storage_options=s3.options)
    return folder


def test_upkeep_removes_a_bulk_send_that_was_abandoned_and_no_younger_one(ledger, s3, clock):
    old, folders = staged(ledger, s3, clock), open_staged_folders(ledger.store)
    clock.advance(staging.ABANDONED)
    young = staged(ledger, s3, clock)
    ledger.upkeep()
    assert folders.names() == [old, young] and folders.has_files(old)
    assert folders.read(f"{old}/_delta_log/{1:020d}.json") is not None and folders.read(f"{old}/none") is None
    clock.advance(1)
    ledger.upkeep()
    assert folders.names() == [young] and not folders.has_files(old)
    assert ledger.store.engine.transaction_version("messages", staging.application(old)) == staging.FENCED


@pytest.mark.soak_variants("s3")
@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_rows_are_written_to_an_output_on_s3_and_the_same_ones_once(s3, place, ledger, scheme):
    ledger.create_queue("jobs").send(["a", "b"])
    output = f"{place}-output/done"
    claim = ledger.queue("jobs").receive(None)
    rows = pa.table({"message_id": [message.message_id for message in claim]})
    for _ in range(2):
        written = claim.write(rows, output.replace("s3:", f"{scheme}:"), messages="message_id")
        assert written.messages == DeltaTable(output, storage_options=s3.options).to_pyarrow_table().num_rows == 2


def test_an_output_on_s3_is_widened_and_its_rows_are_found(s3, place, ledger):
    queue, output = ledger.create_queue("jobs"), f"{place}-output/widened"
    queue.send(["a", "b"])
    long = pa.array([decimal.Decimal("12345678901234567890.5")], pa.decimal128(38, 18))
    for values, schema in ((pa.array([1], pa.int32()), None), (pa.array([2**40]), "widen")):
        claim = queue.receive(1)
        rows = pa.table({"message_id": [claim.messages()[0].message_id], "n": values, "d": long})
        claim.write(rows, output, messages="message_id", schema=schema)
    stored = DeltaTable(output, storage_options=s3.options).to_pyarrow_dataset()
    assert sorted(stored.to_table()["n"].to_pylist()) == [1, 2**40]
    assert stored.to_table(filter=(pc.field("d") == long[0]) & (pc.field("n") == 1)).num_rows == 1


def test_rows_on_s3_are_found_by_filters_whatever_delta_rs_says_of_their_files(s3, place, ledger):
    """Of decimals it says floats, and nothing right of infinity; deltalake's dataset then finds no row of the file."""
    queue, output = ledger.create_queue("jobs"), f"{place}-output/filtered"
    queue.send(["a", "b", "c"])
    long = pa.array([decimal.Decimal("12345678901234567890.5")], pa.decimal128(38, 18))
    for more in ({"x": [1.0]}, {"x": [float("inf")]}, {"x": [2.0], "added": [7]}):
        claim = queue.receive(1)
        rows = pa.table({"message_id": [claim.messages()[0].message_id], "d": long, **more})
        claim.write(rows, output, messages="message_id", schema="widen")
    table = DeltaTable(output, storage_options=s3.options)
    stored = table.to_pyarrow_dataset()
    for condition, count in ((pc.field("d") == long[0], 3), (pc.field("x") > 0, 3), (pc.field("added") == 7, 1)):
        assert stored.to_table(filter=condition).num_rows == count, condition
    assert [path for path in ObjectStore(output, s3.options).paths("ledger_writes") if "/_delta_log/" in path] == []


def test_a_long_decimal_in_a_struct_alone_is_described_exactly_on_s3_too(s3, place, ledger):
    """delta-rs's own append rounds its bounds to floats, and a reader that trusts them skips the file."""
    queue, output = ledger.create_queue("jobs"), f"{place}-output/nested"
    queue.send("a")
    claim, number = queue.receive(1), decimal.Decimal("12345678901234567890.5")
    kind = pa.struct([("d", pa.decimal128(38, 18))])
    rows = {"message_id": [claim.messages()[0].message_id], "of": pa.array([{"d": number}], kind)}
    claim.write(pa.table(rows), output, messages="message_id")
    store = ObjectStore(output, s3.options)
    entries = [line for path in store.paths("_delta_log") for line in store.get(path).decode().splitlines()]
    (log,) = [entry["add"]["stats"] for entry in map(json.loads, entries) if "add" in entry]
    bounds = json.loads(log, parse_float=decimal.Decimal)
    assert bounds["minValues"]["of"]["d"] <= number <= bounds["maxValues"]["of"]["d"]


def test_an_output_elsewhere_is_reached_by_what_is_known_of_its_bucket(s3, place, tmp_path):
    asked = []

    def known(bucket):
        asked.append(bucket)
        return s3.options

    engine, output = DeltaRsOutputTables({"retry_timeout": "5s"}, known), f"{place}-output/done"
    rows = pa.table({"message_id": ["a"]})
    engine.append_output(
        output, engine.prepare_output(output, rows, NOTHING_ASKED, nullcontext), "ledger/x", 1, {}, NOTHING_ASKED
    )
    assert engine.read_output_log(output, "ledger/x").committed == 1
    assert engine.output_publishing(output).look(output).demands.partitions == ()
    assert set(asked) == {place.split("/")[2]}
    engine.prepare_output(str(tmp_path / "output"), rows, NOTHING_ASKED, nullcontext)
    assert DeltaTable(tmp_path / "output").schema().fields[0].name == "message_id" and len(set(asked)) == 1


def test_files_are_published_once_to_a_table_that_was_made_once_and_not_to_another(s3, place):
    """As Spark would have written them: their rows are read by nobody here."""
    output, publishing = f"{place}-output/done", DeltaRsOutputs(s3.options)
    field = {"name": "message_id", "type": "string", "nullable": True, "metadata": {}}
    demands = demands_of_new(json.dumps({"type": "struct", "fields": [field]}))
    assert publishing.look(output) is None
    for now in (1, 2):
        publishing.make(output, demands, now)
    target, file = publishing.look(output), StagedFile("part-0.parquet", 1, {}, 1, '{"numRecords": 1}')
    assert target.demands.is_equivalent(demands)
    with pytest.raises(StorageFailed, match="removed"):
        publishing.publish(output, target, [file], ("ledger/x", 1), {})
    table_files(output, s3.options).write({file.path: b"rows"})
    publishing.publish(output, target, [file], ("ledger/x", 1), {})
    with pytest.raises(Conflict, match="committed before"):
        publishing.publish(output, target, [file], ("ledger/x", 1), {})
    with pytest.raises(Conflict, match="another table"):
        publishing.publish(output, target._replace(table_id="other"), [file], ("ledger/y", 1), {})
    files = DeltaTable(output, storage_options=s3.options).file_uris()
    assert [one.rpartition("/")[2] for one in files] == ["part-0.parquet"]
