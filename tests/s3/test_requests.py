"""How many requests a verb makes on an object store, where a request costs more than all that is computed."""

import pytest

from ledger import Ledger
from tests.s3.server import s3_server


@pytest.fixture
def queue(s3, place):
    queue = Ledger.open(place, storage_options=s3.options, engine="delta-rs").create_queue("jobs", {"Lanes": 1})
    for _ in range(3):
        queue.send(["a", "b", "c", "d"])
        queue.receive(1)
    return queue


@pytest.fixture
def asked(s3):
    """What a verb asked the server for."""

    def of(verb):
        since = len(s3.requests())
        verb()
        return s3.requests()[since:]

    return of


def test_verbs_of_a_claim_make_eight_at_most_and_a_receive_eleven(queue, asked):
    claims = []
    receive = asked(lambda: claims.append(queue.receive(2)))
    (claim,) = claims
    ended = [asked(lambda: claim.extend(60)), asked(claim.release), asked(queue.receive(2).delete)]
    assert [len(claim) for claim in claims] == [2] and len(receive) <= 11
    assert all(0 < len(requests) <= 8 for requests in ended)
    listings = [one.query for requests in (receive, *ended) for one in requests if one.query]
    assert all("start-after" in query for query in listings), "no listing is of a whole log"


def test_a_small_send_makes_five(queue, asked):
    """The queue, the newest version, the file, the commit, and whether it followed what was read."""
    queue.send("a")
    assert len(asked(lambda: queue.send("b"))) <= 5


def test_a_receive_of_nothing_makes_four(queue, asked):
    queue.receive(None).delete()
    assert not queue.receive(10)
    assert len(asked(lambda: queue.receive(10))) <= 4


def test_to_open_a_ledger_reads_the_tables_while_it_asks_the_store_for_its_time(place):
    with s3_server(delay=0.2) as slow:
        Ledger.open(place, storage_options=slow.options)
        since = len(slow.requests())
        Ledger.open(place, storage_options=slow.options)
        requests = slow.requests()[since:]
    (clock,) = (n for n, one in enumerate(requests) if one.method == "HEAD" and "/clock-" in one.path)
    tables = [n for n, one in enumerate(requests) if one.path.endswith("_last_checkpoint")]
    assert len(requests) <= 29 and len(tables) == 5
    assert tables[0] < clock, "the first request to a table came with the one that wrote the file whose time is asked"


def test_a_look_whether_upkeep_is_due_makes_three_and_no_listing_of_a_whole_log(queue, s3, place, asked):
    ledger = Ledger.open(place, storage_options=s3.options)
    ledger.rounds().look()
    requests = asked(ledger.rounds().look)
    assert len(requests) <= 3 and all("start-after" in one.query for one in requests if one.query)


def test_of_two_processes_on_an_object_store_one_gets_the_lease_of_upkeep(queue, s3, place):
    first, second = (Ledger.open(place, storage_options=s3.options).rounds() for _ in range(2))
    looks = first.look(), second.look()
    assert [first.take(looks[0], 0), second.take(looks[1], 0)] == [True, False]
    assert second.look().is_held
    first.give_back(0)
    assert second.take(second.look(), 0)
