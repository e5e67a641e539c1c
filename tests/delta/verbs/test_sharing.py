"""Verbs of threads that wait for each other are one commit, and each has its own answer."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ledger.errors import InvalidParameterValue, LeaseLost, OverLimit, StorageFailed
from ledger.rules.visibility import Verb
from ledger.store.delta.state.choosing import Deal
from ledger.store.delta.state.snapshot import Loaded
from ledger.store.protocol import RUNS, Action

#: Long enough for a thread to stand in a line, on a busy machine.
SOON = 20.0


@pytest.fixture
def ledger(open_ledger):
    return open_ledger()


@pytest.fixture
def queue(ledger):
    queue = ledger.create_queue("jobs", {"Lanes": 1, "VisibilityTimeout": 60})
    queue.send([f"{n}" for n in range(20)])
    return queue


class Line:
    """Calls that wait in one line, behind a commit to the same queue that stands still; `commits` counts theirs."""

    def __init__(self, ledger, queue, table="visibility"):
        self._store, self._key, self._table = ledger.store, (table, queue.id), table

    def run(self, *calls):
        """What each call returns, or the error that it raises."""
        turns = self._store.transactions._turns
        with ThreadPoolExecutor(len(calls)) as threads:
            with turns.of(self._key):
                futures = []
                for number, call in enumerate(calls):
                    futures.append(threads.submit(call))
                    waiting = threading.Event()
                    while turns.waiting(self._key) < number + 1:
                        assert not futures[-1].done(), futures[-1].exception()
                        waiting.wait(0.001)
                before = self._store.engine.version(self._table)
            answers = [future.exception(SOON) or future.result() for future in futures]
        self.commits = self._store.engine.version(self._table) - before
        return answers


@pytest.fixture
def line(ledger, queue):
    return Line(ledger, queue)


def test_receives_that_wait_for_each_other_are_one_commit_of_claims_that_have_nothing_in_common(line, queue):
    claims = line.run(*[lambda: queue.receive(4)] * 5)
    assert line.commits == 1
    assert [claim.count for claim in claims] == [4] * 5
    assert len({claim.receipt_id for claim in claims}) == 5
    assert sorted(int(m.body) for claim in claims for m in claim) == list(range(20))
    assert {claim.version for claim in claims} == {claims[0].version}
    granted = [(m.receipt_id, m.messages) for m in receipts(line, "granted")]
    assert sorted(granted) == sorted((claim.receipt_id, 4) for claim in claims)


def receipts(line, event):
    from types import SimpleNamespace

    store = line._store
    last = store.engine.history("visibility", store.engine.version("visibility") - 1)[-1]
    return [SimpleNamespace(**entry) for entry in last.metadata["events"] if entry["event"] == event]


def test_what_went_together_is_counted(ledger, line, queue):
    tally = ledger.store.transactions.tally
    before = tally.commits()
    line.run(*[lambda: queue.receive(2)] * 3)
    assert tally.groups()["visibility", 3] == 1
    assert tally.commits()["receive"] - before.get("receive", 0) == 1 and tally.conflicts() == {}


def test_a_receive_finds_what_a_release_before_it_in_the_same_commit_has_freed(line, queue):
    held = queue.receive(None)
    released, claim = line.run(held.release, lambda: queue.receive(None))
    assert (line.commits, released.messages, claim.count) == (1, 20, 20)
    assert {m.receive_count for m in claim} == {2}


def test_what_comes_first_in_the_line_counts_and_the_second_is_told_so(line, queue):
    held = queue.receive(3)
    again = queue.claim(held.receipt_id)
    deleted, error = line.run(held.delete, again.release)
    assert (line.commits, deleted.messages) == (1, 3)
    assert isinstance(error, LeaseLost)
    assert queue.counts().deleted == 3


@pytest.mark.parametrize("first", ["reject", "receive"])
def test_a_rejection_and_a_receive_agree_of_a_queue_that_is_its_own_dead_letter_queue(line, queue, clock, first):
    """A commit has the targets of one of its verbs: the rejection leaves the queue itself out, the receive does not."""
    queue.set_attributes({"RedrivePolicy": {"deadLetterTargetArn": "jobs", "maxReceiveCount": 1}})
    old, held = queue.receive(10), queue.receive(1, 600)
    clock.advance(61)
    runs = held.grant.runs.select(RUNS.names)
    action = Action(Verb.CHANGE, held.receipt_id, runs, 0, True, reason="no good")
    calls = {
        "reject": lambda: queue.access.store.reject(queue.access.record(), [action], queue.access.clock),
        "receive": lambda: queue.receive(None),
    }
    order = [first, *({*calls} - {first})]
    answers = dict(zip(order, line.run(*(calls[name] for name in order))))
    assert line.commits == 1 and answers["reject"] is None, "there is no other queue"
    assert [m.receive_count for m in answers["receive"]] == [1] * 9, "those of before begin anew, and are not granted"
    assert queue.claim(held.receipt_id).count == 1 and queue.receive(None).count == old.count


def test_an_error_is_one_verbs_own_and_leaves_nothing(line, queue):
    queue.receive(2, attempt_id="a")
    claim, error, other = line.run(
        lambda: queue.receive(3), lambda: queue.receive(1, attempt_id="a"), lambda: queue.receive(4)
    )
    assert isinstance(error, InvalidParameterValue)
    assert (line.commits, claim.count, other.count, queue.counts().in_flight) == (1, 3, 4, 9)


def test_two_runs_of_one_attempt_get_one_claim(line, queue):
    one, two = line.run(*[lambda: queue.receive(2, attempt_id="a")] * 2)
    assert one.receipt_id == two.receipt_id
    assert queue.counts().in_flight == 2


def test_claims_of_one_message_have_versions_that_grow_whoever_waits_beside_whom(ledger, clock):
    """A receive for 0 seconds holds nothing, so the next one gets the message: in a commit of its own."""
    queue = ledger.create_queue("short", {"Lanes": 1})
    queue.send(["a"])
    claims = Line(ledger, queue).run(*[lambda: queue.receive(1, visibility_timeout=0)] * 3)
    assert [claim.count for claim in claims] == [1, 1, 1]
    assert len({claim.version for claim in claims}) == 3
    assert sorted(m.receive_count for claim in claims for m in claim) == [1, 2, 3]


def test_who_gets_what_a_claim_that_was_granted_again_released_has_a_later_version(line, queue):
    held = queue.receive(2, attempt_id="a")
    again, released, other = line.run(
        lambda: queue.receive(2, attempt_id="a"), held.release, lambda: queue.receive(None)
    )
    assert (again.receipt_id, released.messages, other.count) == (held.receipt_id, 2, 20)
    assert again.version < other.version


def test_quotas_hold_within_a_commit(ledger, line, monkeypatch):
    monkeypatch.setattr("ledger.rules.limits.MAXIMUM_IN_FLIGHT", 5)
    queue = ledger.create_queue("small", {"Limits": "SQS", "Lanes": 1})
    queue.send(["a", "b", "c", "d"])
    queue.send(["e", "f", "g", "h"])
    line = Line(ledger, queue)
    found = line.run(*[lambda: queue.receive(2)] * 4)
    assert [one if isinstance(one, OverLimit) else one.count for one in found][:3] == [2, 2, 1]
    assert isinstance(found[3], OverLimit)
    assert line.commits == 1


def test_fifo_receives_do_not_share_a_group(ledger):
    queue = ledger.create_queue("line.fifo", {"FifoQueue": True, "Lanes": 2})
    queue.send(
        [{"MessageBody": f"{n}", "MessageGroupId": "ab"[n % 2], "MessageDeduplicationId": str(n)} for n in range(6)]
    )
    line = Line(ledger, queue)
    first, second, third = line.run(*[lambda: queue.receive(2)] * 3)
    assert [[m.body for m in claim] for claim in (first, second, third)] == [["0", "2"], ["1", "3"], []]
    assert line.commits == 1


def test_sends_that_wait_for_each_other_are_one_commit_and_each_has_its_ids(ledger, queue):
    line = Line(ledger, queue, "messages")
    sent = line.run(*[lambda n=n: queue.send([f"{n} {m}" for m in range(n + 1)]) for n in range(5)])
    assert line.commits == 1
    assert [[queue.peek(one).body for one in ids] for ids in sent] == [
        [f"{n} {m}" for m in range(n + 1)] for n in range(5)
    ]


def test_large_sends_make_one_commit_at_a_time_and_share_it_up_to_a_size(ledger, queue):
    """If each made its own commit at once, their commits would lose to each other, and those of other queues, too."""
    line = Line(ledger, queue, "messages")
    sent = line.run(*[lambda n=n: queue.send([f"{n}" * 100_000] * 3) for n in range(5)])
    assert line.commits == 2
    assert [{queue.peek(one).body[:2] for one in ids} for ids in sent] == [{f"{n}{n}"} for n in range(5)]


def test_sends_to_a_queue_with_a_bound_wait_for_each_other_and_share_nothing(ledger):
    queue = ledger.create_queue("bounded", {"Lanes": 1, "MaximumMessages": 5})
    line = Line(ledger, queue, "messages")
    answers = line.run(*[lambda n=n: queue.send([f"{n}"] * 2) for n in range(3)])
    assert line.commits == 2
    assert [isinstance(one, OverLimit) for one in answers] == [False, False, True]


def test_fifo_sends_in_one_commit_are_deduplicated_and_in_the_order_of_the_line(ledger):
    queue = ledger.create_queue("line.fifo", {"FifoQueue": True, "Lanes": 2, "ContentBasedDeduplication": True})
    line = Line(ledger, queue, "messages")
    sent = line.run(*[lambda body=body: queue.send([{"MessageBody": body, "MessageGroupId": "g"}]) for body in "abac"])
    assert line.commits == 1
    assert sent[0][0].message_id == sent[2][0].message_id
    assert [m.body for m in queue.receive(None)] == ["a", "b", "c"]


class Reads:
    """The store's reader of messages, which counts how often it is asked."""

    def __init__(self, files):
        self._files, self.count = files, 0

    def messages(self, *given):
        self.count += 1
        return self._files.messages(*given)


