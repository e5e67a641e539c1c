"""Serves a ledger over HTTP, as SQS: `jobs/serve.py ROOT --keys FILE`. The job does what `ledger serve` does."""

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
    arguments.add_argument("--host", default="127.0.0.1", help="The address to listen on.")
    arguments.add_argument(
        "--port", type=int, default=9324, help="The port to listen on; 0 takes a free one and prints it."
    )
    arguments.add_argument(
        "--keys", metavar="FILE", help="A TOML file of the keys that requests are signed with; SIGHUP reads it again."
    )
    arguments.add_argument(
        "--without-signatures", action="store_true", help="Take every request, but only from this machine."
    )
    arguments.add_argument("--certificate", metavar="FILE", help="Serve with TLS: the certificate, in PEM.")
    arguments.add_argument("--certificate-key", metavar="FILE", help="Its key, in PEM.")
    arguments.add_argument(
        "--receipts",
        choices=("fenced", "recorded"),
        default="fenced",
        help="How queues created from now on treat late and replaced receipts: as SQS documents, "
        "or as recorded of SQS.",
    )
    arguments.add_argument("--url", help="The beginning of queue URLs, if a proxy has another name.")
    arguments.add_argument("--threads", type=int, default=36, help="Threads that work on the tables.")
    arguments.add_argument("--open-metrics", action="store_true", help="Let other machines read /metrics, too.")
    arguments.add_argument(
        "--access-log", metavar="FILE", help="Append a line of JSON for each request, without its body; - is stdout."
    )
    arguments.add_argument(
        "--upkeep-every",
        metavar="PERIOD",
        default="5m",
        help="Check once in each PERIOD whether upkeep is due, and run it in a thread; 0 leaves upkeep to others.",
    )
    arguments.add_argument("--create", action="store_true", help="Make the ledger if there is none.")
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
