"""A ledger that is there asks its storage again whether it honours conditional puts: a gateway may be changed."""

import pytest

from ledger import Ledger
from ledger.delta_log.object_store import ObjectStore
from ledger.errors import UnsafeStorage
from ledger.store.delta.commit.storage_safety import KEPT, PROBES, TRUSTED_SECONDS, UNKNOWN_SECONDS, PutTrust


@pytest.fixture
def changed(s3):
    """Makes the server ignore conditions, until the test ends."""
    yield s3.ignore_conditions
    s3.ignore_conditions(ignored=False)


@pytest.fixture
def another_process(monkeypatch):
    """What this process knows of storages is forgotten, as another one would begin."""

    def begin():
        monkeypatch.setattr(PutTrust, "_asked", {})

    return begin


@pytest.fixture
def asked(s3, place):
    """The requests about the file that is kept, since the last call."""
    since, kept = [0], f"{place.removeprefix('s3:/')}/{PROBES}/{KEPT}"

    def found():
        every = s3.requests()
        new, since[0] = every[since[0] :], len(every)
        return [(one.method, one.if_none_match) for one in new if one.path.endswith(kept)]

    return found


def test_a_storage_that_ignores_the_condition_since_then_takes_no_send(s3, place, changed, another_process):
    queue = Ledger.open(place, storage_options=s3.options).create_queue("work")
    assert all(queue.send(["a", "b"]))
    changed()
    another_process()
    late = Ledger.open(place, storage_options=s3.options, create=False).queue("work")
    for _ in range(2):
        with pytest.raises(UnsafeStorage, match=r"a gateway or a setting has changed\. Nothing was committed"):
            late.send("c")
    changed(ignored=False)
    assert late.send("d") and sorted(message.body for message in late.receive(None)) == ["a", "b", "d"]


def test_each_process_asks_once_before_its_first_commit_by_one_request(s3, place, another_process, asked):
    queue = Ledger.open(place, storage_options=s3.options).create_queue("work")
    queue.send("a")
    assert asked() == [], "whoever made the ledger has asked"
    for requests in (2, 1, 1):
        another_process()
        queue = Ledger.open(place, storage_options=s3.options).queue("work")
        assert queue.counts().stored and asked() == [], "who only reads asks nothing"
        queue.send("b")
        queue.receive().delete()
        assert asked() == [("PUT", "*")] * requests, "the first one makes the file"


def test_a_process_asks_again_after_an_hour_and_sooner_where_there_was_no_answer(s3, place, another_process, asked):
    now = [1_000_000.0]
    another_process()
    trust = PutTrust(ObjectStore(place, {**s3.options, "max_retries": "0"}), lambda: now[0])
    for passed, requests in ((0, 2), (TRUSTED_SECONDS - 1, 0), (1, 1), (TRUSTED_SECONDS, 1)):
        now[0] += passed
        trust.check()
        assert len(asked()) == requests
    now[0] += TRUSTED_SECONDS
    s3.fail("PUT", KEPT, "403", times=1)
    trust.check()
    assert len(asked()) == 1
    now[0] += UNKNOWN_SECONDS - 1
    trust.check()
    assert asked() == []
    now[0] += 1
    trust.check()
    assert len(asked()) == 1


def test_the_same_names_at_another_endpoint_are_another_storage(s3, place, another_process, asked):
    another_process()
    elsewhere = {**s3.options, **{name: "http://127.0.0.1:9" for name in s3.options if "endpoint" in name}}
    PutTrust(ObjectStore(place, {**elsewhere, "max_retries": "0"})).trust()
    PutTrust(ObjectStore(place, s3.options)).check()
    assert len(asked()) == 2
