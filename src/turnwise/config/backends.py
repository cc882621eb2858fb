"""What each `train.backend` cannot do: such settings are refused by name when the configuration is read."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from turnwise.methods import METHODS

TINKER_ALPHA = 32.0
"""The scale of an adapter at a server with the Tinker API, whose calls do not name it."""


def refused_by_backend(train: Any) -> str | None:
    """What a backend cannot do that these settings of `train` ask of it, and what to set; None where it can all."""
    if train.backend == "fsdp2" and train.weights == "full" and train.reference == "read":
        return (
            'train.backend = "fsdp2" keeps the base model in parts; set train.reference = "kept", or '
            'train.backend = "local"'
        )
    if train.backend == "tinker" and (refused := _beyond_tinker(train)):
        return (
            'train.backend = "tinker" has the log-probs of given tokens and losses of its own, which do not do for '
            f'{"; nor for ".join(refused)}. Nothing is put in its place: change that, or set train.backend = "local"'
        )
    return None


def _beyond_tinker(train: Any) -> list[str]:
    hints = METHODS[train.method].hints and train.w_opd > 0
    estimator = f'train.estimator = "{train.estimator}", which reads whole distributions (set it to "sampled")'
    lessons = f"train.lessons = {train.lessons}, whose hindsight targets are whole distributions (set it to 0)"
    alpha = f"train.lora_alpha = {train.lora_alpha:g}, which no call names (set it to {TINKER_ALPHA:g})"
    table = {
        'train.weights = "full", as only adapters are trained there (set it to "lora")': train.weights == "full",
        estimator: hints and train.estimator != "sampled",
        lessons: hints and train.lessons > 0,
        alpha: train.lora_alpha != TINKER_ALPHA,
    }
    return [said for said, holds in table.items() if holds]


def address_without_key(url: str) -> str:
    """The address itself. Raises ValueError for what is no HTTP address, or has a password in it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("train.tinker_url must begin with http:// or https:// and name a host")
    if parts.username or parts.password:
        raise ValueError("train.tinker_url must hold no key; the client reads it from TINKER_API_KEY")
    return url
