"""Retries: bounded, counted, and never fooled by an answer that got lost."""

import threading
from types import SimpleNamespace

import pytest

from ledger import Ledger
from ledger.delta_log.protocol import Conflict
from ledger.errors import ContentionOutlastedRetries
from ledger.output_tables.tables_of_delta_rs import DeltaRsOutputTables
from ledger.rules import message_id as ids
from ledger.rules.message import Entry
from ledger.settings import Settings
from ledger.store.delta.by_delta_rs import DeltaRsEngine
from ledger.store.delta.commit import transactions as transacting
from ledger.store.delta.commit.locks import NoLock
from ledger.store.delta.commit.transactions import Transactions
from ledger.store.delta.model.tables import TABLES, Where
from ledger.store.delta.state.sent_messages import message_rows
from ledger.store.delta.verbs.store import DeltaStore
from tests.delta.commit.test_locks import SOON, entered


class LosesItsAnswers(DeltaRsEngine):
    """Commits, and then the answer gets lost on its way; the client sees a conflict."""

    commits = 0

    def merge(self, *arguments):
        super().merge(*arguments)
        self.commits += 1
        raise Conflict("the answer was lost")

    def append(self, *arguments, **options):
        super().append(*arguments, **options)
        self.commits += 1
        raise Conflict("the answer was lost")


@pytest.fixture
def queue(open_ledger):
    """One lane with three messages: every receive meets every other."""
    queue = open_ledger().create_queue("jobs", {"Lanes": 1})
    queue.send(["a", "b", "c"])
    return queue


@pytest.fixture
def lossy(queue, root, clock):
    """The same ledger through an engine that loses its answers."""
    settings = Settings(maximum_attempts=3)
    engine = LosesItsAnswers({table: f"{root}/{table}" for table in TABLES})
    transactions = Transactions(engine, dict.fromkeys(TABLES, NoLock()), False, settings, "tester")
    return Ledger(DeltaStore(engine, transactions, settings, DeltaRsOutputTables()), clock, settings), engine


def interrupt(ledger, step, act):
    """Lets `act` happen whenever a transaction of the ledger comes to a step."""
    ledger.store.transactions.on_step = lambda name: act() if name == step else None


def test_a_verb_that_always_loses_says_how_often_and_for_how_long_it_tried(queue, open_ledger, monkeypatch):
    """The pauses between the tries are counted, and so is what the last one took."""
    other, passed = open_ledger(maximum_attempts=3), []
    monkeypatch.setattr(transacting, "pause", lambda *bounds: passed.append(20.0))
    monkeypatch.setattr(transacting, "time", SimpleNamespace(monotonic=lambda: 1_000 + sum(passed)))

    def lose():
        passed.append(7.0)
        queue.receive(1, visibility_timeout=0)

    interrupt(other, "chosen", lose)
    with pytest.raises(ContentionOutlastedRetries, match=r"receive lost to other writers 3 times in 61\.0 s") as lost:
        other.queue("jobs").receive()
    assert passed == [7, 20, 7, 20, 7], "the others lost nothing, and did not wait"
    assert (lost.value.verb, lost.value.attempts, lost.value.code) == ("receive", 3, "RequestThrottled")
    assert queue.counts().in_flight == 0, "the loser changed nothing"


def test_a_verb_that_lost_decides_anew(queue, open_ledger):
    other, taken = open_ledger(), []
    interrupt(other, "chosen", lambda: taken or taken.extend(m.body for m in queue.receive(2)))
    claim = other.queue("jobs").receive(None)
    assert sorted(taken + [m.body for m in claim]) == ["a", "b", "c"]
    assert claim.count == 1


def test_after_some_losses_newcomers_wait_for_a_verb(queue, open_ledger):
    other, lost, newcomers = open_ledger(losses_before_waiting=2), [], []

    def compete():
        if len(lost) < 2:
            lost.append(queue.receive(1, visibility_timeout=0))
        else:
            newcomers.append(entered(other.store.transactions.locks["visibility"].shared))
            assert not newcomers[0].wait(0.2)

    interrupt(other, "chosen", compete)
    assert other.queue("jobs").receive(3).count == 3
    assert len(lost) == 2 and newcomers[0].wait(SOON)


def test_a_receive_whose_answer_was_lost_finds_its_own_commit(lossy, queue):
    ledger, engine = lossy
    claim = ledger.queue("jobs").receive(2)
    assert engine.commits == 1, "it did not receive a second time"
    assert claim.count == 2
    assert claim.version == engine.version("visibility")
    assert [m.body for m in queue.claim(claim.receipt_id)] == [m.body for m in claim]


