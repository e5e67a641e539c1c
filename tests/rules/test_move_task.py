"""D2: message move tasks as pure functions: who may start, how much may move by when, and how a task ends."""

import base64

import pytest

from ledger.errors import InvalidParameterValue, ResourceNotFound
from ledger.rules import redrive
from ledger.rules.redrive import MoveTask, TaskStatus

NOW = 1_700_000_000_000
SECOND = 1_000


def task(rate=None, to_move=10, **changed):
    return redrive.new_task("dead-0", "jobs", rate, to_move, NOW, [])._replace(**changed)


def test_d2_a_task_begins_with_what_it_was_asked_for_and_nothing_moved():
    found = redrive.new_task("dead-0", "jobs", 5, 10, NOW, [])
    assert found == MoveTask(found.task, "dead-0", "jobs", 5, NOW, NOW, 10)
    assert (found.moved, found.status, found.failure, found.revision) == (0, "RUNNING", None, 1)
    assert found.is_running


def test_d2_every_task_has_a_handle_of_its_own_by_which_it_can_be_cancelled():
    tasks = []
    for number in range(100):
        others = [one._replace(status="COMPLETED") for one in tasks if one.source == f"dead-{number % 3}"]
        tasks.append(redrive.new_task(f"dead-{number % 3}", None, None, 1, NOW, others))
    assert len({each.task for each in tasks}) == 100
    assert all(
        redrive.find_task_to_cancel(tasks, redrive.encode_handle(each, "arn:aws:sqs:here:1:dead")) is each
        for each in tasks
    )


def test_d2_two_tasks_that_start_beside_the_same_others_are_one_by_their_id_whenever_they_start():
    others = [task(task=letter * 32, status="COMPLETED") for letter in "ab"]
    first = redrive.new_task("dead-0", "jobs", 1, 10, NOW, others)
    second = redrive.new_task("dead-0", None, None, 9, NOW + 5, reversed(others))
    assert first.task == second.task and not redrive.is_next_revision(second, [*others, first])
    assert first.task != redrive.new_task("dead-0", "jobs", 1, 10, NOW, others[:1]).task


@pytest.mark.parametrize("status", TaskStatus)
def test_d2_recorded_a_task_waits_for_no_task_that_has_ended(status):
    others = [task(status=TaskStatus.COMPLETED.value), task(status=status.value)]
    if status is TaskStatus.RUNNING:
        with pytest.raises(InvalidParameterValue) as raised:
            redrive.new_task("dead-0", None, None, 1, NOW, others)
        assert raised.value.message == (
            "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
        )
    else:
        assert redrive.new_task("dead-0", None, None, 1, NOW, others).is_running


@pytest.mark.parametrize(
    ("after", "moved", "allowed"),
    [(0, 0, 5), (999, 0, 5), (1_000, 0, 10), (1_000, 5, 5), (999, 5, 0), (10_500, 40, 15), (0, 7, 0)],
)
def test_d2_a_rate_allows_so_many_a_second_since_the_start_and_the_first_seconds_at_once(after, moved, allowed):
    assert redrive.allowance(task(rate=5, moved=moved), NOW + after) == allowed


def test_d2_without_a_rate_everything_may_move():
    assert redrive.allowance(task(), NOW) is None


@pytest.mark.parametrize(
    ("moved", "allowed", "status"),
    [(3, None, "COMPLETED"), (0, None, "COMPLETED"), (3, 5, "COMPLETED"), (5, 5, "RUNNING"), (0, -1, "RUNNING")],
)
def test_d2_a_task_is_done_when_there_was_less_than_it_was_allowed_to_move(moved, allowed, status):
    before = task(rate=5, moved=7, revision=4)
    after = redrive.record_progress(before, moved, allowed, NOW + SECOND)
    assert after == before._replace(moved=7 + moved, updated_at=NOW + SECOND, status=status, revision=5)


