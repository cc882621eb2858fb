"""Rollouts through the real gateway: a model plays, its outcome is posted once, and a run that was killed goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from tests.conftest import Running
from tests.environments.test_terminal import HOLDS, LIMITS, SOLVE, TASK
from tests.support.servers import wait_until
from turnwise.environments.actors import Actor, ModelActor, ScriptedActor
from turnwise.environments.base import Action, Call, InfrastructureFailure, Observation, TaskOutcome
from turnwise.environments.gateway_side import Refused, announce, post_outcome
from turnwise.environments.host import Host
from turnwise.environments.reading import called, fenced
from turnwise.environments.rollout import CRASHED, MOST_TRIES, Ended, GatewayAt, Play, Rollouts
from turnwise.environments.tasks import read_tasks
from turnwise.environments.terminal.environment import TerminalEnvironment
from turnwise.environments.terminal.kind import KIND, SHELLS, run
from turnwise.errors import DataError, JournalUnavailable, LeaseLost
from turnwise.journal import Journal
from turnwise.journal.deletion.forgetting import forget
from turnwise.journal.rollouts.leases import EnvironmentLeases
from turnwise.judges.prompts import score_prompt
from turnwise.messages import text_of
from turnwise.types import MODEL_NAME, Exclusion, Verdict, Vote

needs_box = pytest.mark.skipif(not HOLDS, reason="no bubblewrap here (make sandbox)")


def at(gateway: Running) -> GatewayAt:
    return GatewayAt(gateway.url, gateway.token, gateway.person["Authorization"].removeprefix("Bearer "))


def host(journal: Journal, folder: Path, most: int = 2) -> Host:
    return Host(journal.environments, lambda kind, place: TerminalEnvironment(place, limits=LIMITS), folder, most)


def rollouts(gateway: Running, folder: Path, model: bool = True) -> Rollouts:
    def actor(play: Play) -> Actor:
        url = f"{gateway.url}/s/{play.session}/v1"
        if not model:
            return ScriptedActor((run(SOLVE),))
        return ModelActor(url, gateway.token, MODEL_NAME, play.headers, KIND.instructions(play.task), KIND.read)

    return Rollouts(host(gateway.journal, folder), gateway.journal.environments, at(gateway), actor)


def plays(group: int = 2, run: str = "r") -> list[Play]:
    return [Play(run, TASK, index, group) for index in range(group)]


def outcomes(gateway: Running) -> dict[str, tuple[float | None, str | None]]:
    with gateway.journal.store.reading() as c:
        rows = c.exec_driver_sql("SELECT session_id, outcome, failure FROM trajectories").all()
    return {row[0]: (row[1], row[2]) for row in rows}


@needs_box
def test_a_model_plays_and_its_outcome_is_in_the_journal(gateway: Running, tmp_path: Path) -> None:
    answers = iter([f"```bash\n{SOLVE}\n```", "```bash\nsubmit\n```"] + ["no command here"] * 3)
    gateway.stub.reply = lambda prompt: next(answers)
    ended = list(rollouts(gateway, tmp_path / "at").run(plays(), 1))
    assert [(each.reward, each.failure, each.note) for each in ended] == [(1.0, None, None), (0.0, None, None)]
    assert outcomes(gateway) == {"r.upper.0": (1.0, None), "r.upper.1": (0.0, None)}
    assert list((tmp_path / "at").iterdir()) == [], "no folder is left"
    again = list(rollouts(gateway, tmp_path / "at").run(plays(), 1))
    assert [each.reward for each in again] == [1.0, 0.0], "the same run again plays nothing"


@needs_box
def test_a_failure_of_the_machine_is_said_and_is_no_reward(gateway: Running, tmp_path: Path) -> None:
    class Broken:
        def act(self, observation: Observation) -> Action | None:
            raise InfrastructureFailure("the lights went out")

    playing = rollouts(gateway, tmp_path / "at")
    playing._player = lambda play: Broken()  # pyright: ignore[reportPrivateUsage]
    assert playing.play(plays()[0]).failure == "the lights went out"
    assert outcomes(gateway) == {"r.upper.0": (None, "the lights went out")}


@needs_box
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (ValueError("no text: \ud800"), "ValueError: no text: \\ud800"),
        (InfrastructureFailure("its server says \ud800"), "its server says \\ud800"),
    ],
)
def test_an_error_of_one_rollout_leaves_the_others_alone(
    gateway: Running, tmp_path: Path, fault: Exception, said: str
) -> None:
    class Odd:
        def act(self, observation: Observation) -> Action | None:
            raise fault

    def actor(play: Play) -> Actor:
        return Odd() if play.index == 0 else ScriptedActor((run(SOLVE),))

    playing = rollouts(gateway, tmp_path / "at")
    playing._player = actor  # pyright: ignore[reportPrivateUsage]
    ended = sorted(playing.run(plays(), 1), key=lambda each: each.play.index)
    assert [(each.reward, each.failure) for each in ended] == [(None, said), (1.0, None)]
    assert outcomes(gateway) == {"r.upper.0": (None, ended[0].failure), "r.upper.1": (1.0, None)}
    assert list((tmp_path / "at").iterdir()) == []


@needs_box
@pytest.mark.parametrize("reward", [1e300, float("inf"), float("nan"), -1e7])
def test_a_reward_beyond_all_bounds_is_a_failure_and_posted(gateway: Running, tmp_path: Path, reward: float) -> None:
    playing = rollouts(gateway, tmp_path / "at")
    playing._judged = lambda outcome, worked: TaskOutcome(reward, {})  # pyright: ignore[reportPrivateUsage]
    ended = playing.play(plays()[0])
    assert ended.failure is not None and "from -1e6 to 1e6" in ended.failure and not ended.open
    assert outcomes(gateway) == {"r.upper.0": (None, ended.failure)}


@needs_box
def test_a_lease_that_cannot_be_given_back_leaves_what_was_played(
    gateway: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(self: EnvironmentLeases, lease: object) -> None:
        raise JournalUnavailable("the journal is locked")

    monkeypatch.setattr(EnvironmentLeases, "give_back", locked)
    ended = list(rollouts(gateway, tmp_path / "at", model=False).run(plays(), 1))
    assert [each.reward for each in ended] == [1.0, 1.0] and all(each.note is None for each in ended)


def begun(gateway: Running, play: Play) -> None:
    """The first request of a rollout."""
    asked = {"model": MODEL_NAME, "messages": [{"role": "user", "content": "go"}]}
    url = f"{gateway.url}/s/{play.session}/v1/chat/completions"
    assert httpx.post(url, headers=gateway.auth | play.headers, json=asked, timeout=20).status_code == 200


def lost(gateway: Running, play: Play, left: Path) -> None:
    """A rollout as a holder leaves it that is killed in the middle: its lease runs out."""
    leases = gateway.journal.environments
    lease = leases.take(play.run, play.name)
    assert lease is not None
    leases.begins(lease, play.attempt)
    leases.lies_in(lease, str(left))
    leases.give_back(lease)


@needs_box
def test_what_a_killed_holder_left_is_cleaned_up_and_played_again(gateway: Running, tmp_path: Path) -> None:
    left = tmp_path / "at" / "left"
    left.mkdir(parents=True)
    for play in plays():
        lost(gateway, play, left)
    begun(gateway, plays()[0])
    ended = [rollouts(gateway, tmp_path / "at", model=False).play(play) for play in plays()]
    assert [each.reward for each in ended] == [1.0, 1.0]
    assert [each.play.session for each in ended] == ["r.upper.0@2", "r.upper.1@2"]
    found = outcomes(gateway)
    assert found.pop("r.upper.0") == (None, "it was lost in the middle, and is played again as r.upper.0@2")
    assert found == {"r.upper.0@2": (1.0, None), "r.upper.1@2": (1.0, None)}
    assert group(gateway, "r.upper")[:2] == ("dropped", 2), "whole with two rollouts, of which none made a step"
    assert turns(gateway, "r.upper.0") == [("excluded", Exclusion.INFRASTRUCTURE)]
    assert not left.exists()


@needs_box
def test_a_rollout_that_is_lost_again_and_again_is_masked(gateway: Running, tmp_path: Path) -> None:
    last = replace(plays()[0], attempt=MOST_TRIES)
    begun(gateway, last)
    lost(gateway, last, tmp_path / "at" / "left")
    ended = rollouts(gateway, tmp_path / "at", model=False).play(plays()[0])
    assert (ended.reward, ended.failure, ended.note) == (None, CRASHED, None)
    assert outcomes(gateway) == {last.session: (None, CRASHED)}


@needs_box
def test_a_rollout_whose_first_request_fails_does_not_hold_up_its_group(gateway: Running, tmp_path: Path) -> None:
    class Broken:
        def act(self, observation: Observation) -> Action | None:
            raise InfrastructureFailure("no request was made")

    playing = rollouts(gateway, tmp_path / "at", model=False)
    for play in plays():
        playing._player = lambda play: Broken()  # pyright: ignore[reportPrivateUsage]
        assert playing.play(play).failure == "no request was made"
    assert group(gateway, "r.upper")[0] == "dropped"


@needs_box
def test_a_refused_announcement_uses_up_no_try(
    gateway: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = plays(1)[0]
    monkeypatch.setattr(
        "turnwise.environments.rollout.announce", lambda *_: Refused("all places are taken", False, "too_many_groups")
    )
    playing = rollouts(gateway, tmp_path / "at", model=False)
    for _ in range(MOST_TRIES + 1):
        ended = playing.play(play)
        assert ended.open and ended.note == "all places are taken" and ended.reward is None
    monkeypatch.undo()
    ended = rollouts(gateway, tmp_path / "at", model=False).play(play)
    assert (ended.reward, ended.play.session) == (1.0, play.session), "it is the first try still"


@needs_box
def test_a_refused_announcement_of_a_later_try_keeps_that_one(
    gateway: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = plays(1)[0]
    begun(gateway, play)
    lost(gateway, play, tmp_path / "at" / "left")
    refused = Refused("the gateway did not take the rollout", False)
    monkeypatch.setattr("turnwise.environments.rollout.announce", lambda *_: refused)
    for _ in range(MOST_TRIES):
        assert rollouts(gateway, tmp_path / "at", model=False).play(play).open
    monkeypatch.undo()
    ended = rollouts(gateway, tmp_path / "at", model=False).play(play)
    assert (ended.reward, ended.play.session) == (1.0, f"{play.session}@2")


def group(gateway: Running, name: str) -> tuple[str, int]:
    """The state of a group, and how many of its rollouts have ended."""
    with gateway.journal.store.reading() as c:
        state = c.exec_driver_sql(f"SELECT state FROM task_groups WHERE id = '{name}'").scalar_one()
        of = f"SELECT count(*) FROM trajectories WHERE group_id = '{name}' AND ended_at IS NOT NULL"
        return state, c.exec_driver_sql(of).scalar_one()


def turns(gateway: Running, session: str) -> list[tuple[str, str | None]]:
    with gateway.journal.store.reading() as c:
        rows = c.exec_driver_sql(f"SELECT state, exclusion FROM turns WHERE session_id = '{session}'").all()
    return [(row[0], row[1]) for row in rows]


@needs_box
def test_an_outcome_is_posted_once_the_gateway_is_there_again(gateway: Running, tmp_path: Path) -> None:
    play = plays()[0]
    playing = rollouts(gateway, tmp_path / "at", model=False)

    def goes_away(play: Play) -> Actor:
        playing._gateway = GatewayAt("http://127.0.0.1:9", "", "", 0.0)  # pyright: ignore[reportPrivateUsage]
        return ScriptedActor((run(SOLVE),))

    playing._player = goes_away  # pyright: ignore[reportPrivateUsage]
    first = playing.play(play)
    assert (first.reward, first.open) == (1.0, True) and outcomes(gateway)[play.session] == (None, None)
    second = rollouts(gateway, tmp_path / "at", model=False).play(play)
    assert second == Ended(play, 1.0, None) and outcomes(gateway)[play.session] == (1.0, None)


def test_a_holder_whose_lease_ran_out_is_refused(journal: Journal) -> None:
    leases = journal.environments
    first = leases.take("r", "s")
    assert first is not None and leases.take("r", "s") is None, "held"
    leases.keep(first)
    leases.give_back(first)
    second = leases.take("r", "s")
    assert second is not None and second.token == first.token + 1
    for call in (leases.keep, leases.posted, lambda lease: leases.score(lease, 1.0, None, {})):
        with pytest.raises(LeaseLost):
            call(first)
    leases.give_back(first)
    assert leases.take("r", "s") is None, "the late holder did not end the hold of the other"
    leases.score(second, 0.5, None, {})
    leases.score(second, 1.0, None, {})
    assert [(row.state, row.reward) for row in leases.of_run("r")] == [("scored", 0.5)], "an outcome stays"


def test_a_forgotten_rollout_leaves_no_lease(gateway: Running) -> None:
    leases = gateway.journal.environments
    for play in plays():
        begun(gateway, play)
        assert leases.take(play.run, play.session) is not None
    forget(gateway.journal, "r.upper.0")
    assert [row.session_id for row in leases.of_run("r")] == ["r.upper.1"]


@needs_box
def test_a_call_with_the_same_key_is_done_once(journal: Journal, tmp_path: Path) -> None:
    here = host(journal, tmp_path / "at")
    with here.lease("r", "s") as lease:
        assert lease is not None
        with here.environment(lease, "terminal") as held:
            held.reset(TASK)
            more, count = run("echo x >> n; wc -l < n"), run("wc -l < n")
            first = held.step("0", more)
            assert held.step("0", more) == first and first[0].text.startswith("1")
            assert held.step("1", count)[0].text.startswith("1")


KILLED = """
import sys, time
from pathlib import Path
from tests.environments.test_rollout import *
from turnwise.config import load_config
class Slow:
    def act(self, observation):
        print("acting", flush=True)
        time.sleep(60)
