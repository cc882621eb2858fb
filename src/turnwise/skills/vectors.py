"""Texts as vectors, by the word vectors that lie in the wheel of `wordllama`: the mean of a text's tokens' vectors.

Its data are taken and none of its code is run, which would look for other files on the network. It takes a
millisecond a text on one core, and nothing leaves the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from turnwise.errors import SkillError

Vectors = NDArray[np.float32]
PACKAGE = "wordllama"
MOST_TOKENS = 512


class WordVectors:
    """The mean of word vectors."""

    def __init__(self, table: Vectors, tokenizer: Tokenizer) -> None:
        self._table = table
        self._tokenizer = tokenizer

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Texts [N] as vectors of length 1 [N, D]; a text without tokens is all zeros."""
        found = np.zeros((len(texts), self._table.shape[1]), dtype=np.float32)
        for row, text in enumerate(texts):
            ids = self._tokenizer.encode(text.lower(), add_special_tokens=False).ids[:MOST_TOKENS]
            if ids:
                mean = self._table[ids].astype(np.float32).mean(axis=0)
                found[row] = mean / max(float(np.linalg.norm(mean)), 1e-9)
        return found


@cache
def word_vectors() -> WordVectors:
    """The vectors of this installation. Raises SkillError where they are not there."""
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise SkillError(f"skills need the word vectors of {PACKAGE}; install them with: pip install {PACKAGE}")
    folder = Path(found.origin).parent
    try:
        table = load_file(folder / "weights" / "l2_supercat_256.safetensors")["embedding.weight"]
        tokenizer = Tokenizer.from_file(str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    except Exception as e:  # tokenizers raises no narrower one
        raise SkillError(f"the word vectors in {folder} cannot be read: {e}; install {PACKAGE} anew") from e
    return WordVectors(table, tokenizer)
