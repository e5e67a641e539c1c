"""Rows that are computed once: what is written and what is acknowledged have to be the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def evaluated_once(frame: DataFrame) -> Iterator[DataFrame]:
    """The frame's rows, computed now and never again, and freed at the end.

    Not `persist`: what is persisted is looked up by its plan, so that any later frame of an equal plan, the user's own
    reads among them, would be served these rows, however its source changed. And what was lost of it is computed anew,
    to other rows perhaps, where a local checkpoint fails. A frame that the user cached is read from there and stays so.
    """
    kept = frame.localCheckpoint(eager=True)
    try:
        yield kept
    finally:
        plan = getattr(kept, "_jdf", None)
        # Spark Connect frees it when nobody refers to it any more.
        if plan is not None:
            plan.queryExecution().logical().rdd().unpersist(False)
