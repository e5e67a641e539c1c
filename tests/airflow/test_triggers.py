"""The sensor and the triggers, on real queues: what they wait for, what goes through Airflow's tables, restarts."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from airflow.sdk import DAG, Asset, AssetWatcher

from ledger import InvalidParameterValue, StorageFailed
from ledger.airflow import LedgerQueueTrigger, LedgerSensor, LedgerTrigger

SOON = {"poll_interval": 0.01}


def test_a_sensor_succeeds_when_there_is_work_and_says_how_much(run, queue):
    queue.send(["a", "b"])
    with DAG("sensed") as dag:
        LedgerSensor(task_id="wait", ledger_queue="flights", at_least=2, poke_interval=0.01)
    found = run(dag).returned["wait"]
    assert (found["visible"], found["ledger_queue"]) == (2, "flights")
    assert queue.counts().visible == 2, "nothing was received"


def test_a_sensor_that_finds_nothing_times_out(run, queue):
    with DAG("sensed_nothing") as dag:
        LedgerSensor(task_id="wait", ledger_queue="flights", poke_interval=0.01, timeout=0.05)
    assert run(dag).state == "failed"


def test_a_deferrable_sensor_gives_up_its_worker_and_the_trigger_finds_the_work(run, queue):
    queue.send(["a"], delay_seconds=1)
    with DAG("deferred") as dag:
        LedgerSensor(task_id="wait", ledger_queue="flights", poke_interval=0.01, deferrable=True)
    ran = run(dag)
    assert (ran.state, ran.returned["wait"]["visible"]) == ("success", 1)


@pytest.mark.parametrize(
    "trigger",
    [
        LedgerTrigger("flights"),
        LedgerTrigger("flights", "other", 5, 60.5, 1.0),
        LedgerQueueTrigger("flights"),
        LedgerQueueTrigger("flights", "other", 5, 60, 1.0, 7.0),
    ],
)
def test_a_trigger_is_made_again_from_what_airflow_stores_of_it(trigger):
    from airflow._shared.module_loading import import_string
    from airflow.models.trigger import Trigger

    path, arguments = trigger.serialize()
    stored = Trigger(path, json.loads(json.dumps(arguments))).kwargs
    assert import_string(path)(**stored).serialize() == (path, arguments)


@pytest.mark.parametrize("kind", [LedgerTrigger, LedgerQueueTrigger])
@pytest.mark.parametrize("wrong", [{"at_least": 0}, {"oldest_older_than": -1}, {"poll_interval": 0}])
def test_a_trigger_refuses_by_name_what_cannot_be(kind, wrong):
    with pytest.raises(InvalidParameterValue) as refused:
        kind("flights", **wrong)
    assert refused.value.field in wrong


async def events_of(stream, most, patience=0.3):
    """Events until `most` came, or none does for a moment: of looks every hundredth of a second."""
    events = []
    while len(events) < most:
        try:
            events.append((await asyncio.wait_for(anext(stream), patience)).payload)
        except (asyncio.TimeoutError, StopAsyncIteration):
            break
    return events


def test_a_trigger_that_was_started_anew_finds_the_same_work(queue):
    queue.send(["a"])
    _, arguments = LedgerTrigger("flights", **SOON).serialize()

    async def once():
        return await events_of(LedgerTrigger(**arguments).run(), 2)

    first, again = asyncio.run(once()), asyncio.run(once())
    assert [event["visible"] for event in (*first, *again)] == [1, 1], "one event each, and it ends"


def test_a_queue_that_is_not_there_ends_the_trigger_with_an_error(queue):
    from ledger import QueueDoesNotExist

    async def fails():
        await anext(LedgerTrigger("nobody", **SOON).run())

    with pytest.raises(QueueDoesNotExist):
        asyncio.run(fails())


@pytest.fixture
def broken(queue, root):
    """What breaks the log of a queue that has one message, and mends it."""
    queue.send(["a"])
    queue.receive().release()
    log = Path(root, "visibility", "_delta_log")
    # The version that comes next is asked for by its name; a folder is none.
    return log / f"{max(int(file.stem) for file in log.glob('*.json')) + 1:020d}.json"


def test_storage_that_fails_for_a_while_is_asked_again(queue, broken, caplog):
    async def scenario():
        stream = LedgerQueueTrigger("flights", **SOON).run()
        await anext(stream)
        broken.mkdir()
        waits = asyncio.ensure_future(anext(stream))
        while "could not look at the queue flights" not in caplog.text:
            await asyncio.sleep(0)
        broken.rmdir()
        queue.receive().delete()
        queue.send(["b"])
        return (await waits).payload["visible"]

    assert asyncio.run(asyncio.wait_for(scenario(), 60)) == 1


def test_storage_that_goes_on_failing_ends_the_trigger_which_airflow_starts_anew(broken):
    async def scenario():
        stream = LedgerQueueTrigger("flights", **SOON).run()
        await anext(stream)
        broken.mkdir()
        await anext(stream)

    with pytest.raises(StorageFailed):
        asyncio.run(asyncio.wait_for(scenario(), 60))


class Triggerer:
    """Runs triggers that share a stream as Airflow's triggerer does, and stores events, or fails to."""

    def __init__(self):
        from airflow.triggers.shared_stream import SharedStreamManager

        self.streams, self.events, self.unstored = SharedStreamManager(), [], []

    async def run(self, number, trigger):
        """One trigger, as TriggerRunner.run_trigger does it."""
        key = trigger.shared_stream_key()
        stream = self.streams.subscribe(trigger_id=number, trigger=trigger, key=key)
        try:
            async for event in trigger.filter_shared_stream(stream):
                self.events.append((number, event.payload["visible"]))
                self.unstored.append(self.streams.bind_pending_event(trigger_id=number, key=key))
        finally:
            await self.streams.unsubscribe(number, key)

    async def until(self, events, store=True):
        """Goes on until there are so many events, and then for ten looks more."""
        more = 0
        while more < 10:
            if store:
                self.streams.confirm_persisted(self.unstored)
            more += len(self.events) >= events
            await asyncio.sleep(0.02)


