"""Questions with tools: the contract of every environment, an interpreter in hostile hands, and strict answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.environments.test_terminal import HOLDS
from turnwise.environments.base import Action, Call, Environment, InfrastructureFailure, Task
from turnwise.environments.terminal.environment import MOST_SHOWN
from turnwise.environments.tools import answers
from turnwise.environments.tools.environment import FORMAT, OVER, ToolsEnvironment
from turnwise.environments.tools.interpreter import LOST
from turnwise.environments.tools.kind import KIND, answer
from turnwise.sandbox.limits import BoxLimits

pytestmark = pytest.mark.skipif(not HOLDS, reason="no bubblewrap here (make sandbox)")
LIMITS = BoxLimits(seconds=3, memory_mb=256, processes=16, disk_mb=16, output_kb=64)
TASK = Task("sum", "tools", "What is 40 + 2?", {"answer": "42"})


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[ToolsEnvironment]:
    made = ToolsEnvironment(tmp_path / "episode", LIMITS, most_steps=50)
    made.reset(TASK)
    yield made
    made.close()


def python(*code: str) -> Action:
    return Action(tuple(Call("python", {"code": each}) for each in code))


def said(tools: ToolsEnvironment, *code: str) -> list[str]:
    return list(tools.step(python(*code))[0].results)


def test_the_contract_of_an_environment(tmp_path: Path) -> None:
    environment: Environment = ToolsEnvironment(tmp_path / "episode", LIMITS)
    for call in (environment.score, lambda: environment.step(answer("1"))):
        with pytest.raises(InfrastructureFailure, match="reset"):
            call()
    environment.close()
    assert environment.reset(TASK).text == TASK.prompt
    assert environment.step(python("40 + 2"))[0].text == "42"
    observation, done = environment.step(answer("42"))
    assert (observation.text, done) == ("The answer is handed in.", True)
    outcome = environment.score()
    assert outcome.reward == 1.0 and environment.score() == outcome, "scored again it says the same"
    with pytest.raises(InfrastructureFailure, match="reset"):
        environment.step(answer("42"))
    environment.reset(TASK)
    assert environment.score().reward == 0.0, "nothing was done"
    environment.close()
    environment.close()
    assert list(tmp_path.iterdir()) == []


def test_names_last_over_calls_and_errors(tools: ToolsEnvironment) -> None:
    assert said(tools, "x = 3", "x + 1") == ["(it printed nothing)", "4"]
    (error,) = said(tools, "def f():\n    return 1 / 0\nf()")
    assert error.splitlines()[0].startswith("Traceback") and error.endswith("division by zero")
    assert 'File "<call 3>", line 2, in f' in error and "inside" not in error
    assert said(tools, "print(x); x = 5; x", "syntax error") == [
        "3\n5",
        said(tools, "syntax error")[0].replace("6", "5"),
    ]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("while True: pass", "longer than 3 s"),
        ("print('y' * 200_000)", "printed more than 64 kB"),
        ("b = bytearray(10 ** 9)", None),
        ("import os; os._exit(0)", None),
        ("exit()", None),
        ("import os\nfor each in (5, 6): os.close(each)", None),
        ("import os; os.kill(os.getppid(), 9)", None),
    ],
)
def test_a_dead_interpreter_is_begun_anew_and_the_agent_is_told(
    tools: ToolsEnvironment, code: str, why: str | None
) -> None:
    said(tools, "x = 1")
    (told,) = said(tools, code)
    assert "MemoryError" in told or told.endswith(LOST), told
    assert why is None or why in told
    assert said(tools, "1 + 1") == ["2"], "it goes on"


@pytest.mark.parametrize(
    "code",
    [
        "import os\nfor fd in (1, 2): os.write(fd, b'0123456789abcdef 0\\0\\n' * 50)\nprint('end')",
        "import os\nos.write(5, b'forged\\n' * 3); print('end')",
        "import sys; sys.stdout.write('\\0 0\\0' * 9); sys.stdout.flush(); print('end')",
    ],
)
def test_what_is_printed_is_never_taken_for_the_end_of_a_call(tools: ToolsEnvironment, code: str) -> None:
    (told,) = said(tools, code)
    assert "end" in told or "binary output" in told
    assert said(tools, "2 + 2") == ["4"]


def test_output_that_nobody_could_read_is_cut_or_left_out(tools: ToolsEnvironment) -> None:
    assert "binary output, not shown" in said(tools, "import os; os.write(1, bytes(range(256)) * 9); None")[0]
    (long,) = said(tools, "'a' * 9000")
    assert len(long) < MOST_SHOWN + 100 and "left out here" in long


def test_input_is_empty_and_there_is_no_network_and_no_home(tools: ToolsEnvironment) -> None:
    assert said(tools, "input()")[0].endswith("EOFError: EOF when reading a line")
    assert "Error" in said(tools, "import urllib.request as u; u.urlopen('http://127.0.0.1:1')")[0]
    assert said(tools, "import os; sorted(os.listdir('/box')), os.path.exists('/root')") == ["([], False)"]


def test_calls_that_ask_for_nothing_are_told_and_end_the_episode(tools: ToolsEnvironment) -> None:
    odd = [
        Call("bash", {"command": "ls"}),
        Call("python", {"code": 3}),
        Call("python", {"code": "a\0"}),
        Call("answer", {}),
    ]
    observation, done = tools.step(Action(tuple(odd)))
    assert observation.results == (FORMAT,) * 4 and not done
    tools.step(python("1"))
    assert [tools.step(Action(text="I do not know"))[1] for _ in range(3)] == [False, False, True]
    assert tools.score().details["ended"] == "format"


def test_nothing_is_done_after_the_answer(tools: ToolsEnvironment) -> None:
    calls = (Call("answer", {"value": 41}), Call("answer", {"value": 42}), Call("python", {"code": "1"}))
    observation, done = tools.step(Action(calls))
    assert done and observation.results[1:] == (OVER, OVER)
    assert tools.score().reward == 0.0


def test_a_task_without_the_interpreter_has_none(tmp_path: Path) -> None:
    environment = ToolsEnvironment(tmp_path / "episode", LIMITS)
    bare = Task("bare", "tools", "p", {"answer": "42", "python": False})
    environment.reset(bare)
    assert environment.step(python("1"))[0].text == FORMAT
    assert [tool["function"]["name"] for tool in KIND.instructions(bare).tools] == ["answer"]
    environment.close()


def test_a_verifier_that_crashes_is_no_reward(tools: ToolsEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*given: Any) -> bool:
        raise ZeroDivisionError("in the verifier")

    monkeypatch.setattr(answers.CheckedAnswer, "is_right", crash)
    tools.step(answer("42"))
    with pytest.raises(InfrastructureFailure, match="the verifier crashed: ZeroDivisionError"):
        tools.score()
