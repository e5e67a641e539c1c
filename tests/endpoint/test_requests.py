"""Requests that are wrong, by hand: each is refused as the service does, in its protocol, and harms nobody."""

from __future__ import annotations

import http.client
import json
import logging
import shutil
import socket
import threading
import time
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from deltalake import DeltaTable, TableFeatures

from ledger import Ledger
from ledger.endpoint import application, connections, serving
from ledger.endpoint.application import THROTTLED_SECONDS, Bounds
from tests.clock import FrozenClock
from tests.endpoint.conftest import served, unsigned

ACCOUNT = "123456789012"


@pytest.fixture(scope="module")
def open_endpoint(query_models):
    """An endpoint that takes every request, with a small bound of what it takes at once."""
    clock = FrozenClock()
    bounds = Bounds(request_bytes=100_000, request_seconds=0.3, threads=4)
    with served(Ledger.in_memory(clock), clock, query_models, unsigned, bounds=bounds) as found:
        found.ledger.create_queue("q", {"Limits": "SQS", "Lanes": 1})
        found.ledger.create_queue("wide")
        yield found


def asked(endpoint, body=b"", method="POST", path="/", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=30)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def in_json(endpoint, action, body, **more):
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    status, headers, said = asked(
        endpoint, text, X_Amz_Target=f"AmazonSQS.{action}", Content_Type="application/x-amz-json-1.0", **more
    )
    headers = {name.lower(): value for name, value in headers.items()}
    return status, headers, json.loads(said) if said else None


def in_query(endpoint, body, **more):
    status, _, said = asked(endpoint, body, Content_Type="application/x-www-form-urlencoded", **more)
    found = ElementTree.fromstring(said)
    names = {"": "http://queue.amazonaws.com/doc/2012-11-05/"}
    return status, found.findtext("Error/Code", namespaces=names), found.findtext("Error/Message", namespaces=names)


URL = f"http://anything.example/{ACCOUNT}/q"


