"""Signatures in the query of a request: URLs that botocore signs in advance, and how a GET of them is answered."""

from __future__ import annotations

import http.client
import json
import time
from urllib.parse import parse_qs, urlencode, urlsplit
from xml.etree import ElementTree

import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from ledger.endpoint import keys
from ledger.endpoint.signatures import Signatures
from ledger.endpoint.wire import Refusal, Request
from tests.clock import FrozenClock
from tests.endpoint.conftest import KEY, OTHER_ACCOUNT, OTHER_KEY, REGION, SECRET
from tests.endpoint.test_signatures import MINUTE, NOW, Dated, changed, refused

KEYS = keys.Keys(
    {
        "AKID": keys.Key("the secret", keys.Caller("123456789012")),
        "ASIA": keys.Key("the secret", keys.Caller("123456789012"), "a/token+of=a-session"),
    }
)
NAMES = {"": "http://queue.amazonaws.com/doc/2012-11-05/"}


class DatedQuery(Dated, SigV4QueryAuth):
    """botocore's signer of queries, at an instant of the test's."""


def presigned(
    *, path="/123456789012/q", query="Action=ListQueues", method="GET", key="AKID", secret="the secret", at=NOW,
    region="us-east-1", expires=60, token=None, headers=None,
):  # fmt: skip
    """A request whose signature is in its query, as botocore makes it."""
    made = AWSRequest(method, f"http://127.0.0.1:9324{path}?{query}", {"Host": "127.0.0.1:9324", **(headers or {})})
    DatedQuery(Credentials(key, secret, token), "sqs", region, expires, at=at).add_auth(made)
    given = {name.lower(): value for name, value in made.headers.items()}
    return Request(method, path, urlsplit(made.url).query, given, b"")


@pytest.fixture
def clock():
    return FrozenClock(NOW)


@pytest.fixture
def verifier(clock):
    return Signatures(KEYS, "us-east-1", clock)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"method": "POST"},
        {"path": "/"},
        {"query": "Action=SendMessage&MessageBody=a%20b%2Bc%26d%3D%C3%A9"},
        {"query": "Action=SendMessage&MessageBody="},
        {"expires": 604_800},
        {"key": "ASIA", "token": "a/token+of=a-session"},
    ],
)
def test_what_botocore_signs_in_a_query_is_the_callers(verifier, more):
    request = presigned(**more)
    assert "authorization" not in request.headers
    assert verifier.caller(request).account_id == "123456789012"
    assert verifier.knows(request)


def without(request, name):
    parts = [part for part in request.query.split("&") if not part.startswith(f"{name}=")]
    return changed(request, query="&".join(parts))


def replaced(request, old, new):
    assert old in request.query
    return changed(request, query=request.query.replace(old, new))


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (presigned(secret="another secret"), "SignatureDoesNotMatch"),
        (presigned(region="eu-west-1"), "SignatureDoesNotMatch"),
        (presigned(key="NOBODYS"), "InvalidClientTokenId"),
        (changed(presigned(), method="POST"), "SignatureDoesNotMatch"),
        (changed(presigned(), path="/123456789012/other"), "SignatureDoesNotMatch"),
        (changed(presigned(method="POST"), body=b"QueueNamePrefix=a"), "SignatureDoesNotMatch"),
        (replaced(presigned(), "Action=ListQueues", "Action=PurgeQueue"), "SignatureDoesNotMatch"),
        (changed(presigned(), query=presigned().query + "&QueueNamePrefix=a"), "SignatureDoesNotMatch"),
        (replaced(presigned(expires=60), "X-Amz-Expires=60", "X-Amz-Expires=600"), "SignatureDoesNotMatch"),
        (presigned(expires=0), "IncompleteSignature"),
        (presigned(expires=604_801), "IncompleteSignature"),
        (presigned(expires="one"), "IncompleteSignature"),
        (presigned(expires="-5"), "IncompleteSignature"),
        *(
            (without(presigned(), f"X-Amz-{name}"), "IncompleteSignature")
            for name in ("Algorithm", "Credential", "SignedHeaders", "Signature", "Date")
        ),
        (replaced(presigned(), "AWS4-HMAC-SHA256", "AWS4-HMAC-MD5"), "IncompleteSignature"),
        (changed(presigned(), query=presigned().query + "&X-Amz-Expires=600"), "IncompleteSignature"),
        (changed(presigned(), headers={"authorization": "AWS4-HMAC-SHA256 x", "host": "x"}), "IncompleteSignature"),
        (changed(presigned(), headers={**presigned().headers, "x-amz-target": "AmazonSQS.DeleteQueue"}),
         "SignatureDoesNotMatch"),
        (changed(presigned(), headers={"host": "elsewhere"}), "SignatureDoesNotMatch"),
        (presigned(key="ASIA"), "InvalidClientTokenId"),
        (presigned(key="ASIA", token="another"), "InvalidClientTokenId"),
        (presigned(key="ASIA", token="é"), "InvalidClientTokenId"),
        (presigned(at=NOW + 16 * MINUTE, expires=604_800), "SignatureDoesNotMatch"),
    ],
)  # fmt: skip
def test_a_query_that_nobody_known_signed_for_now_is_refused(verifier, request_, code):
    assert refused(verifier, request_) == code


