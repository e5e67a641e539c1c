"""The verb `receive`: one MERGE grants messages to receipts, and moves dead letters to their queue."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any
from zlib import crc32

import numpy as np

from ledger.clock import Clock
from ledger.errors import InvalidParameterValue, OutputUnreadable, OverLimit
from ledger.rules import redrive, visibility
from ledger.rules.attempts import require_not_smaller
from ledger.rules.attributes import is_fifo, limits_of
from ledger.rules.limits import admit
from ledger.rules.receipt_handle import new_receipt_id
from ledger.rules.visibility import Record, Status
from ledger.store.delta.model.message_runs import Runs
from ledger.store.delta.model.tables import sort_distinct
from ledger.store.delta.state.choosing import (
    LOSSES_TO_HALVE,
    Deal,
    choose_lanes,
    choose_lanes_in_order,
    find_receivable,
)
from ledger.store.delta.state.fifo_groups import ORDER_SHIFT, Groups
from ledger.store.delta.state.lane_records import Lanes
from ledger.store.delta.state.listing import INDEX, Listing
from ledger.store.delta.state.snapshot import Decision, Events, Loaded, OpenTables
from ledger.store.delta.verbs.granting import GrantRows, RequestGrant, grant, grant_of, make_refusal, require_apart
from ledger.store.delta.verbs.moving import Move, move
from ledger.store.delta.verbs.output_writes import Outputs
from ledger.store.delta.verbs.queues import Queues, dead_letter_queues
from ledger.store.delta.verbs.sharing import GroupedCall, Joint, SharedVerbs
from ledger.store.protocol import QueueRecord, Received, ReceiveRequest


@dataclass(frozen=True)
class _ReceiveCall:
    requests: Sequence[ReceiveRequest]
    receipts: Sequence[str]

    @property
    def is_plain(self) -> bool:
        """Whether this call may be decided in one step with others.

        An attempt id may hold messages already. Messages received with a timeout of 0 stay visible for another call,
        in another commit.
        """
        return all(request.attempt_id is None and request.timeout for request in self.requests)


class Receiver:
    def __init__(
        self, opened: OpenTables, groups: Groups, queues: Queues, outputs: Outputs, shared: SharedVerbs
    ) -> None:
        self._opened, self._groups, self._queues, self._outputs = opened, groups, queues, outputs
        self._shared = shared

    def receive(self, queue: QueueRecord, requests: Sequence[ReceiveRequest], clock: Clock) -> list[Received]:
        """See Store.receive. Calls of other threads may share the MERGE.

        If no message is left for a request, the answer is None, or the error of an output table that keeps messages in
        doubt.
        """
        call = _ReceiveCall(requests, [new_receipt_id() for _ in requests])

        def decide(loaded: Loaded, losses: int) -> Decision[list[Received]]:
            decision, parts = self._decide(call, loaded, losses)
            return replace(decision, answer=_answer_of(parts))

        targets = partial(dead_letter_queues, self._queues, queue)
        joint = self._decide_together if call.is_plain else None
        return self._shared.run(GroupedCall("receive", queue, clock, decide, targets=targets, joint=joint, asked=call))

    def _decide_together(self, verbs: Sequence[GroupedCall[Any]], loaded: Loaded, losses: int) -> Joint | None:
        """Decide several receives in one step. Return None after LOSSES_TO_HALVE losses.

        After so many losses each receive takes messages of some lanes only, and leaves the others to the next receive.
        """
        if losses >= LOSSES_TO_HALVE:
            return None
        calls = [verb.asked for verb in verbs]
        requests = [request for one in calls for request in one.requests]
        receipts = [receipt for one in calls for receipt in one.receipts]
        decision, parts = self._decide(_ReceiveCall(requests, receipts), loaded, losses)
        ends = accumulate((len(one.requests) for one in calls), initial=0)
        parts_by_call = [parts[first:end] for first, end in pairwise(ends)]
        recorded = [Runs.concatenate([part.runs for part in call_parts]).in_order() for call_parts in parts_by_call]
        return Joint(decision, list(map(_answer_of, parts_by_call)), recorded)

    def _decide(self, asked: _ReceiveCall, loaded: Loaded, losses: int) -> tuple[Decision[Any], list[RequestGrant]]:
        requests, events = asked.requests, Events()
        attempts = {request.attempt_id for request in requests if request.attempt_id is not None}
        # A request for fewer messages than its attempt holds is refused, and must not fence off writes of these
        # messages.
        served = [request.attempt_id for request in requests if not _asks_for_fewer(loaded, request)]
        undecided = self._outputs.fence_doubts(loaded, events, attempts.intersection(served))
        again = {n: _grant_again(loaded, request, undecided, events) for n, request in enumerate(requests)}
        repeated = {n: part for n, part in again.items() if part is not None}
        fresh = {n: (requests[n], asked.receipts[n]) for n in again if again[n] is None}
        fresh_parts, buried = self._new_grants(loaded, fresh, undecided, losses, events)
        parts = [(repeated | fresh_parts)[n] for n in range(len(requests))]
        granted_runs = Runs.concatenate([Runs.empty(), *(part.runs for part in parts)]).in_order()
        replacement = Runs.concatenate([granted_runs, buried.leaving]).in_order()
        arriving = {target.id: buried.arriving for target in loaded.targets}
        # The version of a grant is its fencing token: commit even if no deadline changes.
        always = any(len(part.runs) for part in repeated.values())
        meeting = _lanes_to_count_up(loaded.queue, attempts)
        return Decision(replacement, events, lambda version: None, meeting, arriving, always, granted_runs), parts

    def _new_grants(
        self,
        loaded: Loaded,
        requests: Mapping[int, tuple[ReceiveRequest, str]],
        undecided: OutputUnreadable | None,
        losses: int,
        events: Events,
    ) -> tuple[dict[int, RequestGrant], Move]:
        nothing = Move(Runs.empty(), Runs.empty())
        if not requests:
            return {}, nothing
        fifo, limits = is_fifo(loaded.queue.attributes), limits_of(loaded.queue.attributes)
        lanes, classified = loaded.lanes, loaded.classify(self._opened.listings)
        in_flight = classified.pieces.where(classified.state == INDEX[Status.IN_FLIGHT]).count
        maxima = [request.maximum for request, _ in requests.values() if request.maximum is not None]
        try:
            most = admit(sum(maxima) if len(maxima) == len(requests) else None, in_flight, limits, fifo=fifo)
        except OverLimit as error:
            return dict.fromkeys(requests, make_refusal(error)), nothing
        policy = redrive.policy_of(loaded.queue.attributes) if loaded.targets else None
        # After so many losses, `_mask_few_lanes` takes the messages of some lanes only: find all.
        runs = find_receivable(loaded, classified, self._groups, most if losses < LOSSES_TO_HALVE else None)
        dead = lanes.per_code(runs.code, lambda r: redrive.is_dead(r, policy), bool)
        doubled = classified.listing.doubled(loaded.queue.id)
        require_apart(lanes, runs.where(dead), doubled)
        buried = self._bury(loaded, classified.listing, runs.where(dead).in_order(), events)
        alive = runs.where(~dead)
        in_chosen_lanes = _mask_few_lanes(lanes, alive, most, losses, fifo=fifo)
        deal = Deal(alive.where(in_chosen_lanes), ORDER_SHIFT if fifo else None)
        parts, grants = {}, GrantRows(lanes)
        for n, (request, receipt_id) in requests.items():
            try:
                most = admit(request.maximum, in_flight, limits, fifo=fifo)
            except OverLimit as error:
                parts[n] = make_refusal(error)
                continue
            chosen = deal.take(most)
            require_apart(lanes, chosen, doubled)
            order = chosen.order if fifo else None
            events.expired(lanes, chosen)
            parts[n] = grant(loaded, chosen, request, receipt_id, order, undecided, events, grants)
            in_flight += chosen.count
        return parts, buried

    def _bury(self, loaded: Loaded, listing: Listing, dead: Runs, events: Events) -> Move:
        if not loaded.targets or not len(dead):
            return Move(Runs.empty(), Runs.empty())
        source, target = loaded.queue, loaded.targets[0]
        fifo = is_fifo(source.attributes)

        def arrives(record: Record) -> Record:
            return redrive.make_dead_letter(record, source.id, loaded.now, fifo=fifo, target=target.id)

        return move(loaded, listing, target, dead, arrives, events)


def _answer_of(parts: Sequence[RequestGrant]) -> Callable[[int], list[Received]]:
    return lambda version: [part.answer(version) for part in parts]


def _asks_for_fewer(loaded: Loaded, request: ReceiveRequest) -> bool:
    if request.attempt_id is None or request.maximum is None:
        return False
    return _find_same_attempt(loaded.lanes, request.attempt_id, request.timeout, loaded.now).count > request.maximum


def _grant_again(
    loaded: Loaded, request: ReceiveRequest, undecided: OutputUnreadable | None, events: Events
) -> RequestGrant | None:
    """Return the claim that an earlier receive under the attempt id holds, if any.

    Refuse the request if it asks for fewer messages, or if all messages of the attempt stay in doubt.
    """
    if request.attempt_id is None:
        return None
    lanes = loaded.lanes
    again = _find_same_attempt(lanes, request.attempt_id, request.timeout, loaded.now)
    if len(again):
        try:
            require_not_smaller(request.attempt_id, again.count, request.maximum)
        except InvalidParameterValue as error:
            return make_refusal(error)
        events.add("granted again", lanes.record(again.code[0]), again)
        return RequestGrant(again, grant_of(lanes, again))
    if undecided is not None and any(
        visibility.is_same_attempt(lanes.record(c), request.attempt_id, loaded.now) for c in lanes.undecided
    ):
        return make_refusal(undecided)
    return None


def _lanes_to_count_up(queue: QueueRecord, attempts: Collection[str]) -> tuple[int, ...]:
    """Return lanes that receives count up without taking messages from them, so that two receives conflict.

    Receives of one attempt may choose different lanes, so all count up a lane that follows from the attempt id.
    Under a quota on messages in flight, receives count up lane 0, so that each sees the receive before it.
    """
    lanes = {crc32(attempt.encode()) % int(queue.attributes["Lanes"]) for attempt in attempts}
    return sort_distinct(lanes if limits_of(queue.attributes).maximum_in_flight is None else lanes | {0})


def _mask_few_lanes(lanes: Lanes, runs: Runs, maximum: int | None, losses: int, *, fifo: bool) -> np.ndarray:
    lane_of = lanes.lanes(runs)
    messages = np.bincount(lane_of, runs.lengths).astype(np.int64)
    if fifo:
        chosen = choose_lanes_in_order(np.flatnonzero(messages).tolist(), losses)
    else:
        chosen = choose_lanes(dict(enumerate(messages.tolist())), maximum, losses)
    return np.isin(lane_of, chosen)


def _find_same_attempt(lanes: Lanes, attempt_id: str, timeout: int, now: int) -> Runs:
    with_attempt_id = lanes.records.is_there("attempt_id", attempt_id)
    of_attempt = lanes.per_code(
        lanes.runs.code, lambda r: visibility.is_same_attempt(r, attempt_id, now), bool, with_attempt_id
    )
    of_attempt &= ~np.isin(lanes.runs.code, list(lanes.undecided))
    if of_attempt.any():
        last = visibility.last_receipt(lanes.record(code) for code in lanes.runs.code[of_attempt].tolist())
        of_attempt &= lanes.per_code(lanes.runs.code, lambda r: r.receipt_id == last, bool)
    runs = lanes.runs.where(of_attempt)
    return runs.recode(lanes.per_code(runs.code, lambda r: lanes.code(visibility.restart(r, timeout, now)), np.int64))
