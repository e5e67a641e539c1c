"""Limits of message groups: closed groups, calls at once, and messages a second.

RetryLater can close a group until an instant. Until then the process begins no call for messages of the group.

A limit holds for all processes of a machine that share the folder of its state. Here a message's turn is the instant at
which its group's rate allows the message.

- A slot is a file. A call locks (flock) one slot of each of its messages' groups that have a `concurrency`. The kernel
  releases the locks of a killed process.
- A rate is a file with two instants, read and written under a lock. `due` is the next message's turn if messages
  come evenly (the generic cell rate algorithm). A message may come up to BURST_SECONDS, less one interval, before
  `due`. So in T seconds a group gets at most rate * (T + BURST_SECONDS) messages, or rate * T + 1 if that is more.

A refused message whose turn or slot is expected within PATIENCE_SECONDS is put aside: the message stays held, in
memory. Any other refused message is given back, and hidden for LONGEST_HIDDEN_SECONDS at most. `booked`, the second
instant of the file, is the latest turn until which a message was hidden.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import struct
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ledger.clock import Clock
from ledger.errors import InvalidParameterValue
from ledger.message import Message
from ledger.rules.limits import MILLISECONDS, check_whole_number
from ledger.rules.message import IDENTIFIER
from ledger.work.verdicts import RetryLater

CLOSED_REASON = "its group is closed until later"


class ClosedGroups:
    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._until: dict[str, int] = {}
        #: Called with a group and an instant (milliseconds) when a handler closes the group.
        self.on_close: Callable[[str, int], None] = lambda group, until: None

    def close(self, group: str, until: int) -> None:
        """Close a group until an instant (milliseconds), unless it is closed for longer."""
        with self._lock:
            self._until[group] = max(until, self._until.get(group, 0))

    def close_for(self, message: Message, later: RetryLater) -> None:
        group = message.message_group_id if later.group is True else later.group
        if isinstance(group, str):
            now = self._clock()
            until = now + round(later.seconds_from(now / MILLISECONDS) * MILLISECONDS)
            self.close(group, until)
            self.on_close(group, until)

    def retry_of(self, message: Message) -> RetryLater | None:
        """Return how to give back a message whose group is closed; None for any other message."""
        if not self._until or message.message_group_id is None:
            return None
        with self._lock:
            remaining = self._until.get(message.message_group_id, 0) - self._clock()
            if remaining <= 0:
                self._until.pop(message.message_group_id, None)
                return None
        return RetryLater(remaining / MILLISECONDS, reason=CLOSED_REASON)


#: After a pause, a group gets at most the messages of this time at once, and at least one.
BURST_SECONDS = 1.0
#: How soon a turn must come for a message to be put aside, and the shortest time between two looks for a slot.
PATIENCE_SECONDS, LOOK_SECONDS = 1.0, 0.02
#: The longest time that a limit hides a message.
LONGEST_HIDDEN_SECONDS = 60.0
#: For each slot.
ESTIMATED_CALLS_A_SECOND = 10
MOST_CONCURRENCY = 4_096
NO_SLOT, TOO_EARLY = "its group has as many calls as it may have", "its group has had its rate"
_INSTANTS = struct.Struct("<dd")


@dataclass(frozen=True)
class GroupLimit:
    """How many messages of a group the handlers of `Queue.consume` may get, in all processes that share the limit.

    Args:
        concurrency: The most calls at once.
        rate: The most messages a second, on average. After a pause, the messages of one second (at least one message)
            may come at once.

    Raises:
        InvalidParameterValue: A limit is out of range, or neither is given.
    """

    concurrency: int | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        if self.concurrency is None and self.rate is None:
            raise InvalidParameterValue("GroupLimit", None, "Limits nothing", "Give concurrency=, rate=, or both.")
        if self.concurrency is not None:
            check_whole_number("concurrency", self.concurrency, 1, MOST_CONCURRENCY)
        rate = self.rate
        if rate is not None and (
            isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate < float("inf")
        ):
            raise InvalidParameterValue("rate", rate, "Must be a number > 0, of messages a second")


#: By the name of the group. None stands for each group that is not named. A single GroupLimit is for each group.
Limits: TypeAlias = Mapping[str | None, GroupLimit] | GroupLimit


def require_limits(limits: object) -> dict[str | None, GroupLimit]:
    """Return limits as a dictionary. Raise InvalidParameterValue for another type or a bad name."""
    if isinstance(limits, GroupLimit):
        return {None: limits}
    if not isinstance(limits, Mapping):
        fix = 'Give {"the group": GroupLimit(rate=5)}, or one GroupLimit for each group.'
        raise InvalidParameterValue("group_limits", type(limits).__name__, "Must be a dictionary of GroupLimit", fix)
    for name, limit in limits.items():
        if not isinstance(name, (str, type(None))) or not isinstance(limit, GroupLimit):
            bound = "Must have names of groups, or None for each other group, and a GroupLimit for each"
            raise InvalidParameterValue("group_limits", f"{name!r}: {limit!r}", bound)
        if name is not None and not re.fullmatch(IDENTIFIER, name):
            bound = "No group has such a name: it has 1 to 128 letters, digits and punctuation characters, and no space"
            raise InvalidParameterValue("group_limits", name, bound)
    return dict(limits)


class GroupLimits:
    """The limits of groups, as one process applies them. Thread-safe."""

    def __init__(self, limits: Mapping[str | None, GroupLimit], folder: str | os.PathLike[str], clock: Clock) -> None:
        self._limits, self._folder, self._clock = limits, Path(folder), clock
        self._lock = threading.Lock()
        #: How many messages of a group this process gave back since the group's last slot.
        self._refused: Counter[str] = Counter()

    def make_call_permits(self) -> CallPermits:
        return CallPermits(self)

    def limit_of(self, message: Message) -> GroupLimit | None:
        group = message.message_group_id
        return None if group is None else self._limits.get(group, self._limits.get(None))

    def take_slot(self, group: str, most: int) -> int | None:
        """Lock a free slot of a group's `most`, and return its descriptor; None if there is none."""
        for number in range(most):
            slot = os.open(self._file(group, f"slot{number}"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(slot)
                continue
            with self._lock:
                self._refused.pop(group, None)
            return slot
        return None

    def refuse_slot(self, group: str, most: int) -> RetryLater:
        """Return how to give back a message without a slot: the more messages were refused, the longer it is hidden."""
        with self._lock:
            self._refused[group] += 1
            waiting = self._refused[group]
        return RetryLater(min(LONGEST_HIDDEN_SECONDS, 1 + waiting / (most * ESTIMATED_CALLS_A_SECOND)), reason=NO_SLOT)

    def take_turn(self, group: str, rate: float) -> float:
        """Take a turn of the group and return 0, or return the seconds until the turn."""
        with self._open_instants(group) as instants:
            now = self._clock()
            interval = MILLISECONDS / rate
            early = max(BURST_SECONDS * MILLISECONDS - interval, 0)
            # A clock that was set back must not stop the group.
            due = min(instants.due, now + early + interval)
            if due - early > now:
                return (due - early - now) / MILLISECONDS
            instants.due = max(due, now) + interval
            return 0

    def book_turn(self, group: str, rate: float) -> RetryLater:
        """Book the next turn, at most LONGEST_HIDDEN_SECONDS away. Return how to give back a message until then."""
        with self._open_instants(group) as instants:
            now, interval = self._clock(), MILLISECONDS / rate
            latest = now + LONGEST_HIDDEN_SECONDS * MILLISECONDS
            instants.booked = min(max(instants.booked, instants.due, now) + interval, latest)
            return RetryLater(max(instants.booked - now, 0) / MILLISECONDS, reason=TOO_EARLY)

    def _open_instants(self, group: str) -> _Instants:
        return _Instants(self._file(group, "rate"))

    def _file(self, group: str, suffix: str) -> Path:
        return self._folder / f"{hashlib.sha256(group.encode()).hexdigest()[:32]}.{suffix}"


@dataclass(frozen=True)
class Aside:
    """The answer that a message is put aside. The limit is asked again after `seconds`."""

    seconds: float


class CallPermits:
    """The slots of groups that one call holds until `end`."""

    def __init__(self, limits: GroupLimits) -> None:
        self._limits = limits
        self._slots: dict[str, int] = {}

    def refuse(self, message: Message, waited: float = 0, before: int = 0) -> RetryLater | Aside | None:
        """Return what happens to a message that may not be handled now; None if it may.

        Args:
            waited: The seconds since the message was first put aside.
            before: How many messages of the group are put aside and go first.
        """
        limit, group = self._limits.limit_of(message), message.message_group_id
        if limit is None or group is None:
            return None
        most, rate = limit.concurrency, limit.rate
        # Another message may have taken the turn of this message.
        patience = PATIENCE_SECONDS * (2 if waited else 1)
        if most is not None and group not in self._slots:
            slot = self._limits.take_slot(group, most)
            if slot is None:
                is_late = waited + LOOK_SECONDS > patience or before >= most * ESTIMATED_CALLS_A_SECOND
                return self._limits.refuse_slot(group, most) if is_late else Aside(LOOK_SECONDS * (1 + before))
            self._slots[group] = slot
        if rate is not None and (seconds := self._limits.take_turn(group, rate)) > 0:
            seconds += before / rate
            return self._limits.book_turn(group, rate) if waited + seconds > patience else Aside(seconds)
        return None

    def end(self) -> None:
        while self._slots:
            _, slot = self._slots.popitem()
            _unlock(slot)


class _Instants:
    """The instants `due` and `booked`, in milliseconds: read on entry, and written on exit."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.due = self.booked = 0.0

    def __enter__(self) -> _Instants:
        self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        # A new file, or a file whose first writer was killed, is empty.
        with suppress(struct.error):
            self.due, self.booked = _INSTANTS.unpack(os.pread(self._descriptor, _INSTANTS.size, 0))
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            os.pwrite(self._descriptor, _INSTANTS.pack(self.due, self.booked), 0)
        finally:
            _unlock(self._descriptor)


def _unlock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)
