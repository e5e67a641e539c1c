"""What many receipt handles may be given as, and what each form of them is answered: the signature of `settle`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias, overload

from ledger.results import HandleOutcome
from ledger.tabular import ArrowTable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

#: A list of receipt handles. Not any sequence: a text is one, too, and stands for a single handle.
HandleSequence: TypeAlias = "list[str] | list[str | None] | tuple[str | None, ...]"
#: What needs no Spark: a list, or a table with a column `receipt_handle`.
PlainHandles: TypeAlias = "HandleSequence | ArrowTable"
#: Many receipt handles: a list, or a table with a column `receipt_handle`.
Handles: TypeAlias = "PlainHandles | DataFrame"
#: An outcome for each of them, in the form that they were given in.
Outcomes: TypeAlias = "DataFrame | pa.Table | list[HandleOutcome]"
#: In seconds: for all, for each of a list, or the name of a table's column.
Timeouts: TypeAlias = "int | str | Sequence[int]"


class Settling:
    """The part that a Queue and a Claim share: settling."""

    @overload
    def settle(
        self,
        *,
        delete: HandleSequence | None = None,
        release: HandleSequence | None = None,
        extend: HandleSequence | None = None,
        visibility_timeout: Timeouts | None = None,
    ) -> list[HandleOutcome]: ...
    @overload
    def settle(
        self,
        *,
        delete: DataFrame,
        release: Handles | None = None,
        extend: Handles | None = None,
        visibility_timeout: Timeouts | None = None,
    ) -> DataFrame: ...
    @overload
    def settle(
        self,
        *,
        delete: Handles | None = None,
        release: DataFrame,
        extend: Handles | None = None,
        visibility_timeout: Timeouts | None = None,
    ) -> DataFrame: ...
    @overload
    def settle(
        self,
        *,
        delete: Handles | None = None,
        release: Handles | None = None,
        extend: DataFrame,
        visibility_timeout: Timeouts | None = None,
    ) -> DataFrame: ...
    @overload
    def settle(
        self,
        *,
        delete: PlainHandles | None = None,
        release: PlainHandles | None = None,
        extend: PlainHandles | None = None,
        visibility_timeout: Timeouts | None = None,
    ) -> pa.Table: ...
    def settle(
        self,
        *,
        delete: Handles | None = None,
        release: Handles | None = None,
        extend: Handles | None = None,
        visibility_timeout: Timeouts | None = None,
    ) -> Outcomes:
        """Acknowledges some messages, releases some and extends some, all in one commit.

        Each of the three is a list of receipt handles, or a table with a column `receipt_handle`, as `Queue.delete`
        takes them. `visibility_timeout` is for `extend`: seconds; for a list also one for each handle, for a table also
        the name of a column; without it the queue's. Answers outcomes, as `Queue.delete`: in the order delete, release,
        extend, and as one DataFrame when one of the three is Spark's, else as one pyarrow.Table when one is a table.
        M2: a message that is named twice with one wish has that outcome twice. One of which two wishes of the call
        would make different things (acknowledged and released, two deadlines) is left as it is: both are
        "contradicted", InvalidParameterValue, whatever their order, as a delete is for good. All else is done.
        """
        return self._settled(delete, release, extend, visibility_timeout)

    def _settled(
        self, delete: Handles | None, release: Handles | None, extend: Handles | None, timeout: Timeouts | None
    ) -> Outcomes:
        raise NotImplementedError
