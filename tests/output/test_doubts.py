"""Who asks the output table about a write of which nobody knows whether it is in; while it cannot be told, its messages
are left alone, and all else goes on."""

import logging
import re
import threading
from concurrent.futures import Future
from dataclasses import replace

import pytest
from deltalake import DeltaTable

from ledger.errors import InvalidParameterValue, LeaseLost, OutputUnreadable
from ledger.store.delta.commit.locks import table_lock
from ledger.store.protocol import RUNS, ReceiveRequest
from tests.output.conftest import rows_of
from tests.output.silent_tables import gone, there_again
from tests.output.test_write import Crash, crash

#: Long enough for any call, on a busy machine, in seconds.
SOON = 20.0


def doubt(place, at_step, bodies=("a", "b"), step="written", queue=None, **receiving):
    """Messages whose writer died; answers its claim. Others can receive them now, as far as deadlines go."""
    queue = queue or place.queue
    queue.send(list(bodies))
    claim = queue.receive(None, **receiving)
    at_step(step, crash)
    with pytest.raises(Crash):
        claim.write(rows_of(claim), place.table)
    return claim


def test_a_table_that_cannot_be_asked_is_not_one_that_was_never_written_to(place, at_step, silent, caplog):
    """At takeover it counted as absent: the rows were in the output twice once the disk was mounted again."""
    breaks, step = silent
    doubt(place, at_step, step=step)
    breaks(place)
    place.clock.advance(31)
    with caplog.at_level(logging.WARNING, "ledger"), pytest.raises(OutputUnreadable, match=place.table):
        place.another().queue("work").receive(None)
    assert place.table in caplog.text
    assert place.queue.counts().stored == 2, "they are not lost"
    there_again(place)
    taken = place.another().queue("work").receive(None)
    assert taken.count == (0 if step == "written" else 2)
    taken.write(rows_of(taken), place.table)
    assert set(place.written().values()) == {1} and len(place.written()) == 2 and place.queue.counts().deleted == 2


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("hdfs://n/x", "only Spark can tell on hdfs:"),
        ("foo://b/x", "only Spark can tell on foo:"),
        ("./out", "relative to a folder"),
    ],
)
def test_a_place_that_only_others_can_ask_is_not_one_never_written_to(place, tmp_path, monkeypatch, table, why):
    """A session with Spark began the write, or one in another folder: here, a table of that name is another one."""
    monkeypatch.chdir(tmp_path)
    DeltaTable.create("./out", DeltaTable(f"{place.root}/messages").schema())
    place.queue.send(["a", "b"])
    claim, store = place.queue.receive(None), place.ledger.store
    runs = claim.grant.runs.select(RUNS.names)
    assert store.outputs.begin(store.queue("work"), claim.receipt_id, runs, table, "", place.clock)
    place.clock.advance(31)
    queue = place.another().queue("work")
    (other,) = place.queue.send("other")
    before = queue.counts()
    assert [m.message_id for m in queue.receive(None, visibility_timeout=0)] == [other]
    assert queue.counts() == before and before.stored == 3
    queue.receive(None).delete()
    for reader in (queue, place.another().queue("work")):
        with pytest.raises(OutputUnreadable, match=f"{re.escape(table)} cannot say .*{why}"):
            reader.receive(None)
    assert queue.counts() == replace(before, visible=before.visible - 1, deleted=1)
    assert DeltaTable("./out").version() == 0, "nothing was fenced off there"


@pytest.mark.parametrize(("step", "taken"), [("begun", 2), ("written", 0)])
def test_a_relative_path_is_asked_where_the_writer_worked_and_not_where_the_reader_does(
    place, at_step, tmp_path, monkeypatch, step, taken
):
    """The reader's folder has a table of that name, too, which knows nothing of the write."""
    for folder in ("writer", "reader"):
        (tmp_path / folder).mkdir()
    DeltaTable.create(str(tmp_path / "reader" / "out"), DeltaTable(f"{place.root}/messages").schema())
    monkeypatch.chdir(tmp_path / "writer")
    place.table = "./out"
    doubt(place, at_step, step=step)
    monkeypatch.chdir(tmp_path / "reader")
    place.clock.advance(31)
    assert place.another().queue("work").receive(None).count == taken
    assert place.queue.counts().deleted == 2 - taken
    assert DeltaTable("./out").version() == 0, "nothing was asked there"


def test_other_messages_are_received_beside_a_table_that_cannot_be_asked(place, at_step, silent):
    breaks, step = silent
    doubt(place, at_step, step=step)
    (other,) = place.queue.send("other")
    breaks(place)
    place.clock.advance(31)
    queue = place.another().queue("work")
    claim = queue.receive(None)
    assert [m.message_id for m in claim] == [other]
    claim.delete()
    with pytest.raises(OutputUnreadable):
        queue.receive(10)
    assert queue.counts().stored == 2


