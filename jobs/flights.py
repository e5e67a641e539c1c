"""Sends a year of flights through a ledger while a worker is killed, and proves the result.

    python3 jobs/flights.py

Every flight that left New York in 2013 becomes a message. Workers (jobs/work.py under spark-submit, as on a cluster)
claim them in batches, compute delays and acknowledge. One worker is killed after it has written results and before it
acknowledges. Its claim expires, and the other workers take its messages over. The job then proves that every flight is
in the output exactly once, or left in the queue with its reason.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT))


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--root", type=Path, help="The folder to make (default: a new one in ./ledger-data).")
    arguments.add_argument(
        "--flights", type=int, metavar="N", help="Take a sample of N flights (default: all 336,776)."
    )
    arguments.add_argument(
        "--workers", type=int, default=3, metavar="N", help="Number of worker processes (default: 3)."
    )
    arguments.add_argument(
        "--claim", type=int, metavar="N", help="Most flights of one claim (default: a ninth of all)."
    )
    arguments.add_argument(
        "--visibility-timeout",
        type=int,
        default=20,
        metavar="S",
        help="Seconds a claim is held without a heartbeat (default: 20).",
    )
    arguments.add_argument("--no-accident", action="store_true", help="Kill no worker.")
    return arguments


def main(options: argparse.Namespace) -> int:
    from jobs.flights_demo.run import Run

    root = options.root or fresh_folder()
    if root.exists() and any(root.iterdir()):
        print(f"flights: {root} is not empty; name a new folder with --root", file=sys.stderr)
        return 2
    if options.workers < 1 + (not options.no_accident) or (options.flights is not None and options.flights < 100):
        print(
            "flights: takes at least 100 flights and 2 workers, as one is killed (1 with --no-accident)",
            file=sys.stderr,
        )
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return Run(root.absolute(), options).run()
    except KeyboardInterrupt:
        print("\nflights: interrupted; the workers are ended", file=sys.stderr)
        return 130


def fresh_folder() -> Path:
    """Return ./ledger-data/flights, or the first free name with a number behind it."""
    names = ["flights", *(f"flights-{number}" for number in range(2, 10_000))]
    return next(folder for folder in (Path("ledger-data", name) for name in names) if not folder.exists())


if __name__ == "__main__":
    chosen = parser().parse_args()
    from ledger.runtime.bootstrap import ensure_environment

    ensure_environment(["spark", "flights", "jvm"])
    started = time.monotonic()
    code = main(chosen)
    if code in (0, 1):
        print(
            f"\n{'all of it holds' if code == 0 else 'NOT ALL OF IT HOLDS'}, after {time.monotonic() - started:.0f} s"
        )
    sys.exit(code)
