"""The calls of a handler, each message's outcome, and the evidence for bad messages or a broken handler.

If the handler raises for a batch, or does not return None or one answer for each message, it gets the batch again in
halves. In the end, each message that raises is alone. But RetryLater and Reject are the outcome of each message of the
batch.

On a FIFO queue, after a message with another verdict than DONE, the later messages of its group in the call get the
verdict BEHIND, and their answers are dropped.

A failure is an outcome with an error: the handler raised, or its answer cannot be written. Failures are alike if their
errors are (`RowError.is_like`). The bound of a claim is LEAST_WITNESSES + log2(its messages), rounded up.

1. Errors of the surroundings (an ImportError, no connection) are no message's fault. The handler is broken if a series
   of such failures, all alike, reaches the bound of the last failure's claim. A series goes across claims, and ends
   with a success or a failure that is not alike.
2. Bad messages often follow each other, as in a sorted file. So after LEAST_WITNESSES failures of a claim, all alike,
   all waiting messages are shuffled. The messages that handlers have at this time prove nothing. The handler is broken
   if, beyond their number, as many further messages as the bound fail alike. This rule does not decide while messages
   of claims in hand are unread. A success in the claim, or another error, acquits the handler for this claim.
3. When each message in hand has an outcome, the handler is broken after a series of LEAST_WITNESSES failures, if no
   message has ever succeeded. (After a success, a few bad messages may be all that is left of the queue.)

In rules 2 and 3 only witnesses count: messages that were received for the first time.

The failures of a claim are undecided until the handler is acquitted for it, and errors of the surroundings until their
series ends. Undecided failures are settled only when each message in hand has an outcome, or the consumer drains.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from math import ceil, log2
from typing import Any

from ledger.message import Message
from ledger.output_tables.row_errors import RowError, make_row_error
from ledger.work.backlog import AsideMessages, Backlog, HandlerCall
from ledger.work.group_limits import Aside, ClosedGroups, GroupLimits
from ledger.work.handler_rows import answer_text, rows_of
from ledger.work.isolation import LEAST_WITNESSES
from ledger.work.tasks import Consumption
from ledger.work.verdicts import Reject, RetryLater

BEHIND = "a message before it in its group was given back"


class Verdict(Enum):
    DONE = "done"
    FAILED = "failed"
    REFUSED = "answered with what cannot be written"
    RETRIED = "retried later"
    LIMITED = "over the limit of its group"
    REJECTED = "rejected"
    BEHIND = "behind another message of its group"


@dataclass(frozen=True)
class Handled:
    """The outcome of one message.

    Attributes:
        rows: What the handler returned, if the message is done.
        error: The error of the handler or of its answer, or the table's refusal of the rows.
        raised: The exception of the handler or of the reading of its answer. For a message whose group is closed or at
            its limit, a RetryLater.
    """

    message: Message
    verdict: Verdict
    rows: Sequence[dict[str, Any]] = ()
    error: RowError | None = None
    raised: BaseException | None = None
    #: The handler's answer, if it was refused.
    answer: str | None = None


class CallSteps:
    """The messages of one HandlerCall, for which the handler may be called several times.

    `answered` and `raised` note what the handler did with the argument that `next` returned last.
    """

    def __init__(
        self,
        call: HandlerCall,
        options: Consumption,
        closed: ClosedGroups,
        waiting: AsideMessages,
        limits: GroupLimits | None = None,
        *,
        in_order: bool,
    ) -> None:
        self._waiting = waiting
        self._todo, self._options, self._closed, self._in_order = [call.messages], options, closed, in_order
        self._call_permits = None if limits is None else limits.make_call_permits()
        self._given_back: set[str] = set()
        self.handled: list[Handled] = []
        #: Messages put aside, each with the seconds until its limit is asked again.
        self.aside: list[tuple[Message, float]] = []

    def next(self) -> Any:
        """Return the next argument for the handler, a message or a batch; None if there is none.

        Messages that the handler does not get now go to `handled` or `aside`.
        """
        while self._todo:
            part = []
            for message in self._todo.pop():
                if self._is_behind(message):
                    self._note(Handled(message, Verdict.BEHIND))
                    continue
                closed = self._closed.retry_of(message)
                later = closed or self._refuse(message)
                if isinstance(later, Aside):
                    self.aside.append((message, later.seconds))
                elif later is not None:
                    self._note(Handled(message, Verdict.RETRIED if closed else Verdict.LIMITED, raised=later))
                else:
                    part.append(message)
            if part:
                self._part = part
                return part if self._options.batch else part[0]
        return None

    def _refuse(self, message: Message) -> RetryLater | Aside | None:
        if self._call_permits is None:
            return None
        group = message.message_group_id
        before = sum(other.message_group_id == group for other, _ in self.aside)
        if self._in_order and before:
            return Aside(0)
        waited = self._waiting.seconds_aside(message)
        if not waited and not self._in_order:
            before += self._waiting.count(group)
        refusal = self._call_permits.refuse(message, waited, before)
        if not isinstance(refusal, Aside):
            self._waiting.forget(message)
        return refusal

    def end(self) -> None:
        if self._call_permits is not None:
            self._call_permits.end()

    @property
    def given_back(self) -> set[str]:
        """On a FIFO queue, the groups of messages with another verdict than DONE; else none."""
        return self._given_back

    def answered(self, answer: Any) -> None:
        part, options, answers = self._part, self._options, [answer]
        if options.batch:
            answers = [None] * len(part) if answer is None else answer
            if not isinstance(answers, (list, tuple)) or len(answers) != len(part):
                many = f" of {len(answers)}" if isinstance(answers, (list, tuple)) else ""
                problem = f"the handler returned a {type(answer).__name__}{many} for a batch of {len(part)} messages"
                problem = f"{problem}: it must return None, or a list with an answer for each message, in their order"
                again = ". The handler gets the batch again in halves" if len(part) > 1 else ""
                options.warn(f"{problem}{again}")
                self.raised(TypeError(problem))
                return
        for message, own_answer in zip(part, answers):
            if self._is_behind(message):
                self._note(Handled(message, Verdict.BEHIND))
            elif isinstance(own_answer, BaseException):
                self._note_raised(message, own_answer)
            else:
                self._note_answer(message, own_answer)

    def raised(self, error: BaseException) -> None:
        """Note the exception. The next arguments are the halves, except after RetryLater or Reject."""
        part = self._part
        if len(part) == 1 or isinstance(error, (RetryLater, Reject)):
            for message in part:
                self._note_raised(message, error)
            return
        middle = (len(part) + 1) // 2
        self._todo += [part[middle:], part[:middle]]

    def _note_answer(self, message: Message, answer: Any) -> None:
        try:
            rows = rows_of(answer, message.message_id)
            if rows and self._options.output is None:
                raise TypeError("the handler returned a row, and there is no output to write it to: name output=")
        except Exception as error:
            # `rows_of` runs code of the user's objects. No retry follows: the handler would probably return the same.
            problem = make_row_error(error)
            self._note(Handled(message, Verdict.REFUSED, error=problem, raised=error, answer=answer_text(answer)))
        else:
            self._note(Handled(message, Verdict.DONE, rows))

    def _note_raised(self, message: Message, error: BaseException) -> None:
        if isinstance(error, RetryLater):
            self._closed.close_for(message, error)
            self._note(Handled(message, Verdict.RETRIED, raised=error))
        elif isinstance(error, Reject):
            self._note(Handled(message, Verdict.REJECTED, raised=error))
        else:
            self._note(Handled(message, Verdict.FAILED, error=make_row_error(error), raised=error))

    def _note(self, handled: Handled) -> None:
        self.handled.append(handled)
        if self._in_order and handled.verdict is not Verdict.DONE:
            self._given_back.add(handled.message.message_group_id or "")

    def _is_behind(self, message: Message) -> bool:
        return self._in_order and (message.message_group_id or "") in self._given_back


class Handlers:
    """Threads, or an event loop, that call the handler with the messages of a backlog.

    Calls `on_call_end` with each finished HandlerCall and its CallSteps. If an exception such as SystemExit ends a
    thread or the loop, `fatal` keeps it, and `on_call_end` is not called.
    """

    def __init__(
        self,
        options: Consumption,
        backlog: Backlog,
        closed: ClosedGroups,
        on_call_end: Callable[[HandlerCall, CallSteps], None],
        limits: GroupLimits | None = None,
        *,
        in_order: bool,
    ) -> None:
        self._options, self._backlog, self._closed, self._tell, self._in_order = (
            options,
            backlog,
            closed,
            on_call_end,
            in_order,
        )
        self._limits = limits
        self.fatal: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_abandoned = False

    def start(self) -> None:
        if self._options.is_async:
            threads = [threading.Thread(target=self._run_loop, name="ledger-consume-loop", daemon=True)]
        else:
            names = (f"ledger-consume-{number}" for number in range(self._options.concurrency))
            threads = [threading.Thread(target=self._run_thread, name=name, daemon=True) for name in names]
        for thread in threads:
            thread.start()

    def abandon(self) -> None:
        """Close the backlog and cancel the tasks of the loop, without waiting for calls of the handler."""
        self._is_abandoned = True
        self._backlog.close()
        loop = self._loop
        if loop is not None and not loop.is_closed():
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_cancel_all, loop)

    def _run_thread(self) -> None:
        try:
            while (call := self._backlog.wait_and_take()) is not None:
                with self._open_steps(call) as steps:
                    while (argument := steps.next()) is not None:
                        try:
                            answer = self._options.handler(argument)
                        except Exception as error:
                            steps.raised(error)
                        else:
                            steps.answered(answer)
                self._tell(call, steps)
        except BaseException as error:
            self._record_fatal(error)

    def _run_loop(self) -> None:
        try:
            asyncio.run(self._run_tasks())
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            self._record_fatal(error)

    async def _run_tasks(self) -> None:
        loop, more = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(more.set)

        self._loop, self._backlog.wake = loop, wake
        await asyncio.gather(*(self._run_task(more) for _ in range(self._options.concurrency)))

    async def _run_task(self, more: asyncio.Event) -> None:
        handler = self._options.handler
        while True:
            more.clear()
            call = self._backlog.take()
            if call is None:
                if self._backlog.is_closed:
                    return
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(more.wait(), self._backlog.aside.seconds_to_next())
                continue
            with self._open_steps(call) as steps:
                while (argument := await self._find_argument(steps)) is not None:
                    try:
                        answer = await handler(argument)
                    except asyncio.CancelledError as error:
                        # Only `abandon` cancels a task. Otherwise the handler has failed.
                        if self._is_abandoned:
                            raise
                        own = RuntimeError("what the handler awaited was cancelled")
                        steps.raised(own.with_traceback(error.__traceback__))
                    except Exception as error:
                        steps.raised(error)
                    else:
                        steps.answered(answer)
            self._tell(call, steps)

    @contextlib.contextmanager
    def _open_steps(self, call: HandlerCall) -> Iterator[CallSteps]:
        waiting = self._backlog.aside
        steps = CallSteps(call, self._options, self._closed, waiting, self._limits, in_order=self._in_order)
        try:
            yield steps
        finally:
            steps.end()

    async def _find_argument(self, steps: CallSteps) -> Any:
        """Return the next argument. With limits, another thread finds it: a file lock must not stop the event loop."""
        return steps.next() if self._limits is None else await asyncio.to_thread(steps.next)

    def _record_fatal(self, error: BaseException) -> None:
        self.fatal = error
        self._backlog.close()


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()


class Suspicion(Enum):
    NOTHING = "nothing new"
    SUSPICIOUS = "the waiting messages are to be shuffled"
    BROKEN = "everything fails alike"


class _ClaimEvidence:
    def __init__(self, messages: int) -> None:
        self.bound = LEAST_WITNESSES + ceil(log2(max(messages, 2)))
        self.is_acquitted = False
        self.failures: list[Handled] = []
        #: How many witnesses show a broken handler; None before the shuffle.
        self.needed: int | None = None


class HandlerEvidence:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[Any, _ClaimEvidence] = {}
        self._in_a_row: list[Handled] = []
        self._has_succeeded = False

    def add(self, claim: Any, messages: int, handled: Handled, running: int, *, may_judge: bool) -> Suspicion:
        """Add an outcome. Return what it shows.

        Args:
            messages: the number of the claim's messages.
            running: how many messages are with handlers now, at most.
            may_judge: whether all messages of the claims in hand were read.
        """
        with self._lock:
            of_claim = self._of.setdefault(claim, _ClaimEvidence(messages))
            if handled.verdict is Verdict.DONE:
                self._acquit(of_claim)
                return Suspicion.NOTHING
            if handled.error is None:
                return Suspicion.NOTHING
            if self._in_a_row and not _are_alike(handled, self._in_a_row[0]):
                self._in_a_row.clear()
            self._in_a_row.append(handled)
            if handled.error.is_of_surroundings and len(self._in_a_row) >= of_claim.bound:
                return Suspicion.BROKEN
            if of_claim.is_acquitted:
                return Suspicion.NOTHING
            if of_claim.failures and not _are_alike(handled, of_claim.failures[0]):
                of_claim.is_acquitted = True
                return Suspicion.NOTHING
            of_claim.failures.append(handled)
            witnesses = _count_witnesses(of_claim.failures)
            if of_claim.needed is None and witnesses >= LEAST_WITNESSES:
                of_claim.needed = witnesses + running + of_claim.bound
                return Suspicion.SUSPICIOUS
            if of_claim.needed is not None and witnesses >= of_claim.needed and may_judge:
                return Suspicion.BROKEN
            return Suspicion.NOTHING

    def undecided(self, claim: Any) -> list[Handled]:
        """Return the claim's undecided failures, and those of the surroundings from any claim."""
        with self._lock:
            of_claim = self._of.get(claim)
            own = [] if of_claim is None or of_claim.is_acquitted else of_claim.failures
            return [*own, *(one for one in self._in_a_row if one.error and one.error.is_of_surroundings)]

    @property
    def is_suspicious(self) -> bool:
        with self._lock:
            return any(of_claim.needed is not None and not of_claim.is_acquitted for of_claim in self._of.values())

    def judge_all(self) -> Handled | None:
        """Apply rule 3. If the handler is broken, return its last failure."""
        with self._lock:
            row = self._in_a_row
            is_broken = _count_witnesses(row) >= LEAST_WITNESSES and not self._has_succeeded
            return row[-1] if is_broken else None

    def forget(self, claim: Any) -> None:
        with self._lock:
            self._of.pop(claim, None)

    def _acquit(self, of_claim: _ClaimEvidence) -> None:
        self._has_succeeded = True
        of_claim.is_acquitted = True
        of_claim.failures.clear()
        self._in_a_row.clear()


def _are_alike(one: Handled, other: Handled) -> bool:
    return one.error is not None and other.error is not None and one.error.is_like(other.error)


def _count_witnesses(failures: list[Handled]) -> int:
    return sum(one.message.receive_count <= 1 for one in failures)
