"""The bodies of requests, read in parts, with a bound on each body, and a bound on all large bodies together."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any, TypeAlias

from ledger.endpoint.wire import Refusal, Throttled

Event: TypeAlias = "MutableMapping[str, Any]"
Receive: TypeAlias = "Callable[[], Awaitable[Event]]"
#: If the endpoint verifies signatures, only requests that name a known access key may have larger bodies.
LARGE_BODY_BYTES = 65_536
#: The rest of a refused body is read up to this multiple of the bound: after an early close, the client could lose the
#: answer.
DISCARDED_MULTIPLE = 8


class Gone(Exception):
    """The client disconnected."""


class LargeBodies:
    """The memory of all bodies above LARGE_BODY_BYTES, at most `most` bytes.

    Bodies on connections without a verified request get memory only while at most half is taken. Otherwise a client
    that knows only a key's id, which is no secret, could shut out other clients.
    """

    def __init__(self, most: int) -> None:
        self._most, self.taken = most, 0

    def take(self, more: int, *, is_verified: bool) -> bool:
        """Take memory for `more` bytes, and return whether there was enough."""
        if self.taken + more > (self._most if is_verified else self._most // 2):
            return False
        self.taken += more
        return True

    def give_back(self, taken: int) -> None:
        self.taken -= taken


class Body:
    """The body of a request, in `found`, up to `most` bytes.

    A body that is longer, or for which `large_bodies` has no memory, is discarded, and `refusal` is set.
    """

    def __init__(self, most: int, large_bodies: LargeBodies, *, is_verified: bool) -> None:
        self._most, self.found, self._is_verified = most, bytearray(), is_verified
        self._large_bodies, self._taken = large_bodies, 0
        self.refusal: Refusal | None = None

    async def read(self, receive: Receive) -> None:
        """Read the body, or set `refusal`. Raises Gone if the client disconnects."""
        length, more = 0, True
        while more and length <= DISCARDED_MULTIPLE * self._most:
            event = await receive()
            if event["type"] == "http.disconnect":
                raise Gone
            part, more = event.get("body", b""), event.get("more_body", False)
            length += len(part)
            if self.refusal is None:
                self.refusal = self._refuse_or_take(length)
            if self.refusal is None:
                self.found += part
            else:
                self.found.clear()
                self.free()

    def free(self) -> None:
        self._large_bodies.give_back(self._taken)
        self._taken = 0

    def _refuse_or_take(self, length: int) -> Refusal | None:
        """Return why a body of this length is refused, or take memory for it and return None."""
        if length > self._most:
            return Refusal("RequestEntityTooLarge", f"The body of a request has at most {self._most} bytes.")
        more = length - self._taken
        if length > LARGE_BODY_BYTES:
            if not self._large_bodies.take(more, is_verified=self._is_verified):
                return Throttled()
            self._taken += more
        return None


async def read_within(seconds: float, reading: Coroutine[Any, Any, None]) -> None:
    if sys.version_info < (3, 11):
        await asyncio.wait_for(reading, seconds)
    else:
        # `asyncio.timeout` makes no task. A task would slow every request.
        async with asyncio.timeout(seconds):
            await reading
