"""What an update asks of whatever holds the weights. The update itself knows no model, optimiser or device.

A backend is at one place at a time: a version, or a number of steps on top of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from turnwise.training.batching import TokenText
from turnwise.training.lessons.learning import Taught
from turnwise.training.step import Signals, Tick
from turnwise.training.weights.base import State
from turnwise.types import Batch, PolicyVersion, Sample


class Backend(Protocol):
    """The weights in training and their optimiser. Every ``tick`` may raise: the weights are then as they were.

    Of weights that a server holds this is not known: `prepare` or `restore` comes next.
    """

    @property
    def device(self) -> str:
        """Where it computes, for a person."""
        ...

    def prepare(self, version: int, fresh: bool = False) -> dict[str, Any]:
        """Go to a published version, with the optimiser's state that it left; gives its ``meta.json`` ({}: the base).

        ``fresh``: with a new optimiser, for what is learned otherwise.
        Raises AdapterError where no update can go on from it.
        """
        ...

    def without_faults(self, batch: Batch) -> tuple[Batch, dict[str, str]]:
        """The batch without the turns that the model cannot read, and why not by their ids. Raises BadBatch."""
        ...

    def signals(self, batch: Batch, tick: Tick) -> Sequence[Signals]:
        """What is known of each sample at the version that was prepared."""
        ...

    def step(
        self, batch: Batch, signals: Sequence[Any], chosen: Sequence[int], tick: Tick
    ) -> tuple[dict[str, float], list[int]]:
        """One optimiser step on what `signals` gave for the batch; gives its metrics and the indices of samples without
        a finite gradient, left out."""
        ...

    def lessons(self, batch: Batch, tick: Tick) -> Sequence[Taught]:
        """Answers as the standing wishes have them, to learn from; none where nothing is wished or little is found."""
        ...

    def learn(self, lessons: Sequence[Taught], tick: Tick) -> float:
        """One optimiser step on lessons; gives their loss before it. Raises NotFinite, with nothing moved."""
        ...

    def lesson_loss(self, lessons: Sequence[Taught], tick: Tick) -> float:
        """How far the weights are from the teacher, in nats per token."""
        ...

    def imitate(self, texts: Sequence[TokenText], lr: float, tick: Tick) -> dict[str, float]:
        """One optimiser step on answers as they stand; gives its ``loss``, and ``grad_norm`` where it is known. Texts
        with one ``sample`` are of one conversation.

        Raises NotFinite, with nothing moved.
        """
        ...

    def imitation_loss(self, texts: Sequence[TokenText], tick: Tick) -> float:
        """The mean −log π of the answers' tokens, in nats."""
        ...

    def figures(self, probes: Sequence[Sample], tick: Tick) -> dict[str, Any]:
        """What the gate measures of the weights as they are, and would say of them; nothing is changed."""
        ...

    def snapshot(self) -> tuple[State, State]:
        """What is trained and the optimiser's state, whole and by name, to come back to; or under what name a server
        keeps both."""
        ...

    def restore(self, weights: State, moments: State) -> None:
        """Go to where a snapshot was taken."""
        ...

    def examine(self, batch: Batch, probes: Sequence[Sample], tick: Tick) -> dict[str, Any]:
        """The gate's result on the weights as they are, beside the version that was prepared.

        Where it passes a part of the step, the weights are that part from then on.
        """
        ...

    def wishes_kept(self, batch: Batch, tick: Tick) -> list[dict[str, Any]]:
        """Of each standing wish the ``turns`` in which it was said, and the share of answers in which it is ``kept`` by
        the weights as they are, that are not told it."""
        ...

    def close(self) -> None:
        """Nothing more is asked of it."""
        ...

    def stage(self, version: PolicyVersion, *, with_moments: bool = True) -> AbstractContextManager[Callable[[], None]]:
        """Write the weights as they are as a version's directory beside its place; what is given puts it there.

        ``with_moments``: with the optimiser's state.
        """
        ...
