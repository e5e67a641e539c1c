"""Signature Version 4, verified: who signed a request, with which key, when, and that nobody sent it before.

A request is refused that is signed wrongly, with an unknown key, for another region or service, or more than 15 minutes
off; and one that came before. A signature has no nonce, so two requests that are equal and of the same second have the
same. SDKs give each a header amz-sdk-invocation-id, and each try of it amz-sdk-request: what is the same down to these
is a replay, and so is a signature that comes with other ones later than TOGETHER after it came first, or that came
without any. SDKs do not sign these headers: who reads what is sent (no TLS) can repeat it under another, for so long.
"""

from __future__ import annotations

import hashlib
import hmac
import posixpath
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from urllib.parse import parse_qsl, quote

from ledger.clock import Clock
from ledger.endpoint.callers import Caller
from ledger.endpoint.keys import Keys
from ledger.endpoint.refusals import Refusal
from ledger.endpoint.wire import Request

ALGORITHM, SERVICE = "AWS4-HMAC-SHA256", "sqs"
#: How far off a date may be, and how long after it came first a signature may come with another invocation; in ms.
WINDOW, TOGETHER = 900_000, 5_000
MINUTE = 60_000
#: What SDKs tell a call, and each try of it, by. (The last is the older SDK of Java's.)
INVOCATION = ("amz-sdk-invocation-id", "amz-sdk-request", "amz-sdk-retry")
_HEADER = re.compile(
    ALGORITHM + r" +Credential=([^,/\s]+)/(\d{8})/([^,/\s]+)/([^,/\s]+)/aws4_request *, *"
    r"SignedHeaders=([a-z0-9;_-]+) *, *Signature=([0-9a-f]{64})"
)
_DATE = re.compile(r"\d{8}T\d{6}Z")
_NOT_EQUAL = (
    "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key "
    "and signing method. Consult the service documentation for details."
)


@dataclass(frozen=True)
class _Signed:
    """What an Authorization header says."""

    access_key: str
    day: str
    region: str
    service: str
    headers: tuple[str, ...]
    signature: str


class Signatures:
    """Verifies requests against keys. Threads may share it."""

    def __init__(self, keys: Keys, region: str, clock: Clock) -> None:
        self._keys, self._region, self._clock, self._seen = keys, region, clock, _Seen()

    def caller(self, request: Request) -> Caller:
        """Who signed a request. Raises a Refusal."""
        signed = _read(request)
        key = self._keys.known.get(signed.access_key)
        if key is None:
            raise Refusal("InvalidClientTokenId", "The security token included in the request is invalid.")
        date = request.headers.get("x-amz-date", "")
        if not _DATE.fullmatch(date) or "x-amz-date" not in signed.headers:
            raise Refusal("IncompleteSignature", "Authorization header requires existence of a signed 'X-Amz-Date'.")
        self._require_scope(signed, date)
        scope = f"{signed.day}/{signed.region}/{SERVICE}/aws4_request"
        asked = f"{ALGORITHM}\n{date}\n{scope}\n{_sha256(_canonical(request, signed.headers))}"
        found = hmac.new(_signing_key(key.secret, signed), asked.encode(), hashlib.sha256).hexdigest()
        if not hmac.compare_digest(found, signed.signature):
            raise Refusal("SignatureDoesNotMatch", _NOT_EQUAL)
        now = self._clock()
        signed_at = _instant(date)
        _require_date(date, signed_at, now)
        tried = tuple(request.headers.get(name, "") for name in INVOCATION)
        if not self._seen.is_new(signed.signature, tried, signed_at, now):
            raise Refusal("SignatureDoesNotMatch", "This request was received before: sign each request anew.")
        return key.caller

    @property
    def remembered(self) -> int:
        """How many requests are remembered: those of the last quarter of an hour."""
        return len(self._seen)

    def knows(self, request: Request) -> bool:
        """Whether a request says that it is signed with a known key: what it has to say is worth reading."""
        match = _HEADER.fullmatch(request.headers.get("authorization", "").strip())
        return match is not None and match[1] in self._keys.known

    def _require_scope(self, signed: _Signed, date: str) -> None:
        if signed.region != self._region:
            bound = f"Credential should be scoped to a valid region, not {signed.region[:40]!r}."
        elif signed.service != SERVICE:
            bound = f"Credential should be scoped to correct service: {SERVICE!r}."
        elif signed.day != date[:8]:
            bound = f"Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date: {date[:8]!r}."
        else:
            return
        raise Refusal("SignatureDoesNotMatch", bound)