def answered(call):
    """What a call answers or raises that nobody may hold up."""
    answer = Future()

    def run():
        try:
            answer.set_result(call())
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return answer.result(SOON)


def test_other_messages_are_received_beside_a_writer_that_stands_still(place, at_step, caplog):
    """It has the table's lock, on a local path; receives waited for it with the queue's turn, however long it took."""
    doubt(place, at_step, step="begun")
    (other,) = place.queue.send("other")
    place.clock.advance(31)
    queue = place.another().queue("work")
    with table_lock(place.table).exclusive():
        claim = answered(lambda: queue.receive(None))
        assert [m.message_id for m in claim] == [other] and "others are writing to it" in caplog.text
        with pytest.raises(OutputUnreadable, match=place.table):
            answered(lambda: queue.receive(None))
    taken = place.another().queue("work").receive(None)
    assert taken.count == 2 and taken.write(rows_of(taken), place.table).messages == 2


def test_a_second_write_holds_up_nobody_behind_a_table_that_is_written_to(place, at_step):
    """It asks whether the first is in, and that with the queue's turn."""
    claim = doubt(place, at_step, step="begun")
    other = f"{place.table}-other"
    with table_lock(place.table).exclusive(), pytest.raises(OutputUnreadable, match="others are writing to it"):
        answered(lambda: claim.write(rows_of(claim), other))
    assert claim.write(rows_of(claim), other).messages == 2 and not place.written()


def test_a_receive_that_waits_waits_for_others(place, at_step):
    doubt(place, at_step)
    gone(place)
    place.clock.advance(31)
    queue = place.another().queue("work")
    sender = threading.Timer(0.2, lambda: place.queue.send("late"))
    sender.start()
    assert queue.receive(wait=20).messages()[0].body == "late"
    sender.join()
    with pytest.raises(OutputUnreadable):
        queue.receive(wait=0.1)


def test_nothing_of_a_group_is_received_behind_a_message_in_doubt(place, at_step):
    queue = place.ledger.create_queue("work.fifo", {"FifoQueue": True, "VisibilityTimeout": 30, "Lanes": 1})
    for body in ("a1", "a2", "b1"):
        queue.send(body, message_group_id=body[0], message_deduplication_id=body)
        place.clock.advance(1)
    claim = queue.receive(1)
    assert [m.body for m in claim] == ["a1"]
    at_step("written", crash)
    with pytest.raises(Crash):
        claim.write(rows_of(claim), place.table)
    gone(place)
    place.clock.advance(31)
    assert [m.body for m in place.another().queue("work.fifo").receive(None)] == ["b1"]
    there_again(place)
    assert [m.body for m in place.another().queue("work.fifo").receive(None)] == ["a2"]


def test_messages_that_two_dead_writers_wrote_are_deleted_under_the_receipt_of_each(place, monkeypatch):
    """One receive finds both: all were noted under the first receipt."""
    place.queue.send(["a", "b", "c"])
    claims = [place.queue.receive(1), place.queue.receive(2)]
    for claim in claims:
        monkeypatch.setattr(
            claim.access.store.transactions, "on_step", lambda step: crash() if step == "written" else 0
        )
        with pytest.raises(Crash):
            claim.write(rows_of(claim), place.table)
    place.clock.advance(31)
    other = place.another()
    assert not other.queue("work").receive(None)
    events = other.sql("SELECT receipt_id, messages FROM receipts WHERE event = 'deleted'").to_pylist()
    assert {row["receipt_id"]: row["messages"] for row in events} == {one.receipt_id: one.count for one in claims}


def test_the_retry_of_an_attempt_is_told_that_its_claim_cannot_be_decided(place, at_step, silent):
    breaks, step = silent
    doubt(place, at_step, step=step, attempt_id="job")
    (other,) = place.queue.send("other")
    breaks(place)
    queue = place.another().queue("work")
    with pytest.raises(OutputUnreadable):
        queue.receive(None, attempt_id="job")
    assert [m.message_id for m in queue.receive(None)] == [other], "others are not held up"
    there_again(place)
    queue = place.another().queue("work")
    assert queue.receive(None, attempt_id="job").count == (0 if step == "written" else 2)


def test_no_dead_letter_is_moved_that_may_be_written(place, at_step):
    dead = place.ledger.create_queue("dead")
    place.queue.set_attributes({"RedrivePolicy": {"deadLetterTargetArn": "dead", "maxReceiveCount": 1}})
    doubt(place, at_step)
    gone(place)
    place.clock.advance(31)
    with pytest.raises(OutputUnreadable):
        place.another().queue("work").receive(None)
    assert dead.counts().stored == 0 and place.queue.counts().stored == 2


def test_a_redrive_leaves_what_may_be_written(place, at_step):
    target = place.ledger.create_queue("target")
    doubt(place, at_step)
    place.queue.send("other")
    gone(place)
    place.clock.advance(31)
    assert place.another().queue("work").redrive(destination="target") == 1
    assert target.counts().stored == 1 and place.queue.counts().stored == 2


