"""What the demo of the web plays: pages of MiniWoB++ that an agent sees as text, with the paper's way of learning."""

from __future__ import annotations

from turnwise.demo.streams.recipe import StreamRecipe, StreamScale
from turnwise.environments.actors import RecordedActor
from turnwise.environments.base import Task
from turnwise.environments.browser.chromium import program
from turnwise.environments.browser.kind import KIND
from turnwise.environments.browser.miniwob import page_names
from turnwise.environments.browser.miniwob_oracle import MiniwobOracle
from turnwise.environments.browser.miniwob_tasks import miniwob_task
from turnwise.environments.transcript import Form

SEEN = (
    "click-test",
    "click-button",
    "click-button-sequence",
    "click-link",
    "click-option",
    "click-checkboxes",
    "click-dialog",
    "click-tab",
    "click-collapsible",
    "choose-list",
    "enter-text",
    "enter-text-2",
    "enter-password",
    "login-user",
    "focus-text",
    "focus-text-2",
    "simple-arithmetic",
    "simple-algebra",
    "find-word",
    "odd-or-even",
)
UNSEEN = (
    "click-test-2",
    "click-dialog-2",
    "enter-text-dynamic",
    "click-checkboxes-transfer",
    "click-widget",
    "read-table",
)
"""The first four have a sibling among those that are learned from, the last two have none. Of the pages that a rule
solves three are in neither: `click-checkboxes-large`, `grid-coordinate` and `text-transform` take long to read."""


def _check() -> None:
    program()
    page_names()


def _task(name: str, seed: int) -> Task:
    return miniwob_task(name, seed)


def _solver(task: Task, form: Form) -> RecordedActor:
    return RecordedActor(MiniwobOracle(str(task.data["miniwob"])), KIND, task, form)


RECIPE = StreamRecipe(
    name="web",
    stream="web",
    title="Web",
    family="page",
    families="pages",
    seen=SEEN,
    unseen=UNSEEN,
    whole=StreamScale(
        shown=3, examined=2, unseen=3, before=1, samples=2, rounds=11, tasks=20, group=5, rounds_s=1500.0
    ),
    quick=StreamScale(shown=2, examined=1, unseen=1, before=1, samples=1, rounds=1, tasks=4, group=4, rounds_s=120.0),
    check=_check,
    task=_task,
    solver=_solver,
    lr=2e-4,
    minibatch=20,  # with five, two updates lost much of what the warm start had taught (docs/web.md)
    most_steps=2,
    answer_tokens=64,
    temperature=0.8,
    parallel=8,
    context=2048,
    sft_epochs=2,
    sft_lr=5e-4,
    sft_tokens=512,
    own={"aggregation": "trajectory-sum", "epochs": 2},
)