def test_a_presigned_url_is_good_until_it_expires_however_often_it_comes(verifier, clock):
    request = presigned(expires=3_600)
    for _ in range(3):
        assert verifier.caller(request)
    clock.advance(3_600)
    assert verifier.caller(request)
    clock.advance(1)
    with pytest.raises(Refusal, match=r"Signature expired: 20231114T221320Z was good for 3600 s"):
        verifier.caller(request)
    assert verifier.remembered == 0, "what may come again is not remembered"


def test_a_url_that_expires_in_days_outlives_the_days_of_its_scope(verifier, clock):
    request = presigned(expires=604_800)
    clock.advance(604_800)
    assert verifier.caller(request)
    clock.advance(1)
    assert refused(verifier, request) == "SignatureDoesNotMatch"


def test_a_signature_in_a_query_without_a_lifetime_holds_as_long_as_one_in_a_header(verifier, clock):
    bare = AWSRequest("GET", "http://127.0.0.1:9324/?Action=ListQueues", {"Host": "127.0.0.1:9324"})

    class Lifeless(DatedQuery):
        """A signer that leaves X-Amz-Expires out."""

        def canonical_request(self, request):
            request.url = request.url.replace("&X-Amz-Expires=3600", "")
            return super().canonical_request(request)

    Lifeless(Credentials("AKID", "the secret"), "sqs", "us-east-1", at=NOW).add_auth(bare)
    query = urlsplit(bare.url).query
    assert "X-Amz-Expires" not in query
    request = Request("GET", "/", query, {"host": "127.0.0.1:9324"}, b"")
    clock.advance(900)
    assert verifier.caller(request)
    clock.advance(1)
    assert refused(verifier, request) == "SignatureDoesNotMatch"


def asked(endpoint, url, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=30)
    try:
        parts = urlsplit(url)
        connection.request(method, f"{parts.path}?{parts.query}", headers=headers)
        response = connection.getresponse()
        return response.status, response.getheader("content-type"), response.read()
    finally:
        connection.close()


def signed_url(url, *, method="GET", key=KEY, headers=None, **parameters):
    request = AWSRequest(method, f"{url}{'?' if parameters else ''}{urlencode(parameters)}", headers)
    SigV4QueryAuth(Credentials(key, SECRET), "sqs", REGION).add_auth(request)
    return request.url


@pytest.fixture(scope="module")
def queue(endpoint):
    return endpoint.client().create_queue(QueueName="presigned")["QueueUrl"]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_messages_are_sent_and_received_by_urls_alone(endpoint, queue, method):
    def done(**parameters):
        status, kind, said = asked(endpoint, signed_url(queue, method=method, **parameters), method)
        assert (status, kind) == (200, "text/xml"), said
        return ElementTree.fromstring(said)

    _, _, said = asked(endpoint, signed_url(queue, method=method, Action="ReceiveMessage"), method)
    assert b"<ReceiveMessageResult/>" in said, "recorded: test_get_send_and_receive_messages"
    done(Action="SendMessage", MessageBody="a b+c")
    found = done(Action="ReceiveMessage", WaitTimeSeconds=1)
    assert found.findtext("ReceiveMessageResult/Message/Body", namespaces=NAMES) == "a b+c"
    handle = found.findtext("ReceiveMessageResult/Message/ReceiptHandle", namespaces=NAMES)
    done(Action="DeleteMessage", ReceiptHandle=handle)
    assert endpoint.ledger.queue("presigned").counts().in_flight == 0


