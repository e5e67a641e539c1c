"""The loop of a consumer in one process, without Spark: claim, call, write, acknowledge.

The caller's thread receives, reads, writes and settles. Other threads, or an event loop, call the handler. The next
claim is received before the handlers run out of messages, unless as many messages are unsettled as two claims have.
"""

from __future__ import annotations

import collections
import contextlib
import threading
import time

import pyarrow as pa

from ledger.client.access import Access
from ledger.errors import InvalidParameterValue, LeaseLost, OutputNotWritten
from ledger.output_tables.row_errors import make_row_error
from ledger.outputs.writers import make_writer, parse_schema_argument, require_declared
from ledger.results import Consumed
from ledger.rules import limits as bounds
from ledger.rules.attributes import is_fifo, limits_of
from ledger.runtime.termination import Drain, describe_end, draining, was_interrupted
from ledger.work.backlog import Backlog, HandlerCall
from ledger.work.claim_source import ClaimSource
from ledger.work.consumer_claim import ClaimInHand, FirstRows
from ledger.work.group_limits import ClosedGroups, GroupLimits, require_limits
from ledger.work.handler_calls import CallSteps, Handled, HandlerEvidence, Handlers, Suspicion, Verdict
from ledger.work.handler_rows import MESSAGE_ID_COLUMN
from ledger.work.isolation import EverythingFails
from ledger.work.tasks import Consumption

#: After an empty receive, the next receive waits this long. With a claim in hand it begins this much later.
WAIT_SECONDS = 0.5
LOOK_SECONDS = 0.05
MESSAGES_READ_AT_ONCE = 2_000
#: Why messages are given back. FAILED is a prefix.
ENDED, FAILED = "the consumer was told to end", "the consumer ended with an error"


