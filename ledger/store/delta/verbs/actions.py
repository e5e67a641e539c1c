"""Actions on received messages: delete, extend and release."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from ledger.clock import Clock
from ledger.rules import visibility
from ledger.rules.attributes import limits_of
from ledger.rules.limits import Limits
from ledger.rules.visibility import Outcome, Receipts
from ledger.store.delta.engine import Tables
from ledger.store.delta.model.message_runs import ABSENT, Pieces, Runs, distinct_codes, lay_together
from ledger.store.delta.model.tables import sort_distinct
from ledger.store.delta.state.lane_records import Lanes
from ledger.store.delta.state.listing import Listings
from ledger.store.delta.state.snapshot import Decision, Events, Loaded
from ledger.store.delta.verbs.receipts import read_events
from ledger.store.delta.verbs.sharing import GroupedCall, Joint, SharedVerbs
from ledger.store.protocol import OUTCOME_RUNS, Action, QueueRecord, apply_action

OUTCOMES = list(Outcome)
_OUTCOME_TEXTS = pa.array([one.value for one in OUTCOMES])


@dataclass(frozen=True)
class _ActionsCall:
    """The actions of one call. `meeting`: lanes that any change counts up, too (see `Decision`)."""

    actions: Sequence[Action]
    limits: Limits
    receipts: Receipts
    meeting: tuple[int, ...]


@dataclass(frozen=True)
class _ActionEffect:
    action: Action
    pieces: Pieces
    outcome_of: Mapping[int, Outcome]
    change: Runs
    #: For a release without a reason: by new code, the earlier reasons of parked or postponed messages.
    reason_of: Mapping[int, str]


class Applier:
    def __init__(self, tables: Tables, listings: Listings, shared: SharedVerbs) -> None:
        self._tables, self._listings, self._shared = tables, listings, shared

    def apply(
        self, queue: QueueRecord, actions: Sequence[Action], limits: Limits, receipts: Receipts, clock: Clock
    ) -> list[pa.Table]:
        named_lanes = sort_distinct(lane for action in actions for lane in action.runs["lane"].unique().to_pylist())
        if not named_lanes:
            return [OUTCOME_RUNS.empty_table() for _ in actions]
        # A change with a timeout may put messages in flight that a receive has counted as free. Under a quota on
        # messages in flight, the change and the receive therefore count up lane 0, and conflict.
        keeps_in_flight = any(action.verb is visibility.Verb.CHANGE and action.timeout for action in actions)
        meeting = (0,) if keeps_in_flight and limits_of(queue.attributes).maximum_in_flight is not None else ()
        call = _ActionsCall(actions, limits, receipts, meeting)

        def decide(loaded: Loaded, losses: int) -> Decision[list[pa.Table]]:
            decided = self._decide([call], loaded)
            return Decision(decided.replacement, decided.events, decided.answers[0], meeting)

        names = {action.name for action in actions}
        name = names.pop() if len(names) == 1 else "settle"
        lanes = sort_distinct((*named_lanes, *meeting))
        return self._shared.run(GroupedCall(name, queue, clock, decide, lanes, joint=self._decide_together, asked=call))

    def _decide_together(self, verbs: Sequence[GroupedCall[Any]], loaded: Loaded, losses: int) -> Joint | None:
        """Decide several calls, or return None if two of them may name the same message."""
        calls = [verb.asked for verb in verbs]
        decided = self._decide(calls, loaded)
        if decided.meets:
            return None
        meeting = sort_distinct(lane for call in calls for lane in call.meeting)
        decision = Decision(decided.replacement, decided.events, lambda version: None, meeting)
        return Joint(decision, decided.answers, decided.parts)

    def _decide(self, asked: Sequence[_ActionsCall], loaded: Loaded) -> _Decided:
        events, effects = Events(), _effects(self._tables, loaded, asked)
        replacement, contradicted = lay_together([effect.change for effect in effects])
        done = [effect.change.split_by(contradicted)[1] if len(contradicted) else effect.change for effect in effects]
        outcomes = self._outcomes(loaded.lanes, effects, contradicted)
        for effect, change in zip(effects, done):
            for reason, changed in _split_by_reason(effect, change):
                action = effect.action if reason == effect.action.reason else replace(effect.action, reason=reason)
                events.note_action(action, loaded.lanes, changed)
        calls = [slice(*ends) for ends in pairwise(accumulate((len(one.actions) for one in asked), initial=0))]
        answers = [_return_always(outcomes[call]) for call in calls]
        parts = [_join_changes(done[call]) for call in calls]
        return _Decided(
            replacement, events, answers, parts, len(asked) > 1 and _may_overlap([effects[m] for m in calls])
        )

    def _outcomes(self, lanes: Lanes, effects: Sequence[_ActionEffect], contradicted: Runs) -> list[pa.Table]:
        """Return OUTCOME_RUNS for each action. Two actions would make different records of the messages in
        `contradicted`."""
        runs, numbers = list[Runs](), list[np.ndarray]()
        for effect in effects:
            named, refused = effect.pieces.recode(effect.pieces.code), None
            if len(contradicted):
                pieces = effect.change.split_by(contradicted)[0].cut(named.first, named.last)
                named, refused = pieces.recode(named.code[pieces.query]), pieces.code != ABSENT
            number = _look_up_values(named.code, {code: OUTCOMES.index(one) for code, one in effect.outcome_of.items()})
            unknown = named.code == ABSENT
            if unknown.any():
                exists = self._listings.newest().segments()
                dropped = np.array([name not in exists for name in lanes.segments])[named.segment]
                gone = Outcome.SETTLED if effect.action.whole_claim else Outcome.ALREADY_DELETED
                number[unknown & dropped] = OUTCOMES.index(gone)
            if refused is not None:
                number[refused] = OUTCOMES.index(Outcome.CONTRADICTED)
            runs.append(named)
            numbers.append(number)
        outcome = _OUTCOME_TEXTS.take(pa.array(np.concatenate(numbers)))
        table = pa.table([*lanes.to_arrow(Runs.concatenate(runs)), outcome], schema=OUTCOME_RUNS)
        ends = pairwise(accumulate(map(len, runs), initial=0))
        return [table.slice(first, end - first) for first, end in ends]


@dataclass(frozen=True)
class _Decided:
    """The result of calls that are decided together. `meets`: two of the calls may name the same message."""

    replacement: Runs
    events: Events
    answers: Sequence[Callable[[int], list[pa.Table]]]
    parts: Sequence[Runs]
    meets: bool


def _effects(tables: Tables, loaded: Loaded, asked: Sequence[_ActionsCall]) -> list[_ActionEffect]:
    lanes, actions = loaded.lanes, [(one, action) for one in asked for action in one.actions]
    pieces = lanes.cut(pa.concat_tables([action.runs for _, action in actions]).combine_chunks())
    lanes.records.read(distinct_codes(pieces.code))
    ends = accumulate((action.runs.num_rows for _, action in actions), initial=0)
    places = pairwise(np.searchsorted(pieces.query, list(ends)).tolist())
    return [_effect(tables, loaded, *one, pieces.where(slice(*place))) for one, place in zip(actions, places)]


def _effect(tables: Tables, loaded: Loaded, asked: _ActionsCall, action: Action, pieces: Pieces) -> _ActionEffect:
    lanes, outcome_of, new_code = loaded.lanes, dict[int, Outcome](), dict[int, int]()
    codes = distinct_codes(pieces.code)
    earlier_reasons = _earlier_reasons(tables, loaded, action, codes)
    # Each reason has its own mark, which changes the deadline by milliseconds: the views find a reason by the deadline.
    marks = {reason: action.mark + number for number, reason in enumerate(dict.fromkeys(earlier_reasons.values()))}
    reason_of = dict[int, str]()
    for code in codes:
        record, reason = lanes.record(code), earlier_reasons.get(code)
        one = action if reason is None else replace(action, mark=marks[reason])
        outcome_of[code], record = apply_action(loaded.queue, one, record, asked.limits, asked.receipts, loaded.now)
        new_code[code] = lanes.code(record) if code != ABSENT else ABSENT
        if reason is not None:
            reason_of[new_code[code]] = reason
    change = _apply_new_codes(pieces, {c: n for c, n in new_code.items() if n != c})
    return _ActionEffect(action, pieces, outcome_of, change.in_order(), reason_of)


def _earlier_reasons(tables: Tables, loaded: Loaded, action: Action, codes: Iterable[int]) -> Mapping[int, str]:
    """Return the earlier reasons, by code, of parked or postponed messages that the action releases without a reason.

    If such a message goes to the dead-letter queue next, no other reason is on record.
    """
    if action.event != "released" or action.reason is not None:
        return {}
    records = {code: loaded.lanes.record(code) for code in codes if code != ABSENT}
    hidden = {
        code: record
        for code, record in records.items()
        if record.receipt_id == action.receipt_id and visibility.is_postponed(record, loaded.now)
    }
    if not hidden:
        return {}
    events = read_events(tables, loaded.queue.id, action.receipt_id)
    reason_by_deadline = {event["visible_at"]: event["reason"] for event in events if event["reason"] is not None}
    return {
        code: reason_by_deadline[record.visible_at]
        for code, record in hidden.items()
        if record.visible_at in reason_by_deadline
    }


def _split_by_reason(effect: _ActionEffect, done: Runs) -> Iterator[tuple[str | None, Runs]]:
    for reason in dict.fromkeys(effect.reason_of.values()):
        codes = [code for code, one in effect.reason_of.items() if one == reason]
        yield reason, done.where(np.isin(done.code, codes))
    others = done.where(~np.isin(done.code, list(effect.reason_of))) if effect.reason_of else done
    yield effect.action.reason, others


def _return_always(tables: list[pa.Table]) -> Callable[[int], list[pa.Table]]:
    return lambda version: tables


def _join_changes(changes: Sequence[Runs]) -> Runs:
    return changes[0] if len(changes) == 1 else Runs.concatenate(changes).in_order()


def _may_overlap(effects: Sequence[Sequence[_ActionEffect]]) -> bool:
    """Return whether two calls may name the same message. Also True if one call names a message twice."""
    places = Runs.concatenate([effect.pieces.recode(0) for call_effects in effects for effect in call_effects])
    order = np.argsort(places.first, kind="stable")
    first, furthest = places.first[order], np.maximum.accumulate(places.last[order])
    return bool((first[1:] <= furthest[:-1]).any())


def _apply_new_codes(pieces: Pieces, new_code: Mapping[int, int]) -> Runs:
    changes = _look_up_values(pieces.code, dict.fromkeys(new_code, 1)) == 1
    return pieces.recode(_look_up_values(pieces.code, new_code)).where(changes)


def _look_up_values(codes: np.ndarray, value_of_code: Mapping[int, int]) -> np.ndarray:
    """Return the value of each code, or else 0."""
    table = np.zeros(int(codes.max(initial=ABSENT)) - ABSENT + 1, dtype=np.int64)
    for code, value in value_of_code.items():
        if code - ABSENT < len(table):
            table[code - ABSENT] = value
    values: np.ndarray = table[codes - ABSENT]
    return values
