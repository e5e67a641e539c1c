"""Who signed a request: botocore signs, the endpoint verifies, with a clock that stands still."""

from __future__ import annotations

import logging
from datetime import datetime, timezone

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from ledger.endpoint import keys
from ledger.endpoint.signatures import Signatures
from ledger.endpoint.statuses import told
from ledger.endpoint.wire import Refusal, Request
from ledger.errors import InvalidParameterValue
from tests.clock import FrozenClock

NOW, MINUTE = 1_700_000_000_000, 60_000
KEYS = keys.Keys({"AKID": keys.Key("the secret", keys.Caller("123456789012"))})


@pytest.fixture
def verifier():
    return Signatures(KEYS, "us-east-1", FrozenClock(NOW))


class Dated(SigV4Auth):
    """botocore's signer, at an instant of the test's."""

    def __init__(self, *arguments, at):
        super().__init__(*arguments)
        self.at = at

    def add_auth(self, request):
        stamp = datetime.fromtimestamp(self.at / 1_000, timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        request.context["timestamp"] = stamp
        self._modify_request_before_signing(request)
        string = self.string_to_sign(request, self.canonical_request(request))
        self._inject_signature_to_request(request, self.signature(string, request))

    def _set_necessary_date_headers(self, request):
        request.headers["X-Amz-Date"] = request.context["timestamp"]


def signed(
    body=b"{}", *, path="/", query="", method="POST", key="AKID", secret="the secret", region="us-east-1",
    service="sqs", at=NOW, headers=None,
):  # fmt: skip
    """A request as SDKs sign it."""
    given = {"Host": "127.0.0.1:9324", "X-Amz-Target": "AmazonSQS.SendMessage", **(headers or {})}
    url = f"http://127.0.0.1:9324{path}{'?' if query else ''}{query}"
    made = AWSRequest(method, url, given, body)
    Dated(Credentials(key, secret), service, region, at=at).add_auth(made)
    return Request(method, path, query, {name.lower(): value for name, value in made.headers.items()}, body)


def changed(request, **members):
    return Request(**{**request.__dict__, **members})


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"body": '{"MessageBody": "é𝄞"}'.encode()},
        {"path": "/123456789012/queue.fifo"},
        {"path": "/123456789012/with%20space/"},
        {"method": "GET", "query": "Action=ListQueues&QueueNamePrefix=a%20b&Version=2012-11-05", "body": b""},
        {"headers": {"X-Extra": "  several   spaces "}},
    ],
)
def test_what_botocore_signs_is_the_callers(verifier, more):
    assert verifier.caller(signed(**more)).account_id == "123456789012"


def refused(verifier, request):
    with pytest.raises(Refusal) as found:
        verifier.caller(request)
    return found.value.code


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (signed(secret="another secret"), "SignatureDoesNotMatch"),
        (changed(signed(), body=b"{ }"), "SignatureDoesNotMatch"),
        (changed(signed(), path="/123456789012/other"), "SignatureDoesNotMatch"),
        (changed(signed(), query="Action=PurgeQueue"), "SignatureDoesNotMatch"),
        (changed(signed(), method="GET"), "SignatureDoesNotMatch"),
        (signed(key="NOBODYS"), "InvalidClientTokenId"),
        (signed(region="eu-west-1"), "SignatureDoesNotMatch"),
        (signed(service="s3"), "SignatureDoesNotMatch"),
        (signed(at=NOW - 16 * MINUTE), "SignatureDoesNotMatch"),
        (signed(at=NOW + 16 * MINUTE), "SignatureDoesNotMatch"),
        (Request("POST", "/", "", {}, b"Action=ListQueues"), "MissingAuthenticationToken"),
        (Request("POST", "/", "", {}, b"Action=ListQueues&SignatureVersion=2&Signature=x"), "InvalidSecurity"),
        (Request("POST", "/", "", {"authorization": "Basic dXNlcg=="}, b""), "InvalidSecurity"),
        (Request("POST", "/", "", {"authorization": "AWS4-HMAC-SHA256 nonsense"}, b""), "IncompleteSignature"),
    ],
)
def test_a_request_that_nobody_known_signed_now_is_refused(verifier, request_, code):
    assert refused(verifier, request_) == code


def test_the_target_of_a_request_must_be_signed(verifier):
    request = signed()
    headers = dict(request.headers)
    of_others = headers["authorization"].replace(";x-amz-target", "")
    assert (
        refused(verifier, changed(request, headers={**headers, "authorization": of_others})) == "SignatureDoesNotMatch"
    )


