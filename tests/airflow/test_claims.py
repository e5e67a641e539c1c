"""Claims that a dead process of a task left behind. Nothing of Airflow's is asked here."""

from ledger import Ledger
from ledger.airflow.claims import give_back


def test_all_that_a_dead_process_held_is_given_back_however_long_it_held_it(tmp_path):
    queue = Ledger.open(str(tmp_path / "ledger")).create_queue("flights", {"VisibilityTimeout": 60, "Lanes": 1})
    queue.send([str(number) for number in range(6)])
    claim = queue.receive(4, 600, attempt_id="task/0")
    queue.change_visibility(claim.messages()[0].receipt_handle, 3_600)
    other = queue.receive(1, attempt_id="another/0")
    assert give_back(queue, "task") == 4
    assert (queue.counts().visible, queue.counts().in_flight, other.count) == (5, 1, 1)
