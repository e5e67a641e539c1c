"""FIFO sends through Spark where nothing but Delta itself keeps writers apart: none is lost, all are in order."""

import threading

import pytest

from ledger import Ledger
from ledger.delta_log import statements
from ledger.delta_log.log import DirectTable
from ledger.delta_log.protocol import NotDirect
from ledger.output_tables.tables_of_spark import SparkOutputTables
from ledger.settings import Settings
from ledger.store.delta.by_spark import SparkEngine
from ledger.store.delta.commit.locks import NoLock, Turns
from ledger.store.delta.commit.transactions import Transactions
from ledger.store.delta.dataframes.frames import Frames
from ledger.store.delta.model.tables import TABLES
from ledger.store.delta.opening import OpenLedger
from ledger.store.delta.verbs.store import DeltaStore

THREADS, SENDS = 3, 4


class NoTurns(Turns):
    """Threads race each other as processes do."""

    def of(self, key):
        return NoLock().shared()


class Interrupted(SparkEngine):
    """Lets another writer send between the look for a transaction and the write under it."""

    interrupts = ()

    def __init__(self, *arguments):
        super().__init__(*arguments)
        log = self._direct["messages"].writer
        look = log.newest_before

        def looked(transaction):
            found = look(transaction)
            self.interrupt()
            return found

        log.newest_before = looked

    def transaction_version(self, *arguments):
        found = super().transaction_version(*arguments)
        self.interrupt()
        return found

    def interrupt(self):
        for interrupt in self.__dict__.pop("now", ()):
            interrupt()

    def append(self, *arguments, **options):
        self.interrupts, self.now = (), self.interrupts
        return super().append(*arguments, **options)


@pytest.fixture
def ledger(root, spark, clock):
    settings = Settings(maximum_attempts=100)
    engine = Interrupted(spark, {table: f"{root}/{table}" for table in TABLES})
    locks = dict.fromkeys(TABLES, NoLock())
    transactions = Transactions(engine, locks, False, settings, "tester", turns=NoTurns())
    store = DeltaStore(engine, transactions, settings, SparkOutputTables(engine))
    locations = {table: f"{root}/{table}" for table in TABLES}
    frames = Frames(spark, store, locations)
    return Ledger(store, clock, settings, OpenLedger(store, engine, locations, transactions, frames, spark))


def only_by_statement(*arguments):
    raise NotDirect(statements.SETTING)


@pytest.mark.parametrize("by", ["a commit that is written out", "Spark's writer"])
def test_a_fifo_send_that_delta_left_out_because_another_was_first_is_sent_all_the_same(
    ledger, open_ledger, monkeypatch, by
):
    """Spark's writer saves nothing under a transaction that is there, and no error says so."""
    queue = ledger.create_queue("jobs.fifo", {"FifoQueue": True, "Lanes": 2})
    other = open_ledger("delta-rs").queue("jobs.fifo")
    send = lambda to, body: to.send(body, message_group_id="g", message_deduplication_id=body)  # noqa: E731
    if by == "Spark's writer":
        monkeypatch.setattr(DirectTable, "append", only_by_statement)
    ledger.store.engine.interrupts = (lambda: send(other, "first"),)
    sent = send(queue, "second")
    received = other.receive(None).messages()
    assert [message.body for message in received] == ["first", "second"]
    assert [received[1].message_id] == sent


def test_of_two_dataframes_under_one_transaction_of_a_fifo_queue_all_rows_are_sent(ledger, open_ledger, spark):
    """The later one is left out by Delta, and no error says so; it is decided and written once more."""
    queue = ledger.create_queue("jobs.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True, "Lanes": 2})
    other = open_ledger("spark").queue("jobs.fifo")
    first, second = (
        spark.range(*numbers).selectExpr("'' || id AS body", "'g' AS message_group_id").coalesce(1)
        for numbers in ((0, 5), (3, 9))
    )
    counts = []
    ledger.store.engine.now = (lambda: counts.append(other.send(first).count),)
    sent = queue.send(second)
    assert [*counts, sent.count] == [5, 4], "what both have is sent once"
    received = other.receive(None).messages()
    assert [message.body for message in received] == [str(number) for number in range(9)]
    assert {row.message_id for row in sent.ids().collect()} == {message.message_id for message in received[5:]}


@pytest.mark.soak
def test_fifo_sends_of_threads_are_all_in_the_queue_and_in_order(ledger):
    queue = ledger.create_queue("jobs.fifo", {"FifoQueue": True, "Lanes": 2})
    sent, errors, begin = [[] for _ in range(THREADS)], [], threading.Barrier(THREADS)

    def send(thread):
        begin.wait()
        try:
            for number in range(SENDS):
                body = f"{thread}-{number}"
                sent[thread] += queue.send(body, message_group_id="g", message_deduplication_id=body)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    received = queue.receive(None).messages()
    assert {message.message_id for message in received} == {one for mine in sent for one in mine}
    assert len(received) == THREADS * SENDS
    for thread in range(THREADS):
        mine = [message.body for message in received if message.body.startswith(f"{thread}-")]
        assert mine == [f"{thread}-{number}" for number in range(SENDS)]
