"""Queue URLs: `http://host:port/ACCOUNT/NAME`, with the address that the client used, or that of `--url`.

A request may also name a queue by the path of its URL, or by its bare name. Source: LocalStack's
test_posting_to_queue_via_queue_name, validated against AWS.
"""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from ledger.endpoint.wire import Request, invalid_address
from ledger.errors import QueueDoesNotExist

_PATH = re.compile(r"(?:/[^/]*)*?/([0-9]{12})/([^/]{1,200})/?")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}(?:\.fifo)?")
_HOST = re.compile(r"[A-Za-z0-9.\-_:\[\]]{1,260}")


def base_of(request: Request, public: str | None) -> str:
    """Return the beginning of queue URLs: `public`, or else the address in the request's header Host."""
    host = request.headers.get("host", "")
    return public.rstrip("/") if public else f"{request.scheme}://{host if _HOST.fullmatch(host) else 'localhost'}"


def url_of(base: str, account_id: str, name: str) -> str:
    return f"{base}/{account_id}/{name}"


def queue_in_path(path: str) -> str | None:
    """Return the path if it can be the path of a queue's URL; else None."""
    return path if _PATH.fullmatch(path) else None


def name_of(url: object, account_id: str, caller_id: str) -> str:
    """Return the name of the queue that a request names.

    Args:
        url: A queue's URL with any host, its path, or a queue's bare name.
        account_id: The account that owns the ledger's queues.
        caller_id: The caller's account. A bare name means a queue of this account.

    Raises:
        Refusal: InvalidAddress, if `url` has none of these forms.
        QueueDoesNotExist: `url` names a queue of another account, or only a host.
    """
    if isinstance(url, str) and _NAME.fullmatch(url):
        return _require_account(url, caller_id, account_id)
    try:
        parts = urlsplit(url) if isinstance(url, str) else urlsplit("")
        host, path = parts.netloc, parts.path
    except ValueError:
        host, path = "", ""
    if host and not path:
        # Source: moto's test_get_queue_url_error_not_exists, verified against AWS.
        raise QueueDoesNotExist(str(url))
    match = _PATH.fullmatch(path if path.startswith("/") else f"/{path}")
    if match is None:
        raise invalid_address(url)
    return _require_account(unquote(match[2]), match[1], account_id)


def _require_account(name: str, named_account_id: str, account_id: str) -> str:
    if named_account_id != account_id:
        raise QueueDoesNotExist(name)
    return name
