"""D2: message move tasks, as SQS starts, lists and cancels them."""

import base64
import json
import time

import pytest

from ledger.client.move_tasks import MoveTasks, continue_abandoned_tasks
from ledger.errors import InvalidParameterValue, ResourceNotFound


@pytest.fixture
def dead(ledger, queue):
    """A dead-letter queue with three messages of `queue`."""
    dead = ledger.create_queue(f"{queue.name}-dead")
    queue.set_attributes({"RedrivePolicy": {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1}})
    queue.send(["a", "b", "c"])
    queue.receive(None).release()
    assert not queue.receive(None) and dead.counts().visible == 3
    return dead


#: What the thread of the process that started a task does.
run = MoveTasks.run


def test_d2_a_task_without_a_rate_moves_everything_back_at_once(queue, dead):
    handle = dead.start_message_move_task()
    (task,) = dead.list_message_move_tasks()
    assert (task.task, task.status, task.moved, task.to_move) == (handle, "COMPLETED", 3, 3)
    assert queue.counts().visible == 3 and dead.counts().stored == 0


def test_d2_a_task_moves_to_another_queue(ledger, queue, dead):
    other = ledger.create_queue(f"{queue.name}-other")
    dead.start_message_move_task(destination=other.name)
    assert sorted(m.body for m in other.receive(None)) == ["a", "b", "c"] and queue.counts().stored == 0


def test_d2_a_rate_is_kept(queue, dead, clock, by_hand, ledger):
    dead.start_message_move_task(max_messages_per_second=1)
    assert queue.counts().visible == 1
    tasks = MoveTasks(ledger.store, dead.access.record(), clock)
    tasks.step(tasks.all()[0])
    assert queue.counts().visible == 1
    clock.advance(1)
    tasks.step(tasks.all()[0])
    assert queue.counts().visible == 2 and tasks.all()[0].is_running


def test_d2_only_one_task_runs_at_a_time(dead, by_hand):
    dead.start_message_move_task(max_messages_per_second=1)
    with pytest.raises(InvalidParameterValue, match=r"There is already a task running. Only one active task"):
        dead.start_message_move_task()


def test_d2_a_cancelled_task_moves_no_more_and_says_how_many_it_moved(queue, dead, clock, by_hand, ledger):
    handle = dead.start_message_move_task(max_messages_per_second=2)
    assert dead.cancel_message_move_task(handle) == 2
    clock.advance(100)
    assert continue_abandoned_tasks(ledger.store, clock) == 0
    assert dead.list_message_move_tasks()[0].status == "CANCELLED" and dead.counts().stored == 1
    with pytest.raises(ResourceNotFound):
        dead.cancel_message_move_task(handle)


def test_d2_what_its_process_left_behind_is_carried_on(queue, dead, clock, by_hand, ledger):
    dead.start_message_move_task(max_messages_per_second=1)
    assert continue_abandoned_tasks(ledger.store, clock) == 0
    clock.advance(61)
    assert continue_abandoned_tasks(ledger.store, clock) == 1
    assert queue.counts().visible == 3 and dead.list_message_move_tasks()[0].status == "COMPLETED"


def test_d2_of_several_that_carry_a_task_on_one_takes_each_step(queue, dead, clock, by_hand, ledger, world):
    """Two upkeeps find the same task abandoned: the messages of one step move once, and are counted once."""
    dead.start_message_move_task(max_messages_per_second=1)
    clock.advance(1)
    first, second = (MoveTasks(one.store, dead.access.record(), clock) for one in (ledger, world.open_another()))
    (seen,) = first.all()
    assert first.step(seen).moved == 2
    assert second.step(seen) is None
    assert (queue.counts().visible, second.all()[0].moved) == (2, 2)


def test_d2_what_was_moved_counts_although_the_task_was_cancelled_meanwhile(queue, dead, clock, by_hand, ledger):
    handle = dead.start_message_move_task(max_messages_per_second=1)
    clock.advance(1)
    redrive = ledger.store.redrive

    def cancelled(*arguments):
        moved = redrive(*arguments)
        dead.cancel_message_move_task(handle)
        return moved

    ledger.store.redrive = cancelled
    try:
        tasks = MoveTasks(ledger.store, dead.access.record(), clock)
        after = tasks.step(tasks.all()[0])
    finally:
        ledger.store.redrive = redrive
    assert (after.status, after.moved) == ("CANCELLED", 2) and after == tasks.all()[0]
    assert dead.list_message_move_tasks()[0].status == "CANCELLED" and dead.counts().visible == 1


