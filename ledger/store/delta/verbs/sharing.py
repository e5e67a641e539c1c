"""Shared commits: one commit serves the waiting calls of several threads.

While one thread commits for a queue, the calls of other threads wait. The next commit serves one of these calls and up
to `transactions.MOST_TOGETHER` others. Each loss to another writer halves this number.

Each verb is decided on the lanes as the verb before it left them, and all changes become one MERGE. The result is the
same as if each verb had been committed alone, with no read in between. All verbs of a commit lose or fail with it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import Any, Generic, NamedTuple, TypeVar

from ledger.clock import Clock
from ledger.errors import LedgerError, StorageFailed
from ledger.rules.message import Entry, size_of_message
from ledger.runtime.threads import uses_arrow
from ledger.store.delta.commit.locks import PendingCall, releasing
from ledger.store.delta.commit.transactions import Attempts, after_commit
from ledger.store.delta.model.message_runs import ABSENT, Runs
from ledger.store.delta.model.tables import sort_distinct
from ledger.store.delta.state.snapshot import Decision, Loaded, OpenTables
from ledger.store.delta.verbs.queues import Queues, load_with_destinations
from ledger.store.delta.verbs.reading import Reader
from ledger.store.delta.verbs.sending import Sender, is_bounded
from ledger.store.protocol import Grant, QueueRecord, StoredMessage, StoredSend, count_messages

Result = TypeVar("Result")
#: A send with more messages, or more bytes in bodies and attributes, is committed alone. A read of more messages is
#: made alone. A full batch of SQS (1 MiB) is a small send.
MOST_MESSAGES, MOST_BYTES = 100, 1 << 20


class Joint(NamedTuple):
    """One decision about several verbs. `answers` and `parts` have an answer and the changed runs for each verb."""

    decision: Decision[Any]
    answers: Sequence[Callable[[int], Any]]
    parts: Sequence[Runs]


class GroupedCall(PendingCall[Result], Generic[Result]):
    """A verb on a queue's messages that can share a commit with verbs on an equal QueueRecord.

    Attributes:
        decide: Gets the lanes, and how often the committing thread has lost. Its error concerns this verb alone.
        lanes: The lanes that the decision covers (None: all lanes of the queue).
        targets: Looks up the queues that messages may move to (None: the verb moves none).
        joint: Decides verbs with the same `joint` in one step. It returns None if the result could differ from
            decisions one by one.
        asked: The facts about this verb that `joint` needs.
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
        self.put_off = False


class SharedVerbs:
    def __init__(self, opened: OpenTables, queues: Queues) -> None:
        self._opened, self._transactions, self._queues = opened, opened.transactions, queues
        self._ledger = _OneLedger(opened, queues)

    @uses_arrow
    @releasing
    def run(self, verb: GroupedCall[Result]) -> Result:
        """Commit a verb in one MERGE, alone or with other verbs.

        Raises what the decision raises, ContentionOutlastedRetries, StorageFailed, and QueueDoesNotExist (see
        `_OneLedger`).
        """
        with self._ledger.of(verb.queue, verb.name):
            return self._run(verb)

    def _run(self, verb: GroupedCall[Result]) -> Result:
        attempts = self._transactions.attempts(verb.name)
        for losses in attempts:
            again = True
            while again:
                verb.put_off = False
                with self._transactions.group_turn("visibility", verb.queue.id, losses, verb) as verbs:
                    if verbs:
                        self._commit(verbs, losses, attempts)
                again = verb.put_off
            if verb.done:
                return verb.result()
        raise attempts.give_up()

    def _commit(self, verbs: Sequence[GroupedCall[Any]], losses: int, attempts: Attempts) -> None:
        """Try all verbs in one commit. A verb that is not done afterwards has lost, or is put off.

        A verb is put off if another verb of this commit grants the same message. The granting commit's version
        (`claim.version`) tells holders of a message apart, so one commit grants a message to one receipt only.
        """
        first = verbs[0]
        with _failing_together(verbs, self._opened.tables.place("visibility")):
            loaded = self._load(verbs)
            decided = CommitDecisions(loaded, losses)
            for verbs_of_kind in _group_by_kind(verbs):
                decided.add(verbs_of_kind)
            name = decided.names.pop() if len(decided.names) == 1 else "several"
            plan = loaded.commit_of(decided.decisions, lambda version: None)
            version = self._transactions.merge(name, "visibility", first.queue.id, plan, attempts)
            if version is None:
                return
            for verb, answer in decided.answers:
                verb.granted(answer(version))
            for verb, error in decided.refused:
                verb.refused(error)
            for verb in decided.put_off:
                verb.put_off = True

    def _load(self, verbs: Sequence[GroupedCall[Any]]) -> Loaded:
        queue, clock = verbs[0].queue, verbs[0].clock
        targets = next((verb.targets for verb in verbs if verb.targets is not None), None)
        if targets is not None:
            return load_with_destinations(self._opened, self._queues, queue, clock, targets)
        lane_sets = [verb.lanes for verb in verbs]
        lanes = (
            None
            if None in lane_sets
            else sort_distinct(lane for lanes_of_verb in lane_sets for lane in lanes_of_verb or ())
        )
        return self._opened.load(queue, clock, lanes)


