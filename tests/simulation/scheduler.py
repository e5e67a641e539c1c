"""One client at a time, in an order that a seed decides: clients are threads that run only while they are told to.

Every call of the engine is a point (`Scheduler.point`). There the plan may let another client go on, keep this one from
going on for a while, end its whole process, or spoil its commit. Time is the scheduler's: it moves on by a little at
each point, and jumps when everybody waits. The same seed and the same programs give the same run, to the last bit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tests.simulation.calls import Call
from tests.simulation.plan import Event, Plan

#: Where a simulation begins, in milliseconds.
BEGINNING = 1_700_000_000_000


class Killed(BaseException):
    """The process of this thread is gone. No `except Exception` of the product sees it."""


class Deadlock(AssertionError):
    """Every client that is left waits for another."""


class Process:
    """A machine's process: the clients in it share a clock, a ledger object, and an end."""

    def __init__(self, name: str, skew: int) -> None:
        self.name, self.skew, self.least_skew, self.alive = name, skew, skew, True
        #: Names the start of its machine.
        self.boot = "simulated"


class Client:
    """One thread of a process."""

    def __init__(self, name: str, process: Process, body: Callable[[], None]) -> None:
        self.name, self.process, self.body = name, process, body
        self.points = 0
        self.wakes_at = 0
        self.waits_for: Any = None
        self.over = False
        #: Since when this try of its verb has had its turn, by the true time.
        self.since = 0
        #: The point since which it has not slept: what it looks at it looks at later, or somebody else does for it.
        self.looked = 0
        #: What it is doing, for the judge.
        self.doing: Any = None
        #: The decisions that its next commit holds, of its own and of others that wait for it.
        self.steps: list[Any] = []
        self.error: BaseException | None = None
        self.go = threading.Lock()
        self.go.acquire()


class PassingTime:
    """The seconds that passed, which nobody sets."""

    def __init__(self, scheduler: Scheduler, boot: str) -> None:
        self._scheduler, self.boot = scheduler, boot

    def __call__(self) -> float:
        return self._scheduler.now / 1_000


class ProcessClock:
    """What a process takes for the time; and the time that passes."""

    def __init__(self, scheduler: Scheduler, process: Process) -> None:
        self._scheduler, self._process = scheduler, process
        self.passing = PassingTime(scheduler, process.boot)

    def __call__(self) -> int:
        return self._scheduler.now + self._process.skew


class Scheduler:
    """Runs clients to their end. `now` is the true time, in milliseconds; `steps` counts the points of all."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.now, self.steps = plan, BEGINNING, 0
        self.clients: list[Client] = []
        #: What clients called, and what threads of theirs did.
        self.calls: list[Call] = []
        self.current: Client | None = None
        #: What a power cut does to the storage.
        self.on_cut: Callable[[int], None] = lambda number: None
        self._finished = threading.Lock()
        self._finished.acquire()
        self._stuck = False

    def clock(self, process: Process) -> ProcessClock:
        """What a process takes for the time."""
        return ProcessClock(self, process)

    def run(self, clients: list[Client]) -> None:
        """Lets all clients run to their end; raises what one of them raised, or Deadlock."""
        self.clients = clients
        threads = [threading.Thread(target=self._play, args=(client,), daemon=True) for client in clients]
        for thread in threads:
            thread.start()
        first = self.plan.first(clients)
        self.current = first
        first.go.release()
        self._finished.acquire()
        self.current = None
        for client in clients:
            if client.error is not None:
                raise client.error
        if self._stuck:
            raise Deadlock(", ".join(f"{c.name} waits for {c.waits_for}" for c in clients if not c.over))

    def spawn(self, name: str, body: Callable[[], None]) -> Client:
        """A thread that the running client starts: another client of its process, which goes on when it is chosen."""
        parent = self.current
        client = Client(f"{parent.name}, {name} {len(self.clients)}", parent.process, body)
        client.doing = parent.doing
        self.begins(client)
        self.clients.append(client)
        threading.Thread(target=self._play, args=(client,), daemon=True).start()
        return client

    def begins(self, client: Client) -> None:
        """From now on counts what a client decides on."""
        client.since, client.looked = self.now, self.steps

    def point(self, call: str) -> Any:
        """A point of the running client. Answers the fault that the plan has for a commit, if any."""
        client = self.current
        if client is None:
            return None
        if not client.process.alive:
            raise Killed
        self.steps += 1
        client.points += 1
        self.now += 3
        event = self.plan.at(client, call, self)
        return None if event is None else self._happens(client, event)

    def sleep(self, milliseconds: float) -> None:
        """The running client does nothing for so long."""
        client = self.current
        if client is None:
            self.now += round(milliseconds)
            return
        client.wakes_at = self.now + round(milliseconds)
        self.give_way()
        self.begins(client)

    def wait_for(self, what: Any, ready: Callable[[], bool]) -> None:
        """The running client goes on once `ready`; whoever makes it so calls `wake`."""
        client = self.current
        while not ready():
            if client is None:
                raise Deadlock(f"nobody will ever free {what}")
            client.waits_for = what
            self.give_way()
        if client is not None:
            client.since = self.now

    def wake(self, what: Any) -> None:
        """Those that wait for `what` may look again."""
        for client in self.clients:
            if client.waits_for is what:
                client.waits_for = None

    def kill(self, process: Process) -> None:
        """Ends a process: none of its clients gets anything done from now on."""
        process.alive = False
        for client in self.clients:
            if client.process is process:
                client.wakes_at, client.waits_for = 0, None

    def give_way(self, to: Client | None = None) -> None:
        """Lets another client go on: this one if it can, else any that can. Returns when it is this one's turn again.
        Raises Killed."""
        mine = self.current
        following = to if to is not None and self._can_go_on(to) else self._any()
        if following is None:
            self._stuck = True
            self._finished.release()
            mine.go.acquire()
        if following is not mine:
            self.current = following
            following.go.release()
            mine.go.acquire()
        if not mine.process.alive:
            raise Killed

    def _happens(self, client: Client, event: Event) -> Any:
        if event.kind == "switch":
            self.give_way(self.clients[event.number % len(self.clients)])
        elif event.kind == "stall":
            client.wakes_at = self.now + event.number
            self.give_way()
        elif event.kind == "skew":
            client.process.skew = event.number
            client.process.least_skew = min(event.number, client.process.least_skew)
        elif event.kind == "kill":
            self.kill(client.process)
            raise Killed
        elif event.kind == "cut":
            for one in {client.process for client in self.clients}:
                self.kill(one)
            self.on_cut(event.number)
            raise Killed
        else:
            return event.fault
        return None

    def _can_go_on(self, client: Client) -> bool:
        return not client.over and client.waits_for is None and client.wakes_at <= self.now

    def _any(self) -> Client | None:
        ready = [client for client in self.clients if self._can_go_on(client)]
        if not ready:
            asleep = [client for client in self.clients if not client.over and client.waits_for is None]
            if not asleep:
                return None
            first = min(asleep, key=lambda client: client.wakes_at)
            self.now = max(self.now, first.wakes_at)
            return first
        return self.plan.choose(ready)

    def _play(self, client: Client) -> None:
        client.go.acquire()
        try:
            client.body()
        except Killed:
            pass
        except BaseException as error:
            client.error = error
        client.over = True
        self.wake(client)
        following = self._any()
        if following is None:
            self._stuck = any(not one.over for one in self.clients)
            self._finished.release()
            return
        self.current = following
        following.go.release()