def test_d2_a_stalled_runner_lets_another_one_carry_on_and_goes_on_after_it(queue, dead, clock, by_hand, ledger):
    queue.send([f"{n}" for n in range(200)])
    queue.receive(None).release()
    queue.receive(None)
    handle, waits = dead.start_message_move_task(max_messages_per_second=1), []
    tasks = MoveTasks(ledger.store, dead.access.record(), clock)
    (task,) = tasks.all()
    clock.advance(61)
    assert continue_abandoned_tasks(ledger.store, clock) == 1 and tasks.all()[0].moved == 62

    def tick(seconds):
        waits.append(tasks.all()[0].moved)
        clock.advance(61 if len(waits) == 2 else 1)
        if len(waits) == 3:
            dead.cancel_message_move_task(handle)

    run(tasks, task.task, task.revision, tick)
    assert waits == [62, 62, 124], "it waited while the other's step was fresh, and took the next when it was not"


def test_d2_a_task_runs_in_the_background_until_it_is_done(queue, dead, clock, monkeypatch):
    monkeypatch.setattr("ledger.client.move_tasks.STEP_PAUSE_SECONDS", 0.01)
    dead.start_message_move_task(max_messages_per_second=2)
    clock.advance(1)
    for _ in range(2_000):
        if not dead.list_message_move_tasks()[0].is_running:
            break
        time.sleep(0.01)
    assert queue.counts().visible == 3 and dead.list_message_move_tasks()[0].moved == 3


def test_d2_a_handle_tells_its_sources_arn(dead, by_hand):
    """As the service's: base64 of the JSON of taskId and sourceArn. The id alone is none."""
    handle = dead.start_message_move_task(max_messages_per_second=1)
    said = json.loads(base64.b64decode(handle))
    assert list(said) == ["taskId", "sourceArn"] and said["sourceArn"] == dead.arn
    assert dead.list_message_move_tasks()[0].task == handle
    with pytest.raises(InvalidParameterValue, match="TaskHandle"):
        dead.cancel_message_move_task(said["taskId"])
    assert dead.cancel_message_move_task(handle) >= 1


def test_d2_bad_tasks_are_refused(queue, dead):
    with pytest.raises(InvalidParameterValue, match="Source queue must be configured as a Dead Letter Queue"):
        queue.start_message_move_task()
    with pytest.raises(ResourceNotFound, match="DestinationArn parameter doesn't exist"):
        dead.start_message_move_task(destination="nowhere")
    with pytest.raises(InvalidParameterValue, match="TaskHandle"):
        dead.cancel_message_move_task("no handle")
    unknown = base64.b64encode(b'{"taskId":"10f57157-fc38-4da9-a113-4de7e12d05dd","sourceArn":"a"}').decode()
    with pytest.raises(ResourceNotFound, match="Task does not exist"):
        dead.cancel_message_move_task(unknown)
    with pytest.raises(InvalidParameterValue):
        dead.start_message_move_task(max_messages_per_second=0)
    assert dead.counts().visible == 3 and dead.list_message_move_tasks() == []


def test_d2_what_has_expired_by_a_retention_set_meanwhile_is_not_moved(queue, dead, clock, by_hand, ledger):
    """The task goes on in the process that started it, which knew the source as it was then."""
    dead.start_message_move_task(max_messages_per_second=1)
    tasks = MoveTasks(ledger.store, dead.access.record(), clock)
    dead.set_attributes({"MessageRetentionPeriod": 60})
    clock.advance(61)
    tasks.step(tasks.all()[0])
    (task,) = tasks.all()
    assert (task.status, task.moved) == ("COMPLETED", 1) and dead.counts().expired == 2


def test_d2_a_task_whose_source_was_made_anew_fails(ledger, dead, clock, by_hand):
    dead.start_message_move_task(max_messages_per_second=1)
    tasks = MoveTasks(ledger.store, dead.access.record(), clock)
    ledger.delete_queue(dead.name)
    ledger.create_queue(dead.name)
    tasks.step(tasks.all()[0])
    assert tasks.all()[0].status == "FAILED"


@pytest.mark.parametrize("fifo", [False, True])
def test_d2_with_sqs_limits_a_rate_has_a_bound(make_queue, make_fifo, by_hand, fifo):
    make = make_fifo if fifo else make_queue
    dead, unbounded = make(Limits="SQS"), make()
    make(Lanes=dead.attributes()["Lanes"], RedrivePolicy={"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1})
    make(RedrivePolicy={"deadLetterTargetArn": unbounded.arn, "maxReceiveCount": 1})
    for rate in (501, 10**6, 0):
        with pytest.raises(InvalidParameterValue, match=r"MaxNumberOfMessagesPerSecond.*between 1 and 500"):
            dead.start_message_move_task(max_messages_per_second=rate)
    assert not dead.list_message_move_tasks()
    assert dead.start_message_move_task(max_messages_per_second=500)
    assert unbounded.start_message_move_task(max_messages_per_second=501), "no bound without SQS's limits"