@pytest.fixture
def reads(ledger, monkeypatch):
    found = Reads(ledger.store.engine)
    monkeypatch.setattr(ledger.store._reader, "_files", found)
    return found


def sent_by_others(ledger):
    """Let a ledger forget what it sent: as if another process had sent it."""
    ledger.store.recent.forget()


def test_claims_that_are_read_at_the_same_time_are_one_read_and_each_has_its_messages(ledger, queue, reads):
    sent_by_others(ledger)
    claims = queue.receive_many([(3, None, None)] * 5)
    # What is read is no table's commit: the line of readers has a name of its own.
    line = Line(ledger, queue)
    line._key = "reading", queue.id
    found = line.run(*[claim.messages for claim in claims])
    assert reads.count == 1
    assert [[message.message_id for message in some] for some in found] == [
        [message.message_id for message in claim] for claim in claims
    ]
    assert [len(some) for some in found] == [3] * 5
    assert [some[0].receipt_handle.split(".")[-2] for some in found] == [claim.receipt_id for claim in claims]


def test_fifo_claims_that_are_read_together_keep_their_orders(ledger, reads):
    queue = ledger.create_queue("events.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True, "Lanes": 2})
    for number in range(12):
        queue.send([{"MessageBody": f"{number}", "MessageGroupId": f"g{number % 4}"}])
    sent_by_others(ledger)
    claims = queue.receive_many([(3, None, None)] * 3)
    line = Line(ledger, queue)
    line._key = "reading", queue.id
    found = line.run(*[claim.messages for claim in claims])
    alone = [[message.body for message in claim] for claim in claims]
    assert [[message.body for message in some] for some in found] == alone and sum(map(len, alone)) == 9


def test_a_failure_of_the_storage_is_everybodys(ledger, line, queue, monkeypatch):
    held = queue.receive(3)

    def fails(*arguments):
        raise StorageFailed("there", "no space left")

    monkeypatch.setattr(ledger.store.engine, "merge", fails)
    found = line.run(held.extend, lambda: queue.receive(1), held.release)
    assert [type(error) for error in found] == [StorageFailed] * 3
    assert [error.verb for error in found] == ["extend", "receive", "release"]
    assert len({id(error) for error in found}) == 3, "each thread raises an error of its own"
    monkeypatch.undo()
    assert (line.commits, queue.counts().in_flight) == (0, 3)


def test_nobody_is_told_what_others_would_have_done_in_a_commit_that_failed(ledger, line, queue, monkeypatch):
    """The second one's lease is over only because of the first one's delete."""
    held = queue.receive(3)
    again = queue.claim(held.receipt_id)

    def fails(*arguments):
        raise StorageFailed("there", "no space left")

    monkeypatch.setattr(ledger.store.engine, "merge", fails)
    found = line.run(held.delete, again.extend)
    monkeypatch.undo()
    assert [type(error) for error in found] == [StorageFailed] * 2
    again.extend()


class Ended(BaseException):
    """As KeyboardInterrupt, which would end the tests."""


def test_when_the_thread_that_commits_is_ended_the_others_are_told_that_nobody_knows(ledger, line, queue, monkeypatch):
    held = queue.receive(3)
    merge = ledger.store.engine.merge

    def ended(*arguments):
        merge(*arguments)
        raise Ended

    monkeypatch.setattr(ledger.store.engine, "merge", ended)
    first, second = line.run(lambda: queue.receive(1), held.delete)
    monkeypatch.undo()
    assert isinstance(first, Ended)
    assert isinstance(second, StorageFailed) and second.unknown
    assert line.commits == 1
    assert held.delete().messages == 0, "it was deleted; called again, nothing is left to do"


def test_a_group_that_loses_to_another_process_decides_anew(ledger, line, queue, open_ledger):
    other, taken = open_ledger().queue("jobs"), []
    ledger.store.transactions.on_step = lambda step: step == "chosen" and (taken or taken.append(other.receive(5)))
    claims = line.run(*[lambda: queue.receive(5)] * 3)
    assert [claim.count for claim in claims] == [5, 5, 5]
    assert sorted(int(m.body) for claim in (*claims, taken[0]) for m in claim) == list(range(20))


def test_verbs_of_queues_that_were_changed_in_between_do_not_go_together(ledger, line, queue):
    changed = ledger.queue("jobs")
    held = queue.receive(1)

    def receive():
        return changed.receive(1)

    changed.set_attributes({"VisibilityTimeout": 5})
    claim, extended = line.run(receive, held.extend)
    assert (claim.count, extended.messages) == (1, 1)


def test_a_stale_handle_in_a_group_changes_nothing(line, queue, clock):
    held = queue.receive(2)
    clock.advance(100)
    claim, error = line.run(lambda: queue.receive(None), held.extend)
    assert claim.count == 20
    assert isinstance(error, LeaseLost)


@pytest.fixture
def decisions(ledger, monkeypatch):
    """Count the decisions that the commits of a test are made of."""
    found, commit_of = [], Loaded.commit_of

    def counted(loaded, decisions, answer):
        found.append(len(decisions))
        return commit_of(loaded, decisions, answer)

    monkeypatch.setattr(Loaded, "commit_of", counted)
    return found


def test_receives_and_deletes_of_one_commit_are_decided_at_once(line, queue, decisions):
    handles = [[message.receipt_handle for message in queue.receive(3)] for _ in range(3)]
    decisions.clear()
    calls = [call for some in handles for call in (lambda some=some: queue.delete(some), lambda: queue.receive(2))]
    found = line.run(*calls)
    assert (line.commits, decisions) == (1, [2])
    assert [one.outcome for some in found[::2] for one in some] == ["deleted"] * 9
    assert [claim.count for claim in found[1::2]] == [2] * 3
    assert len({message.message_id for claim in found[1::2] for message in claim}) == 6
    assert sum(m.messages for m in receipts(line, "deleted")) == 9


def test_calls_that_name_one_message_are_decided_one_after_the_other(line, queue, decisions):
    handles = [message.receipt_handle for message in queue.receive(3)]
    decisions.clear()
    found = line.run(lambda: queue.delete(handles[:2]), lambda: queue.delete(handles[1:]))
    assert (line.commits, decisions) == (1, [2])
    assert [[one.outcome for one in some] for some in found] == [["deleted"] * 2, ["already deleted", "deleted"]]


def test_an_error_of_a_joint_decision_is_met_by_the_verb_that_causes_it_alone(line, queue, monkeypatch):
    def take(deal, maximum):
        if maximum == 7:
            raise MemoryError("of one verb")
        return taken(deal, maximum)

    taken = Deal.take
    monkeypatch.setattr(Deal, "take", take)
    first, error, last = line.run(*[lambda most=most: queue.receive(most) for most in (3, 7, 4)])
    assert isinstance(error, MemoryError)
    assert (line.commits, first.count, last.count, queue.counts().in_flight) == (1, 3, 4, 7)
