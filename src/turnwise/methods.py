"""The methods of training, as a table that imports nothing: configuration, journal and trainer all ask it.

A method is a line here and the file of its name in `training/algorithms/`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Method:
    """What an algorithm learns from. ``outcomes``: of whole rollouts, which it compares with those of the same task;
    such a method fits the streams of rollouts, and no other does."""

    scores: bool = False
    hints: bool = False
    outcomes: bool = False

    @property
    def weights(self) -> list[str]:
        """The settings of `train` that weigh its signals: were all of them 0, the KL term alone would be trained on."""
        return [name for name, used in (("w_binary", self.scores), ("w_opd", self.hints)) if used]


PERSONAL = "personal"
"""The stream of what people and their agents ask; the others are of rollouts."""

METHODS: dict[str, Method] = {
    "combined": Method(scores=True, hints=True),
    "binary": Method(scores=True),
    "opd": Method(hints=True),
    "grpo": Method(outcomes=True),
    "step_groups": Method(outcomes=True, scores=True),
}
"""The values of `train.method`, and those of `streams.NAME.method`, which learn from outcomes."""
OF_TURNS = tuple(name for name, method in METHODS.items() if not method.outcomes)
OF_ROLLOUTS = tuple(name for name, method in METHODS.items() if method.outcomes)


def method_of_turns(name: str) -> str:
    """The name itself. Raises ValueError where no algorithm is called so, or it learns from rollouts."""
    if _known(name, OF_TURNS).outcomes:
        raise ValueError(
            f"the method {name!r} compares rollouts of one task, which a person's turns are not; set it as "
            f"streams.NAME.method of a stream of rollouts, and here one of {', '.join(OF_TURNS)}"
        )
    return name


def method_of_rollouts(name: str) -> str:
    """The name itself. Raises ValueError where no algorithm is called so, or it learns from single turns."""
    if not _known(name, OF_ROLLOUTS).outcomes:
        raise ValueError(
            f"the method {name!r} learns from single turns of a person, and this stream has rollouts with outcomes; "
            f"use one of {', '.join(OF_ROLLOUTS)}"
        )
    return name


def _known(name: str, fitting: tuple[str, ...]) -> Method:
    if name not in METHODS:
        raise ValueError(f"there is no method {name!r}, only {', '.join(fitting)}")
    return METHODS[name]
