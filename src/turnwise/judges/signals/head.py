"""The learned part of the free judge: small heads over hidden states of the served model, or over the words alone.

A head of a model is a file in ``heads/``; it belongs to that model's tokenizer, and to the hidden states that the model
has for a fixed text (`Head.fits`). The head over words needs no model and knows less: of words that it never met it has
no opinion. numpy alone; `fit.py` makes them, and writes into each what it was made of (``about``).
"""
# ruff: noqa: SIM905  (word lists read better as text)

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

log = logging.getLogger(__name__)

FOLDER = Path(__file__).with_name("heads")
WORDS = "words"
"""The name of the head that needs no model."""
BUCKETS = 1 << 14
MAX_CHARS = 2000
LEAST_ALIKE = 0.98
"""Cosine of the states of the fixed text: number formats differ by 0.001, another model by far more."""

LEAST_KNOWN = 0.5
"""Share of a text's words that the head over words must have met to have an opinion of it."""
NEGATIONS = frozenset(
    "not no never nothing none isn't wasn't aren't don't doesn't didn't won't can't cannot couldn't wouldn't"
    " nicht kein keine nie pas jamais non ne nunca jamás não niet geen".split()
)
NEGATED = 3
"""Words behind a negation that are counted once more as what was denied."""

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Opinion:
    """``score``: the chance of -1, 0 and 1. ``directive``: for each sentence, the chance that it says how to answer.

    ``own``: for each, the chance that what it quotes is what the person wants to be said, or left out, and nobody
    else's order.
    """

    score: tuple[float, float, float]
    directive: list[float]
    own: list[float]


NO_OPINION = (0.333, 0.334, 0.333)


