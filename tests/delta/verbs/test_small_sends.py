"""A stream of small sends: few files whatever its length, each append a commit of its own, and others lose nothing."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from ledger.delta_log.join import Joining
from ledger.delta_log.protocol import Conflict
from ledger.delta_log.storage import HeldLog
from ledger.errors import LedgerDamaged, StorageFailed
from ledger.rules.message import Entry
from ledger.store.delta.model.tables import Where
from ledger.store.delta.state.sent_messages import message_rows
from ledger.store.delta.verbs import sending
from tests.delta.commit.test_engines import NOW, QUEUE, SEGMENT


@pytest.fixture
def one(engine_of):
    return engine_of("delta-rs")


@pytest.fixture
def other(engine_of):
    return engine_of("delta-rs")


def append(engine, first, bodies=("a",), transaction=None, lane=0, segment=SEGMENT, ends=()):
    rows = message_rows(QUEUE, lane, segment, first, [Entry(body) for body in bodies], NOW + first)
    transactions = [] if transaction is None else [transaction]
    return engine.append("messages", rows, {"operation": f"op {first}"}, transactions, ends)


def ordinals(engine, **bounds):
    return sorted(engine.messages(Where(QUEUE.id), ["seq"], **bounds)["seq"].to_pylist())


def paths(root):
    return [Path(file) for file in DeltaTable(f"{root}/messages").file_uris()]


def test_a_stream_of_sends_leaves_few_files_and_every_message_once(open_ledger, root, monkeypatch):
    monkeypatch.setattr(sending, "WORTH_JOINING", 4)
    queue = open_ledger().create_queue("work", {"Lanes": 2})
    sent = {str(queue.send(f"body {n}")[0]): f"body {n}" for n in range(50)}
    assert len(paths(root)) <= 2 * 4
    assert {m.message_id: m.body for m in queue.receive(None)} == sent


def test_joined_files_keep_the_order_of_groups(open_ledger, monkeypatch):
    monkeypatch.setattr(sending, "WORTH_JOINING", 3)
    queue = open_ledger().create_queue("work.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True})
    for n in range(30):
        queue.send(f"{n}", message_group_id=f"group-{n % 3}")
        queue.send(f"{n}", message_group_id=f"group-{n % 3}")
    received = queue.receive(None).messages()
    assert len(received) == 30
    for group in range(3):
        mine = [int(m.body) for m in received if m.message_group_id == f"group-{group}"]
        assert mine == list(range(group, 30, 3))


def test_a_send_is_sent_though_its_files_cannot_be_joined(open_ledger, root, monkeypatch):
    monkeypatch.setattr(sending, "WORTH_JOINING", 2)

    def lost(*arguments, **keywords):
        raise Conflict("upkeep was first")

    monkeypatch.setattr(Joining, "join", lost)
    queue = open_ledger().create_queue("work", {"Lanes": 1})
    assert all(queue.send(f"{n}") for n in range(6))
    assert len(paths(root)) == 6 and queue.counts().visible == 6


def test_whoever_joins_what_others_removed_meanwhile_changes_nothing(one, other, monkeypatch):
    for first in range(3):
        append(one, first)
    put_new = HeldLog.put_new

    def after_upkeep(*arguments):
        monkeypatch.setattr(HeldLog, "put_new", put_new)
        other.delete("messages", f"queue = '{QUEUE.id}' AND lane = 0 AND segment = '{SEGMENT}'", {})
        return put_new(*arguments)

    monkeypatch.setattr(HeldLog, "put_new", after_upkeep)
    with pytest.raises(Conflict):
        one.compact(Where(QUEUE.id, (0,), (SEGMENT,)))
    assert ordinals(other) == ordinals(one) == []


@pytest.mark.parametrize("first_to_join", ["delta-rs", "spark"])
def test_of_two_that_join_the_same_files_one_does(one, engine_of, monkeypatch, first_to_join, root):
    """delta-rs's own OPTIMIZE lands beside another, and each message is there twice."""
    other, put_new = engine_of(first_to_join), HeldLog.put_new
    for first in range(3):
        append(one, first)

    def after_the_other(*arguments):
        monkeypatch.setattr(HeldLog, "put_new", put_new)
        append(other, 3)
        assert other.compact(Where(QUEUE.id, (0,), (SEGMENT,)))
        return put_new(*arguments)

    monkeypatch.setattr(HeldLog, "put_new", after_the_other)
    with pytest.raises(Conflict, match="have removed files"):
        one.compact(Where(QUEUE.id, (0,), (SEGMENT,)))
    assert ordinals(one) == [0, 1, 2, 3] and len(paths(root)) == 1
    assert not one.compact(Where(QUEUE.id, (0,), (SEGMENT,)))


