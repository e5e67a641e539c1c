"""Whether a commit may change what is recorded about messages, and remove messages, as it did."""

from __future__ import annotations

from collections.abc import Iterable

from ledger.rules.visibility import GONE, Record
from tests.simulation.calls import Call
from tests.simulation.facts import Facts, Key, Message, Recorded
from tests.simulation.log import Change

#: What applies actions through receipt handles, and the other verbs that are a receipt's own.
ACTIONS = ("delete", "extend", "release", "settle")
OWN = (*ACTIONS, "reject", "begin_write", "finish_write", "undo_write")


def judge_records(
    facts: Facts, differing: dict[tuple[str, Key], tuple[Recorded | None, Recorded | None]], change: Change
) -> list[str]:
    """Judges a commit to `visibility`; `facts` are those after it."""
    problems = []
    verb, at = change.metadata.get("verb"), change.metadata.get("at", 0)
    call = change.actor.call
    receipts = _receipts(call)
    for (queue, key), (before, after) in differing.items():
        if queue not in facts.queues and verb == "upkeep":
            continue
        where = f"{key[0][:8]}/{key[1]} of {queue}"
        old, new = before and before.record, after and after.record
        if before is not None and after is not None and before.lane != after.lane:
            problems.append(f"{where} went from lane {before.lane} to {after.lane}")
        if new is None:
            if key in facts.messages:
                problems.append(f"what is recorded about {where} vanished, and the message is still there")
            continue
        is_unheard_of = key not in facts.ever if queue in facts.known else not _is_of_before(facts, call)
        if before is None and is_unheard_of:
            problems.append(f"{where}: something is recorded, and there never was such a message, or queue")
        old = old or Record()
        problems += [f"{where}: {what}" for what in _transition(verb, at, receipts, old, new)]
        if call is not None and call.verb == "beat" and (new.visible_at or 0) < (old.visible_at or 0):
            problems.append(f"{where}: a heartbeat ends its hold {old.visible_at - (new.visible_at or 0)} ms earlier")
        is_given = verb == "receive" and new.receipt_id != old.receipt_id and new.receipt_id
        if is_given and key not in facts.messages:
            problems.append(f"{where}: received, and there is no such message")
        elif is_given:
            message = facts.messages[key]
            if before is None and message.queue != queue:
                problems.append(f"{where}: received, and it never came to that queue")
            if message.available_at > at:
                problems.append(f"{where}: received {message.available_at - at} ms before its delay is over")
    for key in {key for _, key in differing}:
        there = facts.counts_in(key)
        if len(there) > 1:
            problems.append(f"{key[0][:8]}/{key[1]} is in {len(there)} queues at once: {', '.join(sorted(there))}")
        if not there and key in facts.messages and not _rightly_gone(facts, key):
            problems.append(f"{key[0][:8]}/{key[1]} is in no queue any more, and nobody deleted it")
    return problems


def _receipts(call: Call | None) -> set[str | None]:
    """The receipts that a call is about."""
    about = {} if call is None else call.about
    return about["receipts"] if "receipts" in about else {about.get("receipt")}


