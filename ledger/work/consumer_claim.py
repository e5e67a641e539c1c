"""One claim of a consumer: its messages, their outcomes, and the commits that settle them.

A settlement writes the rows of all messages that are done, acknowledges these messages, and gives back the others. All
of this takes effect together: in one commit without rows, in a `claim.write` with rows. There are two exceptions:

- Messages that no retry can help move to the dead-letter queue, if there is one, in an earlier commit.
- If the rows cannot be written together, a search in halves (`isolation`) finds the rows that the table refuses, and
  writes the others. The messages of refused rows count as messages that no retry can help. If the table refuses
  everything alike, the consumer ends with the table's error.
"""

from __future__ import annotations

import functools
import itertools
import logging
import math
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from ledger.claim import Claim
from ledger.client.access import Access
from ledger.delta_log.protocol import reason
from ledger.errors import LeaseLost, LedgerError, OutputNotWritten
from ledger.message import Message
from ledger.output_tables.row_errors import LONGEST, RowError, is_of_function, make_row_error
from ledger.outputs.arrow_writer import ArrowWriter
from ledger.outputs.messages import compare_with_claim, find_other_messages, give_back_each, resolve_ids
from ledger.outputs.write import Acknowledgement, WrittenOutput, retry_lost_races, write_output
from ledger.outputs.writers import Writer, parse_schema_argument
from ledger.results import Consumed
from ledger.rules import message_id as ids
from ledger.rules import redrive
from ledger.rules.attributes import limits_of, receipts_of
from ledger.rules.limits import MILLISECONDS
from ledger.rules.output_columns import ColumnsAsked
from ledger.rules.visibility import Outcome, Verb, clean_any_reason
from ledger.store.protocol import RUNS, Action, Grant, Postponed, QueueRecord, count_by_outcome
from ledger.work.claim_source import describe_earlier_rows
from ledger.work.handler_calls import BEHIND, Handled, Verdict
from ledger.work.handler_rows import cost_of, find_common_types, has_cost, row_text, table_of
from ledger.work.isolation import LEAST_WITNESSES, EverythingFails, Isolation
from ledger.work.tasks import Consumption
from ledger.work.verdicts import RetryLater

log = logging.getLogger("ledger.consume")
HOPELESS_VERDICTS = (Verdict.REJECTED, Verdict.REFUSED)
#: A message is hidden for at most the rest of its receipt's time, less this margin: the store reads the clock later.
CEILING_MARGIN_SECONDS = 60