def test_what_is_sent_while_files_are_joined_stays_beside_them(one, other, monkeypatch, root):
    put_new = HeldLog.put_new
    for first in range(3):
        append(one, first)

    def after_a_send(*arguments):
        monkeypatch.setattr(HeldLog, "put_new", put_new)
        append(other, 3)
        append(other, 0, segment=f"{SEGMENT}other", lane=1)
        return put_new(*arguments)

    monkeypatch.setattr(HeldLog, "put_new", after_a_send)
    assert one.compact(Where(QUEUE.id, (0,), (SEGMENT,)))
    assert ordinals(one) == [0, 0, 1, 2, 3] and len(paths(root)) == 3


def test_a_table_that_was_altered_is_joined_by_spark_alone(one, engine_of, root):
    for first in range(3):
        append(one, first)
    DeltaTable(f"{root}/messages").alter.add_constraint({"early": "seq < 9"})
    assert not one.compact(Where(QUEUE.id, (0,), (SEGMENT,))) and len(paths(root)) == 3
    spark = engine_of("spark")
    assert spark.compact(Where(QUEUE.id, (0,), (SEGMENT,))) and len(paths(root)) == 1
    assert not spark.compact(Where(QUEUE.id, (0,), (SEGMENT,))) and ordinals(one) == [0, 1, 2]


@pytest.mark.parametrize("since", ["as it was left", "optimized again"])
def test_messages_that_an_earlier_release_left_twice_are_there_once_after_upkeep(open_ledger, root, caplog, since):
    """Where OPTIMIZE of delta-rs landed beside another one: a file that was taken out is there again."""
    ledger = open_ledger()
    queue = ledger.create_queue("work", {"Lanes": 1})
    for n in range(4):
        queue.send(f"{n}")
    held = queue.receive(1, 600)
    log = Path(root, "messages", "_delta_log")
    (segment,) = DeltaTable(f"{root}/messages").to_pyarrow_table()["segment"].unique().to_pylist()
    ledger.store.engine.compact(Where(queue.id, (0,), (segment,)))
    version = ledger.store.engine.version("messages")
    entries = [line for number in (1, 3) for line in (log / f"{number:020d}.json").read_text().splitlines()]
    added = [line for line in entries if '"add"' in line]
    (log / f"{version + 1:020d}.json").write_text("\n".join([json.dumps({"commitInfo": {}}), *added]))
    if since == "optimized again":
        DeltaTable(f"{root}/messages").optimize.compact()
    assert len(DeltaTable(f"{root}/messages").to_pyarrow_table()) == 6
    ledger = open_ledger()
    assert ledger.upkeep(vacuum=False).lanes_compacted == 1
    assert "2 rows of messages" in caplog.text and "were there twice" in caplog.text
    assert len(DeltaTable(f"{root}/messages").to_pyarrow_table()) == 4
    queue = ledger.queue("work")
    assert queue.counts().visible == 3 and queue.counts().in_flight == 1
    assert sorted([message.body for message in queue.receive(None)] + [m.body for m in held]) == ["0", "1", "2", "3"]
    assert ledger.upkeep(vacuum=False).lanes_compacted == 0


