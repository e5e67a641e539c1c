"""A queue's messages taken to another queue, to a file, and back: all that is not done, as it was, once."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ledger import Ledger
from ledger.errors import InvalidParameterValue, StorageFailed
from tests.clock import FrozenClock

TYPED = {"DataType": "Number.int", "StringValue": "1"}
ENTRIES = [
    {"MessageBody": "plain"},
    {
        "MessageBody": "with all",
        "MessageAttributes": {
            "kind": "express",
            "n": 7,
            "raw": b"\x00\xff",
            "typed": {"DataType": "Number.int", "StringValue": "1"},
        },
        "AWSTraceHeader": "Root=1-5759e988-bd862e3fe1be46a994272793",
    },
    {"MessageBody": "of a group", "MessageGroupId": "tenant-7"},
]


def shown(message):
    return (
        message.body,
        dict(message.message_attributes),
        message.message_group_id,
        message.message_deduplication_id,
        message.aws_trace_header,
        message.sender_id,
    )


def all_of(queue):
    return queue.receive(None, 600).messages()


@pytest.mark.spark_too
def test_a_copy_has_what_is_not_acknowledged_as_it_was(make_queue, clock):
    queue, target = make_queue(Lanes=2), make_queue(Lanes=3)
    queue.send(["done", "gone"])
    queue.receive(None).delete()
    queue.send(ENTRIES)
    clock.advance(10)
    held = queue.receive(1, 600)
    assert held and queue.copy_to(target).messages == 3
    assert queue.counts().in_flight == 1 and queue.counts().visible == 2, "the queue keeps its own"
    mine, copies = held.messages() + all_of(queue), all_of(target)
    assert sorted(map(str, map(shown, copies))) == sorted(map(str, map(shown, mine)))
    assert {m.sent_at for m in copies} == {m.sent_at for m in mine}
    assert {m.receive_count for m in copies} == {1}
    assert not {m.message_id for m in copies} & {m.message_id for m in mine}


@pytest.mark.spark_too
def test_the_same_copy_again_sends_nothing_and_another_attempt_all(make_queue, clock):
    queue, target = make_queue(Lanes=2), make_queue(Lanes=2)
    queue.send([f"m{n}" for n in range(250)])
    assert (queue.copy_to(target).messages, target.counts().visible) == (250, 250)
    target.receive(None).delete()
    clock.advance(1)
    queue.send("later")
    again = queue.copy_to(target)
    assert (again.messages, again.before, target.counts().visible) == (0, 250, 0)
    assert queue.copy_to(target, attempt_id="second").messages == 251
    assert queue.copy_to(target, attempt_id="second").messages == 0


def test_a_copy_that_failed_midway_goes_on_where_it_was(make_queue, clock):
    """What was acknowledged or came meanwhile is not in it."""
    queue, target = make_queue(Lanes=1), make_queue(Lanes=1, MaximumMessageSize=1024)
    for first in range(0, 300, 50):
        queue.send([f"m{n:03}" for n in range(first, first + 50)])
        clock.advance(1)
        if first == 100:
            queue.send("x" * 2_000)
            clock.advance(1)
    with pytest.raises(InvalidParameterValue, match="shorter than 1024 bytes") as caught:
        queue.copy_to(target)
    assert "MaximumMessageSize" in caught.value.advice and target.counts().visible == 100
    queue.send("meanwhile")
    handles = {message.body: message.receipt_handle for message in all_of(queue)}
    queue.delete([handles["m000"], handles["m299"]])
    target.set_attributes({"MaximumMessageSize": 4096})
    rest = queue.copy_to(target)
    assert (rest.messages, rest.before) == (200, 100)
    copied = sorted(m.body for m in all_of(target))
    assert copied == sorted({f"m{n:03}" for n in range(299)} | {"x" * 2_000})


def test_a_message_that_is_moved_away_and_back_meanwhile_is_not_copied_twice(make_queue, clock):
    dead = make_queue(Lanes=1)
    queue = make_queue(Lanes=1, RedrivePolicy={"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1})
    target = make_queue(Lanes=1)
    queue.send("a")
    assert queue.copy_to(target).messages == 1
    queue.receive(1, 0)
    clock.advance(1)
    assert not queue.receive(1) and dead.redrive() == 1
    assert queue.counts().visible == 1 and queue.copy_to(target).messages == 0


def test_dead_letters_are_copied_wherever_their_bodies_lie(make_queue, clock):
    dead, target = make_queue(Lanes=1), make_queue(Lanes=2)
    queue = make_queue(Lanes=2, RedrivePolicy={"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1})
    queue.send([f"m{n}" for n in range(20)])
    queue.receive(15, 0)
    clock.advance(1)
    queue.receive(None, 0)
    assert dead.counts().visible == 15
    dead.send("own")
    assert dead.copy_to(target).messages == 16
    assert sorted(m.body for m in all_of(target)) == sorted(m.body for m in all_of(dead))


def test_a_delay_goes_on_and_age_stays_unless_it_would_end_the_message(make_queue, clock):
    queue, target = make_queue(Lanes=1), make_queue(Lanes=1)
    short = make_queue(Lanes=1, MessageRetentionPeriod=60)
    queue.send(["soon"], delay_seconds=100)
    queue.send(["old"])
    clock.advance(90)
    assert queue.copy_to(target).messages == 2 and queue.copy_to(short).messages == 2
    assert (target.counts().visible, target.counts().delayed) == (1, 1)
    assert target.counts().age_of_oldest == 90 and short.counts().age_of_oldest == 0
    clock.advance(10)
    assert target.counts().visible == 2
    clock.advance(51)
    assert short.counts().visible == 0 and target.counts().visible == 2


@pytest.mark.spark_too
def test_a_fifo_queue_is_copied_in_order_and_whatever_its_deduplication_ids(make_fifo, clock):
    queue, target = make_fifo(Lanes=2), make_fifo(Lanes=3)
    bodies = [f"{n:03}" for n in range(150)]
    for first in range(0, 150, 50):
        entries = [{"MessageBody": b, "MessageGroupId": f"g{int(b) % 3}"} for b in bodies[first : first + 50]]
        queue.send(entries)
        clock.advance(1)
    clock.advance(400)
    queue.send([{"MessageBody": "000", "MessageGroupId": "g0"}])
    target.send([{"MessageBody": "001", "MessageGroupId": "g1"}])
    assert queue.copy_to(target).messages == 151
    copies = all_of(target)
    assert len(copies) == 152
    for group in range(3):
        mine = [m.body for m in copies if m.message_group_id == f"g{group}"]
        own = ["001"] if group == 1 else []
        assert mine == own + [b for b in bodies if int(b) % 3 == group] + (["000"] if group == 0 else [])
    numbers = [m.sequence_number for m in sorted(copies, key=lambda m: m.sequence_number)]
    assert len(set(numbers)) == 152
    assert queue.copy_to(target).messages == 0
    after = target.send([{"MessageBody": "new", "MessageGroupId": "g0"}])
    assert after[0].sequence_number > numbers[-1]


def test_what_cannot_be_the_target_is_refused(make_queue, make_fifo):
    queue, fifo = make_queue(Lanes=1), make_fifo(Lanes=1)
    queue.send("a")
    for target in (fifo, queue, "work", None):
        with pytest.raises(InvalidParameterValue, match="target"):
            queue.copy_to(target)
    with pytest.raises(InvalidParameterValue, match="attempt_id"):
        queue.copy_to(make_queue(), attempt_id="")


@pytest.mark.parametrize("kind", ["standard", "fifo"])
def test_an_export_that_is_imported_has_the_same_messages(kind, make_queue, make_fifo, clock, tmp_path):
    is_fifo, file = kind == "fifo", tmp_path / "queue.parquet"
    make = make_fifo if is_fifo else make_queue
    queue, target = make(Lanes=2), make(Lanes=1)
    entries = [{**one, "MessageGroupId": "g"} for one in ENTRIES] if is_fifo else ENTRIES
    queue.send(entries)
    clock.advance(5)
    queue.send([{**one, "MessageBody": f"{one['MessageBody']} 2"} for one in entries])
    written = queue.export_to(file)
    assert (written.messages, written.bytes) == (6, file.stat().st_size)
    assert target.import_from(file).messages == 6
    again = target.import_from(file)
    assert (again.messages, again.before) == (0, 6)
    mine, copies = all_of(queue), all_of(target)
    if is_fifo:
        assert [shown(m) for m in copies] == [shown(m) for m in mine]
    else:
        assert sorted(map(str, map(shown, copies))) == sorted(map(str, map(shown, mine)))
        assert sorted(m.sent_at for m in copies) == sorted(m.sent_at for m in mine)
    assert target.import_from(file, attempt_id="once more").messages == 6


def test_an_export_is_of_one_moment_has_a_row_a_message_and_replaces_nothing(make_queue, tmp_path):
    queue, file = make_queue(Lanes=2), tmp_path / "queue.parquet"
    queue.export_to(file)
    assert pq.read_table(file).num_rows == 0 and make_queue().import_from(file).messages == 0
    queue.send([f"m{n:03}" for n in range(450)])
    for taken in (file, tmp_path / "nowhere" / "queue.parquet", "s3://bucket/queue.parquet", 7):
        with pytest.raises(InvalidParameterValue, match="path"):
            queue.export_to(taken)
    queue.export_to(tmp_path / "more.parquet")
    rows = pq.read_table(tmp_path / "more.parquet")
    assert sorted(rows["body"].to_pylist()) == [f"m{n:03}" for n in range(450)]
    assert {path.name for path in tmp_path.iterdir()} - {"ledger"} == {"queue.parquet", "more.parquet"}


def test_what_is_no_export_is_refused_and_a_wrong_row_is_named(make_queue, make_fifo, tmp_path):
    queue, target = make_queue(Lanes=1), make_queue(Lanes=1)
    queue.send([f"m{n}" for n in range(3)])
    file = tmp_path / "queue.parquet"
    queue.export_to(file)
    table = pq.read_table(file)
    (tmp_path / "text.parquet").write_text("no parquet")
    (tmp_path / "cut.parquet").write_bytes(file.read_bytes()[:-20])
    pq.write_table(table.replace_schema_metadata(None), tmp_path / "plain.parquet")
    pq.write_table(table.drop_columns(["sent_at"]), tmp_path / "lacking.parquet")
    later = {b"ledger.export": b'{"format": 2, "id": "x", "fifo": false}'}
    pq.write_table(table.replace_schema_metadata(later), tmp_path / "later.parquet")
    for name in ("text", "cut", "plain", "lacking", "later", "missing"):
        with pytest.raises(InvalidParameterValue, match="path"):
            target.import_from(tmp_path / f"{name}.parquet")
    with pytest.raises(InvalidParameterValue, match="FIFO"):
        make_fifo(Lanes=1).import_from(file)
    for name in ("body", "sent_at", "available_at"):
        values = pa.array(
            [None if n == 1 else value for n, value in enumerate(table[name].to_pylist())],
            table.schema.field(name).type,
        )
        wrong = table.set_column(table.schema.get_field_index(name), name, values)
        with pq.ParquetWriter(tmp_path / "wrong.parquet", wrong.schema) as writer:
            writer.write_table(wrong)
            writer.add_key_value_metadata({b"ledger.export.rows": b"[3]"})
        with pytest.raises(InvalidParameterValue, match="row 2") as refused:
            target.import_from(tmp_path / "wrong.parquet")
        assert name == "body" or f"Value None for parameter {name} is invalid" in str(refused.value)
    pq.write_table(table.slice(1), tmp_path / "rewritten.parquet")
    with pytest.raises(InvalidParameterValue, match="somebody has changed it"):
        target.import_from(tmp_path / "rewritten.parquet")
    assert target.counts().visible == 0
    assert target.import_from(file).messages == 3


def test_one_wrong_bit_of_an_export_is_noticed(make_queue, tmp_path):
    queue, target = make_queue(Lanes=1), make_queue(Lanes=1)
    body = "x" * 500 + "".join(chr(33 + n * 7 % 90) for n in range(4_000))
    queue.send(body)
    file = tmp_path / "queue.parquet"
    queue.export_to(file)
    column = pq.ParquetFile(file).metadata.row_group(0).column(1)
    content = bytearray(file.read_bytes())
    content[(column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(StorageFailed, match="cannot be read"):
        target.import_from(file)
    assert target.counts().visible == 0


def test_a_queue_is_copied_to_another_ledger(make_queue, tmp_path, clock):
    queue = make_queue(Lanes=1)
    queue.send(ENTRIES)
    other = Ledger.open(str(tmp_path / "other"), clock=clock, sender_id="somebody")
    for ledger in (other, Ledger.in_memory(clock, sender_id="somebody")):
        target = ledger.create_queue("there", {"Lanes": 2})
        assert queue.copy_to(target).messages == 3 and queue.copy_to(target).messages == 0
        assert {message.sender_id for message in all_of(target)} == {queue.receive(1, 0).messages()[0].sender_id}


@pytest.mark.parametrize("store", ["memory", "delta-rs"])
def test_a_copy_keeps_who_sent_a_message(store, tmp_path):
    clock = FrozenClock()
    root = str(tmp_path / "sent")
    ledger = (
        Ledger.in_memory(clock, sender_id="alice")
        if store == "memory"
        else Ledger.open(root, clock=clock, sender_id="alice")
    )
    queue = ledger.create_queue("mine")
    queue.send("a")
    target = Ledger.open(str(tmp_path / "there"), clock=clock, sender_id="bob").create_queue("theirs")
    queue.copy_to(target)
    queue.export_to(tmp_path / "file.parquet")
    target.import_from(tmp_path / "file.parquet")
    assert [message.sender_id for message in all_of(target)] == ["alice", "alice"]
