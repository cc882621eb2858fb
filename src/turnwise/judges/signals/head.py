"""The learned part of the free judge: linear heads over hidden states of the served model, or over the words alone.

A head of a model is a file in ``heads/``; it belongs to that model's tokenizer, and to the hidden states that the model
has for a fixed text (`Head.fits`). The head over words needs no model and knows less. numpy alone; `fit.py` makes them.
"""

from __future__ import annotations

import hashlib
import itertools
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(__file__).with_name("heads")
WORDS = "words"
"""The name of the head that needs no model."""
BUCKETS = 1 << 14
MAX_CHARS = 2000
LEAST_ALIKE = 0.98
"""Cosine of the states of the fixed text: number formats differ by 0.001, another model by far more."""

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Opinion:
    """``score``: the chance of -1, 0 and 1. ``directive``: for each sentence, the chance that it says how to answer."""

    score: tuple[float, float, float]
    directive: list[float]


@dataclass(frozen=True, slots=True)
class Head:
    """``score`` [3, D] with ``score_bias`` [3], ``directive`` [E] with its bias: log-odds, calibrated by the fit.

    ``layers``: behind which blocks the states are taken. ``probe`` [P] are the ids of a fixed text, ``probed`` [D] the
    states that its model has for it. ``tokenizer``: a digest.
    """

    name: str
    layers: list[int]
    tokenizer: str
    probe: list[int]
    probed: Vector
    score: Vector
    score_bias: Vector
    directive: Vector
    directive_bias: float

    @staticmethod
    def read(path: Path) -> Head:
        """Raises OSError, and ValueError or KeyError for a file that is no head."""
        with np.load(path, allow_pickle=False) as f:
            return Head(
                name=path.stem,
                layers=[int(n) for n in f["layers"]],
                tokenizer=str(f["tokenizer"]),
                probe=[int(n) for n in f["probe"]],
                probed=f["probed"].astype(np.float32),
                score=f["score"].astype(np.float32),
                score_bias=f["score_bias"].astype(np.float32),
                directive=f["directive"].astype(np.float32),
                directive_bias=float(f["directive_bias"]),
            )

    def fits(self, vectors: Vector) -> bool:
        """Whether these are the states of the head's own model for its fixed text. ``vectors``: as `states`."""
        found = self.whole(vectors)
        if found.shape != self.probed.shape:
            return False
        alike = found @ self.probed / (np.linalg.norm(found) * np.linalg.norm(self.probed) + 1e-9)
        return bool(alike >= LEAST_ALIKE)

    def whole(self, vectors: Vector) -> Vector:
        """[L, 1 + S, H] of last tokens and spans → [D], what the score is made of: the last token, the whole reply."""
        return vectors[:, :2].reshape(-1)

    def opinion(self, vectors: Vector) -> Opinion:
        """``vectors`` [L, 2 + N, H]: the last token's, the reply's and each sentence's state, for each layer."""
        last = vectors[:, :1]
        pairs = [np.concatenate([last, vectors[:, i : i + 1]], 1).reshape(-1) for i in range(2, vectors.shape[1])]
        return self._opinion(self.whole(vectors), pairs)

    def opinion_of_words(self, sentences: tuple[str, ...]) -> Opinion:
        """The same of a head over words."""
        return self._opinion(word_features(" ".join(sentences)), [word_features(s) for s in sentences])

    def _opinion(self, whole: Vector, each: list[Vector]) -> Opinion:
        p = softmax(self.score @ whole + self.score_bias)
        odds = [float(self.directive @ x + self.directive_bias) for x in each]
        return Opinion((float(p[0]), float(p[1]), float(p[2])), [1 / (1 + float(np.exp(-z))) for z in odds])


def softmax(logits: Vector) -> Vector:
    e = np.exp(logits - logits.max())
    return e / e.sum()


def word_features(text: str) -> Vector:
    """[BUCKETS]: hashed words, pairs of words and pieces of two to five letters, damped and of length 1."""
    text = " ".join(text[:MAX_CHARS].lower().split())
    words = text.split()
    pieces = [f"w{a}" for a in words] + [f"w{a} {b}" for a, b in itertools.pairwise(words)]
    for word in words:
        padded = f" {word[:40]} "
        pieces += [padded[i : i + n] for n in (2, 3, 4, 5) for i in range(len(padded) - n + 1)]
    x = np.zeros(BUCKETS, np.float32)
    for piece in pieces:
        x[zlib.crc32(piece.encode("utf-8", "replace")) % BUCKETS] += 1
    x = np.log1p(x)
    return (x / (np.linalg.norm(x) + 1e-9)).astype(np.float32)


def tokenizer_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def head_for(tokenizer: str) -> list[Head]:
    """The heads whose models have this tokenizer."""
    return [head for path in sorted(FOLDER.glob("*.npz")) if (head := _read(path)).tokenizer == tokenizer]


def words_head() -> Head:
    return _read(FOLDER / f"{WORDS}.npz")


@cache
def _read(path: Path) -> Head:
    return Head.read(path)
