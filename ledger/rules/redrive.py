"""Dead letters: their queues, the records of a move, and move tasks (D1, D2 and M4 of docs/reference/rules.md).

D1: "a message received that often and not deleted goes to the target instead of being received again, with its id,
body, attributes, sent time". Nothing is copied: the message stays in its segment, and the records of both queues say
which queue has it.

Each function that changes a task returns the task's next revision, which a store accepts by `is_next_revision`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from ledger.errors import InvalidParameterValue, ResourceNotFound
from ledger.rules.arns import Account, explain_foreign_arn, queue_of
from ledger.rules.limits import MAXIMUM_RECEIVES, MILLISECONDS
from ledger.rules.text import NamedTwice, require_unique_names
from ledger.rules.visibility import Record

_FIELDS = ("deadLetterTargetArn", "maxReceiveCount")
_PERMISSIONS = ("allowAll", "denyAll", "byQueue")
MAXIMUM_SOURCES = 10
RECEIVES_BEFORE_PARKING = 3
_ALLOW_POLICY = "It holds redrivePermission (allowAll, denyAll or byQueue), and with byQueue 1 to 10 sourceQueueArns."


@dataclass(frozen=True)
class RedrivePolicy:
    target: str
    maximum_receives: int


@dataclass(frozen=True)
class RedriveAllowPolicy:
    """The queues that may name a queue as their dead-letter queue. `sources` counts only for byQueue."""

    permission: str = "allowAll"
    sources: tuple[str, ...] = ()

    def allows(self, source: str) -> bool:
        return self.permission == "allowAll" or (self.permission == "byQueue" and source in self.sources)


def policy_of(attributes: Mapping[str, str]) -> RedrivePolicy | None:
    """Return the redrive policy in a queue's attributes, or None. M4: raises InvalidParameterValue."""
    text = attributes.get("RedrivePolicy")
    if not text:
        return None
    policy = _map(text)
    if policy is None:
        raise _make_error(text, "Redrive policy is not a valid JSON map")
    for name in reversed(_FIELDS):
        if name not in policy:
            raise _make_error(text, f"Redrive policy does not contain mandatory attribute: {name}")
    if set(policy) - set(_FIELDS):
        raise _make_error(text, f"Only following attributes are supported: [{', '.join(_FIELDS)}]")
    target, count = queue_of(policy["deadLetterTargetArn"]), policy["maxReceiveCount"]
    if target is None:
        raise _make_error(text, "Invalid value for deadLetterTargetArn", "Give a queue's ARN, or its name.")
    if (
        isinstance(count, bool)
        or not re.fullmatch(r"[0-9]{1,4}", str(count))
        or not 1 <= int(count) <= MAXIMUM_RECEIVES
    ):
        raise _make_error(
            text, f"Invalid value for maxReceiveCount: {count}, valid values are from 1 to 1000 both inclusive"
        )
    return RedrivePolicy(target, int(count))


def dead_letter_names(attributes: Iterable[Mapping[str, str]]) -> set[str]:
    policies = map(policy_of, attributes)
    return {policy.target for policy in policies if policy is not None}


def answer_policy(text: str) -> str:
    """Return a redrive policy as SQS answers it: without spaces, its count as a number. Other texts stay unchanged.

    Source: issue 5119 of hashicorp/terraform and pull request 5888, "the AWS API accepts either, but will always return
    an integer".
    """
    stored = _map(text) or {}
    if set(stored) != set(_FIELDS) or not re.fullmatch(r"[0-9]{1,4}", str(stored["maxReceiveCount"])):
        return text
    policy = {"deadLetterTargetArn": stored["deadLetterTargetArn"], "maxReceiveCount": int(stored["maxReceiveCount"])}
    return json.dumps(policy, separators=(",", ":"))