class _OneLedger:
    """Checks that the ledger that took a verb's commit still has the verb's queue.

    A process notices a replaced table by comparing the log with its earlier reads in this generation. The first read of
    a generation has no earlier read. The queue of its first verb is therefore looked up again after that verb.
    """

    def __init__(self, opened: OpenTables, queues: Queues) -> None:
        self._tables, self._queues = opened.tables, queues
        self._checked_generation = -1

    @contextmanager
    def of(self, queue: QueueRecord, verb: str) -> Iterator[None]:
        """Return a context that checks the queue after the verb.

        Raises QueueDoesNotExist if the ledger was replaced meanwhile and the new one lacks the queue, and StorageFailed
        with `unknown` if this cannot be read.
        """
        yield
        with after_commit(verb):
            generation = self._tables.generation()
            if generation != self._checked_generation or not self._queues.has_read(queue, generation):
                self._queues.require(queue)
                self._checked_generation = generation


class _Send(PendingCall[list[StoredSend]]):
    name = "send"

    def __init__(self, queue: QueueRecord, entries: Sequence[Entry], size: int) -> None:
        # A bounded queue may have room for one send and not for several together.
        super().__init__(object() if is_bounded(queue) else queue, size)
        self.entries = entries


class SharedSends:
    """Sends messages. Small sends of waiting threads may share one append.

    A queue has one shared append at a time, because concurrent appends would lose to each other.
    """

    def __init__(self, opened: OpenTables, queues: Queues, sender: Sender) -> None:
        self._opened, self._transactions, self._sender = opened, opened.transactions, sender
        self._ledger = _OneLedger(opened, queues)

    @uses_arrow
    @releasing
    def send(
        self, queue: QueueRecord, entries: Sequence[Entry], clock: Clock, attempt_id: str | None
    ) -> list[StoredSend]:
        """See Sender.send. A send with an attempt id is committed alone.

        Raises what Sender.send raises, and QueueDoesNotExist (see `_OneLedger`).
        """
        with self._ledger.of(queue, "send"):
            return self._send(queue, entries, clock, attempt_id)

    def _send(
        self, queue: QueueRecord, entries: Sequence[Entry], clock: Clock, attempt_id: str | None
    ) -> list[StoredSend]:
        size = sum(map(size_of_message, entries)) if len(entries) <= MOST_MESSAGES else 0
        if attempt_id is not None or len(entries) > MOST_MESSAGES or size > MOST_BYTES:
            return self._sender.send(queue, entries, clock, attempt_id)
        send = _Send(queue, entries, size)
        while not send.done:
            with self._transactions.together("messages", queue.id, send, size=MOST_BYTES) as sends:
                if sends:
                    self._append(queue, sends, clock)
        return send.result()

    def _append(self, queue: QueueRecord, sends: Sequence[_Send], clock: Clock) -> None:
        with _failing_together(sends, self._opened.tables.place("messages")):
            entries = [entry for send in sends for entry in send.entries]
            sent = self._sender.send(queue, entries, clock, None)
            ends = accumulate((len(send.entries) for send in sends), initial=0)
            for send, (first, end) in zip(sends, pairwise(ends)):
                send.granted(sent[first:end])


class _Read(PendingCall[list[StoredMessage]]):
    name = "read"

    def __init__(self, queue: QueueRecord, grant: Grant) -> None:
        super().__init__(queue.id)
        self.queue, self.grant = queue, grant


