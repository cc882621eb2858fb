"""What the demo of the terminal plays: small tasks in a shell, each solved by one command."""

from __future__ import annotations

from turnwise.demo.streams.recipe import StreamRecipe, StreamScale
from turnwise.environments.actors import RecordedActor, ScriptedActor
from turnwise.environments.base import Task
from turnwise.environments.kinds import kind_of
from turnwise.environments.terminal.families.table import missing, named
from turnwise.environments.transcript import Form
from turnwise.sandbox.choice import Sandboxes

SEEN = (
    "append-line",
    "copy-file",
    "join-files",
    "make-link",
    "sort-lines",
    "count-lines",
    "count-matching",
    "keep-matching",
    "first-or-last",
    "change-case",
    "replace-word",
    "gzip-file",
)
UNSEEN = ("without-repeats", "reverse-order", "make-executable", "delete-kind", "one-field", "json-read")
LEVEL = 1


def _check() -> None:
    Sandboxes().check()


def _task(name: str, seed: int) -> Task | None:
    family = named((name,))[0]
    return None if missing(family) else family.task(seed, LEVEL)


def _solver(task: Task, form: Form) -> RecordedActor:
    kind = kind_of(task.environment)
    return RecordedActor(ScriptedActor(kind.oracle(task)), kind, task, form)


RECIPE = StreamRecipe(
    name="terminal",
    stream="terminal",
    title="Terminal",
    family="family",
    families="families",
    seen=SEEN,
    unseen=UNSEEN,
    whole=StreamScale(shown=3, examined=4, unseen=2, before=4, samples=2, rounds=14, tasks=12, group=8, rounds_s=440.0),
    quick=StreamScale(shown=2, examined=1, unseen=1, before=1, samples=1, rounds=1, tasks=4, group=4, rounds_s=120.0),
    check=_check,
    task=_task,
    solver=_solver,
    lr=2e-4,
    minibatch=12,  # a step from two groups alone pushed one family and lost another (docs/demo.md)
    most_steps=2,
    answer_tokens=48,
    temperature=0.6,
    parallel=12,
    context=1024,
    sft_epochs=2,
    sft_lr=5e-4,
    sft_tokens=256,
    own={},
)