def _transition(verb: str | None, at: int, receipts: set[str | None], old: Record, new: Record) -> Iterable[str]:
    held = _held(old, at)
    if old.deleted_at is not None and new.deleted_at is None:
        if verb != "restore":
            yield f"deleted under {_short(old.receipt_id)}, and came back by {verb}"
        elif old.receipt_id not in receipts:
            yield f"deleted under {_short(old.receipt_id)}, and restored through {_all(receipts)}"
    elif old.deleted_at is not None:
        if verb not in ("upkeep",) and new != old:
            yield f"changed by {verb} after it was deleted"
        return
    if verb == "receive" and new.receipt_id != old.receipt_id and held:
        yield f"given to {_short(new.receipt_id)} while {_short(old.receipt_id)} holds it {old.visible_at - at} ms more"
    is_rejected = verb == "reject" and old.receipt_id in receipts
    if new.moved_to is not None and old.moved_to is None and held and not is_rejected:
        yield f"moved by {verb} while {_short(old.receipt_id)} holds it {old.visible_at - at} ms more"
    if (
        verb in ("restore", "lock", "upkeep")
        and held
        and (old.receipt_id, old.visible_at)
        != (
            new.receipt_id,
            new.visible_at,
        )
    ):
        yield f"taken by {verb} from {_short(old.receipt_id)}, which holds it"
    # Its own queue gives a rejected message up; in the dead-letter queue it is new.
    was_there = old != Record() and old.moved_to is None
    arrives = verb == "reject" and not was_there and new.moved_to is None and new.origin_queue is not None
    if verb in OWN and old.receipt_id not in receipts and not arrives:
        yield f"changed by {verb} through {_all(receipts)}, and it is {_short(old.receipt_id)}'s"
    if verb in ACTIONS and new.deleted_at is None and new.receipt_id in receipts and not held:
        yield f"a hold that was over changed by {verb}"
    if old.moved_to is not None and new.moved_to is None and new.enqueued_at is None and new.origin_queue is None:
        yield f"moved away, and back by {verb} without a move"


def _held(record: Record, at: int) -> bool:
    gone = record.deleted_at is not None or record.moved_to is not None
    return not gone and record.receipt_id is not None and record.visible_at is not None and record.visible_at > at


def _rightly_gone(facts: Facts, key: Key) -> bool:
    """Whether its way, from the queue that it was sent to and as its records tell, ends deleted or in a dead queue."""
    queue, seen = facts.messages[key].queue, set()
    while queue not in seen:
        seen.add(queue)
        if queue not in facts.queues:
            return True
        recorded = facts.records[queue].get(key)
        if recorded is None:
            return False
        if recorded.record.deleted_at is not None:
            return True
        if recorded.record.moved_to is None:
            return True
        queue = recorded.record.moved_to
    return False


def _is_of_before(facts: Facts, call: Call | None) -> bool:
    """Whether a call began when another ledger lay here: it may have done what it says there, before that one went.
    What it committed here, where its queue never was, is nobody's: upkeep drops it."""
    return call is not None and call.began < facts.began


def judge_messages(facts: Facts, old: dict[Key, Message], new: dict[Key, Message], change: Change) -> list[str]:
    """Judges a commit to `messages`; `facts` are those after it."""
    problems = []
    restorable = {
        key: queue
        for queue in facts.queues
        for key, (_, record) in facts.records[queue].items()
        if key in old and record.deleted_at is not None and record.receipt_id is not None
    }
    for key, message in new.items():
        call = change.actor.call
        is_answered = call is None or (call.ended and call.error is None)
        # Answered when yet another ledger lay here, which may be a backup that has the queue.
        outlived = call is not None and (call.ended or 0) > facts.ended and _is_of_before(facts, call)
        if message.queue not in facts.known and is_answered and not outlived:
            problems.append(f"{key[0][:8]}/{key[1]} is sent to {message.queue}, which never was there")
        if key in old and old[key] != message:
            problems.append(f"{key[0][:8]}/{key[1]} changed")
    for key, message in old.items():
        if key in new:
            continue
        if key in restorable:
            problems.append(f"{key[0][:8]}/{key[1]} was dropped, and its receipt in {restorable[key]} can restore it")
        facts.messages[key] = message
        now = change.actor.clock + 60_000
        for queue in facts.counts_in(key):
            state = facts.status(queue, key, now)
            if state not in GONE:
                problems.append(
                    f"{key[0][:8]}/{key[1]} was dropped, and is {state.value if state else state} in {queue}"
                )
        del facts.messages[key]
    return problems


def _all(receipts: set[str | None]) -> str:
    return ", ".join(sorted(map(_short, receipts)))


def _short(receipt: str | None) -> str:
    return "nobody" if receipt is None else f"receipt {receipt[:6]}"
