"""Acting on every tenth message of a claim of a million: as a DataFrame of receipt handles, against the floor."""

from __future__ import annotations

from typing import Any

from bodies import number_of
from contestant import MILLION
from folders import remove
from ours import Ours
from timing import Patience, median_of, say


def scattered(ours: Ours, messages: int, patience: Patience) -> dict[str, Any]:
    """Seconds to delete 100,000 scattered messages, and to append as many rows to a Delta table with the same session.

    The handles lie in a Parquet file for both. `straight` deletes from the claim's own DataFrame instead, so that it
    also reads the million messages and makes their handles.
    """
    ours.load(messages)
    work, spark = ours.templates.work, ours.templates.spark
    state: dict[str, Any] = {}

    def prepare() -> None:
        ours.restore(MILLION)
        claim = ours.claim(MILLION)
        state["few"] = claim.dataframe.where(f"{number_of('body')} % 10 = 0").select("receipt_handle")
        state["few"].write.mode("overwrite").parquet(str(work / "handles"))
        state["handles"] = spark.read.parquet(str(work / "handles"))

    def delete(name: str) -> None:
        state["outcomes"] = ours.queue.delete(state[name])

    at_hand = median_of(lambda: delete("handles"), patience, prepare)
    by_outcome = {row["outcome"]: row["count"] for row in state["outcomes"].groupBy("outcome").count().collect()}
    straight = median_of(lambda: delete("few"), patience, prepare)
    table = work / "scattered-floor"
    floor = median_of(lambda: state["handles"].write.format("delta").mode("append").save(str(table)), patience)
    handles = state["handles"].count()
    ours.unload()
    remove(table)
    remove(work / "handles")
    say(
        f"{ours.name}: deleting {handles:,} scattered handles {at_hand.median:.2f} s (straight from the claim "
        f"{straight.median:.2f} s), floor {floor.median:.2f} s; {by_outcome}"
    )
    return {
        "engine": ours.engine,
        "handles": handles,
        "outcomes": by_outcome,
        "delete": at_hand.as_json(),
        "straight": straight.as_json(),
        "floor": floor.as_json(),
    }
