def test_a_receive_of_nothing_says_what_is_in_flight_and_until_when(cli, queue):
    queue.send(["a", "b"])
    assert cli("receive", "work", "--max", "2").code == 0
    ran = cli("receive", "work")
    assert ran.code == 0 and "no message of work is visible: 2 in flight, the first until 20" in ran.out + ran.err


def test_a_release_says_why_and_the_history_has_it(cli, queue):
    queue.send("a")
    claim = queue.receive()
    assert cli("release", "work", "--receipt", claim.receipt_id, "--reason", "no disk").code == 0
    assert "no disk" in cli("history", "work").out
    ran = cli("history", "work", "--receipt", "nonsense")
    assert ran.code == 1 and "nothing is known of a receipt nonsense of work" in ran.err
