"""A request from the first byte to the last, whoever serves it: verified, read, done, answered. No server in here."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ledger.endpoint import addresses, json_protocol, query_json, query_protocol, service_model
from ledger.endpoint.actions import ACTIONS, Result
from ledger.endpoint.actions.call import Call
from ledger.endpoint.actions.messages import Waiting
from ledger.endpoint.callers import Caller
from ledger.endpoint.refusals import NoAction, Refusal
from ledger.endpoint.signatures import Signatures
from ledger.endpoint.statuses import told
from ledger.endpoint.wire import Request, Response
from ledger.ledger import Ledger


@dataclass(frozen=True)
class Endpoint:
    """A ledger as a service. Without `signatures` every caller is the owner. `new_queues` is what queues are made with
    beside what requests say, `public` what queue URLs begin with where that is not how clients reach it."""

    ledger: Ledger
    signatures: Signatures | None = None
    new_queues: Mapping[str, str] = field(default_factory=dict)
    public: str | None = None


class Exchange:
    """One request and its response. `action` and `call` are known once it has begun."""

    def __init__(self, endpoint: Endpoint, request: Request) -> None:
        self._endpoint, self._request = endpoint, request
        self._protocol: Any = json_protocol if json_protocol.is_spoken_in(request) else query_protocol
        # A request may be answered in JSON that asks in the Query protocol.
        in_json = self._protocol is query_protocol and query_json.is_accepted(request)
        self._answers: Any = query_json if in_json else self._protocol
        # No secret: the system's randomness takes longer, as others have the processor meanwhile.
        self._id = str(uuid.UUID(int=random.getrandbits(128), version=4))
        self.action: str | None = None
        self.call: Call | None = None
        #: Why it was refused: the Query code; None for a success.
        self.refused_for: str | None = None

    def begun(self) -> Call:
        """Who asks for what. Raises the LedgerError that it is refused for; nothing was done then."""
        request, endpoint = self._request, self._endpoint
        if request.method not in ("GET", "POST"):
            raise Refusal("UnsupportedOperation", "Unsupported operation.")
        account = endpoint.ledger.settings.account
        if endpoint.signatures:
            caller = endpoint.signatures.caller(request)
        else:
            _require_no_page(request)
            caller = Caller(account.account_id)
        command = self._protocol.read(request)
        self.action = command.action
        parameters = dict(command.parameters)
        if "QueueUrl" in service_model.input_shape(command.action).members and "QueueUrl" not in parameters:
            path = addresses.queue_in_path(request.path)
            parameters.update({"QueueUrl": path} if path else {})
        service_model.require(command.action, parameters)
        base = addresses.base_of(request, endpoint.public)
        trace = request.headers.get("x-amzn-trace-id")
        self.call = Call(endpoint.ledger, command.action, parameters, base, caller, endpoint.new_queues, trace)
        return self.call

    @property
    def bytes_in(self) -> int:
        """How long the request's body is."""
        return len(self._request.body)

    def done(self, call: Call) -> Result | Waiting:
        """Does it, in one commit or none. Raises what it is refused for."""
        return ACTIONS[call.action](call)

    def written(self, result: Result) -> Response:
        """The response with a result."""
        assert self.action is not None, "it has begun"
        response: Response = self._answers.written(self.action, result, self._id)
        return response

    def refused(self, error: BaseException) -> Response:
        """The response with an error."""
        said = told(error, self.action)
        self.refused_for = said.known.query_code
        if isinstance(error, NoAction):
            return query_protocol.without_action(self._id)
        response: Response = self._answers.refused(self.action, said, self._id)
        return response


def _require_no_page(request: Request) -> None:
    """Raise a Refusal for a request that a browser sends for somebody else's page.

    Such a request reaches this machine from this machine: a form or an image is a request, and nothing else would keep
    a page from purging a queue. Browsers of now say by Sec-Fetch-Site for whom they ask. Older ones say by Origin, or
    by Referer alone, as for the image of a page.
    """
    site = request.headers.get("sec-fetch-site")
    foreign = _is_foreign(request) if site is None else site != "none"
    if "origin" in request.headers or foreign:
        raise Refusal("AccessDenied", "A page in a browser may not use an endpoint that verifies no signatures.")


def _is_foreign(request: Request) -> bool:
    """Return whether a request has a Referer that is no page of this endpoint's own address."""
    referer = request.headers.get("referer")
    if referer is None:
        return False
    try:
        return urlsplit(referer).netloc.lower() != request.headers.get("host", "").lower()
    except ValueError:
        return True
