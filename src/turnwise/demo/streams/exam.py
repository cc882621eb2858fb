"""Episodes of a stream's demo at a running server: examinations, which are not learned from, and rounds, which are."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx

from turnwise.config import load_config
from turnwise.demo.server import Server
from turnwise.demo.streams.recipe import StreamRecipe
from turnwise.environments.actors import ModelActor, RecordedActor
from turnwise.environments.base import Environment, Task
from turnwise.environments.curation import Curation, RecordedEpisode, curated, family_of
from turnwise.environments.host import Host
from turnwise.environments.kinds import kind_of
from turnwise.environments.reports.episodes import Episode
from turnwise.environments.rollout import GatewayAt, Play, Rollouts
from turnwise.environments.transcript import Form, instructions_of
from turnwise.errors import TurnwiseError
from turnwise.files import write_atomically
from turnwise.journal import Journal
from turnwise.loops.table import CHILD_ENVIRONMENT
from turnwise.types import MODEL_NAME

SOLVED_AT_ONCE = 2
"""Solutions that are played at a time: no model is waited for."""
TAKEN_UP_S = 180.0
"""Longest wait until what was published answers."""
Advance = Callable[[float | None], None]


class Stage:
    """Plays episodes in environments of this home, at its server."""

    def __init__(self, recipe: StreamRecipe, home: Path, journal: Journal, server: Server, form: Form) -> None:
        self._recipe, self._home, self._journal, self._server = recipe, home, journal, server
        self._form: Form = form
        self.most_steps = recipe.most_steps
        """Answers of the episodes that begin from now on."""
        self._host = Host(journal.environments, self._make, home / "environments", recipe.parallel)

    def close(self) -> None:
        """Give the environments back."""
        self._host.close()

    def examine(
        self, tasks: Sequence[Task], samples: int, *, name: str, seed: int, model: str, greedy: bool, advance: Advance
    ) -> list[Episode]:
        """Tries at each task that nothing is learned from; ``model`` names a version."""
        plays = in_turn(tasks, samples, name, self._recipe.parallel)
        seeds = {play.session: seed + number for number, play in enumerate(plays)}
        warmth = 0.0 if greedy else self._recipe.temperature
        asked = {"temperature": warmth, "max_tokens": self._recipe.answer_tokens}

        def actor(play: Play) -> ModelActor:
            more = asked | {"seed": seeds[play.session]}
            return self._model(play, model, {"X-Session-Id": play.session, "X-Turn-Type": "side"}, more)

        return self._played(plays, actor, None, advance)

    def round(self, tasks: Sequence[Task], group: int, *, name: str, advance: Advance) -> list[Episode]:
        """Each task tried by a group of rollouts whose outcomes are posted."""
        plays = in_turn(tasks, group, name, self._recipe.parallel)
        gateway = GatewayAt(self._server.url, self._server.token, self._server.person_token)
        return self._played(plays, lambda play: self._model(play, MODEL_NAME, play.headers, {}), gateway, advance)

    def solutions(self, tasks: Sequence[Task], file: Path) -> int:
        """Write how each task is solved as conversations for a fine-tuning; gives their number. They are played under
        a name of their own each time: those of a run that was stopped are not what this one saw."""
        made: dict[str, RecordedActor] = {}

        def actor(play: Play) -> RecordedActor:
            made[play.session] = self._recipe.solver(play.task, self._form)
            return made[play.session]

        plays = [Play(f"solutions-{secrets.token_hex(3)}", task, 0, 1) for task in tasks]
        ended = {each.play.session: each for each in self._rollouts(actor, None).run(plays, SOLVED_AT_ONCE)}
        episodes = [
            RecordedEpisode(
                made[play.session].transcript, ended[play.session].reward, play.task.id, family_of(play.task)
            )
            for play in plays
            if play.session in made
        ]
        kept = curated(episodes, Curation(per_task=1))
        if not kept:
            raise TurnwiseError(f"none of {len(plays)} tasks was solved as its family says, so nothing can be shown")
        write_atomically(file, "".join(f"{episode.transcript.line()}\n" for episode in kept).encode())
        return len(kept)

    def version(self) -> int:
        """The version that answers, once what was published does. Raises TurnwiseError."""
        headers, until = {"Authorization": f"Bearer {self._server.person_token}"}, time.monotonic() + TAKEN_UP_S
        while time.monotonic() < until:
            told = httpx.get(f"{self._server.url}/v1/status", headers=headers, timeout=60, trust_env=False).json()
            if told["version"]["number"] == told["version"]["wanted"]:
                return int(told["version"]["number"])
            time.sleep(0.5)
        raise TurnwiseError(f"the server did not take up its newest version within {TAKEN_UP_S:.0f} s")

    def _model(self, play: Play, model: str, headers: dict[str, str], asked: dict[str, Any]) -> ModelActor:
        kind = kind_of(play.task.environment)
        instructions = instructions_of(kind, play.task, self._form)
        url = f"{self._server.url}/s/{play.session}/v1"
        return ModelActor(url, self._server.token, model, headers, instructions, kind.read, asked)

    def _rollouts(self, actor: Callable[[Play], Any], gateway: GatewayAt | None) -> Rollouts:
        return Rollouts(self._host, self._journal.environments, gateway, actor)

    def _played(
        self,
        plays: Sequence[Play],
        make: Callable[[Play], ModelActor],
        gateway: GatewayAt | None,
        advance: Advance,
    ) -> list[Episode]:
        actors: dict[str, ModelActor] = {}

        def actor(play: Play) -> ModelActor:
            actors[play.session] = make(play)
            return actors[play.session]

        found: dict[str, Episode] = {}
        rewards: list[float] = []
        for ended in self._rollouts(actor, gateway).run(plays, self._recipe.parallel):
            actor_of = actors.get(ended.play.session)
            said = actor_of.transcript.messages if actor_of is not None else []
            found[ended.play.session] = Episode(
                ended.play.task,
                ended.reward,
                ended.steps,
                said,
                ended.failure or ended.note,
            )
            rewards += [ended.reward] if ended.reward is not None else []
            advance(sum(rewards) / len(rewards) if rewards else None)
        return [found[play.session] for play in plays]

    def _make(self, kind: str, folder: Path) -> Environment:
        limits = {"home": self._home, f"streams.{self._recipe.stream}.max_steps": self.most_steps}
        return kind_of(kind).make(folder, load_config(None, limits))


def in_turn(tasks: Sequence[Task], tries: int, run: str, together: int) -> list[Play]:
    """The tries of all tasks: of ``together`` tasks the first ones, then the second ones, and so on, so that the engine
    has read the page of a task when the next try at it begins."""
    return [
        Play(run, task, index, tries)
        for begin in range(0, len(tasks), together)
        for index in range(tries)
        for task in tasks[begin : begin + together]
    ]


def command(home: Path, *words: str, limit_s: float, log: Path) -> int:
    """Run a command of turnwise on this home, its words into a log; gives its exit status. Raises TurnwiseError."""
    environment = {**os.environ, **CHILD_ENVIRONMENT}  # it shares the cores with the server's loops
    with log.open("ab") as out:
        asked = [sys.executable, "-P", "-m", "turnwise", *words, "--home", str(home)]
        try:
            return subprocess.run(
                asked, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=limit_s, env=environment
            ).returncode
        except subprocess.TimeoutExpired:
            raise TurnwiseError(f"`turnwise {words[0]}` was not done within {limit_s:.0f} s; see {log}") from None
