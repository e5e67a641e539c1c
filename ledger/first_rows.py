"""The first rows of a consumer, looked at before anything is written: a table that refuses them all is found early."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.access import Access
from ledger.claim_in_hand import require_fitting
from ledger.consumption import Consumption
from ledger.errors import OutputNotWritten
from ledger.handler_calls import Handled
from ledger.isolation import LEAST_WITNESSES
from ledger.row_types import common_types


class FirstRows:
    """Compares rows with the columns of the output table until the first ones fit. The consumer's thread uses it."""

    def __init__(self, access: Access, told: Consumption) -> None:
        self._access, self._told = access, told
        self._refused = 0
        #: Whether no row has fitted yet.
        self.are_awaited = told.output is not None

    def look(self, handled: Sequence[Handled]) -> None:
        """Look at the rows of some messages.

        Raises:
            OutputNotWritten: where the table has no columns for the rows of LEAST_WITNESSES messages, received for the
                first time, and none fitted before. Each further call would be made for nothing.
        """
        for one in handled:
            if not self.are_awaited or not one.rows:
                continue
            types, refused = common_types([one.rows])
            if refused:
                continue
            try:
                require_fitting(self._access, self._told, [one], types)
            except OutputNotWritten:
                self._refused += one.message.receive_count <= 1
                if self._refused >= LEAST_WITNESSES:
                    raise
            else:
                self.are_awaited = False