def test_a_stale_receipt_does_not_end_the_holders_write(place, at_step):
    """It fenced off whatever was in doubt, also what another receipt was writing at that moment."""
    ids = place.queue.send(["a", "b"])
    stale = place.queue.receive(None)
    place.clock.advance(31)
    holder = place.another().queue("work").receive(None)
    rows, seen = rows_of(stale), []

    def at_begun(step):
        if step == "begun" and not seen:
            seen.append(step)
            with pytest.raises(LeaseLost):
                stale.write(rows, place.table)

    holder.access.store.transactions.on_step = at_begun
    assert holder.write(rows_of(holder), place.table).messages == 2 and seen
    assert place.written() == dict.fromkeys(ids, 1) and place.queue.counts().deleted == 2


def test_two_that_decide_the_same_doubt_at_once_come_to_the_same(place, at_step):
    for step, count in (("begun", 2), ("written", 0)):
        doubt(place, at_step, step=step)
        place.clock.advance(31)
        queues = [place.another().queue("work") for _ in range(4)]
        claims, start = [], threading.Barrier(4)

        def receive(queue, start=start, claims=claims):
            start.wait()
            claims.append(queue.receive(None))

        threads = [threading.Thread(target=receive, args=(queue,)) for queue in queues]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(claim.count for claim in claims) == count
        for claim in claims:
            claim.write(rows_of(claim), place.table)
        assert set(place.written().values()) == {1} and place.queue.counts().stored == 0


def test_what_was_purged_in_doubt_stays_gone_and_its_rows_are_in_once(place, at_step):
    place.queue.send("a")
    claim = place.queue.receive()
    at_step("begun", place.another().queue("work").purge)
    assert claim.write(rows_of(claim), place.table).messages == 1
    place.clock.advance(31)
    assert sum(place.written().values()) == 1 and not place.queue.receive() and place.queue.counts().stored == 0


def test_the_same_messages_into_another_table_are_refused_by_both_names(place):
    place.queue.send(["a", "b"])
    claim = place.queue.receive(None)
    claim.write(rows_of(claim), place.table)
    other = f"{place.table}-other"
    with pytest.raises(InvalidParameterValue, match=f"{other}.*wrote these messages to {place.table}") as refused:
        claim.write(rows_of(claim), other)
    assert refused.value.field == "table" and sum(place.written().values()) == 2


def test_what_is_in_doubt_in_one_table_is_written_to_another_only_if_it_is_not_in_the_first(place, at_step):
    for step in ("written", "begun"):
        claim = doubt(place, at_step, step=step)
        if step == "written":
            with pytest.raises(InvalidParameterValue, match="An earlier call wrote these"):
                claim.write(rows_of(claim), f"{place.table}-other")
        else:
            assert claim.write(rows_of(claim), f"{place.table}-other").messages == 2
    assert sum(place.written().values()) == 2 and DeltaTable(f"{place.table}-other").to_pyarrow_table().num_rows == 2


def test_what_was_deleted_without_rows_is_not_said_to_be_written(place, at_step):
    """A failed write, then delete, then write: it said Settled(3, 0), and nothing was in the output."""
    claim = doubt(place, at_step, step="begun")
    claim.delete()
    with pytest.raises(LeaseLost, match="acknowledged without a row"):
        claim.write(rows_of(claim), place.table)
    assert not place.written() and place.queue.counts().deleted == 2


def test_an_error_that_hides_a_commit_is_none(place, monkeypatch):
    ids = place.queue.send(["a", "b"])
    claim = place.queue.receive(None)
    engine = place.ledger.store.outputs.foreign
    append = engine.append_output

    def answer_lost(*arguments):
        append(*arguments)
        raise TimeoutError("no answer")

    monkeypatch.setattr(engine, "append_output", answer_lost)
    assert claim.write(rows_of(claim), place.table).messages == 2
    assert place.written() == dict.fromkeys(ids, 1) and place.queue.counts().deleted == 2


def test_a_heartbeat_goes_on_beside_a_write(place, at_step):
    place.queue.send(["a", "b"])
    claim = place.queue.receive(None)
    for step, times in (("begun", 1), ("chosen", 2), ("written", 1)):
        at_step(step, lambda: place.another().queue("work").claim(claim.receipt_id).extend(60), times)
    assert claim.write(rows_of(claim), place.table).messages == 2 and place.queue.counts().deleted == 2


def test_a_retry_asks_the_table_although_another_of_its_attempt_is_refused_in_the_same_commit(place, at_step):
    doubt(place, at_step, attempt_id="job")
    store = place.another().store
    both = [ReceiveRequest(1, 30, "job"), ReceiveRequest(None, 30, "job")]
    assert store.receive(store.queue("work"), both, place.clock) == [None, None]
    assert place.queue.counts().deleted == 2, "their rows are in"