@pytest.mark.parametrize(
    ("action", "body", "kind", "code"),
    [
        ("NoAction", {}, "UnknownOperationException", "InvalidAction"),
        ("SendMessage", b"{", "SerializationException", "MalformedInput"),
        ("SendMessage", b"[]", "SerializationException", "MalformedInput"),
        ("SendMessage", b'{"MessageBody": "a", "MessageBody": "b"}', "SerializationException", "MalformedInput"),
        ("SendMessage", b"\xff\xfe", "SerializationException", "MalformedInput"),
        ("SendMessage", b"[" * 50_000, "SerializationException", "MalformedInput"),
        ("SendMessage", {"QueueUrl": URL}, "MissingRequiredParameterException", "MissingParameter"),
        ("SendMessage", {"MessageBody": "x"}, "MissingRequiredParameterException", "MissingParameter"),
        ("SendMessage", {"QueueUrl": 7, "MessageBody": "x"}, "SerializationException", "MalformedInput"),
        ("SendMessage", {"QueueUrl": URL, "MessageBody": ["x"]}, "SerializationException", "MalformedInput"),
        ("SendMessage", {"QueueUrl": URL, "MessageBody": "x", "DelaySeconds": "1"}, "SerializationException",
         "MalformedInput"),
        ("SendMessage", {"QueueUrl": URL, "MessageBody": "x", "DelaySeconds": True}, "SerializationException",
         "MalformedInput"),
        ("SendMessage", {"QueueUrl": URL, "MessageBody": "x", "MessageAttributes": {"a": {"DataType": "Binary",
         "BinaryValue": "no base64"}}}, "SerializationException", "MalformedInput"),
        ("SendMessage", {"QueueUrl": URL, "MessageBody": "\ud800"}, "InvalidMessageContents", "InvalidMessageContents"),
        ("SendMessage", {"QueueUrl": URL, "MessageBody": "x", "DelaySeconds": 901}, "InvalidParameterValueException",
         "InvalidParameterValue"),
        ("SendMessage", {"QueueUrl": "http://x/q", "MessageBody": "x"}, "InvalidAddress", "InvalidAddress"),
        ("SendMessage", {"QueueUrl": "http://x/000000000000/q", "MessageBody": "x"}, "QueueDoesNotExist",
         "AWS.SimpleQueueService.NonExistentQueue"),
        ("SendMessageBatch", {"QueueUrl": URL, "Entries": [{"MessageBody": "x"}]}, "MissingRequiredParameterException",
         "MissingParameter"),
        ("ReceiveMessage", {"QueueUrl": URL, "MaxNumberOfMessages": 0}, "InvalidParameterValueException",
         "InvalidParameterValue"),
        ("ReceiveMessage", {"QueueUrl": URL.replace("/q", "/wide"), "MaxNumberOfMessages": 11},
         "InvalidParameterValueException", "InvalidParameterValue"),
        ("ReceiveMessage", {"QueueUrl": URL.replace("/q", "/wide"), "WaitTimeSeconds": 21},
         "InvalidParameterValueException", "InvalidParameterValue"),
        ("GetQueueAttributes", {"QueueUrl": URL, "AttributeNames": ["No"]}, "InvalidAttributeName",
         "InvalidAttributeName"),
        ("StartMessageMoveTask", {"SourceArn": "no arn"}, "ResourceNotFoundException", "ResourceNotFoundException"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_json_has_a_type_and_a_query_code(open_endpoint, action, body, kind, code):
    status, headers, said = in_json(open_endpoint, action, body)
    assert said["__type"].rpartition("#")[2] == kind and said["message"]
    assert headers["x-amzn-query-error"] == f"{code};Sender" and headers["x-amzn-requestid"]
    assert 400 <= status < 500 and headers["content-type"] == "application/x-amz-json-1.0"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("", "MissingAction"),
        ("Action=NoAction", "InvalidAction"),
        ("Action=SendMessage&QueueUrl=" + URL, "MissingParameter"),
        (f"Action=SendMessage&QueueUrl={URL}&MessageBody=x&DelaySeconds=one", "InvalidParameterValue"),
        (f"Action=SendMessage&QueueUrl={URL}&MessageBody=x&MessageBody=y", "MalformedQueryString"),
        (f"Action=SetQueueAttributes&QueueUrl={URL}&Attribute.1.Name=DelaySeconds&Attribute.1.Value=1"
         "&Attribute.2.Name=DelaySeconds&Attribute.2.Value=2", "MalformedQueryString"),
        (f"Action=SendMessageBatch&QueueUrl={URL}&SendMessageBatchRequestEntry.1.Id=a&Entries.1.Id=b",
         "MalformedQueryString"),
        (f"Action=ReceiveMessage&QueueUrl={URL}&AttributeName=All&AttributeName.1=SentTimestamp",
         "MalformedQueryString"),
        (f"Action=SetQueueAttributes&QueueUrl={URL}&Attribute.Name=DelaySeconds&Attribute.Value=1"
         "&Attribute.1.Name=VisibilityTimeout&Attribute.1.Value=2", "MalformedQueryString"),
        (f"Action=SetQueueAttributes&QueueUrl={URL}&Attribute.Name=DelaySeconds", "MissingParameter"),
        (f"Action=SetQueueAttributes&QueueUrl={URL}&Attribute=DelaySeconds", "MalformedQueryString"),
        (f"Action=SendMessage&QueueUrl={URL}&MessageBody=%ff", "MalformedQueryString"),
        (f"Action=SendMessage&QueueUrl={URL}&MessageBody.1=x", "MalformedQueryString"),
        (f"Action=SendMessageBatch&QueueUrl={URL}&SendMessageBatchRequestEntry.one.Id=x", "MalformedQueryString"),
        (f"Action=SendMessageBatch&QueueUrl={URL}&SendMessageBatchRequestEntry.1=x", "MalformedQueryString"),
        # Recorded: issue 630 of aws-sdk-php, whose request had no entry by that name.
        (f"Action=SendMessageBatch&QueueUrl={URL}", "AWS.SimpleQueueService.EmptyBatchRequest"),
        (f"Action=DeleteMessageBatch&QueueUrl={URL}&Other=x", "AWS.SimpleQueueService.EmptyBatchRequest"),
        (f"Action=ChangeMessageVisibilityBatch&QueueUrl={URL}", "AWS.SimpleQueueService.EmptyBatchRequest"),
        (f"Action=SendMessageBatch&QueueUrl={URL}&SendMessageBatchRequestEntry.1.Id=x", "MissingParameter"),
        (f"Action=SendMessage&QueueUrl={URL}&MessageBody=x&" + "&".join(f"a{n}=1" for n in range(3_000)),
         "MalformedQueryString"),
        (f"Action=SendMessage&QueueUrl={URL}&MessageBody=x&" + "a." * 2_000 + "a=1", "MalformedQueryString"),
        ("Action=GetQueueUrl&QueueName=nowhere", "AWS.SimpleQueueService.NonExistentQueue"),
        (f"Action=DeleteMessage&QueueUrl={URL}&ReceiptHandle=<&>", "ReceiptHandleIsInvalid"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_query_has_its_code_in_xml(open_endpoint, body, code):
    status, found, message = in_query(open_endpoint, body.encode())
    assert (found, 400 <= status < 500) == (code, True) and message


@pytest.mark.parametrize("number", ["0", "01", "10000", "one"])
def test_a_query_is_told_which_numbers_its_parameters_take(open_endpoint, number):
    body = f"Action=ReceiveMessage&QueueUrl={URL}&AttributeName.{number}=All"
    _, code, message = in_query(open_endpoint, body.encode())
    assert code == "MalformedQueryString"
    bound = "the part after AttributeName must be a number from 1 to 9999 without leading zeros"
    assert message == f"In the parameter AttributeName.{number}, {bound}."


def test_an_integer_of_19_digits_in_a_query_is_told_the_bound(open_endpoint):
    body = f"Action=SendMessage&QueueUrl={URL}&MessageBody=x&DelaySeconds={'1' * 19}"
    _, code, message = in_query(open_endpoint, body.encode())
    assert code == "InvalidParameterValue" and "Must be an integer of at most 18 digits" in message


def test_a_list_or_map_of_one_member_needs_no_number_in_a_query(query_models):
    ledger = Ledger.in_memory(FrozenClock())
    with served(ledger, ledger.clock, query_models, unsigned) as found:
        queue = ledger.create_queue("samples")
        at = f"&QueueUrl=http://x/{ACCOUNT}/samples"

        def did(text):
            status, _, said = asked(
                found, f"Action={text}{at}".encode(), Content_Type="application/x-www-form-urlencoded"
            )
            assert status == 200, said
            return said

        did("SetQueueAttributes&Attribute.Name=VisibilityTimeout&Attribute.Value=35")
        assert queue.attributes()["VisibilityTimeout"] == "35"
        assert b"<Value>35</Value>" in did("GetQueueAttributes&AttributeName=All")
        did("TagQueue&Tag.Key=team&Tag.Value=ours")
        assert queue.tags() == {"team": "ours"}
        did("UntagQueue&TagKey=team")
        assert queue.tags() == {}
        did("SendMessageBatch&SendMessageBatchRequestEntry.Id=a&SendMessageBatchRequestEntry.MessageBody=x")
        assert b"<Body>x</Body>" in did("ReceiveMessage&AttributeName=SentTimestamp")


def test_the_query_protocol_says_otherwise_that_there_is_no_queue(open_endpoint):
    _, _, message = in_query(open_endpoint, b"Action=GetQueueUrl&QueueName=nowhere")
    assert message == "The specified queue does not exist for this wsdl version."


def test_a_request_to_a_queues_own_url_is_about_that_queue(open_endpoint):
    path = f"/{ACCOUNT}/q"
    status, _, said = asked(open_endpoint, b"", "GET", f"{path}?Action=SendMessage&MessageBody=a+b%2Bc")
    assert status == 200 and b"SendMessageResult" in said
    status, _, said = in_json(open_endpoint, "ReceiveMessage", {}, path=path)
    assert said["Messages"][0]["Body"] == "a b+c"


def test_a_change_of_visibility_is_answered_as_the_documentation_shows(open_endpoint):
    """S4: in JSON by an empty body, in Query by a response without a result."""
    queue = open_endpoint.ledger.queue("q")
    queue.send("body")
    (message,) = queue.receive()
    given = {"QueueUrl": f"https://sqs.us-east-1.amazonaws.com/{ACCOUNT}/q/", "ReceiptHandle": message.receipt_handle}
    status, headers, said = in_json(open_endpoint, "ChangeMessageVisibility", {**given, "VisibilityTimeout": 60})
    assert (status, said, headers["content-length"]) == (200, None, "0")
    body = f"Action=ChangeMessageVisibility&VisibilityTimeout=43200&ReceiptHandle={message.receipt_handle}"
    status, _, said = asked(open_endpoint, body.encode(), path=f"/{ACCOUNT}/q")
    xml = ElementTree.fromstring(said)
    name = "{http://queue.amazonaws.com/doc/2012-11-05/}"
    assert xml.tag == f"{name}ChangeMessageVisibilityResponse"
    assert [child.tag for child in xml] == [f"{name}ResponseMetadata"]
    queue.delete(message.receipt_handle)


def test_each_error_of_a_change_of_visibility_is_reached_in_both_protocols(open_endpoint):
    """S4 names them; InvalidSecurity is in test_signatures, RequestThrottled below."""
    queue, clock = open_endpoint.ledger.queue("q"), open_endpoint.clock
    queue.send("body")
    (message,) = queue.receive(visibility_timeout=10)
    handle = message.receipt_handle
    prefix = "AWS.SimpleQueueService."

    def codes(url=URL, handle=handle, timeout=60, method="POST"):
        given = {"QueueUrl": url, "ReceiptHandle": handle, "VisibilityTimeout": timeout}
        _, headers, _ = in_json(open_endpoint, "ChangeMessageVisibility", given, method=method)
        form = f"Action=ChangeMessageVisibility&QueueUrl={url}&ReceiptHandle={handle}&VisibilityTimeout={timeout}"
        _, code, _ = in_query(open_endpoint, form.encode(), method=method)
        assert headers["x-amzn-query-error"] == f"{code};Sender"
        return code

    assert codes(url="http://x/nowhere") == codes(url="no queue") == "InvalidAddress"
    assert codes(url="nowhere") == codes(url=f"/{ACCOUNT}/nowhere") == prefix + "NonExistentQueue"
    assert codes(url=URL + "q") == prefix + "NonExistentQueue"
    assert codes(handle="none") == "ReceiptHandleIsInvalid"
    assert codes(method="PUT") == prefix + "UnsupportedOperation"
    assert codes(timeout=43_201) == codes(timeout=-1) == "InvalidParameterValue"
    clock.advance(11)
    assert codes() == prefix + "MessageNotInflight"
    queue.delete(handle)


class StuckClock(FrozenClock):
    """Stands still for whoever asks, from when it is told to until it is let go."""

    def __init__(self):
        super().__init__()
        self.free, self.asked = threading.Event(), threading.Event()
        self.free.set()

    def __call__(self):
        self.asked.set()
        self.free.wait(60)
        return self.now


def test_what_finds_all_threads_busy_and_a_full_backlog_is_throttled_and_the_rest_is_done(query_models):
    clock = StuckClock()
    ledger = Ledger.in_memory(clock)
    queue = ledger.create_queue("q")
    bounds = Bounds(threads=1, backlog=0)
    with served(ledger, clock, query_models, unsigned, bounds=bounds) as endpoint:
        clock.free.clear()
        clock.asked.clear()
        answers = []
        send = {"QueueUrl": URL, "MessageBody": "body"}
        first = threading.Thread(target=lambda: answers.append(in_json(endpoint, "SendMessage", send)[0]))
        first.start()
        assert clock.asked.wait(30)
        change = {"QueueUrl": URL, "ReceiptHandle": "none", "VisibilityTimeout": 1}
        began = time.monotonic()
        status, headers, _ = in_json(endpoint, "ChangeMessageVisibility", change)
        assert (status, headers["x-amzn-query-error"]) == (400, "RequestThrottled;Sender")
        # Whoever tries again at once waits for the answer, and takes no time from the calls that are carried out.
        assert time.monotonic() - began >= THROTTLED_SECONDS
        assert in_query(endpoint, b"Action=ListQueues")[1] == "RequestThrottled"
        assert ready_of(endpoint) == (503, b"too many requests run or wait\n"), "the tables are not to blame"
        clock.free.set()
        first.join()
        assert answers == [200] and queue.counts().visible == 1


def test_a_request_that_is_too_long_is_refused_however_it_says_its_length(open_endpoint):
    body = json.dumps({"QueueUrl": URL, "MessageBody": "x" * 150_000}).encode()
    status, _, said = in_json(open_endpoint, "SendMessage", body)
    assert status == 413 and said["__type"].endswith("RequestEntityTooLargeException")
    with socket.create_connection(("127.0.0.1", open_endpoint.port), 30) as raw:
        raw.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
        raw.sendall(chunk * 4)
        assert read(raw).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    "endless", [b"X: " + b"a" * 65_536, b"X: a\r\n" * 20_000], ids=["one trailer", "many trailers"]
)
def test_trailers_behind_a_body_have_the_bound_of_a_head(open_endpoint, endless):
    with socket.create_connection(("127.0.0.1", open_endpoint.port), 30) as raw:
        raw.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + endless)
        assert read(raw).startswith(b"HTTP/1.1 400 ")


def test_a_body_in_chunks_of_a_byte_with_a_trailer_is_a_body(query_models):
    ledger = Ledger.in_memory(FrozenClock())
    ledger.create_queue("q")
    body = f"Action=SendMessage&QueueUrl={URL}&MessageBody=".encode() + b"x" * 15_000
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    with (
        served(ledger, ledger.clock, query_models, unsigned) as endpoint,
        socket.create_connection(("127.0.0.1", endpoint.port), 30) as raw,
    ):
        for end in (b"", b"Connection: close\r\n"):
            raw.sendall(
                b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n" + end + b"\r\n" + chunks
            )
            raw.sendall(b"0\r\nX: a trailer\r\n\r\n")
        assert read(raw).count(b"HTTP/1.1 200 ") == 2


def test_of_a_stranger_little_is_read(query_models):
    ledger = Ledger.in_memory(FrozenClock())
    with served(ledger, ledger.clock, query_models) as endpoint:
        body = b"Action=SendMessage&MessageBody=" + b"x" * 100_000
        assert in_query(endpoint, body)[1] == "RequestEntityTooLarge"
        assert in_query(endpoint, body[:60_000])[1] == "MissingAuthenticationToken"
        assert in_query(endpoint, b"Action=ListQueues", Authorization="AWS nonsense")[1] == "InvalidSecurity"


def read(raw):
    """All that comes until the server closes."""
    found = b""
    while part := raw.recv(65_536):
        found += part
    return found


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nAction=", b"HTTP/1.1 408 "),
        (b"nonsense\r\n\r\n", b"HTTP/1.1 400 "),
        (b"POST / HTTP/1.1\r\nX: " + b"x" * 70_000, b"HTTP/1.1 400 "),
        (b"POST / HTTP/1.1\r\nHost: localhost", b""),
        (b"", b""),
    ],
    ids=["half a body", "no HTTP", "a long head", "half a head", "nothing"],
)
def test_what_comes_too_slowly_or_is_no_request_is_hung_up_on(open_endpoint, monkeypatch, sent, answer):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    with socket.create_connection(("127.0.0.1", open_endpoint.port), 30) as raw:
        raw.sendall(sent)
        assert read(raw)[: len(answer)] == answer


