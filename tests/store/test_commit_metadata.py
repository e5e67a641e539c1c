"""What a commit says of itself counts if the ledger made it: others write what they like, and are told of nothing."""

import json

import pytest

from ledger.store.delta.engine import ledger_metadata_in

OURS = {
    "operation": "0f",
    "verb": "receive",
    "queue": "jobs-1",
    "at": 1,
    "owner": "me",
    "events": [{"event": "granted"}],
    "read": {"messages": 1},
}


def test_what_the_ledger_says_is_told_as_it_stands():
    for less in ((), ("read",), ("events", "queue", "owner"), ("events", "verb", "at", "read")):
        said = {name: value for name, value in OURS.items() if name not in less}
        assert ledger_metadata_in(json.dumps(said)) == said


@pytest.mark.parametrize(
    "change",
    [
        *({name: wrong} for name in ("operation", "verb", "queue") for wrong in (None, 1)),
        *({"at": wrong} for wrong in (None, "noon", 1.5)),
        *({"events": wrong} for wrong in (None, 5, "no")),
        *({"read": wrong} for wrong in (None, [], {"messages": "1"})),
    ],
    ids=str,
)
def test_what_others_say_is_nothing(change):
    assert ledger_metadata_in(json.dumps({**OURS, **change})) == {}


@pytest.mark.parametrize("missing", ["operation", "queue", "at", "owner"])
def test_what_tells_of_messages_says_whose_and_when(missing):
    assert ledger_metadata_in(json.dumps({name: value for name, value in OURS.items() if name != missing})) == {}


@pytest.mark.parametrize("text", [None, "", "{}", "nightly", "[1]", "5", "null", '{"job": 1}', "[" * 100_000])
def test_what_is_no_object_of_ours_is_nothing(text):
    assert ledger_metadata_in(text) == {}
