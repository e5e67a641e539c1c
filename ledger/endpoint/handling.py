"""The handling of one request: verify, read, do, answer."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from ledger.endpoint import addresses, json_protocol, query_json, query_protocol, service_model
from ledger.endpoint.actions import ACTIONS, Result
from ledger.endpoint.actions.call import Call
from ledger.endpoint.actions.messages import Waiting
from ledger.endpoint.keys import Caller
from ledger.endpoint.signatures import Signatures
from ledger.endpoint.statuses import told
from ledger.endpoint.wire import NoAction, Refusal, Request, Response
from ledger.ledger import Ledger


@dataclass(frozen=True)
class Endpoint:
    """The ledger that is served, and how.

    Without `signatures` every caller is the owner. `new_queues` are attributes of new queues, unless the request gives
    them. `public` is the beginning of queue URLs; None: the address in the request's header Host.
    """

    ledger: Ledger
    signatures: Signatures | None = None
    new_queues: Mapping[str, str] = field(default_factory=dict)
    public: str | None = None


class Exchange:
    """One request and its response. `begun` sets `action` and, at its end, `call`."""

    def __init__(self, endpoint: Endpoint, request: Request) -> None:
        self._endpoint, self._request = endpoint, request
        self._protocol: Any = json_protocol if json_protocol.is_spoken_in(request) else query_protocol
        in_json = self._protocol is query_protocol and query_json.is_accepted(request)
        self._answers: Any = query_json if in_json else self._protocol
        # The id is no secret. uuid4 is slower, because it reads the system's randomness.
        self._id = str(uuid.UUID(int=random.getrandbits(128), version=4))
        #: The size of the request's body; 0 if the body was discarded.
        self.bytes_in = len(request.body)
        self.action: str | None = None
        self.call: Call | None = None
        self._parameters: dict[str, Any] = {}
        #: The error's code in the Query protocol, after a call of `refused`.
        self.refused_for: str | None = None

    def begun(self) -> Call:
        """Verify and read the request, and return its call. Raise a LedgerError if the request is refused."""
        request, endpoint = self._request, self._endpoint
        if request.method not in ("GET", "POST"):
            raise Refusal("UnsupportedOperation", "Unsupported operation.")
        account = endpoint.ledger.settings.account
        if endpoint.signatures:
            caller = endpoint.signatures.caller(request)
        else:
            _require_no_page(request, endpoint.public)
            caller = Caller(account.account_id)
        command = self._protocol.read(request)
        self.action = command.action
        parameters = self._parameters = dict(command.parameters)
        if "QueueUrl" in service_model.input_shape(command.action).members and "QueueUrl" not in parameters:
            path = addresses.queue_in_path(request.path)
            parameters.update({"QueueUrl": path} if path else {})
        service_model.require_parameters(command.action, parameters)
        base = addresses.base_of(request, endpoint.public)
        trace = request.headers.get("x-amzn-trace-id")
        self.call = Call(endpoint.ledger, command.action, parameters, base, caller, endpoint.new_queues, trace)
        return self.call

    def free(self) -> None:
        """Free what only the handling needs. `call.queue_asked` still works."""
        self._request = replace(self._request, body=b"")
        for name in self._parameters.keys() - {"QueueUrl", "QueueName"}:
            del self._parameters[name]

    def done(self, call: Call) -> Result | Waiting:
        """Do the call. Return its result, or a Waiting for a receive that found nothing and may wait.

        DeleteQueue, StartMessageMoveTask, and PurgeQueue of a FIFO queue make several commits. If one of them fails,
        earlier commits may exist. Raises a LedgerError if the action is refused or fails.
        """
        return ACTIONS[call.action](call)

    def written(self, result: Result) -> Response:
        assert self.action is not None, "it has begun"
        response: Response = self._answers.written(self.action, result, self._id)
        return response

    def refused(self, error: BaseException) -> Response:
        answer = told(error, self.action)
        self.refused_for = answer.known.query_code
        if isinstance(error, NoAction):
            return query_protocol.answer_without_action(self._id)
        response: Response = self._answers.refused(self.action, answer, self._id)
        return response


def is_loopback_named(request: Request) -> bool:
    """Tell whether the header Host is a name or address that only this machine has. True without a Host.

    Every browser sends a Host.
    """
    host = _host_of(f"//{request.headers.get('host', 'localhost')}").removesuffix(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
        return (getattr(address, "ipv4_mapped", None) or address).is_loopback
    except ValueError:
        return False


def _require_no_page(request: Request, public: str | None) -> None:
    """Raise a Refusal for a request that a page in a browser makes, or may make.

    A browser on this machine sends requests for any page that it shows. Without signatures a page could purge a queue.
    Today's browsers say in Sec-Fetch-Site where a request comes from: `none` means that the user typed the address.
    Older browsers may name no site, so they are refused. A foreign page's host name can have this machine's address
    (DNS rebinding), so Host must name this machine, or the host of `public`.
    """
    site = request.headers.get("sec-fetch-site")
    is_old_browser = request.headers.get("user-agent", "").startswith("Mozilla/")
    foreign = is_old_browser or _is_foreign(request) if site is None else site != "none"
    if "origin" in request.headers or foreign:
        raise Refusal("AccessDenied", "A page in a browser may not use an endpoint that verifies no signatures.")
    named = request.headers.get("host", "")
    if not is_loopback_named(request) and (public is None or _host_of(f"//{named}") != _host_of(public)):
        raise Refusal(
            "AccessDenied",
            f"The header Host is {named[:100]!r}: without signatures the endpoint answers to localhost, to loopback "
            "addresses, and to the host of --url.",
        )


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_foreign(request: Request) -> bool:
    """Tell whether the Referer cannot be read, or is not at the address in the header Host."""
    referer = request.headers.get("referer")
    if referer is None:
        return False
    try:
        return urlsplit(referer).netloc.lower() != request.headers.get("host", "").lower()
    except ValueError:
        return True
