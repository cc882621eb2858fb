"""Answers that can be checked: a number, or what a family of `reasoning-gym` takes for right.

The check runs here, outside of the sandbox, on text of an agent. So only such families are known whose scorer neither
evaluates an answer nor parses it as code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

from turnwise.errors import DataError

THRESHOLD = 0.99
"""Score from which an answer is right: a wrong one may get a few hundredths, and a part of it more."""
MOST_OF_AN_ANSWER = 2000
"""Characters; a longer one is wrong."""
READ = (
    "calendar_arithmetic",
    "chain_sum",
    "decimal_arithmetic",
    "fraction_simplification",
    "gsm_symbolic",
    "knights_knaves",
    "prime_factorization",
    "products",
    "sentence_reordering",
    "word_sorting",
)
"""Families with a scorer of their own that was read: it compares text and numbers. All others that are known compare
the answer with the right one."""


@dataclass(frozen=True, slots=True)
class CheckedAnswer:
    """A question with its right answer. ``family`` and ``seed``: where it is from, and who says what else is right;
    without a family it is a number."""

    answer: str
    family: str | None = None
    seed: int = 0

    def is_right(self, given: str) -> bool:
        """Whether an answer is right. Raises DataError where the family makes another question by now."""
        if len(given) > MOST_OF_AN_ANSWER:
            return False
        if self.family is None:
            number = as_number(given)
            return number is not None and number == as_number(self.answer)
        dataset, entry = _entry(self.family, self.seed)
        if entry["answer"] != self.answer or dataset.score_answer(self.answer.strip(), entry) < THRESHOLD:
            raise DataError(f"{self.family} with the seed {self.seed} is another question in this reasoning-gym")
        try:
            return dataset.score_answer(given.strip(), entry) >= THRESHOLD
        except Exception:  # it takes the right answer, so it is this one that it cannot read
            return False


def question(data: Mapping[str, object]) -> CheckedAnswer:
    """The question of a task. Raises DataError."""
    if odd := sorted(set(data) - {"answer", "family", "seed"}):
        raise DataError(f"a question has answer, family, seed and python, and no {odd[0]!r}")
    answer, family, seed = data.get("answer"), data.get("family"), data.get("seed", 0)
    if not isinstance(answer, str) or not answer.strip():
        raise DataError("'answer' is the right answer, a text")
    if family is None:
        if as_number(answer) is None:
            raise DataError(f"'answer' is {answer[:40]!r}, which is no number; name the family that checks it")
        return CheckedAnswer(answer)
    if not isinstance(family, str) or family not in families():
        raise DataError(f"there is no family {str(family)[:60]!r}; `turnwise tasks tools --list` names them")
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise DataError("'seed' is a number from 0")
    return CheckedAnswer(answer, family, seed)


def asked(family: str, seed: int) -> tuple[str, CheckedAnswer] | None:
    """A question of a family, in words and with its answer; None where the family knows no answer that it takes."""
    dataset, entry = _entry(family, seed)
    answer = entry["answer"]
    if not isinstance(answer, str) or not answer.strip() or len(answer) > MOST_OF_AN_ANSWER:
        return None
    is_taken = dataset.score_answer(answer.strip(), entry) >= THRESHOLD
    return (entry["question"], CheckedAnswer(answer, family, seed)) if is_taken else None


@lru_cache(1)
def families() -> tuple[str, ...]:
    """Names of the families that are known."""
    from reasoning_gym.dataset import ProceduralDataset
    from reasoning_gym.factory import DATASETS

    compared = {name for name, (kind, _) in DATASETS.items() if kind.score_answer is ProceduralDataset.score_answer}
    return tuple(sorted(compared | {name for name in READ if name in DATASETS}))


def as_number(text: str) -> Decimal | None:
    """The number that a text is, as 1,200.50 or $3; None for any other text."""
    bare = text.strip().removeprefix("$").strip()
    sign, digits = (bare[0], bare[1:]) if bare[:1] in ("-", "+") else ("", bare)
    whole, point, rest = digits.removesuffix(".").partition(".")
    groups = whole.split(",")
    are_groups = len(groups) == 1 or (1 <= len(groups[0]) <= 3 and all(len(each) == 3 for each in groups[1:]))
    plain = "".join(groups) + rest
    if not are_groups or not plain.isascii() or not plain.isdecimal() or not whole or (point and not rest):
        return None
    try:
        return Decimal(f"{sign}{''.join(groups)}.{rest or '0'}")
    except InvalidOperation:
        return None


@lru_cache(64)
def _entry(family: str, seed: int) -> tuple[Any, dict[str, Any]]:
    """A family's data set of one question, and that question."""
    import reasoning_gym

    dataset = reasoning_gym.create_dataset(family, size=1, seed=seed)
    return dataset, dataset[0]


GSM8K_MARK = "####"


def gsm8k(line: Mapping[str, object]) -> tuple[str, CheckedAnswer]:
    """A problem of GSM8K: its words, and the number behind the mark. Raises DataError."""
    match line:
        case {"question": str() as words, "answer": str() as solved} if GSM8K_MARK in solved:
            number = solved.rpartition(GSM8K_MARK)[2].strip()
            if as_number(number) is not None:
                return words, CheckedAnswer(number)
        case _:
            pass
    raise DataError(f"a problem of GSM8K has a question, and an answer that ends in {GSM8K_MARK} and a number")