def test_a_header_that_was_signed_and_is_another_now_is_refused(verifier):
    request = signed()
    headers = {**request.headers, "x-amz-target": "AmazonSQS.DeleteQueue"}
    assert refused(verifier, changed(request, headers=headers)) == "SignatureDoesNotMatch"


@pytest.mark.parametrize("minutes", [-14, 14])
def test_clocks_may_be_a_quarter_of_an_hour_apart(verifier, minutes):
    assert verifier.caller(signed(at=NOW + minutes * MINUTE))


def test_a_request_that_came_before_is_refused():
    clock = FrozenClock(NOW)
    verifier = Signatures(KEYS, "us-east-1", clock)
    request = signed(headers={"X": "1"})
    assert verifier.caller(request)
    for seconds in (0, 1, 800):
        clock.advance(seconds)
        assert refused(verifier, request) == "SignatureDoesNotMatch"


def invoked(request, name):
    return changed(request, headers={**request.headers, "amz-sdk-invocation-id": name, "amz-sdk-request": "attempt=1"})


def test_two_equal_requests_of_one_second_are_no_replay_when_their_sdk_says_that_they_are_two():
    clock = FrozenClock(NOW)
    verifier = Signatures(KEYS, "us-east-1", clock)
    request = signed()
    assert verifier.caller(invoked(request, "a")) and verifier.caller(invoked(request, "b"))
    assert refused(verifier, invoked(request, "a")) == "SignatureDoesNotMatch"
    clock.advance(6)
    assert refused(verifier, invoked(request, "c")) == "SignatureDoesNotMatch", "nobody signs it so late"


def test_a_request_that_no_sdk_gave_an_invocation_is_no_other_one_when_somebody_adds_one():
    verifier = Signatures(KEYS, "us-east-1", FrozenClock(NOW))
    bare, told = signed(), signed(headers={"X": "1"})
    assert verifier.caller(bare) and verifier.caller(invoked(told, "a"))
    assert refused(verifier, invoked(bare, "a")) == "SignatureDoesNotMatch"
    assert refused(verifier, told) == "SignatureDoesNotMatch"


def test_a_call_that_is_tried_again_within_the_second_is_no_replay():
    verifier = Signatures(KEYS, "us-east-1", FrozenClock(NOW))
    request = signed()
    for more in ({"amz-sdk-request": "attempt=1"}, {"amz-sdk-request": "attempt=2"}, {"amz-sdk-retry": "1/0/"}):
        headers = {**request.headers, "amz-sdk-invocation-id": "a", **more}
        assert verifier.caller(changed(request, headers=headers))


def test_what_came_is_known_as_long_as_its_date_is_within_the_window():
    clock = FrozenClock(NOW)
    verifier = Signatures(KEYS, "us-east-1", clock)
    ahead = signed(at=NOW + 14 * MINUTE)
    assert verifier.caller(ahead)
    for minutes in range(1, 29):
        clock.advance(60)
        assert verifier.caller(signed(b"", at=NOW + minutes * MINUTE)), "others go on meanwhile"
    assert refused(verifier, ahead) == "SignatureDoesNotMatch"
    assert verifier.remembered < 20, "what its date refuses is forgotten"


def test_keys_of_a_file_say_whose_they_are(tmp_path):
    file = tmp_path / "keys.toml"
    user = "arn:aws:iam::210987654321:user/other"
    theirs = f'[THEIRS]\nsecret = "long enough"\naccount = "210987654321"\nuser = "{user}"\n'
    file.write_text(f'[MINE]\nsecret = "long enough"\n{theirs}')
    known = keys.read(str(file), "123456789012").known
    assert known["MINE"].caller.arn == "arn:aws:iam::123456789012:root"
    assert (known["THEIRS"].caller.account_id, known["THEIRS"].caller.arn) == ("210987654321", user)
    assert "long enough" not in repr(known), "a secret is shown to nobody"


@pytest.mark.parametrize(
    "text",
    ["", "no toml", "[KEY]", '[KEY]\nsecret = "short"', '[KEY]\nsecret = "hunter2 hunter2"\naccount = "1"',
     '[KEY]\nsecret = "hunter2 hunter2"\nrole = "x"', '["KEY/1"]\nsecret = "hunter2 hunter2"', 'KEY = "hunter2"'],
)  # fmt: skip
def test_a_file_of_keys_that_is_none_is_refused_without_a_word_of_what_is_in_it(tmp_path, text):
    file = tmp_path / "keys.toml"
    file.write_text(text)
    with pytest.raises(InvalidParameterValue) as found:
        keys.read(str(file), "123456789012")
    assert "hunter2" not in str(found.value) and str(file) in str(found.value)


