"""Shared commits: what threads of a process want of a queue while one of them commits, the next commit does for all.

Verbs on messages are decided one after the other, each on what the one before it has made of the lanes, and all become
one MERGE: as if they had been committed one by one, and nobody had looked in between. Verbs of one kind are decided at
once where that comes to the same, as most of what a decision costs does not depend on how many verbs it is for. All
verbs of a commit wait at the same time, so any order of them is a right one. Small sends become one append. Each verb
has its own answer, or its own error; a commit that is lost or fails is so for all that were part of it. What was
granted is read back so, too: one read of the table for all who wait for one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import Any, Generic, NamedTuple, TypeVar

from ledger.clock import Clock
from ledger.errors import LedgerError, StorageFailed
from ledger.rules.message import Entry
from ledger.store.delta.commit.holdings import releasing
from ledger.store.delta.commit.retrying import Attempts
from ledger.store.delta.commit.turns import PendingCall
from ledger.store.delta.model.run_algebra import ABSENT, Runs
from ledger.store.delta.model.where import tuple_of
from ledger.store.delta.state.open_tables import OpenTables
from ledger.store.delta.state.snapshot import Decision, Loaded
from ledger.store.delta.verbs.destinations import load_with_destinations
from ledger.store.delta.verbs.queues import Queues
from ledger.store.delta.verbs.quotas import is_bounded
from ledger.store.delta.verbs.reading import Reader
from ledger.store.delta.verbs.sending import Sender
from ledger.store.protocol import Grant, QueueRecord, StoredMessage, StoredSend, count_messages

Result = TypeVar("Result")
#: A send goes with others up to so many messages, and characters of their bodies: it would not be much slower alone.
MOST_MESSAGES, MOST_CHARACTERS = 100, 1 << 16


class Joint(NamedTuple):
    """What several verbs of one kind come to together: one decision; of each verb its answer at a version, and its own
    part of what the decision records."""

    decision: Decision[Any]
    answers: Sequence[Callable[[int], Any]]
    parts: Sequence[Runs]


class GroupedCall(PendingCall[Result], Generic[Result]):
    """A verb on a queue's messages, as a decision that may be one of several in a commit.

    It is about `lanes` (None: all of the queue's); `targets` looks up the queues that messages may move to. `decide` is
    given the lanes, and how often the commit has lost; an error that it raises is this verb's alone. Verbs go together
    that know the queue as the same.

    Verbs with the same `joint` are of one kind. It is given verbs, the lanes, and how often the commit has lost. It
    decides all of these verbs at once, or returns None where that could differ from deciding them one after the other.
    `asked` is what it needs to know of each.
    """

    def __init__(
        self,
        name: str,
        queue: QueueRecord,
        clock: Clock,
        decide: Callable[[Loaded, int], Decision[Result]],
        lanes: tuple[int, ...] | None = None,
        targets: Callable[[], Sequence[QueueRecord]] | None = None,
        joint: Callable[[Sequence[GroupedCall[Any]], Loaded, int], Joint | None] | None = None,
        asked: Any = None,
    ) -> None:
        super().__init__(queue)
        self.joint, self.asked = joint, asked
        self.name, self.queue, self.clock, self.decide, self.lanes = name, queue, clock, decide, lanes
        self.targets = targets
        #: It was left out of a commit that landed, and belongs into the next one. That is no loss.
        self.put_off = False


class SharedVerbs:
    """Runs verbs, those of threads that wait for each other in one commit."""

    def __init__(self, opened: OpenTables, queues: Queues) -> None:
        self._opened, self._transactions, self._queues = opened, opened.transactions, queues
        self._ledger = _OneLedger(opened, queues)

    @releasing
    def run(self, verb: GroupedCall[Result]) -> Result:
        """One MERGE, or part of one. Raises what the decision does, ContentionOutlastedRetries and StorageFailed; where
        the ledger was replaced meanwhile and has no such queue any more, QueueDoesNotExist."""
        with self._ledger.of(verb.queue):
            return self._run(verb)

    def _run(self, verb: GroupedCall[Result]) -> Result:
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

    def _commit(self, verbs: Sequence[GroupedCall[Any]], losses: int, attempts: Attempts) -> None:
        """Tries all of them in one commit. Those that are not done then have lost to another writer, or are put off:
        what would grant a message that another one is granted in this commit, as its version tells holders apart."""
        first = verbs[0]
        with _failing_together(verbs, first.name, self._opened.tables.place("visibility")):
            loaded = self._load(verbs)
            decided = CommitDecisions(loaded, losses)
            for some in _by_kind(verbs):
                decided.add(some)
            name = decided.names.pop() if len(decided.names) == 1 else "several"
            plan = loaded.commit_of(decided.decisions, lambda version: None)
            version = self._transactions.merge(name, "visibility", first.queue.id, plan, attempts)
            if version is None:
                return
            # Report refusals only after the commit: they can depend on other verbs in the same commit.
            for verb, answer in decided.answers:
                verb.granted(answer(version))
            for verb, error in decided.refused:
                verb.refused(error)
            for verb in decided.put_off:
                verb.put_off = True

    def _load(self, verbs: Sequence[GroupedCall[Any]]) -> Loaded:
        """The lanes that the verbs are about."""
        queue, clock = verbs[0].queue, verbs[0].clock
        targets = next((verb.targets for verb in verbs if verb.targets is not None), None)
        if targets is not None:
            return load_with_destinations(self._opened, self._queues, queue, clock, targets)
        named = [verb.lanes for verb in verbs]
        lanes = None if None in named else tuple_of(lane for some in named for lane in some or ())
        return self._opened.load(queue, clock, lanes)


class _OneLedger:
    """Whether the ledger that took a verb's commit is the one in which the verb's queue was looked up.

    A replaced log is noticed by comparing it with what this process has read of it, in the current generation. What it
    reads of a table for the first time in a generation it can compare with nothing. So the queue is looked up again
    behind the first verb of each generation. Behind those that follow it is enough that the queues which were read last
    in this generation have it: that asks the storage nothing.
    """

    def __init__(self, opened: OpenTables, queues: Queues) -> None:
        self._tables, self._queues = opened.tables, queues
        #: The generation in which a verb has read its tables.
        self._known = -1

    @contextmanager
    def of(self, queue: QueueRecord) -> Iterator[None]:
        """A context for a verb on a queue. Raises QueueDoesNotExist behind a verb where the ledger was replaced since
        the queue was looked up, and the new one does not have it."""
        yield
        generation = self._tables.generation()
        if generation != self._known or not self._queues.has_read(queue, generation):
            self._queues.require(queue)
            self._known = generation


class _Send(PendingCall[list[StoredSend]]):
    def __init__(self, queue: QueueRecord, entries: Sequence[Entry]) -> None:
        super().__init__(queue)
        self.entries = entries


class SharedSends:
    """Sends, the small ones of threads that wait for each other in one append."""

    def __init__(self, opened: OpenTables, queues: Queues, sender: Sender) -> None:
        self._opened, self._transactions, self._sender = opened, opened.transactions, sender
        self._ledger = _OneLedger(opened, queues)

    @releasing
    def send(
        self, queue: QueueRecord, entries: Sequence[Entry], clock: Clock, attempt_id: str | None
    ) -> list[StoredSend]:
        """See Sender.send. An attempt is one append, which has its id. Raises QueueDoesNotExist where the ledger was
        replaced meanwhile and has no such queue any more."""
        with self._ledger.of(queue):
            return self._send(queue, entries, clock, attempt_id)

    def _send(
        self, queue: QueueRecord, entries: Sequence[Entry], clock: Clock, attempt_id: str | None
    ) -> list[StoredSend]:
        # Of a queue with a bound one send may fit where several do not.
        if attempt_id is not None or not _is_small(entries) or is_bounded(queue):
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


class _Read(PendingCall[list[StoredMessage]]):
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


class CommitDecisions:
    """The decisions of one commit, which `loaded` has taken, and what becomes of each verb.

    `names`: of the verbs that are part of the commit. `put_off`: verbs that would grant a message that another verb is
    granted in this commit, as its version tells holders apart. `joints`: those of the decisions that are about several
    verbs.
    """

    def __init__(self, loaded: Loaded, losses: int) -> None:
        self.loaded, self._losses = loaded, losses
        self.joints: list[Joint] = []
        self._granted: list[Runs] = []
        self.names = set[str]()
        self.decisions: list[Decision[Any]] = []
        self.answers: list[tuple[GroupedCall[Any], Callable[[int], Any]]] = []
        self.refused: list[tuple[GroupedCall[Any], Exception]] = []
        self.put_off: list[GroupedCall[Any]] = []

    def add(self, verbs: Sequence[GroupedCall[Any]]) -> None:
        """Decide verbs of one kind: at once where that is right, else one after the other."""
        if len(verbs) > 1 and self.add_jointly(verbs):
            return
        for verb in verbs:
            self.add_one(verb)

    def add_jointly(self, verbs: Sequence[GroupedCall[Any]]) -> bool:
        """Decide verbs at once. False, and nothing is left of it, where they have to be decided one by one."""
        decide, before = verbs[0].joint, self.loaded.taken()
        if decide is None:
            return False
        try:
            joint = decide(verbs, self.loaded, self._losses)
        except Exception:
            # It may be an error of one of them alone.
            joint = None
        if joint is None or not self._can_grant(joint.decision):
            self.loaded.take_back(before)
            return False
        for verb, answer in zip(verbs, joint.answers):
            self._take(verb, answer)
        self.joints.append(joint)
        self._commit(joint.decision)
        return True

    def add_one(self, verb: GroupedCall[Any]) -> None:
        """Decide a verb on what those before it have made of the lanes."""
        before = self.loaded.taken()
        try:
            decision = verb.decide(self.loaded, self._losses)
        except Exception as error:
            self.loaded.take_back(before)
            self.refused.append((verb, error))
            return
        if not self._can_grant(decision):
            self.loaded.take_back(before)
            self.put_off.append(verb)
            return
        self._take(verb, decision.answer)
        self._commit(decision)

    def _can_grant(self, decision: Decision[Any]) -> bool:
        """Whether no message of a grant is somebody else's in this commit."""
        mine = decision.granted
        return not len(mine) or not any(_holders_differ(self.loaded, one, mine) for one in self._granted)

    def _take(self, verb: GroupedCall[Any], answer: Callable[[int], Any]) -> None:
        self.names.add(verb.name)
        self.answers.append((verb, answer))

    def _commit(self, decision: Decision[Any]) -> None:
        """Make a decision part of the commit."""
        if len(decision.granted):
            self._granted.append(decision.granted)
        self.loaded.take(decision)
        self.decisions.append(decision)


def _by_kind(verbs: Sequence[GroupedCall[Any]]) -> list[list[GroupedCall[Any]]]:
    """Verbs that may be decided at once beside each other, in the order of the first one of each kind."""
    kinds: dict[object, list[GroupedCall[Any]]] = {}
    for verb in verbs:
        kinds.setdefault(verb if verb.joint is None else verb.joint, []).append(verb)
    return list(kinds.values())


def _holders_differ(loaded: Loaded, one: Runs, other: Runs) -> bool:
    """Whether two grants have a message in common, under receipts that differ: not of two runs of one attempt."""
    record, pieces = loaded.lanes.record, one.cut(other.first, other.last)
    both = pieces.where(pieces.code != ABSENT)
    pairs = set(zip(both.code.tolist(), other.code[both.query].tolist()))
    return any(record(code).receipt_id != record(second).receipt_id for code, second in pairs)


@contextmanager
def _failing_together(wishes: Sequence[PendingCall[Any]], verb: str, place: str) -> Iterator[None]:
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