@dataclass(frozen=True, slots=True)
class Hidden:
    """A layer of units between the features and what the head says: [D] or [N, D] → [U] or [N, U], none below 0.

    ``weights`` [U, D] are whole numbers of which one is worth ``step`` [U]; ``bias`` [U]. The features are divided
    by ``scale`` [D].
    """

    weights: NDArray[np.int8]
    step: Vector
    bias: Vector
    scale: Vector

    def __call__(self, x: Vector) -> Vector:
        summed = (x / self.scale) @ self.weights.T.astype(np.float32)
        return np.maximum(summed * self.step + self.bias, 0).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Head:
    """``score`` [3, D] with ``score_bias`` [3], ``directive`` and ``own`` [E] with their biases: log-odds, as fitted.

    ``hidden``: where it is there, ``score`` [3, U] and ``directive`` [U] are for its units.
    ``layers``: behind which blocks the states are taken. ``probe`` [P] are the ids of a fixed text, ``probed`` [D] the
    states that its model has for it. ``tokenizer``: a digest. ``known``: numbers of the words that a head over words
    met. ``about``: the model, the rows and the command that it was made with, and its figures.
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
    own: Vector
    own_bias: float
    known: NDArray[np.uint32]
    about: dict[str, Any]
    hidden: Hidden | None = None

    @staticmethod
    def read(path: Path) -> Head:
        """Raises OSError, and ValueError or KeyError for a file that is no head."""
        with np.load(path, allow_pickle=False) as f:
            found = Head(
                name=path.stem,
                layers=[int(n) for n in f["layers"]],
                tokenizer=str(f["tokenizer"]),
                probe=[int(n) for n in f["probe"]],
                probed=f["probed"].astype(np.float32),
                score=f["score"].astype(np.float32),
                score_bias=f["score_bias"].astype(np.float32),
                directive=f["directive"].astype(np.float32),
                directive_bias=float(f["directive_bias"]),
                own=f["own"].astype(np.float32),
                own_bias=float(f["own_bias"]),
                known=f["known"],
                about=json.loads(str(f["about"])),
                hidden=_hidden(f) if "hidden" in f.files else None,
            )
        found._check()
        return found

    def _check(self) -> None:
        """Raises ValueError where parts do not belong together, or are no numbers."""
        features, units = self.own.size, self.directive.size
        shapes = [
            (self.score, (3, units)),
            (self.score_bias, (3,)),
            (self.own, (features,)),
            (self.directive, (units,)),
        ]
        biases = np.array([self.directive_bias, self.own_bias])
        numbers = [self.probed, self.score, self.score_bias, self.directive, self.own, biases]
        if self.hidden is not None:
            of = self.hidden
            shapes += [(of.weights, (units, features)), (of.scale, (features,))]
            shapes += [(part, (units,)) for part in (of.step, of.bias)]
            numbers += [of.step, of.bias, of.scale]
            if of.weights.dtype.kind != "i" or not (of.scale > 0).all():
                raise ValueError("weights of units are whole numbers, and features are divided by what is above 0")
        if any(part.shape != shape for part, shape in shapes):
            raise ValueError(f"its parts have other shapes than {features} features need")
        if not all(np.isfinite(part).all() for part in numbers):
            raise ValueError("some of its numbers are none")

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
        """The same of a head over words; what it does not know is as likely each score, and no directive."""
        whole = " ".join(sentences)
        found = self._opinion(word_features(whole), [word_features(s) for s in sentences])
        known = [knows(self.known, s) for s in sentences]
        directive, own = (
            [p if yes else 0.0 for yes, p in zip(known, chances, strict=True)]
            for chances in (found.directive, found.own)
        )
        return Opinion(found.score if knows(self.known, whole) else NO_OPINION, directive, own)

    def _opinion(self, whole: Vector, each: list[Vector]) -> Opinion:
        seen = [whole, *each] if self.hidden is None else self.hidden(np.stack([whole, *each]))
        p = softmax(self.score @ seen[0] + self.score_bias)
        directive = [_chance(float(self.directive @ x) + self.directive_bias) for x in seen[1:]]
        own = [_chance(float(self.own @ x) + self.own_bias) for x in each]
        return Opinion((float(p[0]), float(p[1]), float(p[2])), directive, own)


def _hidden(f: Any) -> Hidden:
    step, bias, scale = (f[f"hidden_{name}"].astype(np.float32) for name in ("step", "bias", "scale"))
    return Hidden(f["hidden"], step, bias, scale)


def _chance(odds: float) -> float:
    return 1 / (1 + float(np.exp(-odds)))


def softmax(logits: Vector) -> Vector:
    e = np.exp(logits - logits.max())
    return e / e.sum()


def words_of(text: str) -> list[str]:
    """Words in small letters, without the marks around them."""
    words = ("".join(c if c.isalnum() or c == "'" else " " for c in text[:MAX_CHARS].lower().replace("’", "'"))).split()
    return [word for word in (w.strip("'") for w in words) if word]


def word_numbers(text: str) -> NDArray[np.uint32]:
    """A number for each word of more than one letter: those of one letter say nothing."""
    words = [word for word in words_of(text) if len(word) > 1 and not word.isdigit()]
    return np.array([zlib.crc32(word.encode("utf-8", "replace")) for word in words], np.uint32)


def knows(known: NDArray[np.uint32], text: str) -> bool:
    """Whether enough of a text's words are known; a text without words is not."""
    numbers = word_numbers(text)
    return bool(len(numbers)) and float(np.isin(numbers, known).mean()) >= LEAST_KNOWN


def word_features(text: str) -> Vector:
    """[BUCKETS]: hashed words, pairs of words, what was denied, and pieces of two to five letters, of length 1."""
    text = " ".join(text[:MAX_CHARS].lower().split())
    words = text.split()
    pieces = [f"w{a}" for a in words] + [f"w{a} {b}" for a, b in itertools.pairwise(words)]
    plain = words_of(text)
    for i, word in enumerate(plain):
        if word in NEGATIONS:
            pieces += [f"not {denied}" for denied in plain[i + 1 : i + 1 + NEGATED]]
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
    found = []
    for path in sorted(FOLDER.glob("*.npz")):
        try:
            head = _read(path)
        except (OSError, ValueError, KeyError) as e:
            log.warning("%s is no head of this release (%s); fit it anew, see docs/judge.md", path.name, e)
            continue
        found += [head] if head.tokenizer == tokenizer else []
    return found


def words_head() -> Head:
    return _read(FOLDER / f"{WORDS}.npz")


@cache
def _read(path: Path) -> Head:
    return Head.read(path)
