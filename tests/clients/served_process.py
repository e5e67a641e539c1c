"""`ledger serve` as a process of its own, with signatures, for clients that are processes too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ledger.endpoint import keys
from tests.endpoint.test_command import Process

KEY, SECRET, REGION = "AKIDOFTHECLIENTS", "a-long-secret-of-the-clients", "us-east-1"


@contextmanager
def served_process(folder: Path) -> Iterator[dict[str, str]]:
    """Serve a new ledger in `folder` on a free port until the end of the block.

    Yields:
        The environment that a client's program needs: where the endpoint is, and its key, both under the names that
        the programs read and under those that AWS's SDKs read by themselves.
    """
    given = {keys.ACCESS_KEY: KEY, keys.SECRET_KEY: SECRET}
    served = Process("-m", "ledger.cli", "serve", str(folder / "ledger"), "--create", environment=given)
    try:
        yield {
            **given,
            "LEDGER_URL": served.url,
            "AWS_ENDPOINT_URL_SQS": served.url,
            "AWS_REGION": REGION,
            # botocore reads this one.
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            # No client of a test asks a cloud that it is not in.
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    finally:
        assert served.end() == 0
        assert SECRET not in served.said and "Traceback" not in served.said