def test_a_request_that_is_cut_off_does_nothing(open_endpoint):
    before = open_endpoint.ledger.queue("q").counts().visible
    body = json.dumps({"QueueUrl": URL, "MessageBody": "body"}).encode()
    head = "POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.SendMessage\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", open_endpoint.port), 30) as raw:
        raw.sendall(head.encode() + body[:-1])
        raw.shutdown(socket.SHUT_WR)
        read(raw)
    assert open_endpoint.ledger.queue("q").counts().visible == before


def test_a_proxys_metrics_are_not_of_this_machine_alone(open_endpoint):
    for header in ("X_Forwarded_For", "Forwarded", "Via"):
        assert asked(open_endpoint, method="GET", path="/metrics", **{header: "10.0.0.7"})[0] == 404
    assert asked(open_endpoint, method="GET", path="/metrics")[0] == 200


@pytest.mark.parametrize(
    "header",
    [
        {"Origin": "http://a.page.example"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site", "Referer": "http://127.0.0.1/"},
        {"Referer": "http://a.page.example/index.html"},
        {"Referer": "http://127.0.0.1:1/"},
        {"Referer": "about:blank"},
        {"Referer": "http://["},
        {"User_Agent": "Mozilla/5.0 (Macintosh) Version/15.0 Safari/605.1.15"},
    ],
)
def test_a_page_in_a_browser_does_nothing_where_signatures_are_not_verified(open_endpoint, header):
    path = f"/{ACCOUNT}/q?Action=SendMessage&MessageBody=of-a-page"
    before = open_endpoint.ledger.queue("q").counts().stored
    for method in ("GET", "POST"):
        status, _, said = asked(open_endpoint, method=method, path=path, **header)
        assert status == 403 and b"AccessDenied" in said
    assert open_endpoint.ledger.queue("q").counts().stored == before
    assert asked(open_endpoint, method="GET", path=path, Sec_Fetch_Site="none")[0] == 200
    own = f"http://127.0.0.1:{open_endpoint.port}/"
    assert asked(open_endpoint, method="GET", path=path, Referer=own)[0] == 200
    assert asked(open_endpoint, method="GET", path=path, Sec_Fetch_Site="none", Referer="http://elsewhere/")[0] == 200


@pytest.mark.parametrize(
    ("host", "is_served"),
    [
        ("localhost", True), ("LOCALHOST:9324", True), ("queues.localhost:9324", True), ("127.0.0.1:1", True),
        ("127.8.7.6", True), ("[::1]:9324", True), ("[::ffff:127.0.0.1]:1", True), ("localhost.", True),
        ("a.page.example:9324", False), ("127.0.0.1.a.page.example", False),
        ("localhost.a.page.example", False), ("10.0.0.7:9324", False), ("[::2]", False), ("[", False), ("", False),
    ],
)  # fmt: skip
def test_a_page_whose_name_now_means_this_machine_does_nothing(open_endpoint, host, is_served):
    """DNS rebinding: to the browser the page is at the endpoint's own address, so no other header tells."""
    before = open_endpoint.ledger.queue("q").counts().stored
    path = f"/{ACCOUNT}/q?Action=SendMessage&MessageBody=of-a-page"
    page = {"Host": host, "Referer": f"http://{host}/", "Sec_Fetch_Site": "none"}
    for method in ("GET", "POST"):
        status, _, said = asked(open_endpoint, method=method, path=path, **page)
        assert (status, b"The header Host is" in said) == ((200, False) if is_served else (403, True))
    assert open_endpoint.ledger.queue("q").counts().stored == before + 2 * is_served
    assert asked(open_endpoint, method="GET", path="/metrics", Host=host)[0] == (200 if is_served else 404)
    assert asked(open_endpoint, method="GET", path="/health", Host=host)[0] == 200


def test_without_signatures_the_host_of_the_public_address_is_answered(query_models):
    ledger = Ledger.in_memory(FrozenClock())

    def public(endpoint):
        return replace(unsigned(endpoint), public="https://sqs.example:8443/base")

    with served(ledger, ledger.clock, query_models, public) as endpoint:
        for host, status in (("SQS.example", 200), ("sqs.example:1", 200), ("other.example", 403)):
            assert asked(endpoint, b"Action=ListQueues", Host=host)[0] == status
            assert asked(endpoint, method="GET", path="/metrics", Host=host)[0] == 404


def test_the_parts_of_a_response_do_not_wait_for_each_other(open_endpoint):
    """Without it each response with a body takes 40 ms, in which the client acknowledges its head."""
    with serving.listen("127.0.0.1", 0) as sock:
        assert sock.proto == socket.IPPROTO_TCP
    with socket.create_connection(("127.0.0.1", open_endpoint.port), 30) as raw:
        raw.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert raw.recv(65_536)
        here = raw.getsockname()
        (mine,) = [one for one in list(open_endpoint.server.server_state.connections) if one.client == here]
        assert mine.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_health_readiness_and_metrics_are_told(open_endpoint):
    assert asked(open_endpoint, method="GET", path="/health")[::2] == (200, b"ok\n")
    assert asked(open_endpoint, method="GET", path="/ready")[::2] == (200, b"ready\n")
    in_json(open_endpoint, "SendMessage", {"QueueUrl": URL, "MessageBody": "body"})
    in_json(open_endpoint, "NoAction", {})
    status, _, said = asked(open_endpoint, method="GET", path="/metrics")
    text = said.decode()
    assert status == 200 and 'ledger_requests_total{action="SendMessage",outcome="ok"} ' in text
    assert 'outcome="InvalidAction"' in text and 'ledger_queue_messages{queue="q",state="visible"} ' in text
    assert 'ledger_request_seconds_bucket{action="SendMessage",le="+Inf"} ' in text
    samples = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all(float(line.rpartition(" ")[2]) >= 0 for line in samples)


def test_an_endpoint_whose_ledger_is_gone_is_not_ready_until_it_is_back(query_models, empty_root, tmp_path):
    root, away = tmp_path / "ledger", tmp_path / "away"
    shutil.copytree(empty_root, root)
    ledger = Ledger.open(str(root), engine="delta-rs")
    with served(ledger, ledger.clock, query_models) as endpoint:
        for there, what in ((True, root), (False, root), (True, root), (False, root / "receipts"), (True, root)):
            if not there:
                what.rename(away)
            said = (200, b"ready\n") if there else (503, b"the ledger's tables cannot be read\n")
            assert asked(endpoint, method="GET", path="/ready")[::2] == said
            if not there:
                away.rename(what)
        assert asked(endpoint, method="GET", path="/health")[0] == 200


def ready_of(endpoint):
    return asked(endpoint, method="GET", path="/ready")[::2]


def test_an_endpoint_on_a_full_disk_is_not_ready_until_there_is_room(query_models, empty_root, tmp_path, caplog):
    root = tmp_path / "ledger"
    shutil.copytree(empty_root, root)
    ledger = Ledger.open(str(root), engine="delta-rs")
    more_than_there_is = Bounds(threads=4, free_bytes=shutil.disk_usage(root).total + 1)
    with served(ledger, ledger.clock, query_models, bounds=more_than_there_is) as endpoint:
        assert ready_of(endpoint) == (503, b"the storage is full, or cannot be read or written\n")
        assert f"The storage at {root} failed" in caplog.text and "bytes free" in caplog.text
        assert asked(endpoint, method="GET", path="/health")[0] == 200
    with served(ledger, ledger.clock, query_models, bounds=Bounds(threads=4, free_bytes=1)) as endpoint:
        assert ready_of(endpoint) == (200, b"ready\n")


@pytest.mark.parametrize("table", ["visibility", "queues", "messages"])
@pytest.mark.parametrize("feature", ["DeletionVectors", "RowTracking"])
def test_an_endpoint_whose_table_somebody_altered_is_not_ready_and_says_so(
    query_models, empty_root, tmp_path, caplog, table, feature
):
    root = tmp_path / "ledger"
    shutil.copytree(empty_root, root)
    ledger = Ledger.open(str(root), engine="delta-rs")
    with served(ledger, ledger.clock, query_models) as endpoint:
        assert ready_of(endpoint) == (200, b"ready\n")
        switched_on = getattr(TableFeatures, feature)
        DeltaTable(root / table).alter.add_feature(switched_on, allow_protocol_versions_increase=True)
        named = (
            f"somebody gave the table {table} {feature[0].lower()}{feature[1:]}, which the ledger's tables do not have"
        )
        status, said = ready_of(endpoint)
        assert status == 503 and said.decode() == f"{named}; `ledger doctor` says what takes it back\n"
        assert f"ALTER TABLE delta.`{root}/{table}` DROP FEATURE" in caplog.text
        _, _, text = asked(endpoint, method="GET", path="/metrics")
        assert f'ledger_table_refused{{table="{table}",reason="{named}"}} 1' in text.decode()


def test_an_endpoint_whose_clock_is_not_the_storages_is_not_ready(query_models, empty_root, tmp_path):
    root = tmp_path / "ledger"
    shutil.copytree(empty_root, root)
    clock, storage = FrozenClock(), FrozenClock()
    ledger = Ledger.open(str(root), engine="delta-rs", clock=clock, storage_clock=storage)
    with served(ledger, clock, query_models) as endpoint:
        clock.advance(60)
        assert ready_of(endpoint) == (503, b"the clocks disagree\n")
        assert ready_of(endpoint) == (503, b"the clocks disagree\n"), "it is asked again at once"
        storage.advance(60)
        assert ready_of(endpoint) == (200, b"ready\n")


def test_an_endpoint_whose_clock_is_behind_the_newest_commit_is_not_ready(query_models, empty_root, tmp_path):
    root = tmp_path / "ledger"
    shutil.copytree(empty_root, root)
    clock = FrozenClock()
    ledger = Ledger.open(str(root), engine="delta-rs", clock=clock)
    queue = ledger.create_queue("q")
    queue.send("body")
    queue.receive(visibility_timeout=0)
    with served(ledger, clock, query_models) as endpoint:
        assert ready_of(endpoint) == (200, b"ready\n")
        clock.advance(-60)
        assert ready_of(endpoint) == (503, b"the clocks disagree\n")
        clock.advance(3_600)
        assert ready_of(endpoint) == (200, b"ready\n")


def test_readers_of_the_metrics_within_a_second_share_one_reading_of_the_tables(open_endpoint, monkeypatch):
    list_queues, readings = open_endpoint.ledger.list_queues, []
    monkeypatch.setattr(open_endpoint.ledger, "list_queues", lambda **named: readings.append(1) or list_queues(**named))
    monkeypatch.setattr(application, "SCRAPE_SECONDS", 0)
    assert [asked(open_endpoint, method="GET", path="/metrics")[0] for _ in range(2)] == [200, 200]
    assert len(readings) == 2
    monkeypatch.setattr(application, "SCRAPE_SECONDS", 3_600)
    in_json(open_endpoint, "NoAction", {})
    first, second = (asked(open_endpoint, method="GET", path="/metrics")[2] for _ in range(2))
    assert len(readings) == 2 and b"ledger_queue_messages" in first and b"ledger_queue_messages" in second


def test_what_cannot_be_found_out_for_metrics_is_no_traceback(open_endpoint, monkeypatch):
    def broken(*given, **named):
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(open_endpoint.ledger, "list_queues", broken)
    monkeypatch.setattr(application, "SCRAPE_SECONDS", 0)
    status, _, said = asked(open_endpoint, method="GET", path="/metrics")
    assert (status, said) == (500, b"it could not be found out\n")


def test_what_is_refused_is_a_line_of_the_log_as_the_client_counts_it(open_endpoint, caplog):
    url = f"http://anything.example/{ACCOUNT}/logged"
    open_endpoint.ledger.create_queue("logged", {"Limits": "SQS"})
    wrong = {"k": {"DataType": "a secret", "StringValue": "a secret"}}
    entries = [
        {"Id": "a", "MessageBody": "a secret"},
        {"Id": "b", "MessageBody": "a secret", "MessageAttributes": wrong},
        {"Id": "c", "MessageBody": "a secret\x01"},
    ]
    with caplog.at_level(logging.INFO, "ledger"):
        _, _, said = in_json(open_endpoint, "SendMessageBatch", {"QueueUrl": url, "Entries": entries})
        in_json(open_endpoint, "ReceiveMessage", {"QueueUrl": url, "MaxNumberOfMessages": 11})
    assert [one["Id"] for one in said["Failed"]] == ["b", "c"]
    batch, receive = [line for line in caplog.messages if "refused" in line]
    assert batch.startswith(
        "2 of 3 entries for logged were refused and not sent, the first is entry 1: MessageAttributes.k.DataType: "
    )
    assert receive == "ReceiveMessage was refused: InvalidParameterValue: MaxNumberOfMessages"
    assert "a secret" not in caplog.text


def test_an_error_of_ours_is_told_to_nobody_and_logged_without_what_was_asked(open_endpoint, monkeypatch, caplog):
    def broken(*given):
        raise ZeroDivisionError(f"of {given}")

    from ledger.endpoint import actions

    monkeypatch.setitem(actions.ACTIONS, "SendMessage", broken)
    with caplog.at_level(logging.DEBUG):
        status, headers, said = in_json(open_endpoint, "SendMessage", {"QueueUrl": URL, "MessageBody": "a secret"})
    assert (status, headers["x-amzn-query-error"]) == (500, "InternalFailure;Receiver")
    assert "ZeroDivisionError" not in str(said) and "ZeroDivisionError at test_requests.py" in caplog.text
    assert "a secret" not in caplog.text + str(said)
