"""The limits of queues: each with its source, the quota on messages in flight, and the intervals of Limits=SQS.

V1, Q5 and the like are rules of docs/reference/rules.md. S1 and S2 are texts about SQS.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ledger.errors import InvalidParameterValue, OverLimit, PurgeQueueInProgress, QueueDeletedRecently

#: S1: "Each queue starts with a default setting of 30 seconds for the visibility timeout."
DEFAULT_VISIBILITY_TIMEOUT = 30
#: S2: "The minimum is 0 seconds. The maximum is 12 hours."
MAXIMUM_VISIBILITY_TIMEOUT = 43_200
#: The API reference of SendMessage; also the default of MaximumMessageSize (recorded).
MAXIMUM_MESSAGE_BYTES = 1_048_576
#: An UNBOUNDED queue may have messages of this size, which a cell of a DataFrame can safely hold.
LARGEST_MESSAGE_BYTES = 1_073_741_824
#: Recorded: "Must be between 1 and 10, if provided."
MAXIMUM_MESSAGES = 10
#: Recorded: "Must be >= 0 and <= 20, if provided."
MAXIMUM_WAIT = 20
#: Q6, Q7 (botocore's model), in seconds.
MAXIMUM_DELAY = 900
MINIMUM_RETENTION, DEFAULT_RETENTION, MAXIMUM_RETENTION = 60, 345_600, 1_209_600
#: For UNBOUNDED queues: a hundred years.
LONGEST_RETENTION = 36_525 * 86_400
#: S1: "For standard queues, there can be a maximum of 120,000 inflight messages per queue", "For FIFO queues, [...]
#: 20,000".
MAXIMUM_IN_FLIGHT, MAXIMUM_IN_FLIGHT_FIFO = 120_000, 20_000
#: F1, in seconds.
DEDUPLICATION_INTERVAL = 300
#: SQS: "valid values are from 1 to 1000 both inclusive".
MAXIMUM_RECEIVES = 1_000
#: The API reference of TagQueue. Keys and values are counted in characters.
MAXIMUM_TAGS, MAXIMUM_TAG_KEY, MAXIMUM_TAG_VALUE = 50, 128, 256
MAXIMUM_MESSAGE_ATTRIBUTES = 10
#: The API references of ListQueues and ListDeadLetterSourceQueues, and of ListMessageMoveTasks: "The upper limit is
#: 10."
MAXIMUM_RESULTS, MAXIMUM_TASKS_LISTED = 1_000, 10
#: The API reference of StartMessageMoveTask: "The maximum value is 500."
MAXIMUM_MOVE_RATE = 500
DEFAULT_LANES, MAXIMUM_LANES = 8, 256
MAXIMUM_STORED = 999_999_999_999
MAXIMUM_STORED_BYTES = 999_999_999_999_999
MILLISECONDS = 1_000
#: With less free space the endpoint is not ready. These bytes hold some commits of its largest batches.
LEAST_FREE_BYTES = 32 << 20


@dataclass(frozen=True)
class Limits:
    """The bounds of one queue. `None` lifts a bound. Times are in seconds.

    Q4: queues made in Python or by a job are UNBOUNDED, unless they are made with Limits=SQS. The bound of 12 hours
    (V1, V7) stays until the queue's MaximumVisibilityTimeout is raised.
    """

    maximum_visibility_timeout: int | None = MAXIMUM_VISIBILITY_TIMEOUT
    maximum_messages_per_receive: int | None = None
    maximum_wait: int | None = None
    maximum_in_flight: int | None = None
    maximum_move_rate: int | None = None
    maximum_messages: int | None = None
    maximum_stored_bytes: int | None = None
    #: M3: whether the settings purge_interval and deletion_interval apply.
    has_intervals: bool = False


UNBOUNDED = Limits()
SQS = Limits(
    maximum_messages_per_receive=MAXIMUM_MESSAGES,
    maximum_wait=MAXIMUM_WAIT,
    maximum_in_flight=MAXIMUM_IN_FLIGHT,
    maximum_move_rate=MAXIMUM_MOVE_RATE,
    has_intervals=True,
)


def check_whole_number(
    field: str, value: object, least: int, most: int | None, fix: str = "", bound: str | None = None
) -> int:
    """Return `value` as an int within [least, most], or raise InvalidParameterValue.

    With `most`, the error's bound is `bound`, by default the words recorded for MaxNumberOfMessages.
    """
    if most is None:
        bound = f"Must be a whole number >= {least}"
    bound = bound or f"Must be between {least} and {most}, if provided"
    if isinstance(value, bool) or not isinstance(value, int):
        kind = f"A whole number is asked for, and this is a {type(value).__name__}."
        raise InvalidParameterValue(field, value, bound, f"{kind} {fix}".strip())
    if value < least or (most is not None and value > most):
        raise InvalidParameterValue(field, value, bound, fix)
    return value


def check_visibility_timeout(value: object, limits: Limits, field: str = "VisibilityTimeout") -> int:
    """Return a timeout of at most the queue's MaximumVisibilityTimeout, in seconds (V1)."""
    return check_whole_number(
        field,
        value,
        0,
        limits.maximum_visibility_timeout,
        "Give seconds; to hold messages for longer, extend them (heartbeat), or raise MaximumVisibilityTimeout.",
    )


