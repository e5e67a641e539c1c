"""Runs one round of upkeep, for a schedule: `jobs/upkeep.py ROOT`. Queues work correctly without upkeep."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jobs import common


def parser() -> argparse.ArgumentParser:
    arguments = common.arguments(
        "Drop finished segments, join rows, compact, vacuum, and bring the receipts ledger up to date. Claims may run "
        "meanwhile. Once an hour is enough. The receipts ledger stays complete only with a round every 30 days.",
        owner=True,
        json=True,
    )
    arguments.add_argument("--no-vacuum", action="store_true", help="Leave unused files in place.")
    return arguments


def main(options: argparse.Namespace) -> None:
    did = dataclasses.asdict(common.open_ledger(options).upkeep(vacuum=not options.no_vacuum))
    rows: list[dict[str, object]] = [{"did": name.replace("_", " "), "how many": n} for name, n in did.items()]
    common.report(options, did, common.table(rows))


if __name__ == "__main__":
    sys.exit(common.run(parser(), main))