class Consumer:
    """Consumes one queue in this process."""

    def __init__(self, access: Access, options: Consumption) -> None:
        record = access.record()
        limits = limits_of(record.attributes)
        self._access, self._options = access, options
        self._source = ClaimSource(access, options.visibility_timeout, options.attempt_id, options.say, options.share)
        for name in ("park", "retry_after"):
            bounds.check_visibility_timeout(getattr(options, name), limits, name)
        if options.until == "empty" and options.park <= self._source.timeout:
            bound = f"Must be more than the {self._source.timeout} seconds that a claim is held"
            fix = 'Parked messages would be received again without end: park longer, or give until="once" or "forever".'
            raise InvalidParameterValue("park", options.park, bound, fix)
        bounds.maximum_messages(options.max_messages, limits, "max_messages")
        if options.output is not None:
            require_output(access, options)
        self._most_received = limits.maximum_messages_per_receive
        self._in_order = is_fifo(record.attributes)
        self._backlog = Backlog(options.batch, in_order=self._in_order)
        self.closed = ClosedGroups(access.clock)
        group_limits = None
        if options.group_limits is not None:
            assert options.limits_folder is not None, "consume() makes one"
            group_limits = GroupLimits(require_limits(options.group_limits), options.limits_folder, access.clock)
        self._handlers = Handlers(
            options, self._backlog, self.closed, self._on_call_end, group_limits, in_order=self._in_order
        )
        self._outcomes: collections.deque[tuple[ClaimInHand, list[Handled]]] = collections.deque()
        self._wake = threading.Event()
        self._in_hand: list[ClaimInHand] = []
        self._evidence = HandlerEvidence()
        self._first_rows = FirstRows(access, options)
        self._broken: Handled | None = None
        self._attempts = self._source.attempts()
        self._draining: Drain | None = None
        self._is_exhausted = False
        self._next_receive = 0.0
        self._size = options.max_messages or max(2 * options.at_once, 100)
        self.consumed = Consumed()

    def run(self) -> Consumed:
        """Consume as long as `Consumption.until` says; return the counts.

        In the main thread, SIGTERM and Ctrl-C begin a drain, if no other code handles these signals. A drain finishes
        the calls that have begun, settles all outcomes, and gives back all other messages. A second signal gives back
        all unsettled messages at once. At the end, `run` raises the signal's own exception.
        """
        with draining() as drain:
            self._draining = drain
            try:
                self._handlers.start()
                while not drain.asked and not self._is_done():
                    self._step()
                if drain.asked:
                    self._drain()
            except BaseException as error:
                if isinstance(error, Exception) and not was_interrupted(error):
                    self._end_with_error(error)
                    raise
                if drain.asked is None:
                    # The error comes from another signal handler, such as Airflow's, or it ended a thread of the
                    # handlers.
                    self._write_what_is_done(error)
                self._give_back(describe_end(error))
                if isinstance(error, Exception):
                    # A library made an error of its own out of the signal's.
                    drain.end()
                raise
            finally:
                self._handlers.abandon()
            drain.end()
        return self.consumed

    @property
    def is_draining(self) -> bool:
        return self._draining is not None and self._draining.asked is not None

    def _is_done(self) -> bool:
        return self._is_exhausted and not self._in_hand

    def _step(self) -> None:
        self._wake.clear()
        received = self._receive_more()
        self._feed()
        self._collect()
        if not received and not self._settle_due():
            self._wake.wait(LOOK_SECONDS)

    def _receive_more(self) -> bool:
        """Receive a claim if the handlers will soon have nothing to do; return whether it has messages."""
        unsettled = sum(one.claim.count - one.settled for one in self._in_hand)
        waits = len(self._backlog) + sum(one.unread for one in self._in_hand)
        is_full = waits > self._options.at_once or unsettled >= 2 * self._size
        if self._is_exhausted or is_full or (self._in_hand and time.monotonic() < self._next_receive):
            return False
        attempt_id, held = next(self._attempts)
        most = max(self._size, held)
        if self._most_received is not None:
            most = min(most, self._most_received)
        once, is_idle = self._options.until == "once", not self._in_hand and self._next_receive > 0
        claim = self._source.receive(attempt_id, most, WAIT_SECONDS if is_idle and not once else 0)
        if claim.count:
            self._in_hand.append(ClaimInHand(self._access, self._options, claim))
            self.consumed = self.consumed.and_then(Consumed(claims=1))
            self._options.say(f"claimed {claim.count:,} messages (receipt {claim.receipt_id})")
        self._next_receive = 0.0 if claim.count else time.monotonic() + WAIT_SECONDS
        nothing = not claim.count and not self._in_hand and self._options.until != "forever"
        if once or (nothing and not self._source.may_get_more()):
            self._is_exhausted = True
        return bool(claim.count)

    def _feed(self) -> None:
        """Read messages while few messages wait and memory has room (or see `_must_read_more`)."""
        for claim in self._in_hand:
            # Under suspicion, read all messages, which are then shuffled: each must have the same chance to come next.
            while claim.unread and (len(self._backlog) <= self._options.at_once or self._evidence.is_suspicious):
                room = self._options.max_bytes - self._sum_bytes_held()
                if room <= 0 and not self._must_read_more():
                    return
                behind = self._backlog.add(claim, claim.read(MESSAGES_READ_AT_ONCE, room))
                if behind:
                    self._outcomes.append((claim, [Handled(message, Verdict.BEHIND) for message in behind]))
                if self._evidence.is_suspicious:
                    self._backlog.shuffle()

    def _sum_bytes_held(self) -> int:
        return sum(one.bytes_held for one in self._in_hand)

    def _must_read_more(self) -> bool:
        """Return whether to read although memory is full, because otherwise no outcome could be settled."""
        if len(self._backlog) or len(self._backlog.aside) or self._backlog.unreported or self._outcomes:
            return False
        return not any(one.select_ripe(self._evidence.undecided(one)) for one in self._in_hand)

    def _must_settle_now(self) -> bool:
        options = self._options
        if options.flush_cost is not None and sum(one.pending_cost for one in self._in_hand) >= options.flush_cost:
            return True
        return self._sum_bytes_held() >= options.max_bytes and not len(self._backlog)

    def _on_call_end(self, call: HandlerCall, steps: CallSteps) -> None:
        """Note that a call has ended. The handlers' threads, or their event loop, call this method."""
        dropped = self._backlog.finish(call, steps.given_back, steps.aside)
        for one in steps.handled:
            self._judge(call.claim, one)
        self._outcomes.append((call.claim, steps.handled))
        for claim, message in dropped:
            self._outcomes.append((claim, [Handled(message, Verdict.BEHIND)]))
        self._backlog.report()
        if len(self._backlog) <= self._options.at_once or self._first_rows.are_awaited:
            self._wake.set()

    def _judge(self, of: ClaimInHand, handled: Handled) -> None:
        running = self._backlog.calls * (self._options.batch or 1)
        may_judge = not any(held.unread for held in list(self._in_hand))
        suspicion = self._evidence.add(of, of.claim.count, handled, running, may_judge=may_judge)
        if suspicion is Suspicion.SUSPICIOUS:
            self._backlog.shuffle()
            self._wake.set()
        if suspicion is Suspicion.BROKEN:
            self._broken = handled
            self._backlog.close()
            self._wake.set()

    def _collect(self) -> None:
        """Take the outcomes from the handlers. Raise the exception of a broken handler."""
        for handled in self._note_outcomes():
            self._first_rows.look(handled)
        if self._handlers.fatal is not None:
            raise self._handlers.fatal
        if self._is_quiet():
            self._broken = self._broken or self._evidence.judge_all()
        if self._broken is not None and self._broken.raised is not None:
            assert self._broken.error is not None
            self._options.say(
                f"everything fails alike, so the messages are not the cause: {self._broken.error.text}. They are given "
                "back, and this receive does not count"
            )
            raise self._broken.raised

    def _note_outcomes(self) -> list[list[Handled]]:
        noted = []
        while self._outcomes:
            claim, handled = self._outcomes.popleft()
            claim.note(handled)
            noted.append(handled)
        return noted

    def _is_quiet(self) -> bool:
        return all(one.is_handled for one in self._in_hand)

    def _settle_due(self) -> bool:
        """Settle each claim that is due, and forget lost claims. Return whether one was due."""
        settled, is_full = False, self._must_settle_now()
        for claim in list(self._in_hand):
            if claim.heartbeat.lost:
                self._forget_lost(claim, "its heartbeat noticed this")
                continue
            withheld = () if self._is_quiet() else tuple(self._evidence.undecided(claim))
            if claim.is_due(withheld, is_full=is_full):
                self._settle(claim, withheld)
                settled = True
        return settled

    def _settle(self, claim: ClaimInHand, withheld: tuple[Handled, ...] = ()) -> None:
        started, before = time.monotonic(), claim.settled
        try:
            counts = claim.settle(withheld)
            self._count(counts)
            if counts.lost:
                self._source.part_ways()
        except LeaseLost as lost:
            self._forget_lost(claim, str(lost))
            return
        except EverythingFails as everything:
            self._options.say(f"the output refuses all rows alike: {everything.error.text}")
            raise (everything.__cause__ or everything.__context__ or everything) from None
        self._options.say(f"settled {claim.settled - before:,} messages in {time.monotonic() - started:.2f} s")
        if claim.is_over:
            self._in_hand.remove(claim)
            self._evidence.forget(claim)
            self._backlog.forget(claim)
            claim.end()
            self._adapt_claim_size(claim)

    def _adapt_claim_size(self, one: ClaimInHand) -> None:
        """Set the size of the next claims, within bounds, to the messages that are settled in `flush_seconds` at the
        rate of this claim."""
        if self._options.max_messages is not None:
            return
        seconds = max(time.monotonic() - one.received_at, 0.001)
        rate = one.claim.count / seconds
        least = max(2 * self._options.at_once, 100)
        most = min(int(rate * self._options.flush_seconds), 4 * self._size, self._options.flush_rows)
        self._size = max(least, most)
        if one.bytes_read:
            # A larger claim would not fit in memory.
            self._size = max(1, min(self._size, self._options.max_bytes * one.claim.count // one.bytes_read))

    def _forget_lost(self, claim: ClaimInHand, why: str) -> None:
        self._options.warn(f"lost the claim {claim.claim.receipt_id}, others have its messages: {why}")
        self._source.part_ways()
        self._backlog.remove(claim)
        self._backlog.forget(claim)
        self._in_hand.remove(claim)
        self._evidence.forget(claim)
        self._count(Consumed(lost=claim.claim.count - claim.settled))
        claim.end()

    def _count(self, counts: Consumed) -> None:
        self.consumed = self.consumed.and_then(counts)
        self._options.on_progress(self.consumed)

    def _drain(self) -> None:
        waiting = self._backlog.remove() + sum(one.unread for one in self._in_hand)
        running = self._backlog.calls
        self._options.say(f"drains: waits for {running:,} calls, and gives back {waiting:,} messages without a call")
        while self._backlog.unreported:
            self._wake.wait(LOOK_SECONDS)
            self._wake.clear()
            self._collect()
            self._settle_due()
        self._collect()
        for one in list(self._in_hand):
            self._settle(one)
        self._give_back(ENDED)

    def _end_with_error(self, error: Exception) -> None:
        self._write_what_is_done(error)
        why = error.reason if isinstance(error, OutputNotWritten) else make_row_error(error).text
        self._give_back(f"{FAILED}: {why}")
        if isinstance(error, OutputNotWritten):
            raise error.given_back() from error

    def _write_what_is_done(self, error: BaseException) -> None:
        """Abandon the handlers, and settle what succeeded before `error`, except after OutputNotWritten.

        After LeaseLost the next claim is settled. Any other error of a settlement ends the settlements, and is ignored:
        the caller raises `error`.
        """
        with contextlib.suppress(Exception):
            self._handlers.abandon()
            if isinstance(error, OutputNotWritten):
                return
            self._note_outcomes()
            for one in list(self._in_hand):
                undecided = [handled for handled in one.pending if handled.verdict is not Verdict.DONE]
                with contextlib.suppress(LeaseLost):
                    self._count(one.settle(undecided))

    def _give_back(self, reason: str) -> None:
        self._backlog.close()
        given_back = sum(one.give_back(reason) for one in self._in_hand)
        self._in_hand.clear()
        if given_back:
            self._options.say(f"gives back {given_back:,} messages: {reason}")


def require_output(access: Access, options: Consumption) -> None:
    """Raise the error that each write to the output would raise."""
    access.store.outputs.require_writable()
    nothing = pa.table({MESSAGE_ID_COLUMN: pa.array([], pa.string())})
    make_writer(access, nothing, options.output, None, parse_schema_argument(options.schema))
    require_declared(access, options.output, options.schema)