class ClaimInHand:
    """A claim of a consumer, under a heartbeat. Only the consumer's own thread changes it."""

    def __init__(self, access: Access, options: Consumption, claim: Claim) -> None:
        assert claim.grant is not None
        self._access, self._options, self.claim, self._grant = access, options, claim, claim.grant
        self._unread = iter(claim)
        self.unread = claim.count
        self.pending: list[Handled] = []
        self.pending_since: float | None = None
        self.pending_cost = 0.0
        #: Whether the user was warned that no row has a cost.
        self._is_cost_missing = False
        #: Bytes of bodies: of all read so far, and of those not settled yet.
        self.bytes_read = self.bytes_held = 0
        self.handled = 0
        self.settled = 0
        self.received_at = time.monotonic()
        self.heartbeat = claim.heartbeat()
        self.heartbeat.__enter__()

    @property
    def is_handled(self) -> bool:
        return self.handled == self.claim.count

    @property
    def is_over(self) -> bool:
        return self.settled == self.claim.count

    def read(self, most: int, most_bytes: int) -> list[Message]:
        """Return the next messages: `most`, or fewer once their bodies reach `most_bytes`."""
        messages, size = [], 0
        for message in itertools.islice(self._unread, most):
            messages.append(message)
            size += _size_of(message)
            if size >= most_bytes:
                break
        self.unread -= len(messages)
        self.bytes_read += size
        self.bytes_held += size
        return messages

    def note(self, handled: Sequence[Handled]) -> None:
        if handled and not self.pending:
            self.pending_since = time.monotonic()
        self.pending += handled
        self.pending_cost += sum(cost_of(one.rows, self._options.cost) for one in handled)
        self.handled += len(handled)

    def select_ripe(self, withheld: Collection[Handled]) -> list[Handled]:
        if not withheld:
            return list(self.pending)
        kept_back = {id(one) for one in withheld}
        return [one for one in self.pending if id(one) not in kept_back]

    def is_due(self, withheld: Collection[Handled], *, is_full: bool) -> bool:
        """Return whether it is time to settle the pending outcomes, except the `withheld` failures."""
        if self.pending_since is None or not self.pending:
            return False
        ripe = len(self.select_ripe(withheld)) if withheld else len(self.pending)
        waits = time.monotonic() - self.pending_since >= self._options.flush_seconds
        return ripe > 0 and (is_full or self.is_handled or ripe >= self._options.flush_rows or waits)

    def settle(self, withheld: Collection[Handled] = ()) -> Consumed:
        """Settle the pending outcomes except the `withheld`. Return the counts.

        Raises:
            EverythingFails: The output table refuses everything alike.
            LeaseLost: Rows were not written, because their messages were lost. Earlier commits of the settlement stay.
        """
        ripe = self.select_ripe(withheld)
        if not ripe:
            return Consumed()
        counts = self._settle(ripe)
        settled = {id(one) for one in ripe}
        self.pending = [one for one in self.pending if id(one) not in settled]
        self.pending_since = time.monotonic() if self.pending else None
        self.pending_cost = sum(cost_of(one.rows, self._options.cost) for one in self.pending)
        self.bytes_held -= sum(_size_of(one.message) for one in ripe)
        self.settled += len(ripe)
        return counts

    def give_back(self, reason: str) -> int:
        """Give back, uncounted, all messages that are still held, and end the heartbeat. Return how many."""
        try:
            if self.is_over:
                return 0
            return self.claim.release(reason, counted=False).messages
        except LedgerError as error:
            log.warning(
                "the claim %s could not be given back, it runs out by %s: %s",
                *(self.claim.receipt_id, self.claim.deadline, error),
            )
            return 0
        finally:
            self.end()

    def end(self) -> None:
        self.heartbeat.stop()

    def _settle(self, handled: list[Handled]) -> Consumed:
        done = [one for one in handled if one.verdict is Verdict.DONE]
        others = [one for one in handled if one.verdict is not Verdict.DONE]
        types, refused = find_common_types([one.rows for one in done])
        others += [_mark_refused(done[place], make_row_error(error)) for place, error in refused.items()]
        done = [one for place, one in enumerate(done) if place not in refused]
        counts, others, mark = self._reject(others)
        try:
            return counts.and_then(self._commit(done, others, types, mark))
        except Exception as error:
            if not any(one.rows for one in done) or not is_of_function(error):
                raise
            return counts.and_then(self._settle_apart(done, others, types, mark, error))

    def _settle_apart(
        self, done: list[Handled], others: list[Handled], types: pa.Schema, mark: int, error: Exception
    ) -> Consumed:
        """Settle in parts, after the rows could not be written together because of `error`."""
        self._options.say(f"the rows could not be written, and are tried again in parts: {_describe_error(error)}")
        refused = self._search(done, lambda some: require_fitting(self._access, self._options, some, types))
        if refused:
            # The table has no columns for these rows. Try to write all other rows together.
            culprits = {one.message.message_id for one in refused}
            done = [one for one in done if one.message.message_id not in culprits]
        parts: list[Consumed] = []
        refused += self._search(done, lambda some: parts.append(self._commit(some, [], types)))
        counts, refused, mark = self._reject(refused, mark)
        return functools.reduce(
            Consumed.and_then, [*parts, counts, self._commit([], [*others, *refused], types, mark)], Consumed()
        )

    def _search(self, done: list[Handled], attempt: Callable[[list[Handled]], object]) -> list[Handled]:
        """Attempt an action on messages that are done, in halves if the action raises.

        Return the messages for which the action raises when they are tried alone.
        """
        if not done:
            return []
        try:
            attempt(done)
            return []
        except Exception as error:
            if not is_of_function(error):
                raise
            first = error
        by_id = {one.message.message_id: one for one in done}
        # Take the claim's own runs of these messages: only they have receive counts.
        runs = find_other_messages(self._grant.runs, find_other_messages(self._grant.runs, self._runs_of(done)))

        raised = dict[str, Exception]()

        def attempt_part(part: Grant) -> None:
            names = _ids_of(part.runs)
            try:
                attempt([by_id[name] for name in names])
            except Exception as error:
                raised[names[0]] = error
                raise

        try:
            culprits = Isolation(replace(self._grant, runs=runs), attempt_part).search(first)
        except EverythingFails as everything:
            raise everything from first
        alone = (_ids_of(culprit.run)[0] for culprit in culprits)
        return [_mark_refused(by_id[name], _error_of_rows(raised.get(name, first))) for name in alone]

    def _commit(self, done: list[Handled], others: list[Handled], types: pa.Schema, mark: int = 0) -> Consumed:
        """Write the rows of `done`, acknowledge these messages, and give back the `others`, all together.

        `mark` is the first mark (see `rules.visibility.change`) that is free in this settlement.
        """
        if not done and not others:
            return Consumed()
        record = self._access.record()
        rows = [row for one in done for row in one.rows]
        runs, actions = self._runs_of(done), self._give_back_actions(record, others, mark)
        if rows:

            def decide(_: QueueRecord, __: Writer) -> Acknowledgement:
                return Acknowledgement(runs, actions)

            written, changed, earlier = self._write(table_of(rows, types), decide)
            if earlier:
                raise LeaseLost(describe_earlier_rows(written))
        else:
            written, changed = self._apply(record, runs, actions)
        return self._count_outcomes(record, done, others, written, changed, rows)

    def _write(self, rows: pa.Table, decide: Callable[[QueueRecord, Writer], Acknowledgement]) -> WrittenOutput:
        options, ending = self._options, self.claim.endings.ending
        write = partial(write_output, self._access, self._grant, rows, options.output, decide, ending)
        return retry_lost_races(partial(write, asked=columns_asked_by(options)))

    def _reject(self, others: list[Handled], mark: int = 0) -> tuple[Consumed, list[Handled], int]:
        """Move the messages that no retry can help to the dead-letter queue, in one commit. Lost messages do not move.

        Returns:
            The counts, the messages left to give back, and the next free mark.
        """
        record = self._access.record()
        hopeless = [one for one in others if one.verdict in HOPELESS_VERDICTS]
        if not hopeless or redrive.policy_of(record.attributes) is None:
            return Consumed(), others, mark
        runs = self._runs_of(hopeless)
        actions = give_back_each(record.id, self._grant, runs, 0, _reasons_of(hopeless), mark=mark)
        with self.claim.endings.ending(runs) as ending:
            moved = self._access.store.reject(record, actions, self._access.clock)
            if moved is None:
                ending.done = RUNS.empty_table()
                return Consumed(), others, mark
        refused = sum(one.verdict is Verdict.REFUSED for one in hopeless)
        rejected = min(moved, len(hopeless) - refused)
        counts = Consumed(failed=moved - rejected, rejected=rejected, lost=len(hopeless) - moved)
        return counts, [one for one in others if one.verdict not in HOPELESS_VERDICTS], mark + len(actions)

    def _apply(self, record: QueueRecord, done: pa.Table, actions: list[Action]) -> tuple[int, int]:
        """Acknowledge and give back in one commit. Return the numbers of deleted and of given-back messages."""
        if done.num_rows:
            actions = [*actions, Action(Verb.DELETE, self._grant.receipt_id, done, 0, True)]
            self._access.store.require_messages(record, self._grant, done)
        limits, receipts = limits_of(record.attributes), receipts_of(record.attributes)
        with self.claim.endings.ending(pa.concat_tables([action.runs for action in actions])) as ending:
            answers = self._access.store.apply(record, actions, limits, receipts, self._access.clock)
            ending.answered(pa.concat_tables(answers))
        outcomes = count_by_outcome(pa.concat_tables(answers))
        return outcomes[Outcome.DELETED], outcomes[Outcome.CHANGED]

    def _count_outcomes(
        self,
        record: QueueRecord,
        done: list[Handled],
        others: list[Handled],
        written: int,
        changed: int,
        rows: list[dict[str, object]],
    ) -> Consumed:
        verdicts = [one.verdict for one in others]
        lost = max(0, len(done) - written) + max(0, len(others) - changed)
        column = self._options.cost
        if column is not None and rows and not self._is_cost_missing and not any(has_cost(row, column) for row in rows):
            self._is_cost_missing = True
            self._options.warn(
                f"no row has a number in the column {column!r}, which cost= names: their cost counts as 0"
            )
        return Consumed(
            messages=written,
            failed=verdicts.count(Verdict.FAILED) + verdicts.count(Verdict.REFUSED),
            retried=verdicts.count(Verdict.RETRIED),
            limited=verdicts.count(Verdict.LIMITED),
            parked=sum(self._choose_way_back(record, one)[1] is Postponed.PARKED for one in others),
            rejected=verdicts.count(Verdict.REJECTED),
            lost=lost,
            rows=len(rows),
            cost=cost_of(rows, self._options.cost),
        )

    def _give_back_actions(self, record: QueueRecord, others: list[Handled], mark: int) -> list[Action]:
        actions: list[Action] = []
        for way_back, handled in _group_by(others, lambda one: self._choose_way_back(record, one)):
            seconds, postponed, counted = way_back
            runs, table = self._runs_of(handled), _reasons_of(handled)
            actions += give_back_each(
                record.id, self._grant, runs, seconds, table, None, postponed, mark + len(actions), counted=counted
            )
        return actions

    def _choose_way_back(self, record: QueueRecord, one: Handled) -> tuple[int, Postponed, bool]:
        """Return the seconds that a message is hidden, the kind, and whether its receive counts."""
        options = self._options
        if one.verdict is Verdict.FAILED:
            most = redrive.receives_before_parking(record.attributes, options.maximum_receives)
            if most is None or one.message.receive_count < most:
                return self._cut_to_ceiling(record, options.retry_after), Postponed.RETRY, True
            return self._cut_to_ceiling(record, options.park), Postponed.PARKED, True
        if one.verdict in HOPELESS_VERDICTS:
            return self._cut_to_ceiling(record, options.park), Postponed.PARKED, True
        if one.verdict in (Verdict.RETRIED, Verdict.LIMITED):
            assert isinstance(one.raised, RetryLater)
            seconds = math.ceil(one.raised.seconds_from(self._access.clock() / MILLISECONDS))
            return self._cut_to_ceiling(record, seconds), Postponed.RETRY, one.raised.counted
        return 0, Postponed.RETRY, False

    def _cut_to_ceiling(self, record: QueueRecord, seconds: int) -> int:
        """Shorten the seconds to what the receipt may still hold."""
        ceiling = limits_of(record.attributes).maximum_visibility_timeout
        if ceiling is None:
            return seconds
        passed = math.ceil((self._access.clock() - self._grant.received_at) / MILLISECONDS)
        return max(0, min(seconds, ceiling - passed - CEILING_MARGIN_SECONDS))

    def _runs_of(self, handled: Sequence[Handled]) -> pa.Table:
        if not handled:
            return RUNS.empty_table()
        named = resolve_ids(pa.chunked_array([pa.array([one.message.message_id for one in handled], pa.string())]))
        assert named is not None, "message ids are the store's own"
        return compare_with_claim(self._grant.runs, named.messages)[0]


