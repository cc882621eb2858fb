"""Towers: the engine's in bfloat16 is transformers' own, and what was looked at is remembered."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoImageProcessor, AutoModelForImageTextToText

from tests.pictures.test_numbers import BLUE, RED, SMALL, asked, model, store  # noqa: F401  (fixtures)
from tests.training.tiny import train_config
from turnwise.local_engine.model.checkpoint import StoredWeights
from turnwise.local_engine.model.eyes import Eyes
from turnwise.pictures import features
from turnwise.pictures.features import PictureFeatures
from turnwise.pictures.reading import pixels_of, sha256_of_bytes
from turnwise.pictures.sight import look
from turnwise.pictures.store import PictureStore
from turnwise.training.batching import merge_prefixes, texts_of
from turnwise.training.policy import Policy


def test_the_engines_tower_in_bfloat16_sees_what_transformers_sees(model: Path) -> None:  # noqa: F811
    eyes = Eyes(model, AutoConfig.from_pretrained(model), StoredWeights(model), torch.bfloat16)
    whole = AutoModelForImageTextToText.from_pretrained(model, dtype=torch.bfloat16)
    made = AutoImageProcessor.from_pretrained(model)(images=[[pixels_of(RED)]], return_tensors="np")
    ours, theirs = eyes.of(sha256_of_bytes(RED), RED), look(whole, made)
    assert ours.features.dtype == torch.bfloat16 and torch.equal(ours.features, theirs.features)
    assert ours.grid == theirs.grid and (ours.deeper is None) == (theirs.deeper is None)
    assert ours.deeper is None or torch.equal(ours.deeper, theirs.deeper)  # type: ignore[arg-type]


def test_it_is_the_same_by_a_release_that_gives_what_is_deeper_of_all_pictures_together(
    model: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As transformers 5.17 does; ours gives a tensor for each picture. A stand-in for that release."""
    whole = AutoModelForImageTextToText.from_pretrained(model)
    made = AutoImageProcessor.from_pretrained(model)(images=[[pixels_of(RED)]], return_tensors="np")
    apart = look(whole, made)
    if apart.deeper is None:
        pytest.skip("this tower gives nothing to deeper blocks")
    own = whole.get_image_features

    def together(*seen: Any) -> Any:
        found = own(*seen)
        found.deepstack_features = [f if torch.is_tensor(f) else torch.cat(list(f)) for f in found.deepstack_features]
        return found

    monkeypatch.setattr(whole, "get_image_features", together)
    found = look(whole, made).deeper
    assert found is not None and torch.equal(found, apart.deeper)


def test_pictures_that_do_not_fit_the_memory_are_looked_at_once_a_pass(
    model: Path,  # noqa: F811
    store: PictureStore,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = Policy(model, train_config(), None, store)
    assert policy.eyes is not None
    looks: list[int] = []
    own: Callable[[Any], Any] = policy.eyes._sights._look
    policy.eyes._sights._look = lambda made: looks.append(1) or own(made)
    monkeypatch.setattr(features, "MOST_BYTES", 1)  # one fits
    sample = asked(model, 1, RED, BLUE, SMALL)
    assert policy.eyes.fault(sample) is None
    rows = merge_prefixes(texts_of([sample], [0]))
    for _ in range(2):
        looks.clear()
        with torch.no_grad():
            policy.hidden(rows)
        assert 2 <= len(looks) <= 3, "one of them may be remembered"


def test_what_is_remembered_does_not_wait_for_a_look(model: Path) -> None:  # noqa: F811
    begun, go_on = threading.Event(), threading.Event()

    class Nothing:
        nbytes = 1

    def slow(made: Any) -> Nothing:
        if len(seen) == 1:
            begun.set()
            assert go_on.wait(30)
        return Nothing()

    seen: list[Any] = []
    memory = PictureFeatures(model, slow)
    seen.append(memory.of("red", lambda: RED))
    other = threading.Thread(target=lambda: seen.append(memory.of("blue", lambda: BLUE)))
    other.start()
    assert begun.wait(30)
    assert memory.of("red", lambda: b"") is seen[0], "while the other one is looked at"
    go_on.set()
    other.join(30)
    assert memory.of("blue", lambda: b"") is seen[1]
