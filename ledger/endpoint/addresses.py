"""Queue URLs: `http://host:port/ACCOUNT/NAME`, at whatever address the client reached the endpoint."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from ledger.endpoint.refusals import address
from ledger.endpoint.wire import Request
from ledger.errors import QueueDoesNotExist

_PATH = re.compile(r"(?:/[^/]*)*?/([0-9]{12})/([^/]{1,200})/?")
_HOST = re.compile(r"[A-Za-z0-9.\-_:\[\]]{1,260}")


def base_of(request: Request, public: str | None) -> str:
    """What queue URLs begin with: `public`, where the endpoint was told one, else how the client called it."""
    host = request.headers.get("host", "")
    return public.rstrip("/") if public else f"{request.scheme}://{host if _HOST.fullmatch(host) else 'localhost'}"


def url_of(base: str, account_id: str, name: str) -> str:
    """The URL of a queue."""
    return f"{base}/{account_id}/{name}"


def queue_in_path(path: str) -> str | None:
    """The path itself, where it may be a queue's: what a request that names no QueueUrl is about."""
    return path if _PATH.fullmatch(path) else None


def name_of(url: object, account_id: str) -> str:
    """The queue's name in a URL, whatever host it names, or in a URL's path. Raises InvalidAddress for what is none,
    QueueDoesNotExist for a queue of another account."""
    try:
        path = urlsplit(url).path if isinstance(url, str) else ""
    except ValueError:
        path = ""
    match = _PATH.fullmatch(path)
    if match is None:
        raise address(url)
    name = unquote(match[2])
    if match[1] != account_id:
        raise QueueDoesNotExist(name)
    return name