def _size_of(message: Message) -> int:
    return sys.getsizeof(message.body)


def columns_asked_by(options: Consumption) -> ColumnsAsked:
    """Return the columns that a consumer asks of its table. Values decide the types that no schema declares."""
    return replace(parse_schema_argument(options.schema), by_chance=True)


def require_fitting(access: Access, options: Consumption, done: Sequence[Handled], types: pa.Schema) -> None:
    """Raise OutputNotWritten if rows do not fit the table's columns."""
    rows = [row for one in done for row in one.rows]
    if rows:
        ArrowWriter(
            access.store.outputs, table_of(rows, types), options.output, None, columns_asked_by(options)
        ).require_fitting()


def _mark_refused(one: Handled, error: RowError) -> Handled:
    return Handled(one.message, Verdict.REFUSED, error=error, answer=row_text(one.rows))


def _error_of_rows(error: Exception) -> RowError:
    """Return the error of refused rows. For an OutputNotWritten without a cause, this is its reason alone."""
    if isinstance(error, OutputNotWritten) and error.__cause__ is None:
        return RowError(type(error).__name__, error.reason[:LONGEST])
    return make_row_error(error)


def _describe_error(error: Exception) -> str:
    return error.reason if isinstance(error, OutputNotWritten) else reason(error)


