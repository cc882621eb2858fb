"""Problems: the same for the same seed, never practised and examined at once, and pupils' slips are really wrong."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from turnwise.demo.problems import Problem, ProblemError, everyday_problems, hand_in, load_problems


def gsm8k(path: Path, count: int) -> Path:
    lines = [
        json.dumps(
            {
                "question": f"Ann has {n} pens and buys 2. How many?",
                "answer": f"{n}+2=<<{n}+2={n + 2}>>{n + 2}\n#### {n + 2}",
            }
        )
        for n in range(count)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_same_seed_draws_the_same_problems_and_another_seed_others():
    assert load_problems(5, 5, seed=3, pupils=True) == load_problems(5, 5, seed=3, pupils=True)
    assert load_problems(5, 5, seed=3) != load_problems(5, 5, seed=4)


@pytest.mark.parametrize("seed", range(5))
def test_no_question_and_no_family_is_practised_and_examined(seed: int):
    drawn = load_problems(36, 36, seed=seed)
    assert len({p.question for p in drawn.interactions + drawn.held_out}) == 72
    assert not {p.family for p in drawn.interactions} & {p.family for p in drawn.held_out}


def test_everyday_questions_are_drawn_by_the_seed_and_examined_in_one_order():
    one, other = everyday_problems(24, 24, seed=0), everyday_problems(24, 24, seed=1)
    assert one == everyday_problems(24, 24, seed=0) and one.interactions != other.interactions
    assert one.held_out == other.held_out and all(p.accepted for p in one.held_out)
    assert not {p.question for p in one.interactions} & {p.question for p in one.held_out}
    with pytest.raises(ProblemError, match="48 everyday questions to talk about, not 49"):
        everyday_problems(49, 24, seed=0)


def test_a_gsm8k_file_is_read_without_its_calculator_marks(tmp_path: Path):
    drawn = load_problems(6, 4, seed=0, file=gsm8k(tmp_path / "p.jsonl", 10))
    problem = drawn.interactions[0]
    assert problem.worked == f"{int(problem.answer) - 2}+2={problem.answer}"
    assert not {p.question for p in drawn.interactions} & {p.question for p in drawn.held_out}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"question": "How many?"}', "p.jsonl:1: want"),
        ('{"question": "How many?", "answer": "five"}', "must end in '#### NUMBER'"),
        ("not json", "p.jsonl:1: want"),
        ("", "gives 0 problems"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(tmp_path: Path, content: str, said: str):
    file = tmp_path / "p.jsonl"
    file.write_text(content)
    with pytest.raises(ProblemError, match=said):
        load_problems(1, 1, seed=0, file=file)


def test_a_missing_file_is_refused_by_name(tmp_path: Path):
    with pytest.raises(ProblemError, match="nowhere"):
        load_problems(1, 1, seed=0, file=tmp_path / "nowhere.jsonl")


def test_a_planted_slip_changes_the_last_result_and_nothing_before_it():
    problem = Problem("1", "f", "How many pens?", "18", "6 + 3 = 9 pens.\n9 * 2 = 18 pens, so 18.")
    for seed in range(30):
        pupil = hand_in(problem, random.Random(seed), flawed=True).pupil
        assert pupil and pupil.flawed
        assert pupil.solution.startswith("6 + 3 = 9 pens.\n9 * 2 = ")
        assert "18" not in pupil.solution.split()
        assert pupil.solution != problem.worked


def test_a_correct_pupil_hands_in_the_worked_solution():
    problem = Problem("1", "f", "How many pens?", "18", "9 * 2 = 18 pens.")
    pupil = hand_in(problem, random.Random(0), flawed=False).pupil
    assert pupil and pupil.solution == problem.worked and not pupil.flawed
