"""The command line. Each command reads the configuration, calls one function and prints; no logic lives here."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from turnwise import __version__
from turnwise.cli.bench import bench_app, judge_app
from turnwise.cli.demo import demo
from turnwise.cli.environments.calls import calls
from turnwise.cli.environments.others import openenv, tasksets
from turnwise.cli.environments.rollout import rollout
from turnwise.cli.environments.sites import sites_app
from turnwise.cli.environments.swe import swe_app
from turnwise.cli.environments.tasks import tasks_app
from turnwise.cli.environments.tools import tools
from turnwise.cli.hints import hints_app
from turnwise.cli.journal import journal_app
from turnwise.cli.models import pull
from turnwise.cli.options import (
    ConfigFile,
    Home,
    Json,
    Set,
    err,
    out,
    print_json,
    read_config,
    read_journal,
    remove_ours,
)
from turnwise.cli.person import feedback, token
from turnwise.cli.records import sessions_app
from turnwise.cli.schedule import schedule_app
from turnwise.cli.skills import skills_app
from turnwise.cli.training.now import train_app
from turnwise.cli.training.sft import sft
from turnwise.cli.trajectories.evaluating import eval_app
from turnwise.cli.trajectories.judging import judge_agreement, judge_collect
from turnwise.cli.trajectories.showing import trajectory
from turnwise.cli.versions import versions_app
from turnwise.cli.versions.forgetting import forget_command
from turnwise.cli.versions.replaying import replay_command
from turnwise.errors import TurnwiseError
from turnwise.loops.states import read_states

app = typer.Typer(
    name="turnwise",
    help="An agent that gets better by being used.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(sessions_app, name="sessions")
app.add_typer(versions_app, name="versions")
app.add_typer(journal_app, name="journal")
app.command("forget", epilog="Example: turnwise forget session-6f3a91c2 --dry-run")(forget_command)
app.command("replay", epilog="Example: turnwise replay --method binary --judge signals")(replay_command)
app.add_typer(judge_app, name="judge")
judge_app.command("collect", epilog="Example: turnwise judge collect run.jsonl --out verdicts.jsonl")(judge_collect)
judge_app.command("agreement", epilog="Example: turnwise judge agreement verdicts.jsonl")(judge_agreement)
app.add_typer(eval_app, name="eval")
app.command(epilog="Example: turnwise trajectory run-1.click-button-0.0 --out page.html")(trajectory)
app.add_typer(hints_app, name="hints")
app.add_typer(skills_app, name="skills")
app.add_typer(schedule_app, name="schedule")
app.add_typer(train_app, name="train")
app.add_typer(tasks_app, name="tasks")
tasks_app.add_typer(swe_app, name="swe")
app.add_typer(sites_app, name="sites")
tasks_app.command("tools", epilog="Example: turnwise tasks tools --families chain_sum,gcd --out t.jsonl")(tools)
tasks_app.command("openenv", epilog="Example: turnwise tasks openenv http://127.0.0.1:8000 --prompt 'Win.'")(openenv)
tasks_app.command("verifiers", epilog="Example: turnwise tasks verifiers my_taskset --folder .")(tasksets)
tasks_app.command("calls", epilog="Example: turnwise tasks calls bfcl/data --out calls.jsonl")(calls)
app.add_typer(bench_app, name="bench")
app.command(epilog='Example: turnwise feedback --last --score -1 --text "Be brief."')(feedback)
app.command(epilog="Example: turnwise demo --persona teacher --quick")(demo)
app.command(epilog="Example: turnwise sft conversations.jsonl --epochs 2 --eval-share 0.05")(sft)
app.command(epilog="Example: turnwise rollout tasks.jsonl --group 8 --parallel 4")(rollout)
app.command(epilog="Example: turnwise token person")(token)
app.command(epilog="Example: turnwise pull --list")(pull)


@app.command(epilog="Example: turnwise serve --port 8377 --set engine.max_model_len=8192")
def serve(
    config: ConfigFile = None,
    home: Home = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    sets: Set = None,
    ready_file: Annotated[
        Path | None, typer.Option(help="Write URL, token and pid here (JSON) once it serves, until it ends.")
    ] = None,
) -> None:
    """Serve the policy, judge its turns and train it, until Ctrl-C."""
    from turnwise.engines.examine import refuse_impossible
    from turnwise.files import write_atomically
    from turnwise.loops.supervisor import Address, Supervisor

    logging.basicConfig(level=logging.INFO, format="[%(name)s] %(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    settings = read_config(config, home, sets, **{"server.host": host, "server.port": port})
    common = ["--home", str(settings.home)]
    common += ["--config", str(config.absolute())] if config else []
    common += [arg for pair in sets or [] for arg in ("--set", pair)]
    supervisor = Supervisor(settings, common)
    started = time.monotonic()

    async def ready(address: Address) -> None:
        if ready_file is not None:
            said = json.dumps({"url": address.url, "token": address.token, "pid": os.getpid()})
            write_atomically(ready_file, said.encode())
        # Where it is no terminal this goes into a log, which others may read and which is kept.
        key = (address.token if sys.stdout.isatty() else "TOKEN") if address.token else "none"
        where = f"; `turnwise token --home {settings.home}` prints it" if key == "TOKEN" else ""
        idle = settings.trains and settings.train.when == "idle"
        later = "\nWeights are trained while you are away: see `turnwise status`, and `turnwise train now`.\n"
        out.print(f"\nturnwise serves [bold]{address.url}[/] (ready in {time.monotonic() - started:.1f} s)")
        out.print(f"token: {key}{where}\n\nConnect any OpenAI client:", highlight=False, markup=False, soft_wrap=True)
        out.print(
            f'  from openai import OpenAI\n  client = OpenAI(base_url="{address.url}/v1", api_key="{key}")\n'
            '  client.chat.completions.create(model="turnwise", messages=[{"role": "user", "content": "Hello"}])\n\n'
            "or any client that reads one of these pairs (Anthropic's take the address without /v1):\n\n"
            f"  export OPENAI_BASE_URL={address.url}/v1 OPENAI_API_KEY={key}\n"
            f"  export ANTHROPIC_BASE_URL={address.url} ANTHROPIC_AUTH_TOKEN={key}\n\n"
            "or one that `turnwise connect CLIENT` knows: openclaw, opencode, codex, claude-code, …\n"
            + (later if idle else ""),
            highlight=False,
            markup=False,
            soft_wrap=True,
        )

    async def run() -> None:
        stop = asyncio.Event()

        def asked() -> None:
            if stop.is_set():
                supervisor.kill_all()  # asked twice: do not wait for answers in flight
            stop.set()

        for sig in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(sig, asked)
        await refuse_impossible(settings)
        await supervisor.run(ready, stop)

    try:
        asyncio.run(run())
    finally:
        if ready_file is not None:
            remove_ours(ready_file)


@app.command(epilog="Example: turnwise status")
def status(config: ConfigFile = None, home: Home = None, as_json: Json = False) -> None:
    """Sessions, turns by state, verdicts, waiting samples, the serving version and what the loops do."""
    from turnwise.doctor.journal import loop_errors
    from turnwise.journal.queue.refusals import wall
    from turnwise.schedule.telling import NOTES, when_trained

    settings = read_config(config, home, None)
    figures, bumps, rebuilding = read_journal(
        settings,
        lambda journal: (journal.status.figures(), journal.skills.bumps(), journal.rebuilding.unfinished()),
    )
    figures["rebuilding"] = [note.session for note in rebuilding]
    figures["skill_generations"] = [{"generation": b.generation, "cost": b.cost, "at": b.at} for b in bumps]
    states = read_states(settings.home)
    figures["supervised"] = {name: asdict(state) for name, state in states.items()}
    if as_json:
        print_json(figures)
        return
    table = Table("what", "figure", title=f"turnwise at {settings.home}", show_header=False)
    table.add_row("sessions", f"{figures['sessions']['open']} open of {figures['sessions']['total']}")
    turns = {state: n for state, n in figures["turns"].items() if n}
    table.add_row("turns", ", ".join(f"{n} {state}" for state, n in turns.items()) or "none yet")
    if figures["unrecognised"]:
        table.add_row("unrecognised", f"{figures['unrecognised']} histories with an answer that no turn gave")
    table.add_row("excluded", ", ".join(f"{n} {reason}" for reason, n in figures["excluded"].items()) or "none")
    table.add_row("verdicts", ", ".join(f"{n} {kind}" for kind, n in figures["verdicts"].items()) or "none yet")
    table.add_row("hints", str(figures["hints"]))
    table.add_row("samples waiting", f"{figures['samples_ready']} (a step starts at {settings.train.min_batch})")
    if figures["groups"]:
        table.add_row("groups of rollouts", ", ".join(f"{n} {state}" for state, n in figures["groups"].items()))
    table.add_row("training", escape(when_trained(settings, figures["samples_ready"], figures["loops"], states)))
    if settings.mode != "both":
        table.add_row("mode", settings.mode)
    part = figures["version"]["part"]
    cut = f", {part:g} of its step" if part < 1 else ""
    table.add_row("serving version", f"{figures['version']['number']} ({figures['versions_published']} published{cut})")
    if bumps:
        cost = ", ".join(f"{bump.cost} by generation {bump.generation}" for bump in bumps[:5])
        table.add_row("skills", f"generation {bumps[0].generation}; ready samples it cost: {cost}")
    if stands_in_the_way := wall(figures["refused_in_a_row"]):
        table.add_row("[red]gate[/]", f"[red]{escape(stands_in_the_way)}[/]")
    elif refused := figures["refused_in_a_row"]["count"]:
        table.add_row("gate", f"refused {refused} {'batch' if refused == 1 else 'batches'} since the last version")
    for session in figures["rebuilding"]:
        still = f"versions that learned from {session} serve until `turnwise forget {session} --retrain` has ended"
        table.add_row("[red]forgetting[/]", f"[red]{escape(still)}[/]")
    for alarm in figures["alarms"]:
        table.add_row("[red]alarm[/]", f"[red]{escape(alarm['said'])}; see `turnwise versions compare`[/]")
    for name, loop in figures["loops"].items():
        if name in NOTES:
            continue
        alive = "" if loop["seconds_ago"] < 30 else f" [red](silent for {loop['seconds_ago']:.0f} s)[/]"
        hidden = ("seconds_ago", "error", "version_error")
        said = escape(", ".join(f"{k}={v}" for k, v in loop.items() if k not in hidden and v is not None))
        wrong = "".join(f"\n[red]error: {escape(error)}[/]" for error in loop_errors(loop))
        table.add_row(name, said + alive + wrong)
    for name, state in states.items():
        words = "".join(f"\n  {escape(line)}" for line in state.last_words) if state.troubled else ""
        colour = "red" if state.troubled else "green"
        table.add_row(f"{name} process", f"[{colour}]{escape(state.said())}[/]{words}")
    out.print(table)


@app.command(epilog="Example: turnwise doctor --set server.port=9000")
def doctor(config: ConfigFile = None, home: Home = None, sets: Set = None, as_json: Json = False) -> None:
    """Check the installation and the server that runs; says what to do about each fault and ends with 1 for one."""
    from turnwise.doctor.checks import examine

    findings = examine(config, home, sets)
    if as_json:
        print_json([f.__dict__ for f in findings])
    else:
        table = Table("check", "", "what was found, and what to do")
        marks = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "fault": "[red]fault[/]"}
        for finding in findings:
            table.add_row(finding.check, marks[finding.level], escape(finding.text))
        out.print(table)
    if any(f.level == "fault" for f in findings):
        raise typer.Exit(1)


@app.command("config", epilog="Example: turnwise config --set server.port=9000")
def show_config(config: ConfigFile = None, home: Home = None, sets: Set = None) -> None:
    """Print the configuration in force as TOML."""
    from turnwise.config.reference import as_toml

    out.print(as_toml(read_config(config, home, sets)), markup=False, highlight=False, soft_wrap=True)


@app.command(epilog="Example: turnwise connect codex --dry-run")
def connect(
    client: Annotated[str, typer.Argument(help="openclaw, opencode, codex, claude-code, qwen-code, aider, …")],
    url: Annotated[
        str | None, typer.Option(help="Address of the server; default: server.host and server.port.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="TURNWISE_TOKEN", help="Token of a server at --url that is not this home's."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model name to ask for; default: turnwise.")] = None,
    client_config: Annotated[
        Path | None, typer.Option("--client-config", help="The client's configuration file, where it is not the usual.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the difference and change nothing.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Put back the file as it was, byte for byte.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Undo even if the file was changed by hand since.")] = False,
    config: ConfigFile = None,
    home: Home = None,
    sets: Set = None,
) -> None:
    """Point an agent's own configuration at this server; shows the difference first, and can be undone."""
    from turnwise.connect.command import connect_client, undo_client

    settings = read_config(config, home, sets)
    if undo:
        out.print(undo_client(settings, client, client_config, force), highlight=False, markup=False, soft_wrap=True)
        return

    def ask(difference: str) -> bool:
        out.print(difference, highlight=False, markup=False, soft_wrap=True)
        return yes or typer.confirm("Write this?")

    said = connect_client(settings, client, client_config, url, model, None if dry_run else ask, token)
    out.print(said, highlight=False, markup=False, soft_wrap=True)


def version_option(value: bool) -> None:
    if value:
        out.print(f"turnwise {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=version_option, is_eager=True)] = False,
) -> None:
    """An agent that gets better by being used."""


def main() -> None:
    """Run a command; an error made on purpose is one sentence and exit code 1, not a traceback."""
    try:
        app()
    except TurnwiseError as e:
        err.print(f"[red]error:[/] {escape(str(e))}", highlight=False, soft_wrap=True)
        sys.exit(1)
