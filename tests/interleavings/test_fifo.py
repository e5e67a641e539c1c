"""Sends and receives of a FIFO queue in every order."""

import pytest


def make(ledger, lanes=1, **attributes):
    return ledger.create_queue("jobs.fifo", {"FifoQueue": True, "Lanes": lanes, **attributes})


def send(queue, body, group="g", deduplication=None):
    (sent,) = queue.send(body, message_group_id=group, message_deduplication_id=deduplication or body)
    return sent


def sending(body, group="g", deduplication=None):
    return lambda ledger: send(ledger.queue("jobs.fifo"), body, group, deduplication)


def receiving(most=None, timeout=60):
    def run(ledger):
        claim = ledger.queue("jobs.fifo").receive(most, timeout)
        return [message.body for message in claim]

    return run


def test_two_sends_of_one_deduplication_id_are_one_message(ledger, every_interleaving):
    """12 interleavings: both are answered the same id, and one message is stored."""
    make(ledger)

    def check(outcome):
        first, second = outcome.answers
        assert first == second
        assert outcome.ledger.queue("jobs.fifo").counts().stored == 1

    assert every_interleaving([sending("a", deduplication="d"), sending("b", deduplication="d")], check) == 12


@pytest.mark.soak
def test_what_is_sent_has_an_order_that_is_the_order_of_the_commits(ledger, every_interleaving):
    """198 interleavings of three sends of one group: what had been answered before another began comes before it."""
    make(ledger)

    def check(outcome):
        claim = outcome.ledger.queue("jobs.fifo").receive(None)
        order = [message.message_id for message in claim]
        assert sorted(order) == sorted(outcome.answers)
        numbers = [message.sequence_number for message in claim]
        assert numbers == sorted(set(numbers))
        ended = {who: max(n for n, one in enumerate(outcome.order) if one == who) for who in range(3)}
        began = {who: outcome.order.index(who) for who in range(3)}
        for one in range(3):
            for other in range(3):
                if ended[one] < began[other]:
                    assert order.index(outcome.answers[one]) < order.index(outcome.answers[other])

    assert every_interleaving([sending("a"), sending("b"), sending("c")], check) == 198


@pytest.mark.soak_variants("attempts1")
@pytest.mark.parametrize("attempts", [("one", "other"), ("one", "one")])
def test_two_calls_of_several_receives_share_no_group_and_no_attempt(ledger, every_interleaving, attempts):
    """24 interleavings: each call has two requests, the first one with an attempt id."""
    queue = make(ledger, 2)
    for group in "abc":
        send(queue, f"{group}1", group)
        send(queue, f"{group}2", group)

    def receiving_many(attempt):
        def run(ledger):
            claims = ledger.queue("jobs.fifo").receive_many([(1, 60, attempt), (2, 60)])
            return [(claim.receipt_id, [message.body for message in claim]) for claim in claims]

        return run

    def check(outcome):
        (first, *_), (second, *_) = outcome.answers
        assert (first == second) == (attempts[0] == attempts[1]), "the same attempt gets the same claim"
        held = {receipt: bodies for answer in outcome.answers for receipt, bodies in answer if receipt}
        groups = [{body[0] for body in bodies} for bodies in held.values()]
        assert sum(map(len, groups)) == len(set().union(*groups)), "a group is held twice"
        for bodies in held.values():
            assert all(f"{body[0]}1" in bodies for body in bodies) and bodies == sorted(bodies)
        assert outcome.ledger.queue("jobs.fifo").counts().in_flight == sum(map(len, held.values()))

    assert every_interleaving([receiving_many(attempt) for attempt in attempts], check) == 24


@pytest.mark.soak_variants("1-24")
@pytest.mark.parametrize(("lanes", "orders"), [(1, 24), (2, 24)])
def test_two_receives_get_different_groups_in_order(ledger, every_interleaving, lanes, orders):
    """24 and 24 interleavings, with the two groups in one lane and in two."""
    queue = make(ledger, lanes)
    for group in "ac":
        send(queue, f"{group}1", group)
        send(queue, f"{group}2", group)

    def check(outcome):
        first, second = outcome.answers
        assert sorted(map(len, outcome.answers)) in ([0, 2], [2, 2])
        for got in outcome.answers:
            for group in {body[0] for body in got}:
                its = [body for body in got if body[0] == group]
                assert its == sorted(its) and its[0].endswith("1")
        assert not {body[0] for body in first} & {body[0] for body in second}, "a group is held twice"
        assert outcome.ledger.queue("jobs.fifo").counts().in_flight == len(first) + len(second)

    assert every_interleaving([receiving(2), receiving(2)], check) == orders


@pytest.mark.soak
def test_a_group_is_not_received_past_a_member_that_another_receive_holds(ledger, every_interleaving):
    """80 interleavings of two receives of one message each, and a send to the same group."""
    queue = make(ledger)
    send(queue, "g1")
    send(queue, "g2")

    def check(outcome):
        first, second, _ = outcome.answers
        assert sorted([first, second]) == [[], ["g1"]]

    assert every_interleaving([receiving(1), receiving(1), sending("g3")], check) == 80


def test_a_delete_frees_its_group_for_the_next_receive_and_no_earlier(ledger, every_interleaving):
    """16 interleavings of a delete and two receives."""
    queue = make(ledger)
    send(queue, "g1")
    send(queue, "g2")
    handle = queue.receive(1, 60).messages()[0].receipt_handle

    def check(outcome):
        (deleted,), *received = outcome.answers
        assert deleted == "deleted" and sorted(received) in ([[], []], [[], ["g2"]])

    delete = lambda ledger: [one.outcome for one in ledger.queue("jobs.fifo").delete([handle])]  # noqa: E731
    assert every_interleaving([delete, receiving(), receiving()], check) == 16