def test_what_was_joined_is_told_of_as_a_single_file_with_the_same_messages(one, other, root):
    for first in (5, 0, 2):
        append(one, first, "ab")
    one.compact(Where(QUEUE.id, (0,), (SEGMENT,)))
    (file,) = other.files()[1].to_pylist()
    assert (file["messages"], file["first_seq"], file["last_seq"]) == (6, 0, 6)
    assert (file["first_sent_at"], file["last_sent_at"]) == (NOW, NOW + 5)
    assert ordinals(other) == [0, 1, 2, 3, 5, 6] and len(paths(root)) == 1


def test_appends_of_several_writers_all_land_each_in_a_version_of_its_own(one, other):
    versions = [append(engine, n) for n, engine in enumerate((one, one, other, one, other, other, one))]
    assert versions == list(range(versions[0], versions[0] + 7))
    assert ordinals(one) == ordinals(other) == list(range(7))
    assert one.version("messages") == other.version("messages") == versions[-1]
    assert [commit.metadata["operation"] for commit in other.history("messages", versions[0] - 1)] == [
        f"op {n}" for n in range(7)
    ]


def test_an_append_under_a_transaction_lands_once_whoever_was_first(one, other):
    append(one, 0, transaction=("sends", 1))
    append(one, 1)
    for engine in (other, one):
        with pytest.raises(Conflict):
            append(engine, 2, transaction=("sends", 1))
    append(other, 2, transaction=("sends", 2))
    assert one.transaction_version("messages", "sends") == 2
    assert ordinals(one) == [0, 1, 2]


def test_what_a_table_asks_for_since_is_asked_of_appends(one, other, root):
    append(one, 0)
    DeltaTable(f"{root}/messages").alter.add_constraint({"early": "seq < 2"})
    with pytest.raises(StorageFailed, match="validation"):
        append(one, 2)
    append(one, 1)
    assert ordinals(other) == [0, 1]


def test_a_log_of_both_ways_of_appending_tells_the_same(one, other, open_ledger):
    entries = [
        Entry("a", message_group_id="!'\"", delay_seconds=3),
        Entry("b"),
    ]
    for segment, engine in (("written", one), ("queried", open_ledger(merge="statement").store.engine)):
        engine.append("messages", message_rows(QUEUE, 0, segment, 7, entries, NOW, [1, None]), {})
    # The two write files of other sizes.
    by_name = {row.pop("segment"): row for row in other.files()[1].drop_columns(["bytes"]).to_pylist()}
    assert by_name["written"] == by_name["queried"]
    columns = ["seq", "body", "message_group_id", "sequence_number", "sent_at", "available_at"]
    written, queried = (
        other.messages(Where(QUEUE.id, (0,), (segment,)), columns).sort_by("seq") for segment in by_name
    )
    assert written.equals(queried) and written.num_rows == 2


def test_a_read_of_some_ordinals_opens_no_file_of_others(one, root):
    for first in range(4):
        append(one, first)
    kept = {path for path in paths(root) if _ordinal(path) == 2}
    for path in set(paths(root)) - kept:
        path.unlink()
    assert ordinals(one, first_seq=2, last_seq=2) == [2]
    with pytest.raises(LedgerDamaged, match="is missing"):
        ordinals(one)


def _ordinal(path):
    return pq.read_table(path, columns=["seq"], partitioning=None)["seq"][0].as_py()


def test_a_send_whose_answer_was_lost_is_one_though_its_files_were_joined_since(open_ledger, root, monkeypatch):
    ledger, put = open_ledger(), HeldLog.put_new
    queue = ledger.create_queue("lost", {"Lanes": 1})
    queue.send(["0"])
    segment = DeltaTable(f"{root}/messages").to_pyarrow_table()["segment"][0].as_py()

    def lost(files, path, content):
        assert put(files, path, content)
        monkeypatch.setattr(HeldLog, "put_new", put)
        open_ledger().store.engine.compact(Where(queue.id, (0,), (segment,)))
        return False

    monkeypatch.setattr(HeldLog, "put_new", lost)
    queue.send(["1"])
    assert [message.body for message in queue.receive(None)] == ["0", "1"]
    assert queue.counts().in_flight == 2
