"""How agents of `turnwise rollout` and `turnwise eval web` are shown their tasks: as was asked for, where the policy
sees; and what of it came to be in the journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from turnwise.capabilities import capabilities, sees_pictures
from turnwise.errors import ConfigError

if TYPE_CHECKING:
    from turnwise.config import Config
    from turnwise.environments.base import Task
    from turnwise.journal.rollouts.steps import StepFigures

MOST_SIZES = 3
"""Sizes of pictures that are told of a run."""


class Observing:
    """The ``tasks`` and the ``settings`` as they are played. ``said``: what has to be told before, or None."""

    def __init__(self, tasks: Sequence[Task], settings: Config, observe: str | None, by_model: bool) -> None:
        """``observe``: how pages are to be shown, whatever the tasks say; ``by_model``: whether a model plays.

        Raises ConfigError for a view that there is not.
        """
        self.tasks = [_viewed(task, settings, observe) for task in tasks]
        self.settings, self.said = settings, None
        if observe is not None and not any(task.environment == "web" for task in tasks):
            raise ConfigError("--observe is for tasks of the web, and none of these is one; leave it out")
        if by_model and (blind := sum(map(self._has_pictures, self.tasks))) and not _sees(settings):
            self.tasks = [_viewed(task, settings, "text") for task in self.tasks]
            self.settings = _without_pictures(settings)
            self.said = f"{_who(settings)} sees no pictures: {blind} tasks are shown as text"

    @property
    def has_pictures(self) -> bool:
        return any(map(self._has_pictures, self.tasks))

    def _has_pictures(self, task: Task) -> bool:
        if task.environment == "web":
            return task.data.get("observe", "text") != "text"
        return task.environment == "desktop" and self.settings.streams.desktop.pictures


def told_of_pictures(taken: int, left_out: int, steps: StepFigures) -> list[str]:
    """What became of the pictures of a run, in lines."""
    lines = [f"pictures: {taken} taken, {left_out} of them replaced by words later, {steps.pictures} in prompts"]
    lines.append(f"steps: {steps.own} samples of their own, {steps.merged} that go on from the one before")
    for ((width, height), shown), count in steps.shown.most_common(MOST_SIZES):
        scaled = "as they are" if shown == (width, height) else f"scaled to {shown[0]} by {shown[1]}"
        lines.append(f"{count} pictures of {width} by {height} pixels, seen {scaled}")
    if len(steps.shown) > MOST_SIZES:
        lines.append(f"and pictures of {len(steps.shown) - MOST_SIZES} other sizes")
    return lines


def _viewed(task: Task, settings: Config, observe: str | None) -> Task:
    """A task of the web with the view that is asked for, else its own, else that of its stream's setting."""
    if task.environment != "web":
        return task
    from turnwise.environments.browser.web_task import VIEWS

    if observe is not None and observe not in VIEWS:
        raise ConfigError(f"--observe takes {', '.join(VIEWS)}, not {observe!r}")
    view = observe or task.data.get("observe") or ("both" if settings.streams.web.pictures else "text")
    return replace(task, data={**task.data, "observe": view})


def _sees(settings: Config) -> bool:
    """Whether the served model is shown pictures; what an upstream's sees is for it to say."""
    if settings.engine.kind == "upstream":
        return True
    return capabilities(settings).images and sees_pictures(settings.model.path)


def _who(settings: Config) -> str:
    return f"the model {settings.model.path}"


def _without_pictures(settings: Config) -> Config:
    desktop = settings.streams.desktop.model_copy(update={"pictures": False})
    return settings.model_copy(update={"streams": settings.streams.model_copy(update={"desktop": desktop})})