def test_a_delete_whose_answer_was_lost_finds_its_own_commit(lossy, queue):
    ledger, engine = lossy
    claim = ledger.queue("jobs").receive(3)
    assert claim.delete().messages == 3
    assert engine.commits == 2
    assert queue.counts().deleted == 3


def test_a_send_whose_answer_was_lost_is_not_sent_twice(lossy, queue):
    ledger, engine = lossy
    sent = ledger.queue("jobs").send(["d", "e"])
    assert [queue.peek(message_id).body for message_id in sent] == ["d", "e"]
    assert queue.counts().stored == 5
    assert engine.commits == 1


def test_a_send_under_an_attempt_id_whose_answer_was_lost_is_not_sent_twice(lossy, queue):
    ledger, _ = lossy
    sent = ledger.queue("jobs").send(["d", "e"], attempt_id="run-1")
    assert [queue.peek(message_id).body for message_id in sent] == ["d", "e"]
    assert queue.counts().stored == 5


def test_a_new_queue_whose_answer_was_lost_is_made_once(lossy):
    ledger, engine = lossy
    made = ledger.create_queue("more")
    rows = engine.load("queues", Where()).rows.to_pylist()
    assert [row["queue"] for row in rows if row["name"] == "more"] == [made.id]


def test_a_verb_that_changes_nothing_commits_nothing(queue, open_ledger):
    engine = open_ledger().store.engine
    queue.receive(None)
    before = engine.version("visibility")
    assert not queue.receive()
    assert queue.delete(["no handle"])[0].error_code == "ReceiptHandleIsInvalid"
    assert engine.version("visibility") == before


@pytest.mark.parametrize("fifo", [False, True])
def test_threads_of_one_process_do_not_lose_to_each_other(open_ledger, fifo):
    """What loses has read and decided for nothing: 16 threads did a quarter of what one does."""
    ledger, conflicts = open_ledger(maximum_attempts=1), []
    attributes = {"FifoQueue": True, "Lanes": 1} if fifo else {"Lanes": 1}
    queue = ledger.create_queue("many.fifo" if fifo else "many", attributes)

    def work(number):
        try:
            for body in (f"{number}-{turn}" for turn in range(3)):
                named = {"message_group_id": f"{number}", "message_deduplication_id": body} if fifo else {}
                queue.send(body, **named)
                queue.receive(1).delete()
        except ContentionOutlastedRetries as lost:
            conflicts.append(lost)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert conflicts == []
    assert queue.counts().deleted == 18


def test_the_log_has_a_line_for_each_try_and_a_warning_for_one_that_loses_often(queue, open_ledger, caplog):
    other = open_ledger(maximum_attempts=7, losses_before_waiting=7)
    taken = iter(range(6))
    interrupt(other, "chosen", lambda: next(taken, None) is not None and queue.receive(1, visibility_timeout=0))
    with caplog.at_level("DEBUG", "ledger.verbs"):
        claim = other.queue("jobs").receive()
    lost = [message for message in caplog.messages if message.endswith("lost to another writer")]
    assert len(lost) == 6 and "attempt 6: load" in lost[-1] and queue.id in lost[-1]
    assert "attempt 7: load" in caplog.messages[-1] and f"version {claim.version} of visibility" in caplog.messages[-1]
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1 and "receive has lost to other writers 5 times" in warnings[0]


def test_the_log_and_the_commits_name_what_was_done_through_handles_as_users_do(queue, caplog):
    one, two, three = (message.receipt_handle for message in queue.receive(3).messages())
    with caplog.at_level("DEBUG", "ledger.verbs"):
        queue.change_visibility(one, 40)
        queue.change_visibility(one, 0)
        queue.delete([two])
        held = queue.receive(1).messages()[0].receipt_handle
        queue.settle(delete=[held], extend=[three])
    named = ["extend", "release", "delete", "receive", "settle"]
    assert [line.partition(" of ")[0] for line in caplog.messages] == named
    commits = queue.access.store.engine.history("visibility", 1)
    assert [commit.metadata["verb"] for commit in commits] == named


def test_of_one_application_a_transaction_follows_the_one_before_or_is_a_conflict(open_ledger, clock):
    """Also one that was begun before the other committed: that is how two sends of one attempt meet."""
    ledger, other = open_ledger(), open_ledger()
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    for number, (engine, version, lands) in enumerate(
        [
            (ledger, 6, True),
            (other, 6, False),
            (other, 8, False),
            (ledger, 4, False),
            (other, 7, True),
            (ledger, 7, False),
        ]
    ):
        rows = message_rows(queue.access.made, 0, ids.segment(ids.new_send_key(), 0), 0, [Entry(f"{number}")], clock())
        try:
            engine.store.engine.append("messages", rows, {}, [("attempt/x", version)])
            assert lands
        except Conflict:
            assert not lands
    assert queue.counts().stored == 2
