"""Settling: what a queue and each of its claims do alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from ledger.access import Access
from ledger.applying import settle
from ledger.results import HandleOutcome

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from ledger.handles import Handles, HandleSequence, Outcomes, PlainHandles, Reasons, Timeouts


class Settling:
    """What has access to a queue and settles messages of it: the Queue, and each Claim of it."""

    def __init__(self, access: Access) -> None:
        self.access = access

    @overload
    def settle(
        self,
        *,
        delete: HandleSequence | None = None,
        release: HandleSequence | None = None,
        extend: HandleSequence | None = None,
        visibility_timeout: Timeouts | None = None,
        reason: Reasons | None = None,
    ) -> list[HandleOutcome]: ...
    @overload
    def settle(
        self,
        *,
        delete: DataFrame,
        release: Handles | None = None,
        extend: Handles | None = None,
        visibility_timeout: Timeouts | None = None,
        reason: Reasons | None = None,
    ) -> DataFrame: ...
    @overload
    def settle(
        self,
        *,
        delete: Handles | None = None,
        release: DataFrame,
        extend: Handles | None = None,
        visibility_timeout: Timeouts | None = None,
        reason: Reasons | None = None,
    ) -> DataFrame: ...
    @overload
    def settle(
        self,
        *,
        delete: Handles | None = None,
        release: Handles | None = None,
        extend: DataFrame,
        visibility_timeout: Timeouts | None = None,
        reason: Reasons | None = None,
    ) -> DataFrame: ...
    @overload
    def settle(
        self,
        *,
        delete: PlainHandles | None = None,
        release: PlainHandles | None = None,
        extend: PlainHandles | None = None,
        visibility_timeout: Timeouts | None = None,
        reason: Reasons | None = None,
    ) -> pa.Table: ...
    def settle(
        self,
        *,
        delete: Handles | None = None,
        release: Handles | None = None,
        extend: Handles | None = None,
        visibility_timeout: Timeouts | None = None,
        reason: Reasons | None = None,
    ) -> Outcomes:
        """Acknowledges some messages, releases some and extends some, all in one commit.

        Each of the three is a list of receipt handles, or a table with a column `receipt_handle`, as `Queue.delete`
        takes them. `visibility_timeout` is for `extend`: seconds; for a list also one for each handle, for a table also
        the name of a column; without it the queue's. Returns outcomes, as `Queue.delete`: in the order delete, release,
        extend, and as one DataFrame when one of the three is Spark's, else as one pyarrow.Table when one is a table.
        `reason` is why they are released, or extended: the view `receipts` has it (500 characters of it), and
        `dead_letters` should they die of it. It is a text for all, or a list: one for each handle of `release`, then
        one for each of `extend`. Without it, a column `reason` of an Arrow table of handles says it for each. One call
        names 100 different reasons, those of the most messages. A message that is extended for a reason is a planned
        retry: in `processing_times` it is postponed, and not timed out.
        M2: a message that is named twice with one wish has that outcome twice. One that is named twice with
        different actions (acknowledged and released, two deadlines) is left unchanged: both are "contradicted",
        InvalidParameterValue, whatever their order, as a delete is for good. All else is done.
        """
        return settle(self.access, delete, release, extend, visibility_timeout, reason)
