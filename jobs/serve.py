"""Serves a ledger over HTTP, as SQS: `jobs/serve.py ROOT --keys FILE`. Does as a job what `ledger serve` does."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jobs import common

NEEDED = ("botocore", "uvicorn", "httptools")


def parser() -> argparse.ArgumentParser:
    arguments = common.arguments("Serve a ledger over HTTP, as SQS, until SIGTERM or Ctrl-C.", owner=True, json=True)
    arguments.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    arguments.add_argument("--port", type=int, default=9324, help="0 takes a free one, and says which")
    arguments.add_argument("--keys", metavar="FILE", help="the keys that requests are signed with, a TOML file")
    arguments.add_argument(
        "--without-signatures", action="store_true", help="take every request, of this machine alone"
    )
    arguments.add_argument("--certificate", metavar="FILE", help="serve with TLS: the certificate, in PEM")
    arguments.add_argument("--certificate-key", metavar="FILE", help="its key, in PEM")
    arguments.add_argument(
        "--receipts", choices=("fenced", "recorded"), default="fenced", help="of queues that are made from now on"
    )
    arguments.add_argument("--url", help="what queue URLs begin with, where a proxy has another name")
    arguments.add_argument("--threads", type=int, default=36, help="threads that work on the tables")
    arguments.add_argument("--open-metrics", action="store_true", help="let others than this machine read /metrics")
    arguments.add_argument("--access-log", metavar="FILE", help="append a line of JSON for each request; - is stdout")
    arguments.add_argument(
        "--upkeep-every",
        metavar="PERIOD",
        default="5m",
        help="look so often whether upkeep is due; 0 leaves it to others",
    )
    arguments.add_argument("--create", action="store_true", help="make the ledger if there is none")
    return arguments


def main(options: argparse.Namespace) -> None:
    from ledger.endpoint.command import Options, run

    option_values = {name: getattr(options, name) for name in Options.__dataclass_fields__}
    opened = partial(common.open_ledger, options, make=options.create)
    if options.json:
        from ledger.cli.printing import print_json

        def announce(url: str) -> None:
            print_json({"url": url, "root": options.root, "pid": os.getpid()})

        run(opened, Options(**option_values), lambda line: print(line, file=sys.stderr, flush=True), announce)
    else:
        run(opened, Options(**option_values), lambda line: print(line, flush=True))


if __name__ == "__main__":
    if not all(map(importlib.util.find_spec, NEEDED)):
        from ledger.runtime.bootstrap import ensure_environment

        ensure_environment(["endpoint"])
    sys.exit(common.run(parser(), main))
