"""`turnwise rollout`: an agent plays tasks in hosted environments, and the outcomes are posted."""

from __future__ import annotations

import os
import uuid
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import httpx
import typer

from turnwise.access_tokens import Scope, load_or_make_token, rollout_token, token_path
from turnwise.cli.options import ConfigFile, Home, Set, out, read_config
from turnwise.errors import ConfigError, TurnwiseError
from turnwise.messages import history_to_chat
from turnwise.types import MODEL_NAME, TurnKind

if TYPE_CHECKING:
    from turnwise.config import Config
    from turnwise.environments.base import Environment
    from turnwise.environments.curation import RecordedEpisode
    from turnwise.environments.host import Host
    from turnwise.environments.rollout import Ended, GatewayAt
    from turnwise.environments.transcript import Form
    from turnwise.journal import Journal

SCRIPTED = ("oracle", "nothing")
"""Agents that ask no model."""
FORMS = ("auto", "calls", "blocks")
MOST_OF_A_RUN = 60
"""Characters of a run's name."""


def rollout(
    tasks: Annotated[Path, typer.Argument(help="The tasks: JSON, one object a line (docs/environments.md).")],
    agent: Annotated[
        str,
        typer.Option(
            help="minimal (our own loop), mini-swe-agent, openclaw, opencode; without a model: oracle (each task's "
            "own), nothing."
        ),
    ] = "minimal",
    group: Annotated[int, typer.Option(min=1, max=1024, help="Rollouts of each task.")] = 8,
    parallel: Annotated[int, typer.Option(min=1, max=128, help="Rollouts at a time.")] = 4,
    limit: Annotated[float, typer.Option(min=1, help="Seconds that an agent of its own has for a task.")] = 900,
    run: Annotated[str | None, typer.Option(help="Name of the run; that of an earlier one goes on with it.")] = None,
    form: Annotated[
        str, typer.Option(help="How the model acts: calls (of tools), blocks (of text), or auto: what it is able to.")
    ] = "auto",
    observe: Annotated[
        str | None,
        typer.Option(help="How pages are shown: text, screenshot, marks (numbered), both. Unset: as each task says."),
    ] = None,
    record: Annotated[
        Path | None, typer.Option(help="Append each rollout with reward 1 here, as a conversation for `turnwise sft`.")
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(help="With --record, the most of what it keeps: task=1,family=20,level=100,answers=6."),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(help="Append each rollout here, whole: for `turnwise judge` and `turnwise trajectory`."),
    ] = None,
    config: ConfigFile = None,
    home: Home = None,
    sets: Set = None,
) -> None:
    """Let an agent play tasks in a sandbox, each several times; the server of this home must be running."""
    from turnwise.cli.environments.observing import Observing, told_of_pictures
    from turnwise.cli.environments.outcomes import judge_of, saved_of
    from turnwise.cli.environments.progress import shown
    from turnwise.cli.environments.recording import SolvedFile
    from turnwise.environments.actors import ModelActor, RecordedActor, ScriptedActor
    from turnwise.environments.curation import RecordedEpisode, curated, family_of, read_curation
    from turnwise.environments.kinds import check_oracles, kind_of
    from turnwise.environments.programs.player import ProgramPlayer
    from turnwise.environments.programs.table import PROGRAMS
    from turnwise.environments.reports.run import RunReport
    from turnwise.environments.rollout import Play, Rollouts
    from turnwise.environments.tasks import is_plain, read_tasks
    from turnwise.environments.transcript import instructions_of
    from turnwise.files import ready_for_lines
    from turnwise.journal import Journal
    from turnwise.journal.rollouts.steps import step_figures
    from turnwise.sandbox.choice import Sandboxes
    from turnwise.trajectories.record import written_trajectory

    os.nice(max(0, 10 - os.nice(0)))  # neither we nor the environments take the processor from a person's answers
    if agent not in (known := ("minimal", *PROGRAMS, *SCRIPTED)):
        raise ConfigError(f"there is no agent {agent!r}, only {', '.join(known)}")
    if form not in FORMS:
        raise ConfigError(f"there is no form {form!r}, only {', '.join(FORMS)}")
    if keep is not None and record is None:
        raise ConfigError("--keep says what of --record is kept; give both")
    by = read_curation(keep)
    name = run or f"run-{uuid.uuid4().hex[:8]}"
    if not is_plain(name) or not 1 <= len(name) <= MOST_OF_A_RUN:
        raise ConfigError(f"the name of a run is 1 to {MOST_OF_A_RUN} letters, digits or any of . _ -")
    observing = Observing(read_tasks(tasks), read_config(config, home, sets), observe, agent not in SCRIPTED)
    read, settings = observing.tasks, observing.settings
    solved = None if record is None else SolvedFile(record, observing.has_pictures)
    if save is not None:
        ready_for_lines(save)
    for kind in sorted({task.environment for task in read}):
        kind_of(kind).check_machine(settings)
    if agent == "oracle":
        check_oracles(read)
    program = PROGRAMS.get(agent)
    if program is not None:
        program.places()
        Sandboxes(settings.environments).check_bubblewrap(f"the agent {agent}")
        if not settings.server.auth:
            raise ConfigError(
                f"{agent} runs in a sandbox that reaches the server, which would take its requests in any session "
                "without a token; set server.auth = true"
            )
    judge = judge_of(settings, read)
    gateway = None if agent in SCRIPTED else gateway_of(settings)
    context = None if gateway is None or program is None else _context(gateway)
    folder = settings.home / "environments"

    shape = form_of(settings, form)
    played: dict[str, ModelActor | RecordedActor] = {}

    def player(play: Play) -> ModelActor | RecordedActor | ProgramPlayer:
        kind, stream = kind_of(play.task.environment), settings.streams.named(play.task.environment)
        keep_pictures = 1 if stream is None else stream.keep_pictures
        if gateway is not None and program is not None:
            url = f"{gateway.url}/s/{play.session}"
            own = rollout_token(gateway.person, play.session)
            of = (program, play.task.prompt, url, own, MODEL_NAME, context, folder / "agents")
            return ProgramPlayer(*of, limit_s=limit)
        if gateway is not None:
            url, instructions = f"{gateway.url}/s/{play.session}/v1", instructions_of(kind, play.task, shape)
            of = (url, gateway.agent, MODEL_NAME, play.headers, instructions, kind.read)
            made = ModelActor(*of, keep_pictures=keep_pictures)
        else:
            actions = kind.oracle(play.task) if agent == "oracle" else ()
            made = RecordedActor(ScriptedActor(actions), kind, play.task, shape, keep_pictures)
        played[play.session] = made
        return made

    gathered: list[RecordedEpisode] = []
    taken = left_out = 0

    def recorded(ended: Ended) -> None:
        nonlocal taken, left_out
        actor_of = played.pop(ended.play.session, None)
        said = actor_of.transcript.messages if actor_of is not None else _in_journal(journal, ended.play.session)
        report.add(ended, said)
        if save is not None and not ended.open:
            with save.open("a", encoding="utf-8") as lines:
                lines.write(f"{written_trajectory(saved_of(ended, actor_of))}\n")
        if actor_of is not None:
            taken, left_out = taken + actor_of.transcript.pictures, left_out + actor_of.transcript.left_out
        if solved is None or actor_of is None:
            return
        unreadable = actor_of.unreadable if isinstance(actor_of, ModelActor) else 0
        task = ended.play.task
        episode = RecordedEpisode(actor_of.transcript, ended.reward, task.id, family_of(task), unreadable)
        if keep is None and ended.reward == 1.0 and actor_of.transcript.answers:
            solved.add([episode])
        elif keep is not None:
            if ended.reward != 1.0 or unreadable:  # it says how hard its task is, and is never kept
                actor_of.transcript.drop_pictures()
            gathered.append(episode)

    plays = [Play(name, task, index, group) for task in read for index in range(group)]
    report = RunReport(settings.home / "rollouts" / name, name)
    limits = {stream: each.parallel for stream, each in settings.streams.items() if each.parallel is not None}
    with closing(Journal.open(settings)) as journal, closing(environments_host(settings, journal, parallel)) as host:
        rollouts = Rollouts(host, journal.environments, gateway, player, limits, judge)
        out.print(f"run {name}: {len(read)} tasks, {len(plays)} rollouts", highlight=False, markup=False)
        if observing.said is not None:
            out.print(observing.said, highlight=False, markup=False, soft_wrap=True)
        ended = shown(rollouts, plays, parallel, recorded, again := f"the same command with --run {name}")
        if taken and gateway is not None:
            steps = step_figures(journal.store, [each.play.session for each in ended])
            for line in told_of_pictures(taken, left_out, steps):
                out.print(line, highlight=False, markup=False, soft_wrap=True)
    if keep is not None and solved is not None:
        kept = curated(gathered, by)
        solved.add(kept)
        out.print(f"{len(kept)} of {len(gathered)} rollouts kept in {record}", highlight=False, markup=False)
    out.print(f"report: {report.write()}", highlight=False, markup=False, soft_wrap=True)
    if left := len(plays) - sum(not each.open for each in ended):
        raise TurnwiseError(f"{left} rollouts are not done; {again} goes on with them")


