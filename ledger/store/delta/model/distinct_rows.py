"""Equal rows as equal numbers, so that what is asked about a row is asked once for all that are equal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def numbered(columns: Sequence[pa.ChunkedArray], length: int) -> tuple[np.ndarray, np.ndarray]:
    """A number from 0 on for each of so many rows, given by columns, which equal rows share; and some row of each."""
    combined, kinds = np.zeros(length, dtype=np.int64), 1
    for column in columns:
        if column.null_count == length:
            continue
        encoded = pc.dictionary_encode(column, null_encoding="encode").combine_chunks()
        if len(encoded.dictionary) > 1:
            combined = combined * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
            kinds *= len(encoded.dictionary)
        if kinds > length:
            # Numbered anew, before the product leaves the 64 bits.
            there, combined = np.unique(combined, return_inverse=True)
            kinds = len(there)
    _, some_row, number = np.unique(combined, return_index=True, return_inverse=True)
    return number, some_row
