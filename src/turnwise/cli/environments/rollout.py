"""`turnwise rollout`: an agent plays tasks in hosted environments, and the outcomes are posted."""

from __future__ import annotations

import time
import uuid
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnwise.access_tokens import Scope, load_or_make_token, token_path
from turnwise.cli.options import ConfigFile, Home, Set, out, read_config
from turnwise.errors import ConfigError, TurnwiseError
from turnwise.types import MODEL_NAME

if TYPE_CHECKING:
    from turnwise.config import Config
    from turnwise.environments.base import Environment
    from turnwise.environments.host import Host
    from turnwise.environments.rollout import Ended, GatewayAt
    from turnwise.environments.transcript import Form
    from turnwise.journal import Journal

AGENTS = ("minimal", "oracle", "nothing")
FORMS = ("auto", "calls", "blocks")
MOST_OF_A_RUN = 60
"""Characters of a run's name."""


def rollout(
    tasks: Annotated[Path, typer.Argument(help="The tasks: JSON, one object a line (docs/environments.md).")],
    agent: Annotated[
        str, typer.Option(help="minimal (the served model), or without a model: oracle (each task's own), nothing.")
    ] = "minimal",
    group: Annotated[int, typer.Option(min=1, max=1024, help="Rollouts of each task.")] = 8,
    parallel: Annotated[int, typer.Option(min=1, max=128, help="Rollouts at a time.")] = 4,
    run: Annotated[str | None, typer.Option(help="Name of the run; that of an earlier one goes on with it.")] = None,
    form: Annotated[
        str, typer.Option(help="How the model acts: calls (of tools), blocks (of text), or auto: what it is able to.")
    ] = "auto",
    record: Annotated[
        Path | None, typer.Option(help="Append each rollout with reward 1 here, as a conversation for `turnwise sft`.")
    ] = None,
    config: ConfigFile = None,
    home: Home = None,
    sets: Set = None,
) -> None:
    """Let an agent play tasks in a sandbox, each several times; the server of this home must be running."""
    from turnwise.environments.actors import ModelActor, RecordedScript
    from turnwise.environments.kinds import kind_of
    from turnwise.environments.rollout import Play, Rollouts
    from turnwise.environments.tasks import is_plain, read_tasks
    from turnwise.environments.transcript import instructions_of
    from turnwise.journal import Journal

    if agent not in AGENTS:
        raise ConfigError(f"there is no agent {agent!r}, only {', '.join(AGENTS)}")
    if form not in FORMS:
        raise ConfigError(f"there is no form {form!r}, only {', '.join(FORMS)}")
    name = run or f"run-{uuid.uuid4().hex[:8]}"
    if not is_plain(name) or not 1 <= len(name) <= MOST_OF_A_RUN:
        raise ConfigError(f"the name of a run is 1 to {MOST_OF_A_RUN} letters, digits or any of . _ -")
    settings = read_config(config, home, sets)
    read = read_tasks(tasks)
    for kind in sorted({task.environment for task in read}):
        kind_of(kind).check_machine()
    gateway = _gateway(settings) if agent == "minimal" else None

    shape = _form(settings, form)
    played: dict[str, ModelActor | RecordedScript] = {}

    def actor(play: Play) -> ModelActor | RecordedScript:
        kind = kind_of(play.task.environment)
        if gateway is not None:
            url, instructions = f"{gateway.url}/s/{play.session}/v1", instructions_of(kind, play.task, shape)
            made = ModelActor(url, gateway.agent, MODEL_NAME, play.headers, instructions, kind.read)
        else:
            made = RecordedScript(kind.oracle(play.task) if agent == "oracle" else (), kind, play.task, shape)
        played[play.session] = made
        return made

    plays = [Play(name, task, index, group) for task in read for index in range(group)]
    with closing(Journal.open(settings)) as journal, closing(_host(settings, journal, parallel)) as host:
        rollouts = Rollouts(host, journal.environments, gateway, actor)
        out.print(f"run {name}: {len(read)} tasks, {len(plays)} rollouts", highlight=False, markup=False)
        started, ended = time.monotonic(), []
        for each in rollouts.run(plays, parallel):
            ended.append(each)
            actor_of = played.pop(each.play.session, None)
            if record is not None and actor_of is not None and each.reward == 1.0 and actor_of.transcript.answers:
                with record.open("a", encoding="utf-8") as lines:
                    lines.write(f"{actor_of.transcript.line()}\n")
            said = f"{len(ended)}/{len(plays)} {each.play.session}: {_said(each)}"
            out.print(said, highlight=False, markup=False, soft_wrap=True)
    _summary(ended, time.monotonic() - started)
    if left := sum(each.open for each in ended):
        raise TurnwiseError(f"{left} rollouts are not done; the same command with --run {name} goes on with them")


def _form(settings: Config, form: str) -> Form:
    """What was asked for; a model of the table that cannot call tools acts in blocks of text."""
    from turnwise.models.folders import model_named

    if form != "auto":
        return "blocks" if form == "blocks" else "calls"
    known = model_named(settings.model.path)
    return "blocks" if known is not None and not known.tools else "calls"


def _host(settings: Config, journal: Journal, parallel: int) -> Host:
    from turnwise.environments.host import Host
    from turnwise.environments.kinds import kind_of

    def make(kind: str, folder: Path) -> Environment:
        return kind_of(kind).make(folder, settings)

    return Host(journal.environments, make, settings.home / "environments", parallel, warm=settings.environments.warm)


def _gateway(settings: Config) -> GatewayAt:
    from turnwise.environments.rollout import GatewayAt
    from turnwise.home import running_url

    url = running_url(settings)
    if url is None:
        raise TurnwiseError(f"no server runs for the home {settings.home}; start `turnwise serve`, or see --home")
    keys = [load_or_make_token(token_path(settings, scope)) for scope in (Scope.AGENT, Scope.PERSON)]
    return GatewayAt(url, *keys)


def _said(ended: Ended) -> str:
    if ended.failure is not None:
        what = f"failed, no reward: {ended.failure}"
    else:
        what = "not played" if ended.reward is None else f"reward {ended.reward:g}, {ended.steps} steps"
    return what if ended.note is None else f"{what} ({ended.note})"


def _summary(ended: list[Ended], seconds: float) -> None:
    rewards = [each.reward for each in ended if each.reward is not None]
    mean = f"mean reward {sum(rewards) / len(rewards):.3f} of {len(rewards)}" if rewards else "no reward"
    failed = sum(each.failure is not None for each in ended)
    steps = sum(each.steps for each in ended)
    out.print(f"{mean}, {failed} failed, {steps / seconds:.1f} steps/s", highlight=False, markup=False)
