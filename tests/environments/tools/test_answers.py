"""Answers are read strictly and checked outside; every known family takes its own answer and refuses another."""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from turnwise.cli.main import app
from turnwise.environments.base import Action, Call
from turnwise.environments.tasks import read_tasks
from turnwise.environments.tools.answers import READ, CheckedAnswer, as_number, asked, families, gsm8k, question
from turnwise.environments.tools.kind import KIND, answer
from turnwise.errors import DataError

GSM8K = {"question": "Two and two?", "answer": "2 + 2 = <<2+2=4>>4\n#### 1,004"}


@pytest.mark.parametrize(
    ("text", "value"),
    [("42", 42), (" $1,200.50 ", 1200.5), ("-3", -3), ("+7.", 7), ("007", 7), ("4.0", 4), ("1,234,567", 1234567)],
)
def test_numbers_are_read(text: str, value: float) -> None:
    assert as_number(text) == value


@pytest.mark.parametrize(
    "text", ["", "4 apples", "1e3", "1,2,3", "12,34", "٤", "0x2a", "1..2", ".5", "--1", "4 or 5", "nan"]
)
def test_what_is_no_number_is_none(text: str) -> None:
    assert as_number(text) is None


@pytest.mark.parametrize("family", families())
def test_a_family_takes_its_answer_and_no_other(family: str) -> None:
    found = asked(family, 3)
    assert found is not None, "it knows its answer"
    words, right = found
    assert words.strip() and right.is_right(right.answer)
    assert not any(right.is_right(other) for other in ("", "none of these", "× 3", "9" * 5000))


def test_no_scorer_evaluates_what_it_is_given() -> None:
    from reasoning_gym.factory import DATASETS

    called = set()
    for family in READ:
        tree = ast.parse(inspect.getsource(DATASETS[family][0]))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called.add(ast.unparse(node.func).rsplit(".", 1)[-1])
    assert not called & {"eval", "exec", "parse_expr", "sympify", "literal_eval", "compile", "loads", "__import__"}


def test_a_question_that_the_family_makes_no_more_is_a_fault_of_the_machine() -> None:
    with pytest.raises(DataError, match="another question"):
        CheckedAnswer("no such answer", "gcd", 1).is_right("3")


def test_a_problem_of_gsm8k_has_its_number() -> None:
    words, found = gsm8k(GSM8K)
    assert words == "Two and two?" and found.is_right("1004") and not found.is_right("4")
    with pytest.raises(DataError, match="GSM8K"):
        gsm8k({"question": "?", "answer": "42"})


@pytest.mark.parametrize(
    "data",
    [{}, {"answer": ""}, {"answer": "red"}, {"answer": "1", "family": "countdown"}, {"answer": "1", "family": 3},
     {"answer": "1", "family": "gcd", "seed": -1}, {"answer": "1", "family": "gcd", "seed": True}],
)  # fmt: skip
def test_a_task_that_cannot_be_checked_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(DataError):
        question(data)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("so\nAnswer: 42", answer("42", "so\nAnswer: 42")),
        ("Answer: 1\nAnswer: 2", Action((), "Answer: 1\nAnswer: 2")),
        ("Answer: 1\nI think", Action((), "Answer: 1\nI think")),
        ("it is 42", Action((), "it is 42")),
        ("Answer:", Action((), "Answer:")),
        ("```python\n1+1\n```", Action((Call("python", {"code": "1+1"}),), "```python\n1+1\n```")),
        ("```bash\nls\n```", Action((), "```bash\nls\n```")),
    ],
)
def test_an_answer_without_a_call_is_read_strictly(text: str, action: Action) -> None:
    assert KIND.read(text) == action


def test_blocks_give_their_action_back() -> None:
    for action in (answer("42"), Action((Call("python", {"code": "print(1)"}),))):
        assert KIND.read(KIND.in_block(action)).calls == action.calls


def test_tasks_are_written_alike_each_time_and_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "gsm8k.jsonl").write_text(json.dumps(GSM8K))
    asked_for = [
        "tasks",
        "tools",
        "--families",
        "chain_sum,gsm8k",
        "--seeds",
        "0",
        "--gsm8k",
        str(tmp_path / "gsm8k.jsonl"),
    ]
    for name in ("one", "two"):
        done = CliRunner().invoke(app, [*asked_for, "--out", str(tmp_path / name)])
        assert done.exit_code == 0, (done.output, done.exception)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    tasks = read_tasks(tmp_path / "one")
    assert [task.id for task in tasks] == ["chain_sum-0", "gsm8k-0"]
    assert [KIND.oracle(task)[0].calls[0].arguments["value"] for task in tasks][1] == "1,004"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--families", "nim"], "no family 'nim'"),
        (["--families", "gsm8k"], "--gsm8k"),
        (["--families", "gcd", "--seeds", "x"], "--seeds takes numbers"),
    ],
)
def test_what_cannot_be_made_is_said(tmp_path: Path, given: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["tasks", "tools", *given, "--out", str(tmp_path / "t")])
    assert done.exit_code != 0 and said in str(done.exception)