def test_a_client_of_the_query_protocol_makes_urls_for_others(endpoint, queue):
    url = endpoint.client("query").generate_presigned_url(
        "send_message", {"QueueUrl": queue, "MessageBody": "handed on"}, ExpiresIn=30, HttpMethod="GET"
    )
    assert parse_qs(urlsplit(url).query)["X-Amz-Expires"] == ["30"]
    for _ in range(2):
        assert asked(endpoint, url)[0] == 200
    claim = endpoint.ledger.queue("presigned").receive(10)
    assert [message.body for message in claim] == ["handed on"] * 2
    claim.delete()


def error_of(said):
    xml = ElementTree.fromstring(said)
    return xml.findtext("Error/Code", namespaces=NAMES), xml.findtext("Error/Message", namespaces=NAMES)


@pytest.mark.parametrize(
    ("parameters", "code", "message"),
    [
        ({"Action": "NoAction"}, "InvalidAction", "The action NoAction is not valid for this endpoint."),
        ({"Action": "CreateQueue", "QueueName": "x"}, "InvalidAction",
         "The action CreateQueue is not valid for this endpoint."),
        ({"Action": "ListQueues"}, "InvalidAction", "The action ListQueues is not valid for this endpoint."),
        ({"Action": "SendMessage"}, "MissingParameter", "The request must contain the parameter MessageBody."),
        ({"Action": "GetQueueAttributes", "AttributeName.1": "No"}, "InvalidAttributeName", "Unknown Attribute No."),
        ({"Action": ""}, "MissingAction", "The request must contain the parameter Action."),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_get_of_a_queue_is_said_as_the_service_says_it(endpoint, queue, parameters, code, message):
    """Recorded by LocalStack in its TestSqsQueryApi."""
    status, _, said = asked(endpoint, signed_url(queue, **parameters))
    assert (status, *error_of(said)) == (400, code, message)
    url = signed_url(queue, headers={"Accept": "application/json"}, **parameters)
    status, kind, said = asked(endpoint, url, Accept="application/json")
    error = json.loads(said)["Error"]
    assert (status, kind, error["Code"], error["Message"]) == (400, "application/json", code, message)


@pytest.mark.parametrize("accepted", ["*/*", "application/json"])
def test_a_get_that_names_no_action_is_an_unknown_operation_in_xml(endpoint, queue, accepted):
    """Recorded: test_get_without_query_returns_unknown_operation, and ..._json_format_returns_returns_xml."""
    status, kind, said = asked(endpoint, signed_url(queue), Accept=accepted)
    assert (status, kind, said) == (404, "text/xml", b"<UnknownOperationException/>")


def test_a_post_that_names_no_action_misses_it(endpoint, queue):
    status, _, said = asked(endpoint, signed_url(queue, method="POST"), "POST")
    assert (status, error_of(said)[0]) == (400, "MissingAction")


def test_the_url_of_a_deleted_queue_names_no_queue(endpoint):
    url = endpoint.client().create_queue(QueueName="deleted")["QueueUrl"]
    endpoint.ledger.delete_queue("deleted")
    status, _, said = asked(endpoint, signed_url(url, Action="GetQueueAttributes"))
    assert status == 400
    assert error_of(said) == (
        "AWS.SimpleQueueService.NonExistentQueue",
        "The specified queue does not exist for this wsdl version.",
    )


def test_a_queue_in_the_parameters_goes_before_the_one_in_the_path(endpoint, queue):
    other = endpoint.client().create_queue(QueueName="other")["QueueUrl"]
    asks = {"Action": "GetQueueAttributes", "AttributeName.1": "QueueArn"}
    _, _, said = asked(endpoint, signed_url(queue, QueueUrl=other, **asks))
    assert b":other<" in said and b":presigned<" not in said
    _, _, said = asked(endpoint, signed_url(queue, Action="GetQueueUrl", QueueName="other"))
    assert f"<QueueUrl>{other}</QueueUrl>".encode() in said, "which names its queue by another parameter"


@pytest.mark.parametrize(
    ("accepted", "kind"),
    [
        ("application/json", "application/json"),
        ("application/json;q=0.9, text/plain, */*", "application/json"),
        ("text/xml, application/json", "text/xml"),
        ("*/*", "text/xml"),
        ("", "text/xml"),
    ],
)
def test_a_client_that_accepts_json_and_asks_by_query_is_answered_in_json(endpoint, queue, accepted, kind):
    headers = {"Accept": accepted}
    url = signed_url(f"{endpoint.url}/", Action="GetQueueUrl", QueueName="presigned")
    status, found, said = asked(endpoint, url, **headers)
    assert (status, found) == (200, kind)
    if kind == "application/json":
        result = json.loads(said)["GetQueueUrlResponse"]
        assert result["GetQueueUrlResult"] == {"QueueUrl": queue} and result["ResponseMetadata"]["RequestId"]
    else:
        assert b"<GetQueueUrlResponse" in said


def test_results_in_json_are_as_the_service_was_recorded_to_write_them(endpoint):
    """Maps are lists of pairs, what is absent is null, and two lists have older names: see query_json."""
    url = endpoint.client().create_queue(QueueName="in-json", tags={"team": "ours"})["QueueUrl"]

    def done(at=url, **parameters):
        status, _, said = asked(endpoint, signed_url(at, **parameters), Accept="application/json")
        assert status == 200, said
        return json.loads(said)[f"{parameters['Action']}Response"].get(f"{parameters['Action']}Result")

    assert done(Action="ReceiveMessage") == {"messages": None}
    named = {"MessageAttribute.1.Name": "b", "MessageAttribute.1.Value.DataType": "Binary",
             "MessageAttribute.1.Value.BinaryValue": "AP8="}  # fmt: skip
    sent = done(Action="SendMessage", MessageBody='{"a": "é"}', **named)
    assert set(sent) == {
        "MD5OfMessageAttributes", "MD5OfMessageBody", "MD5OfMessageSystemAttributes", "MessageId", "SequenceNumber"
    }  # fmt: skip
    assert sent["SequenceNumber"] is None and sent["MD5OfMessageSystemAttributes"] is None
    (message,) = done(Action="ReceiveMessage", **{"AttributeName.1": "SenderId", "MessageAttributeName.1": "All"})[
        "messages"
    ]
    assert message["Body"] == '{"a": "é"}' and message["MessageId"] == sent["MessageId"]
    assert message["Attributes"] == [{"Name": "SenderId", "Value": "123456789012"}]
    (attribute,) = message["MessageAttributes"]
    assert (attribute["Name"], attribute["Value"]["BinaryValue"], attribute["Value"]["StringValue"]) == (
        "b", "AP8=", None
    )  # fmt: skip
    assert done(Action="ListQueueTags")["Tags"] == [{"Key": "team", "Value": "ours"}]
    listed = done(f"{endpoint.url}/", Action="ListQueues", QueueNamePrefix="in-json")
    assert listed == {"NextToken": None, "queueUrls": [url]}
    assert done(Action="DeleteQueue") is None


def test_a_url_does_what_its_signer_may_and_no_more(endpoint, queue):
    assert asked(endpoint, signed_url(queue, key=OTHER_KEY, Action="PurgeQueue"))[0] == 403
    endpoint.client().add_permission(
        QueueUrl=queue, Label="theirs", AWSAccountIds=[OTHER_ACCOUNT], Actions=["SendMessage"]
    )
    assert asked(endpoint, signed_url(queue, key=OTHER_KEY, Action="SendMessage", MessageBody="x"))[0] == 200
    endpoint.ledger.queue("presigned").receive(10).delete()


def test_a_url_that_has_expired_is_refused_on_the_wire(endpoint, queue):
    url = AWSRequest("GET", f"{queue}?Action=SendMessage&MessageBody=late")
    an_hour_ago = round(time.time() * 1_000) - 3_601_000
    DatedQuery(Credentials(KEY, SECRET), "sqs", REGION, at=an_hour_ago).add_auth(url)
    status, _, said = asked(endpoint, url.url)
    assert (status, error_of(said)[0]) == (403, "SignatureDoesNotMatch")
    assert "Signature expired" in error_of(said)[1]
