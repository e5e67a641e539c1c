"""Claims that a dead process of a task left behind. Nothing of Airflow's is asked here."""

from ledger import Ledger
from ledger.airflow.claims import describe_claim, give_back, was_acknowledged
from tests.clock import FrozenClock


def test_all_that_a_dead_process_held_is_given_back_however_long_it_held_it(tmp_path):
    queue = Ledger.open(str(tmp_path / "ledger")).create_queue("flights", {"VisibilityTimeout": 60, "Lanes": 1})
    queue.send([str(number) for number in range(6)])
    claim = queue.receive(4, 600, attempt_id="task/0")
    queue.change_visibility(claim.messages()[0].receipt_handle, 3_600)
    other = queue.receive(1, attempt_id="another/0")
    assert give_back(queue, "task") == 4
    assert (queue.counts().visible, queue.counts().in_flight, other.count) == (5, 1, 1)


def test_a_claim_whose_messages_became_dead_letters_was_not_acknowledged(tmp_path):
    """A retried task would be green, with its work undone."""
    clock = FrozenClock()
    ledger = Ledger.open(str(tmp_path / "ledger"), clock=clock)
    dead = ledger.create_queue("dead")
    policy = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1}
    queue = ledger.create_queue("flights", {"VisibilityTimeout": 60, "RedrivePolicy": policy})
    queue.send(["a", "b"])
    lost, done = queue.receive(1), queue.receive(1)
    descriptions = describe_claim(lost), describe_claim(done)
    done.delete()
    clock.advance(61)
    assert not queue.receive(None) and dead.counts().visible == 1
    assert [was_acknowledged(queue, one, ledger.queue) for one in descriptions] == [False, True]
    dead.receive(None).delete()
    assert not was_acknowledged(queue, descriptions[0], ledger.queue), "by somebody else, as a dead letter"
    ledger.delete_queue("dead")
    assert was_acknowledged(queue, descriptions[0], ledger.queue), "nobody can tell"