def _in_journal(journal: Journal, session: str) -> list[dict[str, Any]]:
    """What a program and its model said, as the gateway recorded it: the last request, and its answer."""
    found = journal.sessions.show(session)
    turns = [turn for turn in found["turns"] if turn["kind"] == TurnKind.MAIN] if found is not None else []
    last = None if not turns else journal.lookups.turn(turns[-1]["id"])
    if last is None:
        return []
    said = [*journal.lookups.messages(last.id), *([] if last.answer is None else [last.answer])]
    return history_to_chat(said)


def _context(gateway: GatewayAt) -> int | None:
    """How many tokens the served model takes, for agents that want to know. Raises TurnwiseError."""
    headers = {"Authorization": f"Bearer {gateway.agent}"}
    try:
        listed = httpx.get(f"{gateway.url}/v1/models", headers=headers, timeout=30, trust_env=False)
        listed.raise_for_status()
        return listed.json()["data"][0].get("max_model_len")
    except (httpx.HTTPError, ValueError, LookupError, TypeError, AttributeError) as e:
        raise TurnwiseError(
            f"the server at {gateway.url} does not say which model it serves ({str(e)[:200]}); see `turnwise doctor`"
        ) from e


def form_of(settings: Config, form: str) -> Form:
    """What was asked for; a model of the table that cannot call tools acts in blocks of text."""
    from turnwise.models.folders import model_named

    if form != "auto":
        return "blocks" if form == "blocks" else "calls"
    known = model_named(settings.model.path)
    return "blocks" if known is not None and not known.tools else "calls"


def environments_host(settings: Config, journal: Journal, parallel: int) -> Host:
    """Hosts environments as these settings say, so many at a time."""
    from turnwise.environments.host import Host
    from turnwise.environments.kinds import kind_of

    def make(kind: str, folder: Path) -> Environment:
        return kind_of(kind).make(folder, settings)

    return Host(journal.environments, make, settings.home / "environments", parallel, warm=settings.environments.warm)


def gateway_of(settings: Config) -> GatewayAt:
    """The server of this home, with its tokens. Raises TurnwiseError where none runs."""
    from turnwise.environments.rollout import GatewayAt
    from turnwise.home import running_url

    url = running_url(settings)
    if url is None:
        raise TurnwiseError(f"no server runs for the home {settings.home}; start `turnwise serve`, or see --home")
    keys = [load_or_make_token(token_path(settings, scope)) for scope in (Scope.AGENT, Scope.PERSON)]
    return GatewayAt(url, keys[0], keys[1])
