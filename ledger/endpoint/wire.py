"""Requests, responses and commands, without a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Request:
    """A whole HTTP request.

    `path` and `query` have percent escapes as they were sent. The names of headers are in lower case. Of several
    headers of one name, `headers` has the last.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    scheme: str = "http"


@dataclass(frozen=True)
class Response:
    """A whole HTTP response, without the headers of the connection."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Command:
    """An action, and its parameters by their names in botocore's model."""

    action: str
    parameters: Mapping[str, object]
