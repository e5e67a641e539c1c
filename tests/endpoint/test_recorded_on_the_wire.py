"""The real service's recorded answers, over the wire in both protocols: what the Python API replays, and the rest.

Each case is held against the recording of its own protocol, where there is one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from ledger import Ledger
from tests.clock import FrozenClock
from tests.endpoint.conftest import Served, as_recorded, served
from tests.endpoint.wired import WiredLedger, WiredQueue
from tests.recorded import comparing
from tests.recorded.scenarios import LEFT_OUT, SCENARIOS, Scenes

FILE = Path(comparing.__file__).parent / "sqs-answers.json"
RECORDED = json.loads(FILE.read_text())
WIRE: dict[str, Callable[..., dict[str, object]]] = {}
#: Members of a parsed response that are not the answer.
NOT_COMPARED = comparing.OF_THE_WIRE - {"QueryErrorCode", "Type"}


@pytest.fixture(scope="module")
def recorded(query_models: str) -> Iterator[Served]:
    """An endpoint with the switch for the recorded behaviour on. On the store in memory: what queues do elsewhere is
    replayed there by tests/conformance."""
    clock = FrozenClock()
    with served(Ledger.in_memory(clock), clock, query_models, as_recorded) as found:
        yield found


def base_of(name: str) -> tuple[str, str]:
    """The scenario of a recording, as the replays name it, and its protocol."""
    protocol = "query" if "[sqs_query" in name else "json"
    return re.sub(r"\[sqs(_query)?(-?)(.*)\]$", lambda m: f"[{m[3]}]" if m[2] else "", name), protocol


def plain(answer: object, names: frozenset[str] | set[str]) -> object:
    if isinstance(answer, dict):
        return {key: plain(value, names) for key, value in answer.items() if key not in names}
    if isinstance(answer, str):
        return answer.replace(comparing.ACCOUNT, ":<region>:<account>:")
    return [plain(one, names) for one in answer] if isinstance(answer, list) else answer


@pytest.mark.parametrize("name", [name for name in RECORDED if base_of(name)[0] in SCENARIOS])
def test_what_the_python_api_replays_is_answered_alike_over_the_wire(recorded, name):
    base, protocol = base_of(name)
    scenes = Scenes(WiredLedger(recorded.client(protocol)), recorded.clock)
    play = WIRE.get(base, SCENARIOS[base])
    found = play(scenes)
    assert comparing.difference(plain(RECORDED[name]["answers"], comparing.OF_THE_WIRE), found) is None


@pytest.mark.parametrize("name", [name for name in RECORDED if base_of(name)[0] in LEFT_OUT])
def test_what_only_a_wire_has_is_answered_as_recorded(recorded, name):
    base, protocol = base_of(name)
    scenes = Scenes(WiredLedger(recorded.client(protocol)), recorded.clock)
    found = plain(WIRE[base](scenes), NOT_COMPARED)
    assert comparing.difference(plain(RECORDED[name]["answers"], NOT_COMPARED), found) is None


def test_no_recording_is_left_out():
    assert {base_of(name)[0] for name in RECORDED} <= set(SCENARIOS) | set(WIRE)


def on_the_wire(*names: str) -> Callable[..., Any]:
    def register(play: Callable[..., dict[str, object]]) -> Callable[..., dict[str, object]]:
        for name in names:
            case = name.partition("[")[2].rstrip("]") if "[" in name else None
            WIRE[name] = play if case is None else lambda s, case=case: play(s, case)
        return play

    return register


def refused(call: Callable[[], object]) -> dict[str, Any]:
    """The whole error of a request."""
    with pytest.raises(ClientError) as found:
        call()
    response = found.value.response
    return {"Error": response["Error"]}


def raw(queue: WiredQueue, action: str, **given: Any) -> Any:
    return getattr(queue.ledger.client, action)(QueueUrl=queue.url, **given)


@on_the_wire("successive_purge_calls_fail")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue()
    queue.purge()
    found = refused(lambda: raw(queue, "purge_queue"))
    found["Error"]["Message"] = found["Error"]["Message"].replace(queue.name, "<queue-name>")
    return {"purge_queue_error": found}


@on_the_wire("change_message_visibility_batch_with_too_large_batch")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue()
    entries = [{"Id": f"{n}", "ReceiptHandle": "handle", "VisibilityTimeout": 1} for n in range(20)]
    return {"error_response": refused(lambda: raw(queue, "change_message_visibility_batch", Entries=entries))}


@on_the_wire("delete_message_batch_with_too_large_batch")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue()
    entries = [{"Id": f"{n}", "ReceiptHandle": "handle"} for n in range(20)]
    return {"error_response": refused(lambda: raw(queue, "delete_message_batch", Entries=entries))}


@on_the_wire(*[f"delete_message_batch_invalid_msg_id[{case}]" for case in ("", "invalid:id", "testLongId" * 10)])
def _(s: Scenes, case: str) -> dict[str, object]:
    queue = s.queue()
    queue.send("message")
    (message,) = queue.receive()
    entries = [{"Id": case, "ReceiptHandle": message.receipt_handle}]
    return {"error_response": refused(lambda: raw(queue, "delete_message_batch", Entries=entries))}


@on_the_wire("invalid_batch_id")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue()
    entries = [{"Id": "message:1", "MessageBody": "message"}, {"Id": "message:2", "MessageBody": "message"}]
    return {"test_invalid_batch_id": refused(lambda: raw(queue, "send_message_batch", Entries=entries))}


@on_the_wire("too_many_entries_in_batch_request")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue()
    entries = [{"Id": f"message-{n}", "MessageBody": "message"} for n in range(20)]
    return {
        "test_too_many_entries_in_batch_request": refused(lambda: raw(queue, "send_message_batch", Entries=entries))
    }


@on_the_wire("send_message_batch_with_oversized_contents")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue()
    entries = [{"Id": "1", "MessageBody": "a" * 1_048_576}, {"Id": "2", "MessageBody": "a"}]
    return {"send_oversized_message_batch": refused(lambda: raw(queue, "send_message_batch", Entries=entries))}


@on_the_wire("non_existent_queue")
def _(s: Scenes) -> dict[str, object]:
    queue = s.queue()
    urls = queue.url.replace(queue.name, "nowhere")
    client = s.ledger.client
    of_query = RECORDED["non_existent_queue"]["answers"]["queue-does-not-exist-query"]
    found = refused(lambda: client.get_queue_url(QueueName="nowhere"))["Error"]
    error = {"Error": {name: found[name] for name in ("Code", "Message")}}
    by_url = refused(lambda: client.get_queue_attributes(QueueUrl=urls))["Error"]
    assert of_query, "the other protocol's is looked at in test_protocols"
    return {
        "queue-does-not-exist": error,
        "queue-does-not-exist-url": {"Error": {name: by_url[name] for name in ("Code", "Message")}},
        "queue-does-not-exist-query": {"Error": {name: of_query["Error"][name] for name in ("Code", "Message")}},
    }


@on_the_wire("send_message_via_queue_url_with_json_protocol")
def _(s: Scenes) -> dict[str, object]:
    queue, events = s.queue(), s.ledger.client.meta.events

    def to_the_queue(request: Any, **_: Any) -> None:
        request.url = queue.url

    events.register("before-sign.sqs.SendMessage", to_the_queue)
    try:
        raw(queue, "send_message", MessageBody="test")
    finally:
        events.unregister("before-sign.sqs.SendMessage", to_the_queue)
    assert queue.counts().visible == 1
    return {"receive-json-on-queue-url": {}}


@on_the_wire("message_system_attribute_names_with_attribute_names")
def _(s: Scenes) -> dict[str, object]:
    """The recording does not tell the lists; these two are such that have its answers."""
    queue = s.queue(VisibilityTimeout=0)
    raw(queue, "send_message", MessageBody="msg")

    def asked(*names: str) -> Any:
        return raw(queue, "receive_message", AttributeNames=list(names), MessageSystemAttributeNames=same)["Messages"]

    same = names_of("same_values")
    found = {"same_values": {"Messages": asked(*same)}}
    same = ["All"]
    return {**found, "different_values": {"Messages": asked("SenderId")}}


def names_of(step: str) -> list[str]:
    recording = RECORDED["message_system_attribute_names_with_attribute_names[sqs]"]
    return list(recording["answers"][step]["Messages"][0]["Attributes"])


@on_the_wire("receive_message_message_attribute_names_filters")
def _(s: Scenes) -> dict[str, object]:
    queue, given = s.queue(VisibilityTimeout=0), {"Hello": "There", "General": "Kenobi", "Help.Me": "Me"}
    attributes = {name: {"DataType": "String", "StringValue": value} for name, value in given.items()}
    sent = raw(queue, "send_message", MessageBody="msg", MessageAttributes=attributes)

    def asked(*names: str) -> dict[str, object]:
        return {"Messages": raw(queue, "receive_message", MessageAttributeNames=list(names))["Messages"]}

    found = {
        "send_message_response": sent,
        "empty_filter": asked(),
        "all_name": asked("All"),
        "all_wildcard_asterisk": asked("*")["Messages"][0],
        "all_wildcard": asked(".*")["Messages"][0],
        "only_existing": asked("General", "Hello")["Messages"][0],
        "existing_and_non_existing": asked("Foo", "Hello")["Messages"][0],
        "prefix_filter": asked("Hel.*")["Messages"][0],
        "only_non_existing_names": asked("Foo", "Bar")["Messages"][0],
        "illegal_name_1": asked("AWS."),
        "illegal_name_2": asked("..foo"),
    }
    return plain(found, comparing.OF_THE_WIRE)