def allow_policy_of(attributes: Mapping[str, str]) -> RedriveAllowPolicy:
    """Return the redrive allow policy in a queue's attributes. Raises InvalidParameterValue."""
    text = attributes.get("RedriveAllowPolicy")
    if not text:
        return RedriveAllowPolicy()
    policy = _map(text) or {}
    sources, permission = policy.get("sourceQueueArns", []), policy.get("redrivePermission")
    source_names = [queue_of(arn) for arn in sources] if isinstance(sources, list) else [None]
    names = tuple(name for name in source_names if name is not None)
    bound = "Amazon SQS can't create the redrive allow policy"
    if permission == "byQueue" and not source_names:
        bound += (
            ". When you specify the byQueue permission type, you must also specify one or more sourceQueueArns values"
        )
    elif permission in _PERMISSIONS and permission != "byQueue" and source_names:
        bound += ". To specify one or more source queue ARNs, you must set redrivePermission to byQueue"
    elif permission in _PERMISSIONS and len(names) == len(source_names) <= MAXIMUM_SOURCES:
        return RedriveAllowPolicy(permission, names)
    raise InvalidParameterValue("RedriveAllowPolicy", text, bound, _ALLOW_POLICY)


def require_names_once(given: Mapping[str, str]) -> None:
    """Raise InvalidParameterValue if a new policy has a name twice. Stored policies are still read."""
    for name in ("RedrivePolicy", "RedriveAllowPolicy"):
        try:
            json.loads(given.get(name) or "{}", object_pairs_hook=require_unique_names)
        except NamedTwice:
            bound = "It has a name twice"
            raise InvalidParameterValue(name, given[name], bound, "Give each name one value.") from None


def require_own(given: Mapping[str, str], account: Account) -> None:
    """Raise InvalidParameterValue if a new policy names a queue of another account or region (M4)."""
    text = given.get("RedrivePolicy", "")
    bound = explain_foreign_arn((_map(text) or {}).get("deadLetterTargetArn"), account) if text else None
    if bound is not None:
        raise _make_error(text, bound, f"This ledger's queues have ARNs like {account.arn('name')}.")
    text = given.get("RedriveAllowPolicy", "")
    sources = (_map(text) or {}).get("sourceQueueArns") if text else None
    if isinstance(sources, list) and any(explain_foreign_arn(arn, account) for arn in sources):
        raise InvalidParameterValue(
            "RedriveAllowPolicy",
            text,
            "Amazon SQS can't create the redrive allow policy",
            f"Sources are queues of this ledger; their ARNs are like {account.arn('name')}.",
        )


def require_target(
    queues: Iterable[Any], name: str, attributes: Mapping[str, str], given: Mapping[str, object]
) -> None:
    """Raise InvalidParameterValue if a new RedrivePolicy names an impossible target (M4)."""
    policy = policy_of(attributes) if "RedrivePolicy" in given else None
    if policy is None:
        return
    text = attributes["RedrivePolicy"]
    target = {queue.name: queue for queue in queues}.get(policy.target)
    # M4: an existing queue may be its own target. A queue that is being made does not exist yet.
    if target is None:
        raise _make_error(text, "Dead letter target does not exist", "Create that queue first.")
    if target.attributes.get("FifoQueue") != attributes.get("FifoQueue"):
        raise _make_error(text, "Dead-letter queue must be same type of queue as the source")
    if attributes.get("FifoQueue") and target.attributes["Lanes"] != attributes["Lanes"]:
        raise _make_error(text, f"FIFO queues need equal Lanes; the target has {target.attributes['Lanes']}")
    if not allow_policy_of(target.attributes).allows(name):
        raise _make_error(text, f"The RedriveAllowPolicy of {target.name} does not allow {name} as a source")


def explain_unfit_destination(source: Any, destination: Any) -> str | None:
    if destination.attributes.get("FifoQueue") != source.attributes.get("FifoQueue"):
        return "Must be the same type of queue as the source"
    lanes = source.attributes["Lanes"]
    if source.attributes.get("FifoQueue") and destination.attributes["Lanes"] != lanes:
        # If a group changed its lane, two receives at once could both get messages of the group.
        return f"FIFO queues need equal Lanes; the source has {lanes}"
    return None


