"""What goes over the wire, without a server: a request that was read, and a response to be written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Request:
    """An HTTP request, whole. `path` and `query` are as they were sent, percent signs and all; the names of headers are
    in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    scheme: str = "http"


@dataclass(frozen=True)
class Response:
    """An HTTP response, whole. What is about the connection the server adds."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Command:
    """What a request asks for, whichever protocol said it: an action of the service, and its parameters by the names
    of the service's model."""

    action: str
    parameters: Mapping[str, object]
