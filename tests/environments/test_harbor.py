"""Harbor task folders: played where the sandbox is all they need, refused by name where not, judged over a copy."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.environments.test_terminal import HOLDS
from turnwise.cli.main import app
from turnwise.environments.base import InfrastructureFailure, Task
from turnwise.environments.tasks import read_tasks
from turnwise.environments.terminal.environment import TerminalEnvironment
from turnwise.environments.terminal.harbor.folders import moved, read_folder
from turnwise.environments.terminal.harbor.task import harbor_task, only_closed
from turnwise.environments.terminal.kind import KIND, run, task_of
from turnwise.errors import DataError

needs_box = pytest.mark.skipif(not HOLDS, reason="no bubblewrap here (make sandbox)")

DOCKERFILE = """# the image
FROM ubuntu:24.04
WORKDIR /app
ENV DEBIAN_FRONTEND=noninteractive
COPY names.txt ./
RUN apt-get update && apt-get install -y bash \\
  && rm -rf /var/lib/apt/lists/*
RUN mkdir data && echo 3 > data/number
"""
TESTS = """#!/bin/bash
if diff -q /app/hello.txt /tests/expected.txt && grep -q 3 /app/data/number; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""
FILES = {
    "task.toml": 'version = "1.0"\n[verifier]\ntimeout_sec = 60.0\n[environment]\ncpus = 1\n',
    "instruction.md": "Write `Hello!` to /app/hello.txt. Leave /application alone.\n",
    "environment/Dockerfile": DOCKERFILE,
    "environment/names.txt": "ada\n",
    "tests/test.sh": TESTS,
    "tests/expected.txt": "Hello!\n",
    "solution/solve.sh": "#!/bin/bash\necho 'Hello!' > /app/hello.txt\n",
}


def folder(place: Path, **changed: str | None) -> Path:
    """A task folder in which some files are others; a name has _ for /, and None leaves the file out."""
    for name, text in (
        FILES | {key.replace("__", "/", 1).replace("_", "."): text for key, text in changed.items()}
    ).items():
        if text is not None:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text)
    return place


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return read_folder(folder(tmp_path / "hello"))


def reward(task: Task, place: Path, *commands: str) -> float:
    environment = TerminalEnvironment(place, task_of)
    environment.reset(task)
    for command in commands:
        environment.step(run(command))
    try:
        return environment.score().reward
    finally:
        environment.close()


@needs_box
def test_a_folder_is_played_and_judged(task: Task, tmp_path: Path) -> None:
    assert task.prompt == "Write `Hello!` to /box/hello.txt. Leave /application alone."
    solve = [str(action.calls[0].arguments["command"]) for action in KIND.oracle(task)][:-1]
    assert reward(task, tmp_path / "at", *solve) == 1.0
    assert reward(task, tmp_path / "at") == 0.0
    assert reward(task, tmp_path / "at", "echo Bye > hello.txt") == 0.0
    assert reward(task, tmp_path / "at", *solve, "rm -r data") == 0.0


@needs_box
def test_a_verifier_cannot_be_led_or_found(task: Task, tmp_path: Path) -> None:
    """Neither a link to where its files might stand, nor files under their names, help."""
    tricks = ["ln -s /tests/expected.txt hello.txt", "mkdir -p tests logs/verifier; echo 1 > logs/verifier/reward.txt"]
    assert reward(task, tmp_path / "at", *tricks) == 0.0
    environment = TerminalEnvironment(tmp_path / "at", task_of)
    environment.reset(task)
    environment.score()
    assert sorted(each.name for each in (tmp_path / "at").iterdir()) == ["data", "names.txt"], "it worked on a copy"
    environment.close()


@needs_box
def test_a_part_of_a_reward_and_none_at_all(tmp_path: Path) -> None:
    part = read_folder(
        folder(tmp_path / "part", tests__test_sh="echo '{\"reward\": 0.25}' > /logs/verifier/reward.json\n")
    )
    assert reward(part, tmp_path / "at") == 0.25
    for text in ("exit 1\n", "echo none > /logs/verifier/reward.txt\n", "echo 7 > /logs/verifier/reward.txt\n"):
        broken = read_folder(folder(tmp_path / "broken", tests__test_sh=text))
        with pytest.raises(InfrastructureFailure, match="the verifier crashed"):
            reward(broken, tmp_path / "at")


def judged(place: Path, script: str, *commands: str, more: str = "", lib: Path | None = None) -> tuple[float, str]:
    """The reward of a verifier and its reason. ``more``: a file beside its script; ``lib``: where pytest is put."""
    made = folder(place / "task", tests__test_sh=script, task_toml="[verifier]\ntimeout_sec = 10.0\n")
    (made / "tests" / "test_it.py").write_text(more)
    environment = TerminalEnvironment(place / "at", task_of)
    environment.reset(read_folder(made))
    if lib is not None:
        site = Path(pytest.__file__).parents[1]
        lib.mkdir()
        shutil.copy(site / "py.py", lib)
        for name in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments"):
            shutil.copytree(site / name, lib / name, ignore=shutil.ignore_patterns("__pycache__"))
    for command in commands:
        environment.step(run(command))
    try:
        outcome = environment.score()
        return outcome.reward, str(outcome.details["reason"])
    finally:
        environment.close()


PYTEST = """cd /app
PYTHONPATH=/app/lib python3 -c 'import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))' -q /tests/test_it.py
if [ $? = 0 ]; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
"""
PASSES = "def pytest_pyfunc_call(pyfuncitem):\n    return True\n"


@needs_box
def test_what_the_agent_left_does_not_configure_the_verifier(tmp_path: Path) -> None:
    tests = "def test_it():\n    assert open('/app/done').read()\n"
    lib = tmp_path / "at" / "lib"  # ours, since the system's own Python need not have one
    solved = judged(tmp_path, PYTEST, "echo 1 > done", more=tests, lib=lib)
    assert solved[0] == 1.0, solved
    left = [
        f"printf %s {shlex.quote(PASSES)} > conftest.py",
        "printf '[pytest]\naddopts = -p no:python\n' > pytest.ini",
    ]
    left += ["mkdir tests; cp conftest.py tests/"]
    reward, said = judged(tmp_path, PYTEST, *left, more=tests, lib=lib)
    assert reward == 0.0 and "1 failed" in said


@needs_box
def test_a_verifier_has_its_places_outside_of_the_folder_and_another_home(tmp_path: Path) -> None:
    """What pytest does before it looks for files, without pytest: no folder above the tests is the agent's."""
    script = "case /tests in /box*) exit 1;; esac; touch /tests/x 2>/dev/null && exit 1\n"
    script += "ls -A $HOME | grep . && exit 1; echo 1 > /logs/verifier/reward.txt\n"
    assert judged(tmp_path, script, "touch conftest.py .local") == (1.0, "")


@needs_box
def test_no_reward_is_the_agent_s_where_there_is_one_without_it(tmp_path: Path) -> None:
    script = "test -e slow && echo 1 > /logs/verifier/reward.txt && sleep 60\ntest -e odd && exit 3\n"
    script += "echo 0.5 > /logs/verifier/reward.txt\n"
    assert judged(tmp_path, script)[0] == 0.5
    assert judged(tmp_path, script, "touch odd") == (0.0, "the verifier gave no reward, it ended with status 3: ")
    reward, said = judged(tmp_path, script.replace("60", "30"), "touch slow")
    assert reward == 0.0 and "limit of time" in said


@needs_box
@pytest.mark.parametrize("command", ["chmod 555 .", "chmod 000 ."])
def test_an_agent_cannot_mask_its_rollout_by_closing_its_folder(task: Task, tmp_path: Path, command: str) -> None:
    assert reward(task, tmp_path / "at", command) == 0.0


@needs_box
def test_a_folder_that_is_too_deep_to_copy_has_no_reward(task: Task, tmp_path: Path) -> None:
    """Made from outside: how deep an agent gets before the limit of entries ends it is a matter of chance."""
    environment = TerminalEnvironment(tmp_path / "at", task_of)
    environment.reset(task)
    deep = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
    subprocess.run([sys.executable, "-c", deep], cwd=tmp_path / "at", check=True, timeout=60)
    outcome = environment.score()
    environment.close()
    assert outcome.reward == 0.0 and "cannot be copied" in str(outcome.details["reason"])


@needs_box
@pytest.mark.parametrize("given", ["1" + "0" * 400, "[" * 1500], ids=["large", "nested"])
def test_a_reward_that_no_number_holds_is_none(tmp_path: Path, given: str) -> None:
    script = "test -e /box/mine && cp /box/mine /logs/verifier/reward.txt || echo 1 > /logs/verifier/reward.txt"
    made = read_folder(folder(tmp_path / "hello", tests__test_sh=f"#!/bin/bash\n{script}\n"))
    assert reward(made, tmp_path / "at", f"printf %s '{given}' > mine") == 0.0


@pytest.mark.parametrize("way", ["instruction.md", "environment/names.txt", "tests/more", "solution/solve.sh"])
def test_a_link_in_a_folder_is_not_followed(tmp_path: Path, way: str) -> None:
    secret, made = tmp_path / "secret", folder(tmp_path / "hello")
    secret.write_text("s3cret")
    (made / way).unlink(missing_ok=True)
    (made / way).symlink_to(secret)
    with pytest.raises(DataError, match="cannot be read"):
        read_folder(made)


def test_a_folder_of_it_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    made = folder(tmp_path / "hello")
    (made / "environment").rename(tmp_path / "elsewhere")
    (made / "environment").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="environment/Dockerfile cannot be read"):
        read_folder(made)
    other = folder(tmp_path / "other")
    shutil.rmtree(other / "tests")
    (other / "tests").symlink_to("/")
    with pytest.raises(DataError, match="tests cannot be read: it is a link"):
        read_folder(other)


@pytest.mark.parametrize(
    ("told", "seconds"),
    [("1" + "0" * 400, 600.0), ("inf", 600.0), ("nan", 1.0), ("-5", 1.0), ('"long"', 120.0), ("true", 1.0)],
)
def test_a_verifier_s_time_is_bounded(tmp_path: Path, told: str, seconds: float) -> None:
    made = read_folder(folder(tmp_path / "hello", task_toml=f"[verifier]\ntimeout_sec = {told}\n"))
    assert made.data["harbor"]["seconds"] == seconds  # type: ignore[index]
    asked = {**made.data, "harbor": {**made.data["harbor"], "seconds": 10**400}}  # type: ignore[dict-item]
    assert harbor_task(asked).seconds == 600.0


@pytest.mark.parametrize("told", ["verifier = 3\n", "a = " + "[" * 2000, "environment = 3\n"])
def test_an_odd_task_toml_is_named(tmp_path: Path, told: str) -> None:
    with pytest.raises(DataError, match=r"task\.toml"):
        read_folder(folder(tmp_path / "hello", task_toml=told))


def test_files_that_may_not_be_read_stay_out_and_nothing_else_does() -> None:
    closed = b"cp: cannot open '/x/a' for reading: Permission denied\ncp: cannot access '/x/d': Permission denied\n"
    assert only_closed(closed)
    assert not only_closed(closed + b"cp: error writing '/x/b': No space left on device\n") and not only_closed(b"")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"environment__Dockerfile": "FROM nvidia/cuda:12\nWORKDIR /app\n"}, "image 'nvidia/cuda:12'"),
        ({"environment__Dockerfile": "FROM ubuntu\n"}, "no WORKDIR"),
        ({"environment__Dockerfile": None}, "no environment/Dockerfile"),
        ({"environment__Dockerfile": "FROM ubuntu\nWORKDIR /app\nUSER nobody\n"}, "'USER nobody'"),
        ({"environment__Dockerfile": "FROM ubuntu\nWORKDIR /app\nENV KEY=1\n"}, "sets a variable"),
        ({"environment__Dockerfile": "FROM ubuntu\nWORKDIR /app\nCOPY x /etc/x\n"}, "outside of its working directory"),
        ({"environment__Dockerfile": "FROM ubuntu\nWORKDIR /app\nCOPY missing ./\n"}, "not in its folder environment"),
        (
            {"environment__Dockerfile": "FROM ubuntu\nWORKDIR /app\nRUN apt-get install -y no-such-thing\n"},
            "no-such-thing",
        ),
        ({"tests__test_sh": "pip install pytest\n"}, "no network"),
        ({"tests__test_sh": None}, "no tests/test.sh"),
        ({"task_toml": '[environment]\ndocker_image = "x/y"\n'}, "an image of its own"),
        ({"task_toml": "[environment]\ngpus = 1\n"}, "a GPU"),
        ({"task_toml": "["}, "no TOML"),
        ({"instruction_md": "\n"}, "is empty"),
    ],
)
def test_what_the_sandbox_is_not_is_refused_by_name(tmp_path: Path, changed: dict[str, str | None], said: str) -> None:
    with pytest.raises(DataError, match=said.replace("(", ".")):
        read_folder(folder(tmp_path / "x", **changed))


def test_names_of_places_are_changed_where_they_are_places() -> None:
    assert moved("cd /app && cat /app/x /app/app /application my/app /app-1", "/app") == (
        "cd /box && cat /box/x /box/app /application my/app /app-1"
    )
    assert moved('"/tests/a" $HOME/tests ./tests', "/app") == '"{tests}/a" $HOME/tests ./tests'


def test_the_command_writes_what_can_be_played_and_names_the_rest(tmp_path: Path) -> None:
    folder(tmp_path / "all" / "good")
    folder(tmp_path / "all" / "bad", environment__Dockerfile="FROM x\n")
    done = CliRunner().invoke(app, ["tasks", "harbor", str(tmp_path / "all"), "--out", str(tmp_path / "t.jsonl")])
    assert done.exit_code == 0 and "left out bad" in done.output and "1 tasks" in done.output, done.output
    assert [task.id for task in read_tasks(tmp_path / "t.jsonl")] == ["good"]
    none = CliRunner().invoke(app, ["tasks", "harbor", str(tmp_path), "--out", str(tmp_path / "u")])
    assert none.exit_code != 0 and "no Harbor task" in f"{none.output} {none.exception}"