class _Seen:
    """Which signatures came, and with which invocations, as long as their date is within the window. Digests only."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: By the minute that they are dated: by signature, when it came first; and by signature and invocation, that it
        #: came. What comes again has the same date.
        self._dated: dict[int, tuple[dict[bytes, int], set[bytes]]] = {}

    def is_new(self, signature: str, tried: tuple[str, ...], signed_at: int, now: int) -> bool:
        """Remembers a request, and says whether it is the first of its kind, see above."""
        key = bytes.fromhex(signature)[:16]
        one = hashlib.blake2b(key + "\n".join(tried).encode(), digest_size=16).digest()
        minute = signed_at // MINUTE
        with self._lock:
            if minute not in self._dated:
                # What is dated earlier is refused for its date.
                for old in [known for known in self._dated if (known + 1) * MINUTE + WINDOW < now]:
                    del self._dated[old]
                self._dated[minute] = {}, set()
            known, tries = self._dated[minute]
            if one in tries:
                return False
            tries.add(one)
            first = known.get(key)
            if first is None:
                # What no SDK told apart from others is one request, whatever somebody adds to it.
                known[key] = now if any(tried) else now - TOGETHER - 1
            return first is None or (any(tried) and now - first <= TOGETHER)

    def __len__(self) -> int:
        with self._lock:
            return sum(len(tries) for _, tries in self._dated.values())


def _instant(date: str) -> int:
    try:
        at = datetime.fromisoformat(
            f"{date[:4]}-{date[4:6]}-{date[6:8]}T{date[9:11]}:{date[11:13]}:{date[13:15]}+00:00"
        )
    except ValueError:
        raise Refusal("IncompleteSignature", "Date must be in ISO-8601 'basic format'.") from None
    return round(at.timestamp() * 1_000)


def _require_date(date: str, signed_at: int, now: int) -> None:
    if abs(now - signed_at) > WINDOW:
        what = "expired" if signed_at < now else "not yet current"
        here = datetime.fromtimestamp(now / 1_000, timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        raise Refusal("SignatureDoesNotMatch", f"Signature {what}: {date} is not within 15 min. of {here}")


def _read(request: Request) -> _Signed:
    header = request.headers.get("authorization")
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
    key, day, region, service, headers, signature = match.groups()
    signed = _Signed(key, day, region, service, tuple(headers.split(";")), signature)
    needed = {"host", *(name for name in ("x-amz-target",) if name in request.headers)}
    if not needed <= set(signed.headers):
        raise Refusal("SignatureDoesNotMatch", f"Headers that must be signed: {', '.join(sorted(needed))}.")
    return signed


def _insecure() -> Refusal:
    return Refusal("InvalidSecurity", "The request was not made over HTTPS or did not use SigV4 for signing.")


def _canonical(request: Request, headers: tuple[str, ...]) -> str:
    path = posixpath.normpath(request.path) if request.path not in ("", "/") else "/"
    if request.path.endswith("/") and path != "/":
        path += "/"
    pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in _pairs(request.query))
    own: Mapping[str, str] = request.headers
    return "\n".join(
        (
            request.method,
            quote("/" + path.lstrip("/"), safe="/-_.~"),
            "&".join(f"{name}={value}" for name, value in pairs),
            *(f"{name}:{' '.join(own.get(name, '').split())}" for name in headers),
            "",
            ";".join(headers),
            hashlib.sha256(request.body).hexdigest(),
        )
    )


def _pairs(query: str) -> list[tuple[str, str]]:
    # Here a + is itself, as signers have it, and not a space.
    return parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _signing_key(secret: str, signed: _Signed) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (signed.day, signed.region, signed.service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key
