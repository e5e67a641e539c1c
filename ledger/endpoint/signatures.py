"""The verification of Signature Version 4.

Source: the general reference of AWS, "Signature Version 4", its pages "Create a signed AWS API request" and "Add
authentication information to the query string".

If the signature is in a header, its date may be at most 15 minutes off, and replays are refused. Two equal requests of
one second have the same signature. By the INVOCATION_HEADERS, SDKs distinguish such requests, and the tries of one
request. Two kinds of requests are replays:

- a request that equals an earlier request in its signature and in these headers;
- a request with an earlier request's signature and other values of these headers, unless both have such headers, and
  the request comes within the time TOGETHER of the first.

Some SDKs, such as botocore, do not sign these headers. An attacker who reads such a request (no TLS) can repeat it with
other values, but only for the time TOGETHER. Only the process that got a request recognizes its replays.

A presigned URL has its signature in the query. The URL may be used any number of times, for X-Amz-Expires seconds from
its date (default: 15 minutes).
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import posixpath
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from urllib.parse import parse_qsl, quote

from ledger.clock import Clock
from ledger.endpoint.keys import Caller, Key, Keys
from ledger.endpoint.wire import Refusal, Request

ALGORITHM = "AWS4-HMAC-SHA256"
#: A week, as the general reference says.
LONGEST_LIFETIME_SECONDS = 604_800
_CREDENTIAL = r"([^,/\s]+)/(\d{8})/([^,/\s]+)/([^,/\s]+)/aws4_request"
_NAMES, _SIGNATURE = r"([a-z0-9;_-]+)", r"([0-9a-f]{64})"
_HEADER = re.compile(rf"{ALGORITHM} +Credential={_CREDENTIAL} *, *SignedHeaders={_NAMES} *, *Signature={_SIGNATURE}")
_IN_QUERY = tuple(
    (f"X-Amz-{name}", re.compile(pattern))
    for name, pattern in (
        ("Algorithm", ALGORITHM),
        ("Credential", _CREDENTIAL),
        ("SignedHeaders", _NAMES),
        ("Signature", _SIGNATURE),
    )
)
_LIFETIME = re.compile("[0-9]{1,9}")
_KEY_IN_QUERY = re.compile(r"(?:^|&)X-Amz-Credential=([A-Za-z0-9_]{1,128})(?:/|%2[Ff])")
TOKEN_HEADER = "x-amz-security-token"


@dataclass(frozen=True)
class Signed:
    """The parts of a request's signature.

    `headers` names the signed headers. `query` has the query's parameters without the signature itself. `lifetime` is
    the seconds for which a signature in a query holds; None for a signature in a header. `date` is the text of
    X-Amz-Date; empty without this header or parameter, and for an unsigned header.
    """

    access_key: str
    day: str
    region: str
    service: str
    headers: tuple[str, ...]
    signature: str
    date: str
    token: str | None
    query: Sequence[tuple[str, str]]
    lifetime: int | None = None

    @property
    def is_in_query(self) -> bool:
        return self.lifetime is not None

    @property
    def scope(self) -> str:
        return f"{self.day}/{self.region}/{self.service}/aws4_request"


def read(request: Request, default_lifetime: int) -> Signed:
    """Return the parts of a request's signature, without verifying it. Raise a Refusal if they are not complete.

    A signature in a query without X-Amz-Expires holds for `default_lifetime` seconds.
    """
    pairs = _parse_query(request.query)
    header = request.headers.get("authorization")
    in_query = any(name in ("X-Amz-Signature", "X-Amz-Credential", "X-Amz-Algorithm") for name, _ in pairs)
    if header is not None and in_query:
        raise Refusal("IncompleteSignature", "The header Authorization and the query both have a signature: give one.")
    signed = _read_query(request, pairs, default_lifetime) if in_query else _read_header(request, header, pairs)
    needed = {"host", *(name for name in ("x-amz-target",) if name in request.headers)}
    if not needed <= set(signed.headers):
        raise Refusal("SignatureDoesNotMatch", f"Headers that must be signed: {', '.join(sorted(needed))}.")
    return signed


def find_claimed_key(request: Request) -> str | None:
    """Return the id of the key that a request claims to be signed with, or None."""
    match = _HEADER.fullmatch(request.headers.get("authorization", "").strip()) or _KEY_IN_QUERY.search(request.query)
    return match and match[1]


def text_to_sign(request: Request, signed: Signed) -> bytes:
    """Return the text whose HMAC under the signing key is the signature."""
    canonical = hashlib.sha256(_make_canonical_request(request, signed).encode()).hexdigest()
    return f"{ALGORITHM}\n{signed.date}\n{signed.scope}\n{canonical}".encode()


def _read_header(request: Request, header: str | None, pairs: Sequence[tuple[str, str]]) -> Signed:
    if header is None:
        if "SignatureVersion=" in request.query or b"SignatureVersion=" in request.body[:10_000]:
            raise _insecure()
        raise Refusal("MissingAuthenticationToken", "Request is missing Authentication Token")
    if not header.startswith("AWS4-"):
        raise _insecure()
    match = _HEADER.fullmatch(header.strip())
    if match is None:
        raise Refusal(
            "IncompleteSignature",
            "Authorization header requires 'Credential', 'SignedHeaders' and 'Signature' parameters.",
        )
    key, day, region, service, names, signature = match.groups()
    headers = tuple(names.split(";"))
    date = request.headers.get("x-amz-date", "") if "x-amz-date" in headers else ""
    return Signed(key, day, region, service, headers, signature, date, request.headers.get(TOKEN_HEADER), pairs)


def _read_query(request: Request, pairs: Sequence[tuple[str, str]], default_lifetime: int) -> Signed:
    parameters = [(name, value) for name, value in pairs if name.startswith("X-Amz-")]
    values = dict(parameters)
    if len(values) != len(parameters):
        raise Refusal("IncompleteSignature", "The query names a parameter of the signature twice.")
    parts: list[str] = []
    for name, form in _IN_QUERY:
        match = form.fullmatch(values.get(name, ""))
        if match is None:
            what = "has a wrong" if name in values else "must include the parameter"
            raise Refusal("IncompleteSignature", f"The query of a signed request {what} {name!r}.")
        parts.extend(match.groups())
    key, day, region, service, names, signature = parts
    return Signed(
        key, day, region, service, tuple(names.split(";")), signature, values.get("X-Amz-Date", ""),
        values.get("X-Amz-Security-Token", request.headers.get(TOKEN_HEADER)),
        [pair for pair in pairs if pair[0] != "X-Amz-Signature"], _parse_lifetime(values, default_lifetime),
    )  # fmt: skip


def _parse_lifetime(values: Mapping[str, str], default: int) -> int:
    text = values.get("X-Amz-Expires", str(default))
    seconds = int(text) if _LIFETIME.fullmatch(text) else 0
    if not 1 <= seconds <= LONGEST_LIFETIME_SECONDS:
        bound = f"X-Amz-Expires must be a number of seconds from 1 to {LONGEST_LIFETIME_SECONDS}."
        raise Refusal("IncompleteSignature", bound)
    return seconds


def _insecure() -> Refusal:
    return Refusal("InvalidSecurity", "The request was not made over HTTPS or did not use SigV4 for signing.")


def _make_canonical_request(request: Request, signed: Signed) -> str:
    path = posixpath.normpath(request.path) if request.path not in ("", "/") else "/"
    if request.path.endswith("/") and path != "/":
        path += "/"
    pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in signed.query)
    own: Mapping[str, str] = request.headers
    return "\n".join(
        (
            request.method,
            quote("/" + path.lstrip("/"), safe="/-_.~"),
            "&".join(f"{name}={value}" for name, value in pairs),
            *(f"{name}:{' '.join(own.get(name, '').split())}" for name in signed.headers),
            "",
            ";".join(signed.headers),
            hashlib.sha256(request.body).hexdigest(),
        )
    )


def _parse_query(query: str) -> list[tuple[str, str]]:
    # In a signed query a + is a plus sign, not a space.
    return parse_qsl(query.replace("+", "%2B"), keep_blank_values=True) if query else []


SERVICE = "sqs"
#: In milliseconds. WINDOW is how far a date may be off. For TOGETHER see the module's docstring.
WINDOW, TOGETHER = 900_000, 5_000
MINUTE_MILLISECONDS = 60_000
#: Headers of SDKs: the first names a request, the others name its tries. (The older SDK for Java sends the last.)
INVOCATION_HEADERS = ("amz-sdk-invocation-id", "amz-sdk-request", "amz-sdk-retry")
_DATE = re.compile(r"\d{8}T\d{6}Z")
_NOT_EQUAL = (
    "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key "
    "and signing method. Consult the service documentation for details."
)
_NO_KEY = "The security token included in the request is invalid."


class Signatures:
    """Verifies requests against keys. Threads may share a Signatures."""

    def __init__(self, keys: Keys, region: str, clock: Clock) -> None:
        self._keys, self._region, self._clock, self._seen = keys, region, clock, _SeenSignatures()
        self._signing_keys = _SigningKeys()

    def caller(self, request: Request) -> Caller:
        """Return the caller who signed a request. Raise a Refusal for a wrong signature or a replay."""
        signed = read(request, WINDOW // 1_000)
        key = self._find_key(signed)
        if not _DATE.fullmatch(signed.date):
            where = "The query of a signed request" if signed.is_in_query else "Authorization header"
            raise Refusal("IncompleteSignature", f"{where} requires existence of a signed 'X-Amz-Date'.")
        self._require_scope(signed)
        signing_key = self._signing_keys.find(key.secret, signed)
        signature = hmac.digest(signing_key, text_to_sign(request, signed), "sha256").hex()
        if not hmac.compare_digest(signature, signed.signature):
            raise Refusal("SignatureDoesNotMatch", _NOT_EQUAL)
        now, signed_at = self._clock(), _parse_date(signed.date)
        _require_date(signed, signed_at, now)
        if not signed.is_in_query:
            tried = tuple(request.headers.get(name, "") for name in INVOCATION_HEADERS)
            if not self._seen.is_new(signed.signature, tried, signed_at, now):
                raise Refusal("SignatureDoesNotMatch", "This request was received before: sign each request anew.")
        return key.caller

    def replace(self, keys: Keys) -> None:
        """Verify requests with other keys from now on. Replays of earlier requests are still refused."""
        self._keys = keys
        self._signing_keys = _SigningKeys()

    @property
    def remembered(self) -> int:
        return len(self._seen)

    def knows(self, request: Request) -> bool:
        """Tell whether a request names a known key. Nothing is verified."""
        return find_claimed_key(request) in self._keys.known

    def _find_key(self, signed: Signed) -> Key:
        key = self._keys.known.get(signed.access_key)
        if key is None:
            raise Refusal("InvalidClientTokenId", _NO_KEY)
        if key.session_token is not None:
            token = signed.token or ""
            if not hmac.compare_digest(token.encode(), key.session_token.encode()):
                raise Refusal("InvalidClientTokenId", _NO_KEY)
        return key

    def _require_scope(self, signed: Signed) -> None:
        if signed.region != self._region:
            bound = f"Credential should be scoped to a valid region, not {signed.region[:40]!r}."
        elif signed.service != SERVICE:
            bound = f"Credential should be scoped to correct service: {SERVICE!r}."
        elif signed.day != signed.date[:8]:
            day = signed.date[:8]
            bound = f"Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date: {day!r}."
        else:
            return
        raise Refusal("SignatureDoesNotMatch", bound)


class _SigningKeys:
    """A cache of signing keys. Threads may share a _SigningKeys."""

    SIZE = 512

    def __init__(self) -> None:
        self._derived: dict[tuple[str, str, str], bytes] = {}

    def find(self, secret: str, signed: Signed) -> bytes:
        name = secret, signed.day, signed.region
        key = self._derived.get(name)
        if key is None:
            key = f"AWS4{secret}".encode()
            for part in (signed.day, signed.region, signed.service, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            if len(self._derived) >= self.SIZE:
                self._derived.clear()
            self._derived[name] = key
        return key


class _SeenSignatures:
    """Digests of the signatures that came, kept while their dates are within the WINDOW."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: By the date's minute: when each signature first came (ms), and digests of signatures with INVOCATION_HEADERS.
        self._dated: dict[int, tuple[dict[bytes, int], set[bytes]]] = {}

    def is_new(self, signature: str, invocation: tuple[str, ...], signed_at: int, now: int) -> bool:
        """Remember a request. Return False if it is a replay."""
        key = bytes.fromhex(signature)[:16]
        attempt = hashlib.blake2b(key + "\n".join(invocation).encode(), digest_size=16).digest()
        minute = signed_at // MINUTE_MILLISECONDS
        with self._lock:
            if minute not in self._dated:
                for old in [dated for dated in self._dated if (dated + 1) * MINUTE_MILLISECONDS + WINDOW < now]:
                    del self._dated[old]
                self._dated[minute] = {}, set()
            first_seen, tries = self._dated[minute]
            if attempt in tries:
                return False
            first = first_seen.get(key)
            if first is None:
                # A signature that first comes without these headers must not come again: TOGETHER counts as over.
                first_seen[key] = now if any(invocation) else now - TOGETHER - 1
            is_new = first is None or (any(invocation) and now - first <= TOGETHER)
            if is_new:
                tries.add(attempt)
            return is_new

    def __len__(self) -> int:
        with self._lock:
            return sum(len(tries) for _, tries in self._dated.values())


@functools.lru_cache(maxsize=64)
def _parse_date(date: str) -> int:
    try:
        at = datetime.fromisoformat(
            f"{date[:4]}-{date[4:6]}-{date[6:8]}T{date[9:11]}:{date[11:13]}:{date[13:15]}+00:00"
        )
    except ValueError:
        raise Refusal("IncompleteSignature", "Date must be in ISO-8601 'basic format'.") from None
    return round(at.timestamp() * 1_000)


def _require_date(signed: Signed, signed_at: int, now: int) -> None:
    # Clocks differ, so a date may be 15 minutes ahead.
    after = WINDOW if signed.lifetime is None else signed.lifetime * 1_000
    if signed_at - WINDOW <= now <= signed_at + after:
        return
    now_text = datetime.fromtimestamp(now / 1_000, timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    if signed.lifetime is not None and signed_at < now:
        sentence = f"Signature expired: {signed.date} was good for {signed.lifetime} s, and it is {now_text} now"
    else:
        what = "expired" if signed_at < now else "not yet current"
        sentence = f"Signature {what}: {signed.date} is not within 15 min. of {now_text}"
    raise Refusal("SignatureDoesNotMatch", sentence)