def test_a_users_account_is_the_keys_account(tmp_path):
    """A forgotten `account` would make a partner's key one of the ledger's owner."""
    file = tmp_path / "keys.toml"
    user = 'secret = "long enough"\nuser = "arn:aws:iam::210987654321:user/other"\n'
    file.write_text(f"[THEIRS]\n{user}")
    with pytest.raises(
        InvalidParameterValue, match=r'THEIRS.*of the account 210987654321.*Give account = "210987654321"'
    ):
        keys.read(str(file), "123456789012")
    assert keys.read(str(file), "210987654321").known["THEIRS"].caller.account_id == "210987654321"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[AKID]\nsecret = "hunter2\n', r"It is no TOML \(at line 2, column \d+\)"),
        ('[worker]\nsecrt = "hunter2 hunter2"\n', r"\[worker\].*'secrt' is none of them"),
        ('secret = "hunter2 hunter2"\n', r"'secret' is in no table\. Begin with a line \[ID_OF"),
    ],
    ids=["a slip", "an unknown member", "a member in no table"],
)
def test_what_is_wrong_in_a_file_of_keys_is_named_without_the_secret(tmp_path, text, said):
    file = tmp_path / "keys.toml"
    file.write_text(text)
    with pytest.raises(InvalidParameterValue, match=said) as refused:
        keys.read(str(file), "123456789012")
    assert "hunter2" not in str(refused.value)


def test_a_key_of_the_environment_is_two_variables():
    assert keys.read_environment({}, "123456789012") is None
    both = {keys.ACCESS_KEY: "AKID", keys.SECRET_KEY: "long enough"}
    assert "AKID" in keys.read_environment(both, "123456789012").known
    for name in both:
        with pytest.raises(InvalidParameterValue, match="go together"):
            keys.read_environment({name: "long enough"}, "123456789012")


def test_a_signature_that_is_refused_is_a_line_of_the_log_with_no_key_in_it(verifier, caplog):
    for request, said in (
        (signed(secret="another secret"), "SignatureDoesNotMatch: The request signature we calculated does not match"),
        (signed(key="STRANGER"), "InvalidClientTokenId: The security token"),
        (signed(at=NOW - 16 * MINUTE), "SignatureDoesNotMatch: Signature expired"),
        (signed(region="eu-west-1"), "SignatureDoesNotMatch: Credential should be scoped to a valid region"),
    ):
        caplog.clear()
        with caplog.at_level(logging.INFO, "ledger.endpoint"):
            with pytest.raises(Refusal) as refused:
                verifier.caller(request)
            told(refused.value)
        (line,) = caplog.messages
        assert line.startswith(f"a request was refused: {said}")
        signature = request.headers["authorization"].partition("Signature=")[2]
        assert not [word for word in ("AKID", "STRANGER", "secret", signature) if word in line.replace("Secret", "")]


def test_a_key_of_a_session_is_good_with_its_token_alone(tmp_path):
    file = tmp_path / "keys.toml"
    file.write_text('[ASIA]\nsecret = "the secret"\nsession_token = "a/token+of="\n[AKID]\nsecret = "the secret"\n')
    known = keys.read(str(file), "123456789012")
    assert "a/token" not in repr(known), "a token is shown to nobody"
    verifier = Signatures(known, "us-east-1", FrozenClock(NOW))
    token = {"X-Amz-Security-Token": "a/token+of="}
    assert verifier.caller(signed(key="ASIA", headers=token))
    for headers in ({}, {"X-Amz-Security-Token": "another"}, {"X-Amz-Security-Token": "é"}):
        assert refused(verifier, signed(b"{ }", key="ASIA", headers=headers)) == "InvalidClientTokenId"
    assert verifier.caller(signed(b"[]", key="AKID", headers=token)), "a token says nothing where the key has none"


@pytest.mark.parametrize("token", ['""', '"two words"', "7", '"é"'])
def test_a_session_token_that_no_header_carries_is_refused(tmp_path, token):
    file = tmp_path / "keys.toml"
    file.write_text(f'[ASIA]\nsecret = "hunter2 hunter2"\nsession_token = {token}\n')
    with pytest.raises(InvalidParameterValue, match="session_token must be 1 to 4,096 visible characters"):
        keys.read(str(file), "123456789012")