def maximum_messages(value: object, limits: Limits, field: str = "MaxNumberOfMessages") -> int | None:
    """Return how many messages a receive may take; None means all."""
    most = limits.maximum_messages_per_receive
    if value is None:
        return most
    is_above = most is not None and isinstance(value, int) and value > most
    fix = "The queue has Limits=SQS. A queue made with Limits=UNBOUNDED has no such bound." if is_above else ""
    return check_whole_number(field, value, 1, most, fix)


def check_move_rate(value: object, limits: Limits) -> int | None:
    """Return how many messages a second a move task moves; None means all at once (D2)."""
    if value is None:
        return None
    fix = "" if limits.maximum_move_rate is None else "Without a rate all messages move at once."
    return check_whole_number("MaxNumberOfMessagesPerSecond", value, 1, limits.maximum_move_rate, fix)


_TIME = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


def parse_seconds(text: str, units: str = "smhd") -> float | None:
    """Return the seconds of a text such as 90, 90s, 5m, 1h or 7d, if its unit is in `units`."""
    match = _TIME.fullmatch(text)
    return None if match is None or match[2] not in ("", *units) else float(match[1]) * _UNITS[match[2]]


def convert_age(field: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= LONGEST_RETENTION:
        bound = f"Must be a number of seconds from 0 to {LONGEST_RETENTION}"
        raise InvalidParameterValue(field, value, bound, "7 * 86_400 is a week. Nothing was changed.")
    return round(value * MILLISECONDS)


def check_wait(value: object, limits: Limits) -> float:
    """Return how long a receive waits for a message, in seconds (Q5)."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not value >= 0
        or (limits.maximum_wait is not None and value > limits.maximum_wait)
    ):
        most = f" and <= {limits.maximum_wait}" if limits.maximum_wait is not None else ""
        raise InvalidParameterValue("WaitTimeSeconds", value, f"Must be >= 0{most}, if provided")
    return float(value)


NOTHING_SENT = "Nothing was sent. "


def admit(requested: int | None, in_flight: int, limits: Limits, *, fifo: bool) -> int | None:
    """Return how many messages a receive may get within the quota. None means all.

    Without room, raises OverLimit for a standard queue ("If you reach this limit, Amazon SQS returns the OverLimit
    error message"), and returns 0 for a FIFO queue ("Amazon SQS returns no error messages").
    """
    most = limits.maximum_in_flight
    if most is None:
        return requested
    room = max(0, most - in_flight)
    if not room and not fifo:
        raise OverLimit(
            "The maximum number of in flight messages is reached.",
            f"{in_flight} messages are in flight, and the queue's limit is {most}: delete or release some of them, or "
            "make a queue with Limits=UNBOUNDED.",
        )
    return room if requested is None else min(requested, room)


def require_room(queue: str, stored: int, added: int, limits: Limits) -> None:
    """Raise OverLimit if `added` messages would pass the queue's MaximumMessages.

    `stored` counts the queue's messages without deleted, expired and moved ones.
    """
    found = f"The queue {queue} has {stored:,} messages"
    _require_within("MaximumMessages", limits.maximum_messages, stored, added, found, "of them")


def require_bytes(queue: str, stored: int, added: int, limits: Limits) -> None:
    found = f"The messages of the queue {queue} take {stored:,} bytes"
    _require_within("MaximumStoredBytes", limits.maximum_stored_bytes, stored, added, found, "bytes")


def _require_within(name: str, most: int | None, stored: int, added: int, found: str, unit: str) -> None:
    # A repeated send adds nothing, and gets its earlier answer, however full the queue is.
    if most is None or not added or stored + added <= most:
        return
    room = max(0, most - stored)
    fits = f"send at most {room:,} {unit}" if room else "wait until some are done"
    raise OverLimit(
        f"{found}, and {added:,} more would pass its {name} of {most:,}.",
        f"{NOTHING_SENT}Receive and delete messages, {fits}, or raise the queue's {name} (0: no bound).",
    )


def counted_sends_application(queue: str) -> str:
    """Return the application id that counts the sends to a queue with MaximumMessages or MaximumStoredBytes.

    Of two sends at once only one can commit, so they cannot pass the bound together.
    """
    return f"quota/{queue}"


_SWITCH = "Queues with Limits=UNBOUNDED need not wait, nor do others with the setting"


def require_purge(name: str, purged_at: int | None, limits: Limits, interval: int, now: int) -> None:
    """With Limits=SQS, raise PurgeQueueInProgress within `interval` seconds of the queue's last purge."""
    if limits.has_intervals and purged_at is not None and now - purged_at < interval * MILLISECONDS:
        raise PurgeQueueInProgress(
            f"Only one PurgeQueue operation on {name} is allowed every {interval} seconds.",
            f"Nothing was purged. {_SWITCH} purge_interval at 0.",
        )


def require_name(name: str, deleted_at: int | None, limits: Limits, interval: int, now: int) -> None:
    """Raise QueueDeletedRecently within `interval` seconds of the deletion of a queue that had this name.

    Only a new queue with Limits=SQS (in `limits`) has to wait.
    """
    if limits.has_intervals and deleted_at is not None and now - deleted_at < interval * MILLISECONDS:
        raise QueueDeletedRecently(
            f"You must wait {interval} seconds after deleting a queue before you can create another with the same "
            "name.",
            f"It is {name}. {_SWITCH} deletion_interval at 0.",
        )