with open(sys.argv[1]) as f: pass
config = load_config(None, {"home": Path(sys.argv[2])})
journal = Journal.open(config)
Rollouts(host(journal, Path(sys.argv[3])), journal.environments, None, lambda play: Slow()).play(plays()[0])
"""


@needs_box
@pytest.mark.slow
def test_a_process_that_is_killed_leaks_no_lease(gateway: Running, tmp_path: Path) -> None:
    begun(gateway, plays()[0])
    (tmp_path / "x").touch()
    places = [str(tmp_path / "x"), str(gateway.config.home), str(tmp_path / "at")]
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, *places], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert child.stdout is not None and child.stdout.readline() == b"acting\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait(20)
    child.stdout.close()
    assert list((tmp_path / "at").iterdir()) != [], "its folder, and what its shell has"
    playing = rollouts(gateway, tmp_path / "at", model=False)
    assert playing.play(plays()[0]).open, "it is held until its time is up"
    with gateway.journal.store.transaction() as c:
        c.exec_driver_sql("UPDATE environment_leases SET until_mono = 0")  # as time does
    wait_until(lambda: playing.play(plays()[0]).reward == 1.0)
    assert list((tmp_path / "at").iterdir()) == []
    assert outcomes(gateway)["r.upper.0"][0] is None, "no reward for what was lost"
    assert outcomes(gateway)["r.upper.0@2"] == (1.0, None)


def test_commands_are_read_from_calls_and_blocks() -> None:
    assert called("run", '{"command": "ls"}') == Call("run", {"command": "ls"})
    assert called("run", "{") == called("run", "[]") == Call("run", {})
    assert fenced("so:\n```bash\nls -l\n```\nok", SHELLS) == "ls -l"
    unreadable = ("```bash\nls", "```python\n1\n```", "```sh\na\n```\n```sh\nb\n```")
    assert [fenced(text, SHELLS) for text in unreadable] == ["", "", ""]
    assert KIND.read("no block") == Action((), "no block")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "no task"),
        ("{", "line 1 is no JSON"),
        ("[]", "a task is an object"),
        ('{"id": "../x", "prompt": "p", "expect": {"a": "b"}}', "an id is"),
        ('{"id": "x", "prompt": " ", "expect": {"a": "b"}}', "says what to do"),
        ('{"id": "x", "prompt": "p", "expect": {}}', "at least one file"),
        ('{"id": "x", "prompt": "p", "expect": {"a": "b"}, "reward": 1}', "no 'reward'"),
        ("\n".join([json.dumps({"id": "x", "prompt": "p", "expect": {"a": "b"}})] * 2), "line 2: the id 'x' stands"),
    ],
)
def test_a_file_of_tasks_that_is_wrong_is_told_where(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "tasks").write_text(line)
    with pytest.raises(DataError, match=said):
        read_tasks(tmp_path / "tasks")


@needs_box
def test_each_step_is_judged_by_what_came_back_with_the_task_in_view(gateway: Running, tmp_path: Path) -> None:
    """An answer without a command is a step like any other, and is told so; votes are of the next observation."""
    said = ["```bash\nls\n```", "I do not know.", *[f"```bash\necho line-{n}\n```" for n in range(5)]]
    answers = iter([*said, f"```bash\n{SOLVE}\n```", "```bash\nsubmit\n```"])
    gateway.stub.reply = lambda prompt: next(answers)
    play = plays(1)[0]
    ended = rollouts(gateway, tmp_path / "at").play(play)
    assert (ended.reward, ended.steps) == (1.0, 9)
    tasks = gateway.journal.judging.claim("judge", 100, 60)
    assert [task.votes for task in tasks] == [1] * 8, "but for the last one, to which nothing came back"
    came_back = ["in.txt", "No command was found", *[f"line-{n}" for n in range(5)], "exit status 0"]
    for task, seen in zip(tasks, came_back, strict=True):
        shown = text_of(score_prompt(task.messages, task.answer, task.next_state)[1])
        assert TASK.prompt in shown and seen in shown.split("The assistant's answer, which you judge:")[1]
    for task in tasks:
        gateway.journal.judging.record(task, Verdict(1, None, "model", votes=[Vote(1), Vote(1), Vote(-1)]))
    with gateway.journal.store.reading() as c:
        of = "SELECT t.step, s.reward FROM turns t JOIN samples s ON s.turn_id = t.id ORDER BY t.step"
        found = c.exec_driver_sql(of).all()
    assert [row[0] for row in found] == list(range(9))
    assert [row[1] for row in found] == pytest.approx([1 + 1 / 3] * 8 + [1.0])


@needs_box
def test_an_episode_that_a_limit_ended_is_not_taken_for_a_bad_one(gateway: Running, tmp_path: Path) -> None:
    gateway.stub.reply = lambda prompt: "```bash\nls\n```"
    ended = rollouts(gateway, tmp_path / "at").play(plays(1)[0])
    assert (ended.reward, ended.cut_off) == (0.0, "the limit of steps")
    assert outcomes(gateway)["r.upper.0"] == (None, "cut off: the limit of steps")
    gateway.stub.reply = lambda prompt: "I do not want to."
    refusing = rollouts(gateway, tmp_path / "at").play(plays(1, "s")[0])
    assert (refusing.reward, refusing.cut_off) == (0.0, None)
    assert outcomes(gateway)["s.upper.0"] == (0.0, None), "a refusal is the policy's"


def test_an_outcome_refused_for_its_form_is_final_and_a_beginning_is_not(gateway: Running) -> None:
    session = "r.upper.0"
    assert announce(at(gateway), session, plays()[0].announced) is None
    refused, _ = post_outcome(at(gateway), session, {"outcome": 1e9})
    assert refused is not None and refused.final
    unknown = announce(at(gateway), "r.upper.1", {**plays()[0].announced, "stream": "no such stream"})
    assert unknown is not None and not unknown.final