def make_no_dead_letter_queue_error(
    name: str, fix: str = "Name it in another queue's RedrivePolicy."
) -> InvalidParameterValue:
    """Return the error for a redrive from a queue that no RedrivePolicy names (D2, recorded)."""
    bound = "Source queue must be configured as a Dead Letter Queue"
    return InvalidParameterValue("SourceArn", name, bound, fix, message=f"{bound}.")


def require_destination(source: Any, destination: Any) -> None:
    another = "Must be another queue than the source" if destination.id == source.id else None
    bound = another or explain_unfit_destination(source, destination)
    if bound is not None:
        raise InvalidParameterValue("destination", destination.name, bound)


def receives_before_parking(attributes: Mapping[str, str], maximum_receives: int | None) -> int | None:
    """Return after how many receives a worker parks a message. None: the queue's RedrivePolicy decides."""
    if maximum_receives is not None:
        return maximum_receives
    return RECEIVES_BEFORE_PARKING if policy_of(attributes) is None else None


def is_dead(record: Record, policy: RedrivePolicy | None) -> bool:
    """Return whether a visible message goes to the dead-letter queue instead of being received again (D1)."""
    return policy is not None and record.receive_count >= policy.maximum_receives


def mark_moved(record: Record, target: str) -> Record:
    return record._replace(moved_to=target)


def make_dead_letter(record: Record, origin: str, now: int, *, fifo: bool, target: str | None = None) -> Record:
    """Return the target's record of a dead letter (D1), with the receive count (recorded) and the first receive.

    On FIFO queues the retention restarts. On standard queues it goes on, so that no message stays for ever. M4: if the
    target is the queue itself, the count restarts, because with the old count nobody could receive the message.
    """
    if target == origin:
        return Record(origin_queue=origin, enqueued_at=now if fifo else record.enqueued_at, visible_at=now)
    return Record(
        receive_count=record.receive_count,
        first_received_at=record.first_received_at,
        origin_queue=origin,
        enqueued_at=now if fifo else record.enqueued_at,
    )


def make_redriven(now: int, origin: str | None = None) -> Record:
    """Return the destination's record of a redriven message (D2): never received, with a new retention."""
    return Record(enqueued_at=now, origin_queue=origin)


