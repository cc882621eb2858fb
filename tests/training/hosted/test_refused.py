"""What the Tinker API cannot do is refused by name when the configuration is read, never put in another's place."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from turnwise.config import load_config
from turnwise.errors import ConfigError
from turnwise.training.backends import choice
from turnwise.training.hosted import server

FITTING: dict[str, object] = {
    "train.backend": "tinker",
    "train.estimator": "sampled",
    "train.lessons": 0,
    "train.tinker_url": "http://127.0.0.1:1",
}


def test_what_fits_is_taken(tmp_path: Path) -> None:
    assert load_config(overrides=FITTING | {"home": tmp_path}).train.backend == "tinker"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"train.estimator": "exact"}, 'train.estimator = "exact"'),
        ({"train.estimator": "topk"}, 'train.estimator = "topk"'),
        ({"train.lessons": 16}, "train.lessons = 16, whose hindsight targets"),
        ({"train.weights": "full"}, 'train.weights = "full"'),
        ({"train.lora_alpha": 16}, "train.lora_alpha = 16"),
        ({"gate.unmeasured": "hold"}, "neither step_kl nor drift_kl"),
        ({"train.tinker_url": "ftp://somewhere"}, "must begin with http"),
        ({"train.tinker_url": "http://me:secret@somewhere"}, "must hold no key"),
    ],
)
def test_what_does_not_is_refused_by_name(tmp_path: Path, changes: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(overrides=FITTING | {"home": tmp_path} | changes)
    assert named in str(refused.value)


def test_by_default_all_that_does_not_fit_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(overrides={"home": tmp_path, "train.backend": "tinker"})
    assert "train.estimator" in str(refused.value) and "train.lessons" in str(refused.value)


def test_without_hints_nothing_of_the_hints_stands_in_the_way(tmp_path: Path) -> None:
    changes: dict[str, object] = {"home": tmp_path, "train.backend": "tinker", "train.method": "binary"}
    assert load_config(overrides=changes).train.estimator == "exact"  # which nothing reads


def test_a_missing_client_says_how_to_install_it(
    tmp_path: Path, tiny_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> object:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(server, "import_module", missing)
    with pytest.raises(ConfigError, match=r"pip install \"turnwise\[tinker\]\""):
        choice.backend_of(load_config(overrides=FITTING | {"home": tmp_path}), tiny_dir)


def test_a_missing_key_names_its_variable(tmp_path: Path, tiny_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "import_module", lambda _name: SimpleNamespace())
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    monkeypatch.delenv("TINKER_CREDENTIAL_CMD", raising=False)
    with pytest.raises(ConfigError, match="environment variable TINKER_API_KEY"):
        choice.backend_of(load_config(overrides=FITTING | {"home": tmp_path}), tiny_dir)
