"""Failures of one kind: of the same tool in the same way, or about the same thing. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.evolving.evidence import BY_THE_ACTION, ShownTurn
from turnwise.skills.vectors import WordVectors

ALIKE = 0.45
"""Cosine of what was asked, and of what was said of the answer, from which two failures are of one kind."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Failures of one kind, oldest first. ``evidence`` and ``tool`` where a tool's report makes them one kind."""

    turns: tuple[ShownTurn, ...]
    evidence: str | None = None
    tool: str = ""

    @property
    def sources(self) -> tuple[tuple[str, str], ...]:
        """Turns and their sessions."""
        return tuple(turn.source for turn in self.turns)


def clusters(failures: Sequence[ShownTurn], vectors: WordVectors) -> list[Cluster]:
    """All failures by their kind, in the order in which the kinds came up; most of them will be alone."""
    by_tool: dict[tuple[str, str], list[ShownTurn]] = {}
    others: list[ShownTurn] = []
    for turn in failures:
        if turn.evidence in BY_THE_ACTION:
            by_tool.setdefault((turn.evidence, turn.tool), []).append(turn)
        else:
            others.append(turn)
    found = [Cluster(tuple(turns), evidence, tool) for (evidence, tool), turns in by_tool.items()]
    embedded = vectors.embed([_about(turn) for turn in others])
    kinds: list[list[int]] = []
    for at in range(len(others)):
        near = [(float((embedded[kind] @ embedded[at]).mean()), kind) for kind in kinds]
        best, kind = max(near, key=lambda one: one[0], default=(0.0, []))
        if best >= ALIKE:
            kind.append(at)
        else:
            kinds.append([at])
    return found + [Cluster(tuple(others[at] for at in kind)) for kind in kinds]


def _about(turn: ShownTurn) -> str:
    return f"{turn.question} {' '.join(turn.said)}"
