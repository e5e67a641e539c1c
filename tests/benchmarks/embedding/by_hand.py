"""Texts are embedded by a plain script: `python -m tests.benchmarks.embedding.by_hand TEXTS FOLDER`.

Two processes of a pool, a Delta table to which the script appends, and a start that passes over what is there.
"""

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from jobs.embed_demo.model import Refused, embed_paid


def embed(texts):
    for attempt in range(5):
        try:
            return embed_paid(texts)
        except Refused as refused:
            time.sleep(max(refused.seconds, 1) * 2**attempt)
    return embed_paid(texts)


if __name__ == "__main__":
    texts, table = Path(sys.argv[1]).read_text().splitlines(), f"{sys.argv[2]}/table"
    if DeltaTable.is_deltatable(table):
        done = set(DeltaTable(table).to_pyarrow_table(columns=["text"])["text"].to_pylist())
        texts = [text for text in texts if text not in done]
    rows = []
    with ProcessPoolExecutor(2) as pool:
        for some in pool.map(embed, [texts[n : n + 32] for n in range(0, len(texts), 32)]):
            rows += some
            if len(rows) >= 500:
                write_deltalake(table, pa.Table.from_pylist(rows), mode="append")
                rows = []
    if rows:
        write_deltalake(table, pa.Table.from_pylist(rows), mode="append")
