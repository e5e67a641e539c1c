"""A trial of an object store, for `ledger doctor`, by the functions that open a ledger there."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping

from ledger.clock import system_clock
from ledger.delta_log.object_store import open_checked
from ledger.errors import InvalidParameterValue, StorageFailed, UnsafeStorage
from ledger.rules.limits import MILLISECONDS
from ledger.rules.storage import for_delta_rs
from ledger.store.delta.commit.clocks import RESOLUTION, probe_of
from ledger.store.delta.commit.storage_safety import require_conditional_puts

#: In seconds. A verb that commits makes 7 to 10 requests (docs/explanation/measured.md), mostly in a row.
SLOW = 0.2
KEYS = (
    "the doctor goes by the environment alone. On S3 set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION for "
    "it, or give the machine a role; for a store that is not AWS's also AWS_ENDPOINT_URL, and AWS_ALLOW_HTTP=true for "
    "http:"
)
NO_BUCKET = "is the bucket's name mistyped? No command of ledger makes a bucket"
#: The code in an answer of S3, whose end may be cut off.
CODE = re.compile(r"<Code>(\w+)</Code>")
REQUESTS = 5


def report(root: str, storage_options: Mapping[str, str] | None = None) -> Iterator[tuple[str, str, str, str]]:
    """Yield (OK, WARN or FAIL; subject; finding; advice) for each thing that a ledger needs of its storage.

    Nothing follows a FAIL: it is not raised. Writes small files, and removes them.
    """
    place = for_delta_rs(root)
    try:
        files = open_checked(place, storage_options or {}, storage_options or {})
        yield "OK", "credentials", f"{place} can be listed", ""
        require_conditional_puts(files)
        yield "OK", "conditional put", "a second put of a file is refused", ""
        before = system_clock()
        seconds_apart = (probe_of(files)() - max(before, system_clock())) / MILLISECONDS
        began = time.monotonic()
        for _ in range(REQUESTS):
            files.get("_probes/none")
        seconds_a_request = (time.monotonic() - began) / REQUESTS
    except UnsafeStorage as error:
        yield "FAIL", "conditional put", str(error), "no ledger can lie there"
        return
    except (InvalidParameterValue, StorageFailed) as error:
        cause = error.cause if isinstance(error, StorageFailed) else str(error)
        answered = CODE.search(cause)
        cause = cause if answered is None else f"the store answers {answered[1]}"
        advice = NO_BUCKET if answered is not None and answered[1] == "NoSuchBucket" else KEYS
        yield "FAIL", "credentials", f"{place} cannot be read and written: {cause}", advice
        return
    difference = f"the storage's is {abs(seconds_apart):.1f} s {'ahead' if seconds_apart > 0 else 'behind'}"
    if abs(seconds_apart) > 2 * RESOLUTION:
        yield (
            "WARN",
            "storage clock",
            difference,
            "synchronise this machine's (NTP): a deadline is early or late by as much",
        )
    else:
        yield "OK", "storage clock", difference, ""
    latency = f"{seconds_a_request * MILLISECONDS:.0f} ms a request"
    if seconds_a_request > SLOW:
        yield "WARN", "latency", latency, "a verb is some ten requests: run workers in the bucket's region"
    else:
        yield "OK", "latency", latency, ""
