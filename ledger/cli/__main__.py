"""The entry point of `python -m ledger.cli`."""

from __future__ import annotations

import sys

from ledger.cli import main

sys.exit(main())
