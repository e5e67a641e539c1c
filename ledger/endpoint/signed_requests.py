"""The parts of a request's signature, and the text that was signed.

Source: the general reference of AWS, "Signature Version 4", its pages "Create a signed AWS API request" and "Add
authentication information to the query string".
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote

from ledger.endpoint.refusals import Refusal
from ledger.endpoint.wire import Request

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
TOKEN = "x-amz-security-token"


@dataclass(frozen=True)
class Signed:
    """The parts of a request's signature.

    `headers` names the signed headers. `query` has the query's parameters without the signature itself. `lifetime` is
    the seconds for which a signature in a query holds; None for one in a header. `date` is the text of X-Amz-Date;
    empty if that is missing or in an unsigned header.
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
    """Return the parts of a request's signature, which is not verified. Raise a Refusal if they are not complete.

    A signature in a query without X-Amz-Expires holds for `default_lifetime` seconds.
    """
    pairs = _pairs(request.query)
    header = request.headers.get("authorization")
    in_query = any(name in ("X-Amz-Signature", "X-Amz-Credential", "X-Amz-Algorithm") for name, _ in pairs)
    if header is not None and in_query:
        raise Refusal("IncompleteSignature", "The header Authorization and the query both have a signature: give one.")
    signed = _in_query(request, pairs, default_lifetime) if in_query else _in_header(request, header, pairs)
    needed = {"host", *(name for name in ("x-amz-target",) if name in request.headers)}
    if not needed <= set(signed.headers):
        raise Refusal("SignatureDoesNotMatch", f"Headers that must be signed: {', '.join(sorted(needed))}.")
    return signed


def claimed_key(request: Request) -> str | None:
    """Return the id of the key that a request claims to be signed with, or None."""
    match = _HEADER.fullmatch(request.headers.get("authorization", "").strip()) or _KEY_IN_QUERY.search(request.query)
    return match and match[1]


def text_to_sign(request: Request, signed: Signed) -> bytes:
    """Return the text whose HMAC under the signing key is the signature."""
    canonical = hashlib.sha256(_canonical(request, signed).encode()).hexdigest()
    return f"{ALGORITHM}\n{signed.date}\n{signed.scope}\n{canonical}".encode()


def _in_header(request: Request, header: str | None, pairs: Sequence[tuple[str, str]]) -> Signed:
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
    return Signed(key, day, region, service, headers, signature, date, request.headers.get(TOKEN), pairs)


def _in_query(request: Request, pairs: Sequence[tuple[str, str]], default_lifetime: int) -> Signed:
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
        values.get("X-Amz-Security-Token", request.headers.get(TOKEN)),
        [pair for pair in pairs if pair[0] != "X-Amz-Signature"], _lifetime(values, default_lifetime),
    )  # fmt: skip


def _lifetime(values: Mapping[str, str], default: int) -> int:
    text = values.get("X-Amz-Expires", str(default))
    seconds = int(text) if _LIFETIME.fullmatch(text) else 0
    if not 1 <= seconds <= LONGEST_LIFETIME_SECONDS:
        bound = f"X-Amz-Expires must be a number of seconds from 1 to {LONGEST_LIFETIME_SECONDS}."
        raise Refusal("IncompleteSignature", bound)
    return seconds


def _insecure() -> Refusal:
    return Refusal("InvalidSecurity", "The request was not made over HTTPS or did not use SigV4 for signing.")


def _canonical(request: Request, signed: Signed) -> str:
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


def _pairs(query: str) -> list[tuple[str, str]]:
    # In a signed query a + is a plus sign, not a space.
    return parse_qsl(query.replace("+", "%2B"), keep_blank_values=True) if query else []