class SharedReads:
    def __init__(self, opened: OpenTables, reader: Reader) -> None:
        self._opened, self._transactions, self._reader = opened, opened.transactions, reader

    @uses_arrow
    @releasing
    def read(self, queue: QueueRecord, grant: Grant) -> list[StoredMessage]:
        """Return the messages of a grant that have rows, in the order of Store.read."""
        if count_messages(grant.runs) > MOST_MESSAGES:
            return self._reader.messages(queue, grant)
        recent = self._reader.find_recent_messages(queue, grant)
        if recent is not None:
            return recent
        read = _Read(queue, grant)
        while not read.done:
            with self._transactions.together("reading", queue.id, read) as reads:
                if reads:
                    self._read(reads)
        return read.result()

    def _read(self, reads: Sequence[_Read]) -> None:
        with _failing_together(reads, self._opened.tables.place("messages")):
            messages_by_grant = self._reader.read_grants(reads[0].queue, [read.grant for read in reads])
            for read, messages in zip(reads, messages_by_grant):
                read.granted(messages)


class CommitDecisions:
    """The decisions of one commit. The lanes in `loaded` have the changes of all decisions.

    Attributes:
        joints: The decisions about several verbs in one step. `decisions` has these decisions, too.
        answers: The verbs that were decided, each with a function from the commit's version to its answer.
        put_off: The verbs that would grant a message that another verb of this commit grants.
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
        if len(verbs) > 1 and self.add_jointly(verbs):
            return
        for verb in verbs:
            self.add_one(verb)

    def add_jointly(self, verbs: Sequence[GroupedCall[Any]]) -> bool:
        """Decide verbs in one step. Return False, with `loaded` as before, if the verbs have to be decided one by
        one."""
        decide, before = verbs[0].joint, self.loaded.taken()
        if decide is None:
            return False
        try:
            joint = decide(verbs, self.loaded, self._losses)
        except Exception:
            # The error may concern only one of the verbs.
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
        """Return whether no earlier decision grants one of the same messages under another receipt."""
        granted = decision.granted
        return not len(granted) or not any(_holders_differ(self.loaded, one, granted) for one in self._granted)

    def _take(self, verb: GroupedCall[Any], answer: Callable[[int], Any]) -> None:
        self.names.add(verb.name)
        self.answers.append((verb, answer))

    def _commit(self, decision: Decision[Any]) -> None:
        if len(decision.granted):
            self._granted.append(decision.granted)
        self.loaded.take(decision)
        self.decisions.append(decision)


def _group_by_kind(verbs: Sequence[GroupedCall[Any]]) -> list[list[GroupedCall[Any]]]:
    kinds: dict[object, list[GroupedCall[Any]]] = {}
    for verb in verbs:
        kinds.setdefault(verb if verb.joint is None else verb.joint, []).append(verb)
    return list(kinds.values())


def _holders_differ(loaded: Loaded, one: Runs, other: Runs) -> bool:
    record, pieces = loaded.lanes.record, one.cut(other.first, other.last)
    both = pieces.where(pieces.code != ABSENT)
    pairs = set(zip(both.code.tolist(), other.code[both.query].tolist()))
    return any(record(code).receipt_id != record(second).receipt_id for code, second in pairs)


@contextmanager
def _failing_together(calls: Sequence[PendingCall[Any]], place: str) -> Iterator[None]:
    """Fail all waiting calls when the shared commit or read fails, each with its own name in the error.

    The first call's thread raises the error. The other calls get a copy of the error if it is a LedgerError, else
    StorageFailed with `unknown`.
    """
    try:
        yield
    except BaseException as error:
        for call in (one for one in calls[1:] if not one.done):
            if isinstance(error, LedgerError):
                call.refused(_make_error_of(call, error))
            else:
                cause = f"the thread that made this call's commit or read ended in {type(error).__name__}: {error}"
                call.refused(StorageFailed(place, cause, call.name, unknown=True))
        if isinstance(error, StorageFailed) and error.verb not in ("", calls[0].name):
            raise _make_error_of(calls[0], error) from error.__cause__
        raise


def _make_error_of(call: PendingCall[Any], error: LedgerError) -> LedgerError:
    if isinstance(error, StorageFailed) and error.verb:
        return error.of_verb(call.name, unknown=error.unknown)
    return copy.copy(error)
