"""What a persona is made of. The simulator turns it into replies; the scorer knows nothing of it.

Texts are small grammars: ``[a|b|c]`` is one of the alternatives (they nest), ``<name>`` is filled in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from turnwise.demo.problems import Problem


@dataclass(frozen=True, slots=True)
class Aspect:
    """One thing that can be wrong with an answer: how the person grumbles about it, and what they want instead."""

    grumbles: tuple[str, ...]
    wants: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Manner:
    """How the person types: the chance of each habit, per reply."""

    lower_case: float
    no_full_stop: float
    short_forms: float
    typo: float


@dataclass(frozen=True, slots=True)
class Persona:
    """A person who uses the agent.

    ``wish`` is the preference in one instruction: it is written into prompts only to measure the answers' language,
    never into the conversation. ``look`` names the aspects that bother the person in an answer, worst first; an
    answer that bothers them in nothing satisfies them. ``everyday``: they ask everyday questions, not homework.
    ``wave`` conversations are held before the trainer is waited for; answers have at most ``max_tokens``.
    """

    name: str
    about: str
    wish: str
    held_out: int
    interactions: int
    openings: tuple[str, ...]
    aspects: dict[str, Aspect]
    look: Callable[[str, Problem], list[str]]
    starts: tuple[str, ...]
    reasons: tuple[str, ...]
    praise: tuple[str, ...]
    relief: tuple[str, ...]
    resigned: tuple[str, ...]
    manner: Manner
    everyday: bool = False
    wave: int = 12
    max_tokens: int = 128
