"""What the demo of tools plays: questions that a line of Python answers."""

from __future__ import annotations

from collections.abc import Callable

from turnwise.config import Config
from turnwise.demo.streams.recipe import StreamRecipe, StreamScale
from turnwise.environments.actors import RecordedActor, ScriptedActor
from turnwise.environments.base import Action, Call, Task
from turnwise.environments.tools.answers import asked
from turnwise.environments.tools.environment import PYTHON
from turnwise.environments.tools.kind import KIND, answer
from turnwise.environments.transcript import Form
from turnwise.errors import DataError


def _between(text: str, begin: str, end: str) -> str:
    """What stands between two words of a question."""
    if not (found := text.partition(begin)[2].partition(end)[0].strip()):
        raise DataError(
            f"this reasoning-gym asks in other words: {text[:200]!r} has nothing between {begin!r} and {end!r}"
        )
    return found


def _counted(prompt: str) -> str:
    letter, text = _between(prompt, 'letter "', '"'), prompt.partition('text: "')[2].rpartition('"')[0]
    return f"print({text.lower()!r}.count({letter!r}))"


def _last_angle(prompt: str) -> str:
    angles = [word.partition("°")[0].removesuffix(".0") for word in prompt.split() if "°" in word]
    if len(angles) < 2:
        raise DataError(f"this reasoning-gym asks in other words: {prompt[:200]!r} has no angles")
    return f"print(180*{len(angles) - 1}-({'+'.join(angles)}))"


def _primes(prompt: str) -> str:
    first, last = _between(prompt, "between ", " (inclusive)").split(" and ")
    return f"print(sum(n>1 and all(n%d for d in range(2,int(n**.5)+1)) for n in range({first},{int(last) + 1})))"


SOLVED: dict[str, Callable[[str], str]] = {
    "gcd": lambda p: f"import math\nprint(math.gcd({_between(p, 'numbers: ', '. Give')}))",
    "lcm": lambda p: f"import math\nprint(math.lcm({p.rpartition('numbers: ')[2].strip()}))",
    "count_bits": lambda p: f'print(bin({_between(p, "number ", "?")}).count("1"))',
    "letter_counting": _counted,
    "simple_geometry": _last_angle,
    "count_primes": _primes,
}
"""How Python answers a question of each family."""
SEEN = tuple(SOLVED)
UNSEEN = ("chain_sum", "products", "basic_arithmetic")


def _check() -> None:
    KIND.check_machine(Config())


def _task(name: str, seed: int) -> Task | None:
    if (found := asked(name, seed)) is None:
        return None
    prompt, right = found
    data = {"answer": right.answer, "family": name, "seed": seed, "python": True}
    return Task(f"{name}-{seed}", KIND.name, prompt, data)


def _solver(task: Task, form: Form) -> RecordedActor:
    code = SOLVED[str(task.data["family"])](task.prompt)
    actions = (Action((Call(PYTHON, {"code": code}),)), answer(str(task.data["answer"])))
    return RecordedActor(ScriptedActor(actions), KIND, task, form)


RECIPE = StreamRecipe(
    name="tools",
    stream="tools",
    title="Tools",
    family="family",
    families="families",
    seen=SEEN,
    unseen=UNSEEN,
    whole=StreamScale(shown=2, examined=6, unseen=4, before=2, samples=2, rounds=14, tasks=6, group=8, rounds_s=560.0),
    quick=StreamScale(shown=2, examined=1, unseen=1, before=1, samples=1, rounds=1, tasks=4, group=4, rounds_s=120.0),
    check=_check,
    task=_task,
    solver=_solver,
    lr=2e-4,
    minibatch=6,
    most_steps=3,
    answer_tokens=80,
    temperature=0.8,
    parallel=12,
    context=1024,
    sft_epochs=2,
    sft_lr=5e-4,
    sft_tokens=256,
    own={"method": "step_groups", "dynamic_sampling": False, "votes": 0},
)
