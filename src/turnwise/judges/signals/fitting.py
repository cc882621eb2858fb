"""The arithmetic of fitting a head: groups of rows, the fit, cross-validation, calibration, figures.

Pure functions over rows and their features; scikit-learn and torch are imported where they are called, for no loop
needs them here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnwise.judges.cases import Case
from turnwise.judges.signals.head import NO_OPINION, Hidden, Vector, knows, word_numbers
from turnwise.judges.signals.hidden import Sentences, fit_hidden
from turnwise.judges.signals.reading import Reading

FOLDS = 5
ALIKE = 0.6
"""Share of common words from which two replies are of one group."""
STRENGTH = {"states": 0.002, "words": 8.0}
"""Inverse strength of the ridge of a line; chosen by cross-validation."""
TURNS = 2
"""Times that the directive sentence of each reply is chosen anew."""
NEVER = -20.0
"""Log-odds of what is not known to be directive."""
MISTAKEN = {"states": 0.03, "words": 0.02}
"""Share of quoted orders of somebody else that may be taken for what the person wants to be said: as many
as let none of an unseen file through (docs/judge.md)."""


@dataclass
class Rows:
    """Labelled replies and their features: ``whole`` [N, D], and ``each`` [N] of [sentences, D].

    ``counts`` [N]: how much each counts for the score of a head over words.
    """

    cases: list[Case]
    readings: list[Reading]
    groups: NDArray[np.int64]
    whole: Vector
    each: list[Vector]
    counts: Vector

    @property
    def labels(self) -> NDArray[np.int64]:
        return np.array([case.label for case in self.cases])

    @property
    def directive(self) -> NDArray[np.int64]:
        return np.array([int(case.directive) for case in self.cases])

    def only(self, kept: Sequence[int] | NDArray[np.int64]) -> Rows:
        pick = [int(i) for i in kept]
        return Rows(
            [self.cases[i] for i in pick], [self.readings[i] for i in pick], self.groups[pick], self.whole[pick],
            [self.each[i] for i in pick], self.counts[pick],
        )  # fmt: skip


def grouped(readings: Sequence[Reading], persons: Sequence[str] = ()) -> NDArray[np.int64]:
    """A number for each row: rows of one person, with one task, or whose replies share most of their words, have the
    same. ``persons``: whose the first readings are, "" where nobody knows."""
    group = list(range(len(readings)))

    def root(i: int) -> int:
        while group[i] != i:
            group[i] = group[group[i]]
            i = group[i]
        return i

    tasks: dict[str, int] = {}
    first: dict[str, int] = {}
    for i, person in enumerate(persons):
        if person:
            group[root(i)] = root(first.setdefault(person, i))
    words = [frozenset(" ".join(r.sentences).lower().split()) for r in readings]
    for i, reading in enumerate(readings):
        task = " ".join(reading.task.lower().split())
        group[root(i)] = root(tasks.setdefault(task, i))
        for j in range(i):
            if min(len(words[i]), len(words[j])) >= 3 and len(words[i] & words[j]) >= ALIKE * len(words[i] | words[j]):
                group[root(i)] = root(j)
    return np.array([root(i) for i in range(len(readings))])


@dataclass
class Fitted:
    score: Vector
    score_bias: Vector
    directive: Vector
    directive_bias: float
    known: NDArray[np.uint32] | None = None
    """The words that it met, where it is a head over words."""
    hidden: Hidden | None = None
    """What makes of the features what ``score`` and ``directive`` are for, where it is no head over words."""

    def _seen(self, x: Vector) -> Vector:
        return x if self.hidden is None else self.hidden(x)

    def scores(self, rows: Rows) -> Vector:
        """[N, 3] log-odds, all the same where nothing is known."""
        odds = self._seen(rows.whole) @ self.score.T + self.score_bias
        if self.known is not None:
            blind = [not knows(self.known, " ".join(r.sentences)) for r in rows.readings]
            odds[blind] = np.log(NO_OPINION)
        return odds

    def directives(self, rows: Rows) -> list[Vector]:
        odds = [self._seen(x) @ self.directive + self.directive_bias for x in rows.each]
        if self.known is not None:
            for of_row, reading in zip(odds, rows.readings, strict=True):
                of_row[[not knows(self.known, s) for s in reading.sentences]] = NEVER
        return odds


def fit(rows: Rows, kind: str) -> Fitted:
    """The two heads, not yet calibrated: lines through words; of states both have one layer of units."""
    sentences, (directive, directive_bias) = chosen(rows, kind)
    if kind == "words":
        score, score_bias = line(rows.whole, rows.labels, rows.counts, kind)
        known = np.unique(np.concatenate([word_numbers(" ".join(r.sentences)) for r in rows.readings]))
        return Fitted(score, score_bias, directive, directive_bias, known)
    hidden, out, bias = fit_hidden(rows.whole, rows.labels, sentences)
    return Fitted(out[:3], bias[:3], out[3], float(bias[3]), None, hidden)


def chosen(rows: Rows, kind: str) -> tuple[Sentences, tuple[Vector, float]]:
    """Which sentences the chance to be directive is learned from, and a line through them."""
    x = np.concatenate(rows.each)
    row_of = np.repeat(np.arange(len(rows.each)), [len(each) for each in rows.each])
    wanted = rows.directive[row_of]
    # At least one sentence of a directive reply is directive, and which one nobody wrote down: the likeliest so far.
    weights = 1.0 / np.bincount(row_of)[row_of] ** wanted
    w, b = line(x, wanted, weights, kind)
    for _ in range(TURNS):
        odds = x @ w[0] + b[0]
        for row in np.flatnonzero(rows.directive):
            mine = np.flatnonzero(row_of == row)
            weights[mine] = np.where(odds[mine] >= min(odds[mine].max(), 0.0), 1.0, 0.0)
        w, b = line(x, wanted, weights, kind)
    kept = weights > 0  # by now each counts whole or not at all
    return Sentences(x[kept], wanted[kept]), (w[0], float(b[0]))


def fit_own(rows: Rows, kind: str) -> tuple[Vector, float, dict[str, Any]]:
    """The head that tells what a person wants to be said from orders of others that they quote, and its figures.

    ``rows``: of each reply the sentences that quote; ``directive`` says that the person wants the words said, or not.
    Its log-odds are shifted so that MISTAKEN of the others reach 0, by heads that saw nothing of their group.
    """
    from sklearn.model_selection import GroupKFold  # pyright: ignore[reportMissingImports]

    x, y = np.stack([each[0] for each in rows.each]), rows.directive
    odds = np.zeros(len(y), np.float32)
    for seen, unseen in GroupKFold(FOLDS, shuffle=True, random_state=0).split(x, groups=rows.groups):
        w, b = line(x[seen], y[seen], None, kind)
        odds[unseen] = x[unseen] @ w[0] + b[0]
    least = float(np.quantile(odds[y == 0], 1 - MISTAKEN[kind]))
    w, b = line(x, y, None, kind)
    taken = odds > least
    found = {
        "of the person's": round(float(taken[y == 1].mean()), 3),
        "of others'": round(float(taken[y == 0].mean()), 3),
    }
    return w[0], float(b[0]) - least, {"rows": len(y), **found}


def line(x: Vector, y: NDArray[np.int64], weights: Any, kind: str) -> tuple[Vector, Vector]:
    """Logistic regression on standardised features; the weights are for the features as they are."""
    from scipy.sparse import csr_matrix  # pyright: ignore[reportMissingImports]
    from sklearn.linear_model import LogisticRegression  # pyright: ignore[reportMissingImports]

    if kind == "words":
        model = LogisticRegression(C=STRENGTH[kind], max_iter=500).fit(csr_matrix(x), y, sample_weight=weights)
        return model.coef_.astype(np.float32), model.intercept_.astype(np.float32)
    mean, scale = x.mean(0), x.std(0) + 1e-6
    model = LogisticRegression(C=STRENGTH[kind], max_iter=500).fit((x - mean) / scale, y, sample_weight=weights)
    w = model.coef_ / scale
    return w.astype(np.float32), (model.intercept_ - w @ mean).astype(np.float32)


def cross_validated(rows: Rows, kind: str) -> tuple[Vector, list[Vector]]:
    """Log-odds of each row's scores [N, 3] and of its sentences, by heads that saw nothing of its group."""
    from sklearn.model_selection import GroupKFold  # pyright: ignore[reportMissingImports]

    scores = np.zeros((len(rows.cases), 3), np.float32)
    directives: list[Vector] = [np.zeros(0, np.float32)] * len(rows.cases)
    for seen, unseen in GroupKFold(FOLDS, shuffle=True, random_state=0).split(rows.whole, groups=rows.groups):
        fitted, held = fit(rows.only(seen), kind), rows.only(unseen)
        scores[unseen] = fitted.scores(held)
        for i, odds in zip(unseen, fitted.directives(held), strict=True):
            directives[i] = odds
    return scores, directives