def shared(scenario, *triggers):
    """Runs a scenario beside triggers, in one triggerer; its events, as (trigger, visible)."""

    async def both():
        triggerer = Triggerer()
        tasks = [asyncio.create_task(triggerer.run(*each)) for each in enumerate(triggers)]
        await scenario(triggerer)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return triggerer.events

    return asyncio.run(asyncio.wait_for(both(), 60))


def test_new_work_is_one_event_for_each_watcher_and_waiting_work_none(queue):
    queue.send(["a"])

    async def scenario(triggerer):
        await triggerer.until(2)
        await asyncio.to_thread(queue.send, ["b"])
        await triggerer.until(2)
        await asyncio.to_thread(queue.purge)
        await triggerer.until(2)
        await asyncio.to_thread(queue.send, ["c", "d"])
        await triggerer.until(4)

    watchers = [LedgerQueueTrigger("flights", **SOON) for _ in range(2)]
    assert sorted(shared(scenario, *watchers)) == [(0, 1), (0, 2), (1, 1), (1, 2)]


def test_an_event_that_is_not_stored_yet_holds_back_the_next(queue):
    queue.send(["a"])

    async def scenario(triggerer):
        await triggerer.until(1, store=False)
        await asyncio.to_thread(queue.purge)
        await triggerer.until(1, store=False)
        await asyncio.to_thread(queue.send, ["b"])
        await triggerer.until(1, store=False)
        assert len(triggerer.events) == 1
        await triggerer.until(2)

    assert shared(scenario, LedgerQueueTrigger("flights", **SOON)) == [(0, 1), (0, 1)]


def test_an_airflow_without_shared_streams_imports_all_that_it_can_use():
    """As 3.1 and 3.2, which have no module of this name."""
    code = (
        "import sys; sys.modules['airflow.triggers.shared_stream'] = None; "
        "import ledger.airflow.operators, ledger.airflow.work_operators, ledger.airflow.messaging; "
        "from ledger.airflow.triggers import LedgerQueueTrigger; "
        "print(LedgerQueueTrigger('flights').shared_stream_key())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0 and run.stdout.splitlines()[-1] == "None", run.stderr


def test_an_event_that_was_lost_is_announced_again():
    from airflow.triggers.shared_stream import AdvanceItem, AdvanceOutcome

    from ledger.airflow.acknowledging import AcknowledgedLooks

    for outcome, due in ((AdvanceOutcome(acked=1, failed=1), True), (AdvanceOutcome(acked=2, failed=0), False)):
        from ledger import Counts

        there = Counts(1, 0, 0, 0, 0, 1.0)
        looks = AcknowledgedLooks(LedgerQueueTrigger("flights"))
        asyncio.run(looks.advance([AdvanceItem(there, outcome)]))
        assert looks.announcements.due(there, 0.0) is due


def test_triggers_share_their_looks_where_all_their_arguments_are_the_same():
    one, same, other = (LedgerQueueTrigger("flights", at_least=most) for most in (5, 5, 6))
    assert one.shared_stream_key() == same.shared_stream_key() != other.shared_stream_key()
    assert hash(one.shared_stream_key())


def test_without_acknowledgement_new_work_is_one_event_too(queue):
    queue.send(["a"])

    async def scenario():
        stream = LedgerQueueTrigger("flights", **SOON).run()
        return await events_of(stream, 2)

    assert [event["visible"] for event in asyncio.run(scenario())] == [1]


def test_an_asset_is_watched_through_airflows_common_message_queue(run, queue):
    from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger

    trigger = MessageQueueTrigger(scheme="ledger", ledger_queue="flights", at_least=100)
    assert trigger.serialize() == LedgerQueueTrigger("flights", at_least=100).serialize()
    asset = Asset("flights", watchers=[AssetWatcher(name="flights", trigger=trigger)])
    with DAG("watching", schedule=[asset]) as dag:
        LedgerSensor(task_id="wait", ledger_queue="flights", poke_interval=0.01)
    queue.send(["a"])
    assert run(dag).state == "success"
    assert "ledger.airflow.triggers.LedgerQueueTrigger" in stored_triggers()


def stored_triggers():
    """The classes of the triggers that Airflow's tables have."""
    from airflow.models.trigger import Trigger
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        return list(session.execute(select(Trigger.classpath)).scalars())
