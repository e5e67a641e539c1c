"""`python -m ledger`: the command `ledger`."""

from __future__ import annotations

import sys

from ledger.cli import main

sys.exit(main())
