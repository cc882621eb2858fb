"""What an environment is: it is given a task, answers actions with observations, and says at the end what came of it.

Nothing here knows a model. An environment that cannot do its work raises InfrastructureFailure, which is no reward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from turnwise.errors import TurnwiseError
from turnwise.trajectories.trail import Trail

if TYPE_CHECKING:
    from turnwise.config import Config
    from turnwise.sandbox.limits import Allowed, BoxLimits, Ran


class InfrastructureFailure(TurnwiseError):
    """The machine, not the policy, is why there is no outcome: the rollout is masked and gets no reward."""


class CutOff(TurnwiseError):
    """A limit ended the episode, not the policy; the text says which. Its stream says what its outcome is worth."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task. ``data`` is what the environment makes it from; the agent is shown ``prompt`` alone."""

    id: str
    environment: str
    prompt: str
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool. Arguments that could not be read are {}."""

    name: str
    arguments: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Action:
    """What one answer asks for: calls of tools, and its words. Both are the agent's, so that anything may stand in
    them; an answer in which neither says what to do is an action as well."""

    calls: tuple[Call, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """What the agent gets to see after an action, of bounded length and untrusted.

    ``results`` has one text for each call of the action; where it is empty, ``text`` is the result of the first call.
    ``images`` are pictures as PNG or JPEG, for policies that see.
    """

    text: str
    results: tuple[str, ...] = ()
    images: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """What came of a task: ``reward`` (0 to 1 for verified tasks), and ``details`` for people. ``cut_off``: the limit
    that ended the episode before the policy did; None where it ended by itself. ``trail`` is what a judge would look
    at; with ``asks`` the reward stands for nothing until a judge has said whether the task was done."""

    reward: float
    details: Mapping[str, object]
    cut_off: str | None = None
    trail: Trail | None = None
    asks: bool = False


@dataclass(frozen=True, slots=True)
class Worked:
    """How whoever played an episode ended: after so many ``steps`` (0: not known), or by a limit. ``fault``:
    what is wrong with its player where it ended badly, which is the machine's only if the model was never asked."""

    steps: int
    cut_off: str | None = None
    details: Mapping[str, object] = field(default_factory=dict)
    fault: str | None = None


class Environment(Protocol):
    """One episode at a time. Every call may raise InfrastructureFailure."""

    def reset(self, task: Task) -> Observation:
        """Begin a task; what an earlier one left is gone."""
        ...

    def step(self, action: Action) -> tuple[Observation, bool]:
        """Do one action, and say whether the episode is over."""
        ...

    def score(self) -> TaskOutcome:
        """End the episode and judge it. Called again it says the same."""
        ...

    def close(self) -> None:
        """Give everything back. May be called at any time, and again."""
        ...


@runtime_checkable
class Workplace(Protocol):
    """An environment whose task is a folder, so that a program may work in it in place of steps."""

    def work(self, command: str, limits: BoxLimits, allowed: Allowed) -> Ran:
        """Run a program in the task's folder until it ends or meets a limit; that ends the episode."""
        ...


@runtime_checkable
class Preparable(Protocol):
    """What an environment may have beside, so that the host can make it ahead and see whether it is fit."""

    def prepare(self) -> None:
        """Do what needs no task. Raises InfrastructureFailure."""
        ...

    def is_fit(self) -> bool:
        """Whether what was prepared is still there."""
        ...


@dataclass(frozen=True, slots=True)
class Instructions:
    """How a model is told to act: the system message, and the tools in OpenAI's shape."""

    system: str
    tools: Sequence[Mapping[str, Any]]


class Kind(Protocol):
    """A kind of environment, by whose name its tasks and their stream go. Each has a module `kind.py`, see `kinds`."""

    name: str

    def check_machine(self, config: Config) -> None:
        """Raises TurnwiseError with what to install or to set where it cannot be hosted here as the settings say."""
        ...

    def check_task(self, data: Mapping[str, object]) -> None:
        """Raises DataError where a task cannot be made of this."""
        ...

    def make(self, folder: Path, config: Config) -> Environment:
        """An environment that keeps what it has in ``folder``, which it makes and deletes."""
        ...

    def instructions(self, task: Task) -> Instructions:
        """How a model is told to act in this task."""
        ...

    def read(self, text: str) -> Action:
        """What an answer without a call of a tool asks for."""
        ...

    def oracle(self, task: Task) -> Sequence[Action]:
        """Actions that solve the task. Raises DataError where none are known."""
        ...


Maker = Callable[[str, Path], Environment]
"""Makes an environment of the kind of this name in a folder of its own."""