def test_d2_a_step_that_ends_after_its_task_was_cancelled_counts_and_leaves_it_cancelled():
    cancelled = redrive.end_task(task(), TaskStatus.CANCELLED, NOW + SECOND)
    after = redrive.record_progress(cancelled, 3, None, NOW + 2 * SECOND)
    assert (after.status, after.moved, after.is_running) == ("CANCELLED", 3, False)


def test_d2_a_task_that_ends_early_says_when_and_why():
    before = task(revision=4)
    failed = redrive.end_task(before, TaskStatus.FAILED, NOW + SECOND, "no such queue")
    assert failed == before._replace(status="FAILED", updated_at=NOW + SECOND, failure="no such queue", revision=5)
    assert redrive.end_task(before, TaskStatus.CANCELLED, NOW).failure is None


def test_d2_recorded_only_a_running_task_can_be_cancelled_and_only_by_its_own_handle():
    running, done = task(task="b" * 32), task(status=TaskStatus.COMPLETED.value)
    running_handle, *others = (
        redrive.encode_handle(one, "arn:aws:sqs:here:1:dead") for one in (running, done, task(task="0" * 32))
    )
    assert redrive.find_task_to_cancel([done, running], running_handle) is running
    for handle in others:
        with pytest.raises(ResourceNotFound, match="No running message move task") as raised:
            redrive.find_task_to_cancel([done, running], handle)
        assert raised.value.message == "Task does not exist."


def test_d2_what_is_no_handle_is_refused():
    one = task()
    handle = redrive.encode_handle(one, "arn:aws:sqs:here:1:dead")
    assert redrive.task_id(handle) == one.task
    assert redrive.parse_source_arn(handle) == "arn:aws:sqs:here:1:dead"
    said = f'{{"taskId":"{one.task}","sourceArn":"arn:aws:sqs:here:1:dead"}}'
    assert base64.b64decode(handle).decode() == said, "as the service writes it"
    nothing = base64.b64encode(b'{"taskId": "x", "sourceArn": "y"}').decode()
    without = base64.b64encode(f'{{"taskId": "{one.task}"}}'.encode()).decode()
    listed = base64.b64encode(b"[1]").decode()
    for wrong in (handle[:-4], handle + "!", nothing, without, listed, "x" * 32, one.task, "", None, 7):
        for read in (redrive.task_id, redrive.parse_source_arn):
            with pytest.raises(InvalidParameterValue, match="TaskHandle") as raised:
                read(wrong)
            assert (raised.value.field, raised.value.value) == ("TaskHandle", wrong)
            assert raised.value.message == "Value for parameter TaskHandle is invalid."


def test_d2_one_task_runs_on_a_source_whoever_starts_it_and_a_step_is_taken_by_one():
    running, elsewhere = task(task="b" * 32), task(task="c" * 32, source="dead-1")
    assert redrive.is_next_revision(task(), []) and redrive.is_next_revision(task(), [elsewhere])
    assert not redrive.is_next_revision(task(), [elsewhere, running]), "another runs on this source"
    assert redrive.is_next_revision(task(), [running._replace(status="COMPLETED")])
    step = redrive.start_step(running, NOW + SECOND)
    assert step == running._replace(updated_at=NOW + SECOND, revision=2)
    assert redrive.is_next_revision(step, [elsewhere, running]) and not redrive.is_next_revision(step, [step])
    assert not redrive.is_next_revision(step, []), "what it follows is not there"
    assert not redrive.is_next_revision(redrive.start_step(step, NOW), [running]), "somebody else's step is missing"


@pytest.mark.parametrize(("age", "status", "abandoned"), [
    (60_000, "RUNNING", False), (60_001, "RUNNING", True), (60_001, "COMPLETED", False),
])  # fmt: skip
def test_d2_a_running_task_that_nobody_has_touched_for_a_minute_is_left_behind(age, status, abandoned):
    assert redrive.is_abandoned(task(status=status), NOW + age) is abandoned