def _map(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _make_error(text: str, bound: str, fix: str = "") -> InvalidParameterValue:
    return InvalidParameterValue("RedrivePolicy", text, bound, fix)


#: SQS's ids have dashes, ours have none. A handle with an id of SQS's is valid, but its task does not exist.
_ID_IN_A_HANDLE = re.compile(r"[0-9a-f-]{1,64}")
#: In milliseconds without an update of a running task.
ABANDONED_AFTER = 60_000


class TaskStatus(str, Enum):
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"


class MoveTask(NamedTuple):
    """A task that moves the messages of a dead-letter queue. Instants are in milliseconds.

    `source` is the id of the dead-letter queue. `destination` is a queue's name (None: the queue that each message came
    from). `rate` is in messages a second (None: all move at once). `moved` and `to_move` are approximate, as in SQS.
    """

    task: str
    source: str
    destination: str | None
    rate: int | None
    started_at: int
    updated_at: int
    to_move: int
    moved: int = 0
    status: str = TaskStatus.RUNNING.value
    failure: str | None = None
    revision: int = 1

    @property
    def is_running(self) -> bool:
        """Whether the task may move more messages."""
        return self.status == TaskStatus.RUNNING.value


def new_task(
    source: str, destination: str | None, rate: int | None, to_move: int, now: int, others: Iterable[MoveTask]
) -> MoveTask:
    """Return a task that starts now; `others` are all tasks of the same source.

    Two tasks that start at once have the same id, so a store keeps only one of them.

    Raises:
        InvalidParameterValue: Another task of the source runs (recorded).
    """
    others = list(others)
    if any(task.is_running for task in others):
        bound = (
            "There is already a task running. Only one active task is allowed for a source queue arn at a given time"
        )
        raise InvalidParameterValue("SourceArn", source, bound, message=f"{bound}.")
    identity = json.dumps([source, *sorted(task.task for task in others)])
    return MoveTask(hashlib.sha256(identity.encode()).hexdigest()[:32], source, destination, rate, now, now, to_move)


def is_next_revision(task: MoveTask, stored_tasks: Iterable[MoveTask]) -> bool:
    """Return whether `task` may be stored: as a stored task's next revision, or if no other task of its source runs."""
    stored = next((one for one in stored_tasks if one.task == task.task), None)
    if stored is not None:
        return stored.revision == task.revision - 1
    return task.revision == 1 and not any(one.is_running and one.source == task.source for one in stored_tasks)


def allowance(task: MoveTask, now: int) -> int | None:
    """Return how many messages a task may move now; None means all.

    The rate counts from the task's start. It allows the messages of each second when the second begins.
    """
    if task.rate is None:
        return None
    seconds = 1 + (now - task.started_at) // MILLISECONDS
    return max(0, int(task.rate * seconds) - task.moved)


def is_abandoned(task: MoveTask, now: int) -> bool:
    """Return whether another process may take the running task's next step."""
    return task.is_running and now - task.updated_at > ABANDONED_AFTER


def put_back(task: MoveTask, now: int) -> MoveTask:
    """Return the task as a right clock would have dated it.

    The new start allows for the messages that the task has moved, so a task with a rate continues at once.
    """
    begun = now if task.rate is None else now - task.moved * MILLISECONDS // task.rate
    started_at, updated_at = min(task.started_at, begun), min(task.updated_at, now)
    return task._replace(started_at=started_at, updated_at=updated_at, revision=task.revision + 1)


def start_step(task: MoveTask, now: int) -> MoveTask:
    """Mark the task for a process. Only the process that stores this revision makes the next step."""
    return task._replace(updated_at=now, revision=task.revision + 1)


def record_progress(task: MoveTask, moved: int, allowed: int | None, now: int) -> MoveTask:
    """Return the task after `moved` more messages. It is completed if `allowed` is greater than `moved`, or None."""
    done = allowed is None or moved < allowed
    status = TaskStatus.COMPLETED.value if done and task.is_running else task.status
    return task._replace(moved=task.moved + moved, updated_at=now, status=status, revision=task.revision + 1)


def end_task(task: MoveTask, status: TaskStatus, now: int, failure: str | None = None) -> MoveTask:
    return task._replace(status=status.value, updated_at=now, failure=failure, revision=task.revision + 1)


def encode_handle(task: MoveTask, source_arn: str) -> str:
    """Return the task's handle, in SQS's form."""
    text = json.dumps({"taskId": task.task, "sourceArn": source_arn}, separators=(",", ":"))
    return base64.b64encode(text.encode()).decode()


def task_id(handle: object) -> str:
    return _read(handle)["taskId"]


def parse_source_arn(handle: object) -> str:
    return _read(handle)["sourceArn"]


def _read(handle: object) -> dict[str, str]:
    try:
        contents = json.loads(base64.b64decode(handle, validate=True)) if isinstance(handle, str) else None
    except (ValueError, RecursionError):
        contents = None
    if isinstance(contents, dict) and isinstance(contents.get("sourceArn"), str):
        identifier = contents.get("taskId")
        if isinstance(identifier, str) and _ID_IN_A_HANDLE.fullmatch(identifier):
            return contents
    bound = "It is not the handle of a message move task"
    raise InvalidParameterValue(
        "TaskHandle", handle, bound, f"{bound}.", message="Value for parameter TaskHandle is invalid."
    )


def find_task_to_cancel(tasks: Iterable[MoveTask], handle: object) -> MoveTask:
    """Return the running task of this handle. Raises ResourceNotFound and InvalidParameterValue."""
    identifier = task_id(handle)
    for task in tasks:
        if task.task == identifier and task.is_running:
            return task
    raise ResourceNotFound(
        "Task does not exist.",
        "No running message move task has this handle: it was completed or cancelled, it failed, or it never existed.",
    )
