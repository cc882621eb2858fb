"""Where the demo's homework comes from: reasoning-gym's GSM-symbolic generator, or a GSM8K file.

A problem belongs to a family (one template of the generator; in a GSM8K file each question is its own). Interactions
and held-out evaluation take different families, so that nothing evaluated was ever practised. No model is called here.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from pathlib import Path

import reasoning_gym

from turnwise.demo.questions import HELD_OUT, TALKED
from turnwise.errors import TurnwiseError
from turnwise.patterns import pattern

MAX_WORDS = 75
"""Longer questions are left out: they cost prompt tokens and show nothing more."""

HELD_OUT_SHARE = 0.4
"""Share of the families that is kept for evaluation."""

_SUFFIX = "Give the result as your final answer. Do not include units."
_CALCULATION = pattern(r"<<[^>]*>>")
_OWN_NUMBER = pattern(r"(?<![\d.,])\d+(?![\d.,/]\d|\d)")
_RESULT = pattern(r"=(\s*[€$£¥]?)(\d+)(?![\d.,/])")
_NAMES = (
    "Amira", "Ben", "Chloe", "Daniel", "Elif", "Finn", "Greta", "Hugo", "Ines", "Jonas", "Kofi", "Lena",
    "Mateo", "Nora", "Oskar", "Priya", "Rafi", "Sofia", "Tariq", "Yuki",
)  # fmt: skip


class ProblemError(TurnwiseError):
    """The file of problems cannot be read, or holds too few of them."""


@dataclass(frozen=True, slots=True)
class Pupil:
    """A solution handed in by a pupil. ``flawed``: a slip was planted in its last calculation."""

    name: str
    solution: str
    flawed: bool


@dataclass(frozen=True, slots=True)
class Problem:
    """A word problem, or an everyday question.

    ``answer`` is the right number as text; ``worked`` a solution in lines, without the final tag. An everyday
    question has neither, but perhaps words of which a right answer has one: ``accepted``.
    """

    id: str
    family: str
    question: str
    answer: str
    worked: str
    pupil: Pupil | None = None
    accepted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProblemSet:
    """Problems to talk about and problems to be examined with. No question and no family is in both."""

    interactions: list[Problem]
    held_out: list[Problem]


def load_problems(
    interactions: int, held_out: int, *, seed: int, file: Path | None = None, pupils: bool = False
) -> ProblemSet:
    """Draw ``interactions`` + ``held_out`` problems, the same ones for the same ``seed``.

    ``file`` is GSM8K's JSON lines (``question``, ``answer`` ending in ``#### N``); without it problems are generated.
    ``pupils`` hands in a pupil's solution with each, about half of them with a planted slip. Raises ProblemError.
    """
    rng = random.Random(f"problems/{seed}")
    pool = _from_file(file) if file else _generated(seed, size=12 * (interactions + held_out) + 600)
    families: dict[str, list[Problem]] = {}
    for problem in pool:
        families.setdefault(problem.family, []).append(problem)
    names = sorted(families)
    rng.shuffle(names)
    cut = max(1, round(len(names) * HELD_OUT_SHARE))
    drawn = ProblemSet(
        interactions=_draw(names[cut:], families, interactions, rng),
        held_out=_draw(names[:cut], families, held_out, rng),
    )
    if len(drawn.interactions) < interactions or len(drawn.held_out) < held_out:
        source = file or "the generator"
        raise ProblemError(
            f"{source} gives {len(drawn.interactions)} problems for interactions and {len(drawn.held_out)} held-out "
            f"ones; {interactions} and {held_out} are needed. Use a larger file or ask for fewer"
        )
    if not pupils:
        return drawn
    return ProblemSet(
        interactions=[hand_in(p, rng, flawed=i % 2 == 1) for i, p in enumerate(drawn.interactions)],
        held_out=[hand_in(p, rng, flawed=i % 2 == 1) for i, p in enumerate(drawn.held_out)],
    )


def everyday_problems(interactions: int, held_out: int, *, seed: int) -> ProblemSet:
    """Everyday questions: what is talked about in an order of the seed's, what is examined always from the first on.

    Raises ProblemError where there are not as many.
    """
    for kind, there, wanted in (("talk about", TALKED, interactions), ("be examined with", HELD_OUT, held_out)):
        if wanted > len(there):
            raise ProblemError(f"there are {len(there)} everyday questions to {kind}, not {wanted}; ask for fewer")
    talked = random.Random(f"everyday/{seed}").sample(TALKED, interactions)
    return ProblemSet(
        [Problem(f"talked/{q}", q, q, "", "") for q in talked],
        [Problem(f"examined/{q}", q, q, "", "", accepted=words) for q, words in HELD_OUT[:held_out]],
    )


def hand_in(problem: Problem, rng: random.Random, *, flawed: bool) -> Problem:
    """The problem with a pupil's solution; a flawed one has a wrong result in its last calculation.

    A solution without any calculation to spoil is handed in as it is, and marked as correct.
    """
    solution = problem.worked
    results = list(_RESULT.finditer(solution))
    planted = flawed and bool(results)
    if planted:
        last = results[-1]
        right = last.group(2)
        wrong = _slip(right, rng)
        head = solution[: last.start(2)]
        solution = head + _with_result(solution[last.start(2) :], right, wrong)
    return replace(problem, pupil=Pupil(rng.choice(_NAMES), solution, planted))


def _with_result(text: str, right: str, wrong: str) -> str:
    """The text with another number wherever `right` stands as a number of its own."""
    return _OWN_NUMBER.sub(lambda match: wrong if match[0] == right else match[0], text)


def _slip(right: str, rng: random.Random) -> str:
    """A wrong number of the kind pupils write: one off, ten off, or two digits swapped."""
    value = int(right)
    slips = {value + 1, value + 10, abs(value - 1), abs(value - 10), value * 2}
    if len(right) > 1:
        slips.add(int(right[:-2] + right[-1] + right[-2]))
    return str(rng.choice(sorted(slips - {value})))


def _draw(names: list[str], families: dict[str, list[Problem]], count: int, rng: random.Random) -> list[Problem]:
    """Take one problem of each family in turn until there are ``count``, or none is left."""
    queues = [rng.sample(families[name], len(families[name])) for name in names]
    drawn: list[Problem] = []
    while len(drawn) < count and any(queues):
        for queue in queues:
            if queue and len(drawn) < count:
                drawn.append(queue.pop())
    return drawn


def _generated(seed: int, size: int) -> list[Problem]:
    data = reasoning_gym.create_dataset("gsm_symbolic", size=size, seed=seed)
    problems: dict[str, Problem] = {}
    for item in data:
        question = item["question"].replace(_SUFFIX, "").strip()
        if len(question.split()) > MAX_WORDS:
            continue
        problems.setdefault(
            question,
            Problem(
                id=f"gsm-symbolic/{seed}/{item['metadata']['source_index']}",
                # The generator does not name its templates, but each has its own set of variables.
                family=",".join(sorted(item["metadata"]["variables"])),
                question=question,
                answer=_plain_number(item["answer"]),
                worked=item["metadata"]["answer_cot"].split("####")[0].strip(),
            ),
        )
    return list(problems.values())


def _from_file(file: Path) -> list[Problem]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise ProblemError(f"cannot read {file}: {e}") from e
    problems: dict[str, Problem] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
            question, (worked, _, answer) = item["question"].strip(), item["answer"].rpartition("####")
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as e:
            raise ProblemError(f"{file}:{number}: want {{'question': text, 'answer': text}} ({e!r})") from e
        if not worked or not answer.strip():
            raise ProblemError(f"{file}:{number}: the answer must end in '#### NUMBER'")
        if len(question.split()) <= MAX_WORDS:
            worked = _CALCULATION.sub("", worked).strip()
            problem = Problem(f"{file.stem}/{number}", question, question, _plain_number(answer), worked)
            problems.setdefault(question, problem)
    return list(problems.values())


def _plain_number(text: str) -> str:
    return text.strip().replace(",", "").lstrip("$€£")
