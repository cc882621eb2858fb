"""Logistic regression and folds by groups as scikit-learn has them, for machines where the `fit` extra is missing.

The same objective (half the squared weights, and C times the weighted loss; the intercepts free), solved by Newton's
steps, and the same deal of groups to folds.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

STEPS = 60


class LogisticRegression:
    """``coef_`` [1, D] for two classes and [K, D] for more."""

    def __init__(self, C: float = 1.0, max_iter: int = 100) -> None:
        self._c = C

    def fit(self, x: Any, y: Any, sample_weight: Any = None) -> LogisticRegression:
        x, classes = np.asarray(x, np.float64), np.unique(y)
        weights = self._c * (np.ones(len(x)) if sample_weight is None else np.asarray(sample_weight, np.float64))
        turned = _span(x)
        z = np.concatenate([x @ turned.T, np.ones((len(x), 1))], 1)
        ridge = np.append(np.ones(len(turned)), 0.0)
        hot = (np.asarray(y)[:, None] == classes).astype(np.float64)
        hot = hot[:, 1:] if len(classes) == 2 else hot
        k, d = hot.shape[1], z.shape[1]
        found = np.zeros((k, d))
        for _ in range(STEPS):
            odds = z @ found.T
            odds = np.concatenate([np.zeros((len(x), 1)), odds], 1) if k == 1 else odds
            p = np.exp(odds - odds.max(1, keepdims=True))
            p = (p / p.sum(1, keepdims=True))[:, -k:]
            slope = ((p - hot) * weights[:, None]).T @ z + ridge * found
            each = p[:, :, None] * np.eye(k) - p[:, :, None] * p[:, None, :]
            bend = np.einsum(
                "nab,nij->aibj", each * weights[:, None, None], z[:, :, None] * z[:, None, :], optimize=True
            )
            bend = bend.reshape(k * d, k * d)
            bend += np.diag(np.tile(ridge, k)) + 1e-9 * np.eye(k * d)
            step = np.linalg.solve(bend, slope.reshape(-1)).reshape(k, d)
            found -= step / max(1.0, float(np.abs(step).max()) / 4)
            if np.abs(step).max() < 1e-5:
                break
        self.coef_, self.intercept_ = found[:, :-1] @ turned, found[:, -1]
        return self


def _span(x: Any) -> Any:
    """Directions at right angles that all weights of the smallest ridge lie in: those of the rows."""
    if x.shape[1] <= len(x):
        return np.eye(x.shape[1])
    strengths, mixed = np.linalg.eigh(x @ x.T)
    kept = strengths > 1e-9 * strengths[-1]
    return (mixed[:, kept] / np.sqrt(strengths[kept])).T @ x


class GroupKFold:
    def __init__(self, n_splits: int, shuffle: bool, random_state: int) -> None:
        assert shuffle
        self._folds, self._seed = n_splits, random_state

    def split(self, x: Any, groups: Any) -> Iterator[tuple[Any, Any]]:
        dealt = np.random.RandomState(self._seed).permutation(np.unique(groups))
        for held in np.array_split(dealt, self._folds):
            unseen = np.isin(groups, held)
            yield np.flatnonzero(~unseen), np.flatnonzero(unseen)


def scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    """scikit-learn where it is installed, and else what stands in for it here."""
    if importlib.util.find_spec("sklearn") is not None:
        return
    parts: dict[str, dict[str, Any]] = {
        "sklearn": {},
        "sklearn.linear_model": {"LogisticRegression": LogisticRegression},
        "sklearn.model_selection": {"GroupKFold": GroupKFold},
    }
    if importlib.util.find_spec("scipy") is None:
        parts |= {"scipy": {}, "scipy.sparse": {"csr_matrix": np.asarray}}
    for name, has in parts.items():
        module = ModuleType(name)
        module.__dict__.update(has)
        monkeypatch.setitem(sys.modules, name, module)
