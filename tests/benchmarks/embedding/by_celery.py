"""Texts are embedded by Celery: `python -m tests.benchmarks.embedding.by_celery TEXTS` sends them to its worker.

CELERY_LATE=1 sets the two options that Celery's documentation has for tasks that must survive their process.
"""

import os
import sys
from pathlib import Path

import pyarrow as pa
from celery import Celery
from deltalake import write_deltalake

from jobs.embed_demo.model import Refused, embed_paid

app = Celery(broker=os.environ.get("CELERY_BROKER"))
if os.environ.get("CELERY_LATE"):
    app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True)


@app.task(autoretry_for=(Refused,), retry_backoff=True, max_retries=5, name="embed")
def embed(texts):
    write_deltalake(os.environ["EMBED_TABLE"], pa.Table.from_pylist(embed_paid(texts)), mode="append")


if __name__ == "__main__":
    texts = Path(sys.argv[1]).read_text().splitlines()
    for n in range(0, len(texts), 32):
        embed.delay(texts[n : n + 32])
