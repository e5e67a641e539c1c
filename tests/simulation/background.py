"""The product's own threads under a scheduler: each is one more client of the process that started it. What they do is
noted as calls, a beat of a heartbeat and a step of a move task each as one of its own."""

from __future__ import annotations

import contextlib
import queue
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ledger.client.move_tasks import MoveTasks
from ledger.errors import LedgerError
from ledger.heartbeat import Heartbeat
from tests.simulation.calls import Call
from tests.simulation.scheduler import Client, Killed, Scheduler

#: Whose turn it is to say what happens; the module that puts the stand-ins in place says it.
scheduler: Callable[[], Scheduler | None] = lambda: None  # noqa: E731


class Thread:
    """Stands for threading.Thread."""

    def __init__(self, *, target: Callable[..., None], name: str, args: Sequence[Any] = (), daemon: bool) -> None:
        self._target, self._name, self._args = target, name, args
        self._client: Client | None = None

    def start(self) -> None:
        """The body begins when the scheduler chooses it."""
        self._client = _now().spawn(self._name, self._body)

    def is_alive(self) -> bool:
        """Whether its body is not over."""
        return self._client is not None and not self._client.over

    def join(self) -> None:
        """Waits for the end of its body, unless the process of whoever waits is gone."""
        if not _now().current.process.alive:
            raise Killed
        _now().wait_for(self._client, lambda: self._client.over)

    def _body(self) -> None:
        client = self._client
        client.doing = _begun("step" if self._name == "ledger-move-task" else "thread")
        try:
            self._target(*self._args)
        except LedgerError as error:
            client.doing.error = type(error).__name__
        except Exception as error:
            client.doing.error = f"bare {type(error).__name__}: {error}"
        if client.doing.ended is None:
            _ended(client.doing)


def start_thread(target: Callable[[], object], name: str) -> None:
    """Stands for threads.start_thread."""
    Thread(target=target, name=name, daemon=True).start()


def map_in_order(function: Callable[[Any], Any], items: Iterable[Any], most: int) -> list[Any]:
    """Stands for threads.map_at_once: one after the other."""
    return [function(item) for item in items]


class SimpleQueue:
    """Stands for queue.SimpleQueue."""

    def __init__(self) -> None:
        self._items, self._waiting = deque[Any](), list[Client]()

    def put(self, item: Any) -> None:
        """Also when a process ends, and no client runs."""
        self._items.append(item)
        for client in self._waiting:
            client.wakes_at = 0

    def get(self, timeout: float) -> Any:
        """Waits for an item, so many seconds at most."""
        if not self._items:
            client = _now().current
            self._waiting.append(client)
            try:
                _now().sleep(timeout * 1_000)
            finally:
                self._waiting.remove(client)
        if not self._items:
            raise queue.Empty
        return self._items.popleft()


def tick(seconds: float) -> None:
    """Stands for the pause between two steps of a move task; what comes after it is another step."""
    client = _now().current
    _ended(client.doing)
    _now().sleep(seconds * 1_000)
    client.doing = _begun("step")


@contextlib.contextmanager
def noting() -> Iterator[None]:
    """Each beat of a heartbeat is a call, about what the call that began the heartbeat is about."""
    right, defaults = Heartbeat._beat, MoveTasks.run.__defaults__

    def beat(self: Heartbeat) -> None:
        client = _now().current
        client.doing = call = _begun("beat")
        try:
            right(self)
        except LedgerError as error:
            call.error = type(error).__name__
            raise
        finally:
            if client.process.alive:
                _ended(call)

    Heartbeat._beat, MoveTasks.run.__defaults__ = beat, (tick,)
    try:
        yield
    finally:
        Heartbeat._beat, MoveTasks.run.__defaults__ = right, defaults


def _now() -> Scheduler:
    found = scheduler()
    if found is None or found.current is None:
        raise RuntimeError("only clients of a simulation start threads")
    return found


def _begun(verb: str) -> Call:
    """A call of the running client, about what it did before."""
    now = _now()
    client = now.current
    call = Call(client.name, verb, client.doing.queue, now.steps, dict(client.doing.about))
    call.clocks = (now.now + client.process.skew, 0)
    now.calls.append(call)
    now.begins(client)
    return call


def _ended(call: Call) -> None:
    now = _now()
    call.ended, call.looked = now.steps, now.current.looked
    call.clocks = (call.clocks[0], now.now + now.current.process.skew)
