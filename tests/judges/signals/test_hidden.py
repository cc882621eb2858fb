"""The layer between states and scores, on made-up rows: what no line can tell, whole numbers, the same each time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from turnwise.judges.signals.head import Hidden, Vector
from turnwise.judges.signals.hidden import LARGEST, LEVELS, UNITS, Sentences, fit_hidden, shortened


def crossed(n: int, seed: int = 0) -> tuple[Vector, np.ndarray]:
    """Praise where two features have one sign, reproach where they do not, and nothing where a third one is high; of
    the features as they are one is far from 0, and one is small."""
    random = np.random.default_rng(seed)
    x = random.choice([-1.0, 1.0], (n, 3)) + 0.2 * random.standard_normal((n, 3))
    labels = np.where(x[:, 2] > 0, 0, np.sign(x[:, 0] * x[:, 1])).astype(np.int64)
    return (x * np.array([50, 0.01, 1]) + np.array([1000, 0, 0])).astype(np.float32), labels


def layer(x: Vector, labels: np.ndarray, units: int = UNITS) -> tuple[Hidden, Vector, Vector]:
    """Directive is what is a reproach."""
    return fit_hidden(x, labels, Sentences(x, (labels == -1).astype(np.int64)), units)


@pytest.fixture(scope="module")
def fitted() -> tuple[Hidden, Vector, Vector]:
    return layer(*crossed(600))


def test_what_no_line_tells_is_learned_in_the_features_as_they_are(fitted: tuple[Hidden, Vector, Vector]) -> None:
    hidden, out, bias = fitted
    x, labels = crossed(300, seed=1)
    found = (hidden(x) @ out[:3].T + bias[:3]).argmax(1) - 1
    assert (found == labels).mean() > 0.95
    for label in (-1, 0, 1):
        assert (found == labels)[labels == label].mean() > 0.9
    assert ((hidden(x) @ out[3] + bias[3] > 0) == (labels == -1)).mean() > 0.95


def test_what_a_unit_weighs_is_few_whole_numbers(fitted: tuple[Hidden, Vector, Vector]) -> None:
    hidden, out, bias = fitted
    assert hidden.weights.dtype == np.int8 and hidden.weights.shape == (UNITS, 3)
    assert set(np.unique(hidden.weights)) <= set(range(-LEVELS, LEVELS + 1))
    assert (out.shape, bias.shape) == ((4, UNITS), (4,))


def test_units_of_one_reply_are_those_that_it_has_among_others(fitted: tuple[Hidden, Vector, Vector]) -> None:
    hidden = fitted[0]
    x, _ = crossed(5)
    assert hidden(x).shape == (5, UNITS) and hidden(x).min() >= 0
    assert hidden(x[2]) == pytest.approx(hidden(x)[2], abs=1e-3)
    by_hand = (x[2] / hidden.scale) @ (hidden.weights.T * hidden.step) + hidden.bias
    assert hidden(x[2]) == pytest.approx(np.maximum(by_hand, 0), abs=1e-3)


def test_the_same_rows_give_the_same_layer_and_nothing_else_is_changed(request: pytest.FixtureRequest) -> None:
    x, labels = crossed(60)
    torch.manual_seed(5)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    request.addfinalizer(lambda: torch.set_num_threads(threads))
    before = torch.random.get_rng_state()
    one = layer(x, labels, units=8)
    assert torch.equal(torch.random.get_rng_state(), before) and torch.get_num_threads() == 2
    torch.manual_seed(6)
    other = layer(x, labels, units=8)
    assert (one[0].weights == other[0].weights).all() and (one[1] == other[1]).all()


def test_a_feature_that_never_changes_and_one_that_is_large_do_no_harm() -> None:
    """As large as a state of sixteen bits can be, or beyond what the file's numbers hold."""
    x, labels = crossed(600)
    x = np.concatenate([x, np.full((600, 1), 7, np.float32), x[:, :1] * np.float32(60), x[:, 1:2] * np.float32(1e8)], 1)
    hidden, out, bias = layer(x, labels)
    assert np.isfinite(hidden.scale).all() and hidden.scale.min() > 0
    assert ((hidden(x) @ out[:3].T + bias[:3]).argmax(1) - 1 == labels).mean() > 0.8


def test_shortened_numbers_are_near_and_end_in_zeros() -> None:
    x = np.random.default_rng(2).standard_normal(1000).astype(np.float32) * 30
    short = shortened(x)
    assert short.dtype == np.float16 and not (short.view(np.uint16) & 0xF).any()
    assert np.abs(short.astype(np.float32) / x - 1).max() <= 0.0085
    assert shortened(np.array([0, LARGEST], np.float32)).tolist() == [0, pytest.approx(LARGEST, rel=0.0085)]
