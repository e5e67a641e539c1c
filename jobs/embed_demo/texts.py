"""The texts: sentences of AWS's documentation of its services, as PyPI's botocore ships them."""

from __future__ import annotations

import gzip
import html
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: A text has at least and at most these numbers of words. Longer texts cost more, and show nothing more about a queue.
FEWEST_WORDS, MOST_WORDS = 4, 12
#: botocore has at least this number of texts (botocore 1.44.5 has 144,000).
MOST_TEXTS = 100_000
#: This service's texts always come first: the search at the end of the job asks about the service.
FIRST_SERVICE = "sqs"
_TAG = re.compile(r"<[^>]*>")
_END_OF_SENTENCE = re.compile(r"(?<=[.!?]) ")


def real_texts(count: int) -> list[str]:
    """Return `count` different sentences, the same ones each time: those about SQS, then those about other services.

    Raises:
        ValueError: botocore has fewer texts.
    """
    import botocore

    chance = random.Random(34)
    models = sorted((Path(botocore.__file__).parent / "data").glob("*/*/service-2.json*"))
    chance.shuffle(models)
    models.sort(key=lambda model: model.parts[-3] != FIRST_SERVICE)
    texts_found: dict[str, None] = {}
    for model in models:
        opened = gzip.decompress(model.read_bytes()) if model.suffix == ".gz" else model.read_bytes()
        sentences = map(first_sentence, _documentation(json.loads(opened)))
        texts_found.update(dict.fromkeys(text for text in sentences if FEWEST_WORDS <= len(text.split()) <= MOST_WORDS))
        if len(texts_found) >= count:
            texts = list(texts_found)[:count]
            chance.shuffle(texts)
            return texts
    raise ValueError(f"botocore has {len(texts_found):,} texts, and {count:,} are asked for: ask for fewer")


def first_sentence(documentation: str) -> str:
    """Return the first sentence of a documentation's HTML as text."""
    text = " ".join(html.unescape(_TAG.sub(" ", documentation)).split())
    return _END_OF_SENTENCE.split(text)[0]


def _documentation(part: Any) -> Iterator[str]:
    """Yield every documentation string of a service's model."""
    if isinstance(part, dict):
        for name, value in part.items():
            if name == "documentation" and isinstance(value, str):
                yield value
            else:
                yield from _documentation(value)
    elif isinstance(part, list):
        for item in part:
            yield from _documentation(item)
