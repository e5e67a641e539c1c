"""D2: message move tasks, as SQS starts, lists and cancels them."""

import time

import pytest

from ledger.errors import InvalidParameterValue, ResourceNotFound
from ledger.move_tasks import MoveTasks, carry_on


@pytest.fixture
def dead(ledger, queue):
    """A dead-letter queue with three messages of `queue`."""
    dead = ledger.create_queue(f"{queue.name}-dead")
    queue.set_attributes({"RedrivePolicy": {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1}})
    queue.send(["a", "b", "c"])
    queue.receive(None).release()
    assert not queue.receive(None) and dead.counts().visible == 3
    return dead


@pytest.fixture
def by_hand(monkeypatch):
    """No thread runs a task: the test takes its steps."""
    monkeypatch.setattr(MoveTasks, "run", lambda self, handle: None)


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
    tasks = MoveTasks(ledger.store, dead._record(), clock)
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
    assert carry_on(ledger.store, clock) == 0
    assert dead.list_message_move_tasks()[0].status == "CANCELLED" and dead.counts().stored == 1
    with pytest.raises(ResourceNotFound):
        dead.cancel_message_move_task(handle)


def test_d2_what_its_process_left_behind_is_carried_on(queue, dead, clock, by_hand, ledger):
    dead.start_message_move_task(max_messages_per_second=1)
    assert carry_on(ledger.store, clock) == 0
    clock.advance(61)
    assert carry_on(ledger.store, clock) == 1
    assert queue.counts().visible == 3 and dead.list_message_move_tasks()[0].status == "COMPLETED"


def test_d2_a_task_runs_in_the_background_until_it_is_done(queue, dead, clock, monkeypatch):
    monkeypatch.setattr("ledger.move_tasks.TICK", 0.01)
    dead.start_message_move_task(max_messages_per_second=2)
    clock.advance(1)
    for _ in range(2_000):
        if not dead.list_message_move_tasks()[0].is_running:
            break
        time.sleep(0.01)
    assert queue.counts().visible == 3 and dead.list_message_move_tasks()[0].moved == 3


def test_d2_bad_tasks_are_refused(queue, dead):
    with pytest.raises(InvalidParameterValue, match="Source queue must be configured as a Dead Letter Queue"):
        queue.start_message_move_task()
    with pytest.raises(ResourceNotFound, match="DestinationArn parameter doesn't exist"):
        dead.start_message_move_task(destination="nowhere")
    with pytest.raises(InvalidParameterValue, match="TaskHandle"):
        dead.cancel_message_move_task("no handle")
    with pytest.raises(InvalidParameterValue):
        dead.start_message_move_task(max_messages_per_second=0)
    assert dead.counts().visible == 3 and dead.list_message_move_tasks() == []