def _reasons_of(handled: Sequence[Handled]) -> pa.Table:
    columns = [one.message.message_id for one in handled], [_reason_of(one) for one in handled]
    return pa.table([pa.array(column, pa.string()) for column in columns], ["message_id", "reason"])


def _reason_of(one: Handled) -> str | None:
    if one.verdict is Verdict.BEHIND:
        return BEHIND
    if one.verdict is Verdict.REFUSED and one.error is not None:
        answer = "" if one.answer is None else f". The handler returned {one.answer}"
        return clean_any_reason(f"{one.error.text}{answer}")
    if one.verdict is Verdict.FAILED and one.error is not None:
        return clean_any_reason(one.error.text)
    return clean_any_reason(getattr(one.raised, "reason", None))


def _group_by(
    handled: Iterable[Handled], key: Callable[[Handled], tuple[int, Postponed, bool]]
) -> Iterable[tuple[tuple[int, Postponed, bool], list[Handled]]]:
    groups: dict[tuple[int, Postponed, bool], list[Handled]] = {}
    for one in handled:
        groups.setdefault(key(one), []).append(one)
    return groups.items()


def _ids_of(runs: pa.Table) -> list[str]:
    return [
        ids.message_id(run["segment"], seq)
        for run in runs.to_pylist()
        for seq in range(run["first_seq"], run["last_seq"] + 1)
    ]


class FirstRows:
    """Compares rows with the output table's columns, until one message's rows fit."""

    def __init__(self, access: Access, options: Consumption) -> None:
        self._access, self._options = access, options
        self._refused = 0
        self.are_awaited = options.output is not None

    def look(self, handled: Sequence[Handled]) -> None:
        """Raise OutputNotWritten once the rows of LEAST_WITNESSES new messages do not fit, if no rows have fitted."""
        for one in handled:
            if not self.are_awaited or not one.rows:
                continue
            types, refused = find_common_types([one.rows])
            if refused:
                continue
            try:
                require_fitting(self._access, self._options, [one], types)
            except OutputNotWritten:
                self._refused += one.message.receive_count <= 1
                if self._refused >= LEAST_WITNESSES:
                    raise
            else:
                self.are_awaited = False
