"""Shared commits: what threads of a process want of a queue while one of them commits, the next commit does for all.

Verbs on messages are decided one after the other, each on what the one before it has made of the lanes, and all become
one MERGE: as if they had been committed one by one, and nobody had looked in between. Small sends become one append.
Each has its own answer, or its own error; a commit that is lost or fails is so for all that were part of it. What was
granted is read back so, too: one read of the table for all who wait for one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import Any, Generic, TypeVar

from ledger.clock import Clock
from ledger.delta_log.where import tuple_of
from ledger.errors import LedgerError, StorageFailed
from ledger.rules.message import Entry
from ledger.store import Grant, QueueRecord, Sent, StoredMessage, count_messages
from ledger.store.delta.commit.holdings import releasing
from ledger.store.delta.commit.retrying import Attempts
from ledger.store.delta.commit.turns import Wish
from ledger.store.delta.model.run_algebra import ABSENT, Runs
from ledger.store.delta.state.open_tables import OpenTables
from ledger.store.delta.state.snapshot import Decision, Loaded
from ledger.store.delta.verbs.moving import load_beside
from ledger.store.delta.verbs.queues import Queues
from ledger.store.delta.verbs.reading import Reader
from ledger.store.delta.verbs.sending import Sender

Result = TypeVar("Result")
#: A send goes with others up to so many messages, and characters of their bodies: it would not be much slower alone.
MOST_MESSAGES, MOST_CHARACTERS = 100, 1 << 16


class Verb(Wish[Result], Generic[Result]):
    """A verb on a queue's messages, as a decision that may be one of several in a commit.

    It is about `lanes` (None: all of the queue's); `targets` looks up the queues that messages may move to. `decide` is
    given the lanes, and how often the commit has lost; an error that it raises is this verb's alone. Verbs go together
    that know the queue as the same.
    """

    def __init__(
        self,
        name: str,
        queue: QueueRecord,
        clock: Clock,
        decide: Callable[[Loaded, int], Decision[Result]],
        lanes: tuple[int, ...] | None = None,
        targets: Callable[[], Sequence[QueueRecord]] | None = None,
    ) -> None:
        super().__init__(queue)
        self.name, self.queue, self.clock, self.decide, self.lanes = name, queue, clock, decide, lanes
        self.targets = targets
        #: It was left out of a commit that landed, and belongs into the next one. That is no loss.
        self.put_off = False


class SharedVerbs:
    """Runs verbs, those of threads that wait for each other in one commit."""

    def __init__(self, opened: OpenTables, queues: Queues) -> None:
        self._opened, self._transactions, self._queues = opened, opened.transactions, queues

    @releasing
    def run(self, verb: Verb[Result]) -> Result:
        """One MERGE, or part of one. Raises what the decision does, ContentionOutlastedRetries and StorageFailed; where
        the ledger was replaced meanwhile and has no such queue any more, QueueDoesNotExist."""
        with _of_one_ledger(self._opened, self._queues, verb.queue):
            return self._run(verb)

    def _run(self, verb: Verb[Result]) -> Result:
        attempts = self._transactions.attempts(verb.name)
        for losses in attempts:
            again = True
            while again:
                verb.put_off = False
                with self._transactions.turn_for_all("visibility", verb.queue.id, losses, verb) as verbs:
                    if verbs:
                        self._commit(verbs, losses, attempts)
                again = verb.put_off
            if verb.done:
                return verb.result()
        raise attempts.outlasted()

    def _commit(self, verbs: Sequence[Verb[Any]], losses: int, attempts: Attempts) -> None:
        """Tries all of them in one commit. Those that are not done then have lost to another writer, or are put off:
        what would grant a message that another one is granted in this commit, as its version tells holders apart."""
        first = verbs[0]
        with _failing_together(verbs, first.name, self._opened.tables.place("visibility")):
            loaded = self._load(verbs)
            granted: list[Runs] = []
            outcomes = [(verb, _decided(verb, loaded, losses, granted)) for verb in verbs]
            taken = [(verb, one) for verb, one in outcomes if isinstance(one, Decision)]
            names = {verb.name for verb, _ in taken}
            name = names.pop() if len(names) == 1 else "several"
            plan = loaded.commit_of([one for _, one in taken], lambda version: None)
            version = self._transactions.merge(name, "visibility", first.queue.id, plan, attempts)
            if version is None:
                return
            # Not before: who was refused was so for what others do in this very commit, perhaps.
            for verb, one in outcomes:
                if one is None:
                    verb.put_off = True
                elif isinstance(one, Decision):
                    verb.granted(one.answer(version))
                else:
                    verb.refused(one)

    def _load(self, verbs: Sequence[Verb[Any]]) -> Loaded:
        """The lanes that the verbs are about."""
        queue, clock = verbs[0].queue, verbs[0].clock
        targets = next((verb.targets for verb in verbs if verb.targets is not None), None)
        if targets is not None:
            return load_beside(self._opened, self._queues, queue, clock, targets)
        named = [verb.lanes for verb in verbs]
        lanes = None if None in named else tuple_of(lane for some in named for lane in some or ())
        return self._opened.load(queue, clock, lanes)


@contextmanager
def _of_one_ledger(opened: OpenTables, queues: Queues, queue: QueueRecord) -> Iterator[None]:
    """A context for a verb on a queue that was looked up. Where the ledger is replaced meanwhile, the verb may have
    been decided on the new one, which need not have this queue: then QueueDoesNotExist is the answer."""
    before = opened.tables.generation()
    yield
    if opened.tables.generation() != before:
        queues.require(queue)


class _Send(Wish[list[Sent]]):
    def __init__(self, queue: QueueRecord, entries: Sequence[Entry]) -> None:
        super().__init__(queue)
        self.entries = entries


class SharedSends:
    """Sends, the small ones of threads that wait for each other in one append."""

    def __init__(self, opened: OpenTables, queues: Queues, sender: Sender) -> None:
        self._opened, self._transactions, self._queues, self._sender = opened, opened.transactions, queues, sender

    @releasing
    def send(self, queue: QueueRecord, entries: Sequence[Entry], clock: Clock, attempt_id: str | None) -> list[Sent]:
        """See Sender.send. An attempt is one append, which has its id. Raises QueueDoesNotExist where the ledger was
        replaced meanwhile and has no such queue any more."""
        with _of_one_ledger(self._opened, self._queues, queue):
            return self._send(queue, entries, clock, attempt_id)

    def _send(self, queue: QueueRecord, entries: Sequence[Entry], clock: Clock, attempt_id: str | None) -> list[Sent]:
        if attempt_id is not None or not _is_small(entries):
            return self._sender.send(queue, entries, clock, attempt_id)
        send = _Send(queue, entries)
        while not send.done:
            with self._transactions.together("messages", queue.id, send) as sends:
                if sends:
                    self._append(queue, sends, clock)
        return send.result()

    def _append(self, queue: QueueRecord, sends: Sequence[_Send], clock: Clock) -> None:
        with _failing_together(sends, "send", self._opened.tables.place("messages")):
            entries = [entry for send in sends for entry in send.entries]
            sent = self._sender.send(queue, entries, clock, None)
            ends = accumulate((len(send.entries) for send in sends), initial=0)
            for send, (first, end) in zip(sends, pairwise(ends)):
                send.granted(sent[first:end])


class _Read(Wish[list[StoredMessage]]):
    def __init__(self, queue: QueueRecord, grant: Grant) -> None:
        super().__init__(queue.id)
        self.queue, self.grant = queue, grant


class SharedReads:
    """Reads of grants' messages, the small ones of threads that wait for each other in one read of the table."""

    def __init__(self, opened: OpenTables, reader: Reader) -> None:
        self._opened, self._transactions, self._reader = opened, opened.transactions, reader

    @releasing
    def read(self, queue: QueueRecord, grant: Grant) -> list[StoredMessage]:
        """See Store.read. What this process sent a moment ago is not read."""
        if count_messages(grant.runs) > MOST_MESSAGES:
            return self._reader.messages(queue, grant)
        recent = self._reader.recent_messages(queue, grant)
        if recent is not None:
            return recent
        read = _Read(queue, grant)
        while not read.done:
            with self._transactions.together("reading", queue.id, read) as reads:
                if reads:
                    self._read(reads)
        return read.result()

    def _read(self, reads: Sequence[_Read]) -> None:
        with _failing_together(reads, "read", self._opened.tables.place("messages")):
            found = self._reader.messages_of(reads[0].queue, [read.grant for read in reads])
            for read, messages in zip(reads, found):
                read.granted(messages)


def _is_small(entries: Sequence[Entry]) -> bool:
    return len(entries) <= MOST_MESSAGES and sum(len(entry.body) for entry in entries) <= MOST_CHARACTERS


def _decided(
    verb: Verb[Result], loaded: Loaded, losses: int, granted: list[Runs]
) -> Decision[Result] | Exception | None:
    """The decision, which `loaded` has taken, and `granted` what it grants; the error of a verb that was refused, of
    which nothing is left; None, and nothing is left, where it would grant what somebody else is `granted`."""
    before = loaded.taken()
    try:
        decision = verb.decide(loaded, losses)
    except Exception as error:
        loaded.take_back(before)
        return error
    if len(decision.granted):
        if any(_holders_differ(loaded, one, decision.granted) for one in granted):
            loaded.take_back(before)
            return None
        granted.append(decision.granted)
    loaded.take(decision)
    return decision


def _holders_differ(loaded: Loaded, one: Runs, other: Runs) -> bool:
    """Whether two grants have a message in common, under receipts that differ: not of two runs of one attempt."""
    record, pieces = loaded.lanes.record, one.cut(other.first, other.last)
    both = pieces.where(pieces.code != ABSENT)
    pairs = set(zip(both.code.tolist(), other.code[both.query].tolist()))
    return any(record(code).receipt_id != record(second).receipt_id for code, second in pairs)


@contextmanager
def _failing_together(wishes: Sequence[Wish[Any]], verb: str, place: str) -> Iterator[None]:
    """What goes wrong in here is raised to whoever has the turn; the others, each of which waits in a thread of its
    own, meet it too. Of one that was only ended (KeyboardInterrupt) nobody knows how far it came."""
    try:
        yield
    except BaseException as error:
        for wish in (one for one in wishes[1:] if not one.done):
            if isinstance(error, LedgerError):
                wish.refused(copy.copy(error))
            else:
                cause = f"the thread that committed for this one, too, ended in {type(error).__name__}: {error}"
                wish.refused(StorageFailed(place, cause, verb, unknown=True))
        raise