def temperature(logits: Vector, labels: NDArray[np.int64]) -> float:
    """What the log-odds are divided by so that the chances are right."""
    grid = np.geomspace(0.3, 4.0, 80)
    return float(min(grid, key=lambda t: -_log_p(logits / t)[np.arange(len(labels)), labels + 1].mean()))


def slope(odds: Sequence[Vector], directive: NDArray[np.int64]) -> tuple[float, float]:
    """Factor and offset that make the likeliest sentence's log-odds the chance that a reply is directive."""
    from sklearn.linear_model import LogisticRegression  # pyright: ignore[reportMissingImports]

    best = np.array([x.max() for x in odds])
    seen = best > NEVER
    model = LogisticRegression(C=100.0).fit(best[seen, None], directive[seen])
    return float(model.coef_[0, 0]), float(model.intercept_[0])


def _log_p(logits: Vector) -> Vector:
    logits = logits - logits.max(1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def figures(logits: Vector, odds: Sequence[Vector], rows: Rows) -> dict[str, Any]:
    """Accuracy at 100, 75 and 60 % decided, what is right above 0.9, hints at several least chances, and
    how many of each score are found."""
    p = np.exp(_log_p(logits))
    confidence, right = p.max(1), p.argmax(1) - 1 == rows.labels
    order = np.argsort(-confidence)
    sure = confidence >= 0.9
    out: dict[str, Any] = {f"{share:.0%}": round(float(right[order[: round(share * len(order))]].mean()), 3)
                           for share in (1.0, 0.75, 0.6)}  # fmt: skip
    out["sure"] = (int(sure.sum()), round(float(right[sure].mean()), 3) if sure.any() else None)
    for least in (0.4, 0.5, 0.6, 0.65, 0.7):
        found = np.array([x.max() for x in odds]) >= np.log(least / (1 - least))
        real = rows.directive == 1
        both = int((found & real).sum())
        out[f"hints {least}"] = (round(both / max(int(found.sum()), 1), 3), round(both / max(int(real.sum()), 1), 3))
    out["found"] = {str(label): round(float(right[rows.labels == label].mean()), 3) for label in (-1, 0, 1)
                    if (rows.labels == label).any()}  # fmt: skip
    out["bands"] = [
        (f"{a:.1f}", int(m.sum()), round(float(right[m].mean()), 2))
        for a in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
        if (m := (confidence >= a) & (confidence < a + 0.1)).any()
    ]
    return out


def calibrated(fitted: Fitted, t: float, a: float, b: float) -> Fitted:
    return replace(
        fitted,
        score=fitted.score / t,
        score_bias=fitted.score_bias / t,
        directive=fitted.directive * a,
        directive_bias=fitted.directive_bias * a + b,
    )
