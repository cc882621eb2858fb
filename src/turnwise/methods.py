"""The methods of training, as a table that imports nothing: configuration, journal and trainer all ask it.

A method is a line here and the file of its name in `training/algorithms/`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Method:
    """What an algorithm learns from."""

    scores: bool = False
    hints: bool = False

    @property
    def weights(self) -> list[str]:
        """The settings of `train` that weigh its signals: were all of them 0, the KL term alone would be trained on."""
        return [name for name, used in (("w_binary", self.scores), ("w_opd", self.hints)) if used]


METHODS: dict[str, Method] = {
    "combined": Method(scores=True, hints=True),
    "binary": Method(scores=True),
    "opd": Method(hints=True),
}
"""The values of `train.method`."""


def known_method(name: str) -> str:
    """The name itself. Raises ValueError where no algorithm is called so."""
    if name not in METHODS:
        raise ValueError(f"there is no method {name!r}, only {', '.join(METHODS)}")
    return name
