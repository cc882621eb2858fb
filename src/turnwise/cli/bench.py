"""`turnwise judge` and `turnwise bench`: measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from turnwise.cli.options import ConfigFile, Home, Json, Set, err, out, print_json, read_config, read_config_of
from turnwise.errors import TurnwiseError

judge_app = typer.Typer(help="The judge.", no_args_is_help=True)
bench_app = typer.Typer(help="Measurements, printed as ratios beside a peer.", no_args_is_help=True)


@judge_app.command("eval", epilog="Example: turnwise judge eval labelled.jsonl --kind signals-then-model")
def judge_eval(
    file: Annotated[Path, typer.Argument(help="Labelled next states, one JSON object a line.")],
    kind: Annotated[
        list[str] | None,
        typer.Option(help="signals, model or signals-then-model; may be given twice. Default: signals, model."),
    ] = None,
    config: ConfigFile = None,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Accuracy at 100, 75 and 60 % decided, calibration, precision and recall, hints, and a confusion table.

    Both judges by default, the free one and the model at `judge.url`.
    """
    from turnwise.judges.evaluate import evaluate_file, render

    reports = [evaluate_file(file, one, read_config(config, home, None)) for one in kind or ["signals", "model"]]
    if as_json:
        print_json(reports)
    else:
        for report in reports:
            out.print(render(report))


MODEL = ("model.path",)
"""What a bench reads that starts its own servers with the shipped defaults, or asks the model alone."""
ENGINE = ("engine.dtype", "engine.threads", "engine.max_num_seqs", "engine.max_queue", "engine.max_model_len",
          "engine.kv_cache_mb")  # fmt: skip
SANDBOXES = ("environments.sandbox", "environments.image", "environments.hosts")
RETRIEVAL = ("skills.threshold", "skills.max_tokens", "skills.embedding_url", "skills.embedding_model",
             "skills.embedding_api_key_env", "skills.embedding_timeout_s")  # fmt: skip

Repeats = Annotated[int, typer.Option(min=1, help="Runs of each measurement; the best or the median counts.")]
Write = Annotated[Path | None, typer.Option(help="Put the figures into this file, such as BENCHMARKS.md.")]


@bench_app.command("serve", epilog="Example: turnwise bench serve --quick")
def bench_serve(
    config: ConfigFile = None,
    home: Home = None,
    sets: Set = None,
    repeats: Repeats = 3,
    only: Annotated[str | None, typer.Option(help="'engine' or 'gateway'; both when left out.")] = None,
    quick: Annotated[bool, typer.Option(help="The gateway alone, on a part of the grid: under two minutes.")] = False,
    litellm: Annotated[
        bool, typer.Option(help="Install the LiteLLM proxy to compare with, unless it is there.")
    ] = False,
    seconds: Annotated[float, typer.Option(min=0.1, help="Time of each cell of the gateway's grid.")] = 2.0,
    write: Write = None,
) -> None:
    """The engine's tokens/s beside `generate`; what the gateway adds, beside the LiteLLM proxy and no proxy."""
    from turnwise.bench.latency.grid import bench_latency
    from turnwise.bench.serving import bench_engine

    if only not in (None, "engine", "gateway"):
        raise TurnwiseError(f"--only is 'engine' or 'gateway', not {only!r}")
    with_engine = only != "gateway" and not quick
    settings = read_config_of("bench serve", MODEL + ENGINE * with_engine, config, home, sets)
    if with_engine:
        finish_bench(bench_engine(settings, repeats), write)
    if only != "engine":
        finish_bench(bench_latency(settings, quick=quick, install_litellm=litellm, seconds=seconds), write)


@bench_app.command("train", epilog="Example: turnwise bench train --write BENCHMARKS.md")
def bench_train(
    config: ConfigFile = None,
    home: Home = None,
    sets: Set = None,
    samples: Annotated[int, typer.Option(min=1, help="Samples in the batch.")] = 16,
    repeats: Repeats = 3,
    trl: Annotated[
        bool, typer.Option("--trl", help="Beside TRL's trainers instead, which are installed for it.")
    ] = False,
    write: Write = None,
) -> None:
    """A training step beside a plain forward and backward pass over the same tokens, or beside TRL's."""
    settings = read_config_of("bench train", (*MODEL, "train."), config, home, sets)
    if trl:
        from turnwise.bench.beside_trl.measure import TRL, bench_beside_trl

        version = TRL.install()
        finish_bench(bench_beside_trl(settings, TRL.program("python"), version, repeats), write)
    else:
        from turnwise.bench.training import bench_training

        finish_bench(bench_training(settings, samples, repeats), write)


@bench_app.command("journal", epilog="Example: turnwise bench journal --turns 100000")
def bench_journal_command(
    turns: Annotated[int, typer.Option(min=100_000, help="Turns in the journal.")] = 1_000_000,
    versions: Annotated[int, typer.Option(min=10, help="Published versions.")] = 3000,
    backlog: Annotated[int, typer.Option(min=100, help="Turns that wait for the judge or the trainer.")] = 30_000,
    repeats: Repeats = 50,
    url: Annotated[
        str | None,
        typer.Option(help="An empty PostgreSQL database to measure beside SQLite; 'own' starts a server for it."),
    ] = None,
    write: Write = None,
) -> None:
    """What is asked of a journal of this size, and of a tenth and a hundredth of it; durable turns beside SQLite."""
    from turnwise.bench.journal.beside import bench_beside
    from turnwise.bench.journal.fill import Size
    from turnwise.bench.journal.operations import bench_journal

    if backlog > turns // 3 or versions > turns // 10:
        raise typer.BadParameter("at most a third of --turns may be --backlog, and a tenth --versions")
    size = Size(turns, versions, backlog)
    finish_bench(bench_journal(size, repeats) if url is None else bench_beside(size, repeats, url), write)


@bench_app.command("soak", epilog="Example: turnwise bench soak --quick --seed 1")
def bench_soak(
    config: ConfigFile = None,
    home: Home = None,
    sets: Set = None,
    minutes: Annotated[float, typer.Option(min=1, help="How long it is soaked.")] = 30.0,
    quick: Annotated[bool, typer.Option("--quick", help="Two and a half minutes of it.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the clients and of what is done to the program.")] = 0,
    out_folder: Annotated[Path, typer.Option("--out", help="Where the plot, the log and the ledger go.")] = Path(
        "soak-out"
    ),
    write: Write = None,
) -> None:
    """The whole program under load, kills, hangs, clock steps and a full disk: nothing lost, nothing twice, flat."""
    from turnwise.bench.soak.run import SoakOptions, bench_soak

    model = str(read_config_of("bench soak", MODEL, config, home, sets).model.path)
    report, faults = bench_soak(
        SoakOptions(model=model, out=out_folder.absolute(), minutes=minutes, quick=quick, seed=seed),
        lambda text: err.print(text, highlight=False),
    )
    finish_bench(report, write)
    if faults:
        raise TurnwiseError("the soak found faults:\n  " + "\n  ".join(faults) + f"\nmore is in {out_folder}")


@bench_app.command(
    "personalization", epilog="Example: turnwise bench personalization --persons development --seeds 1 --updates 3"
)
def bench_personalization(
    config: ConfigFile = None,
    home: Home = None,
    sets: Set = None,
    persons: Annotated[
        str, typer.Option(help="'unseen', 'development', names with commas, or a .toml file.")
    ] = "unseen",
    arms: Annotated[str, typer.Option(help="Ways of learning, with commas.")] = "combined,opd,binary,control",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each person and way of learning.")] = 5,
    updates: Annotated[int, typer.Option(min=1, max=1000, help="Waves of eight conversations.")] = 16,
    every: Annotated[int, typer.Option(min=1, help="Waves between two examinations.")] = 1,
    out_folder: Annotated[
        Path, typer.Option("--out", help="Where points and curves go; what is there is kept.")
    ] = Path("personalization-out"),
    write: Write = None,
) -> None:
    """People with wishes use the agent: in how many answers are the wishes met unasked, and do they stay right?"""
    from turnwise.bench.personalization.run import PersonalizationOptions, bench_personalization

    model = str(read_config_of("bench personalization", MODEL, config, home, sets).model.path)
    options = PersonalizationOptions(model, out_folder.absolute(), persons, arms, seeds, updates, every)
    finish_bench(bench_personalization(options, lambda text: err.print(text, highlight=False)), write)


@bench_app.command("metaclaw", epilog="Example: turnwise bench metaclaw ../data/metaclaw-bench --days day01,day02")
def bench_metaclaw_command(
    data: Annotated[Path, typer.Argument(help="The bench's data, with eval/ and workspaces/.")],
    config: ConfigFile = None,
    home: Home = None,
    sets: Set = None,
    days: Annotated[str, typer.Option(help="Names with commas; all when left out.")] = "",
    url: Annotated[
        str | None, typer.Option(help="An OpenAI-compatible endpoint; else the configured model is served for it.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model's name at that endpoint.")] = None,
    key_env: Annotated[
        str | None,
        typer.Option(help="Variable with the endpoint's key. Default: TURNWISE_TOKEN, or this home's token."),
    ] = None,
    learn: Annotated[bool, typer.Option("--learn", help="The server that is started trains as it would.")] = False,
    scripted: Annotated[
        bool, typer.Option("--scripted", help="Only the agents that need no model: they prove the machinery.")
    ] = False,
    steps: Annotated[int, typer.Option(min=1, max=100, help="Most answers of the model in a round.")] = 10,
    tokens: Annotated[int, typer.Option(min=16, help="Most tokens of an answer.")] = 700,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sampling.")] = 0,
    out_folder: Annotated[
        Path, typer.Option("--out", help="Where points and plot go; a run that was ended goes on there.")
    ] = Path("metaclaw-out"),
    write: Write = None,
) -> None:
    """Simulated workdays, whose rules only feedback tells, done by an agent with tools, beside others that do not."""
    from turnwise.bench.metaclaw.run import MetaclawOptions, bench_metaclaw

    options = MetaclawOptions(
        data.absolute(), out_folder.absolute(), days, url, model, key_env, learn, scripted, steps, tokens, seed
    )
    reads = () if scripted else ("server.auth", "journal.url") if url else (*MODEL, "engine.max_model_len")
    settings = read_config_of("bench metaclaw", reads, config, home, sets)
    finish_bench(bench_metaclaw(options, settings, lambda text: err.print(text, highlight=False, markup=False)), write)


@bench_app.command("environments", epilog="Example: turnwise bench environments --at-once 1,8")
def bench_environments_command(
    config: ConfigFile = None,
    home: Home = None,
    sets: Set = None,
    at_once: Annotated[str, typer.Option(help="How many environments at once, with commas.")] = "1,8,32,128",
    steps: Annotated[int, typer.Option(min=1, max=10_000, help="Steps of each environment.")] = 20,
    write: Write = None,
) -> None:
    """Terminal environments a second, steps a second and memory, many at once; a step beside a plain subprocess."""
    from turnwise.bench.environments.run import bench_environments
    from turnwise.sandbox.choice import Sandboxes

    numbers = [int(each) for each in at_once.split(",") if each.strip().isdecimal() and 1 <= int(each) <= 1024]
    if not numbers:
        raise TurnwiseError(f"--at-once is numbers from 1 to 1024 with commas, not {at_once!r}")
    sandboxes = Sandboxes(read_config_of("bench environments", SANDBOXES, config, home, sets).environments)
    finish_bench(bench_environments(sandboxes, numbers, steps, lambda text: err.print(text, highlight=False)), write)


@bench_app.command("web", epilog="Example: turnwise bench web --at-once 1,8")
def bench_web_command(
    at_once: Annotated[str, typer.Option(help="How many browsers at once, with commas.")] = "1,2,4,8",
    steps: Annotated[int, typer.Option(min=1, max=10_000, help="Steps of each browser.")] = 20,
    endure: Annotated[
        float | None,
        typer.Option(min=0, help="Instead: so many minutes among pages that crash, hang and misbehave, 8 at once."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="With --endure: of the order of what happens.")] = 0,
    write: Write = None,
) -> None:
    """Browsers at once, their steps and memory; a look and a screenshot beside bare Playwright; or what they endure."""
    from turnwise.bench.web.endurance import bench_endurance
    from turnwise.bench.web.run import bench_web

    numbers = [int(each) for each in at_once.split(",") if each.strip().isdecimal() and 1 <= int(each) <= 128]
    if not numbers:
        raise TurnwiseError(f"--at-once is numbers from 1 to 128 with commas, not {at_once!r}")

    def say(text: str) -> None:
        err.print(text, highlight=False, markup=False)

    if endure is None:
        finish_bench(bench_web(numbers, steps, say), write)
        return
    report, wrong = bench_endurance(endure, seed, say)
    finish_bench(report, write)
    if wrong:
        raise TurnwiseError("not all was as it must be:\n  " + "\n  ".join(wrong[:40]))


@bench_app.command("pipeline", epilog="Example: turnwise bench pipeline runs-before --with runs-after")
def bench_pipeline_command(
    before: Annotated[list[Path], typer.Argument(help="Runs as they were: files, or folders with .json files.")],
    after: Annotated[
        list[Path] | None, typer.Option("--with", help="Runs to hold beside them; may be given more than once.")
    ] = None,
    write: Write = None,
) -> None:
    """Retries, refine cycles and completion of a program of many stages, for two sets of its runs."""
    from turnwise.bench.pipeline.run import bench_pipeline
    from turnwise.skills.pipeline.runs import read_runs

    if not after:
        raise TurnwiseError("say which runs to hold beside these: --with FILE or --with FOLDER")
    finish_bench(bench_pipeline(read_runs(before), read_runs(after)), write)


def finish_bench(report: Any, write: Path | None) -> None:
    report.print(out)
    if write is not None:
        report.write(write)
        out.print(f"written to {write}", highlight=False)


@bench_app.command("skills", epilog="Example: turnwise bench skills --aside")
def bench_skills(
    aside: Annotated[
        bool, typer.Option("--aside", help="The questions that are kept aside: settings are not chosen on these.")
    ] = False,
    config: ConfigFile = None,
    home: Home = None,
    sets: Set = None,
    as_json: Json = False,
) -> None:
    """How many labelled questions find their skill, and how many of no skill's get one, beside plain keywords."""
    from dataclasses import asdict

    from rich.table import Table

    from turnwise.bench.skills.run import measure

    figures = measure(aside, read_config_of("bench skills", RETRIEVAL, config, home, sets).skills)
    if as_json:
        print_json([asdict(one) for one in figures])
        return
    table = Table("way", "recall at 5", "of", "unrelated with a skill", "of", "skills a question")
    for one in figures:
        row = (f"{one.recall:.3f}", str(one.related), f"{one.disturbed:.3f}", str(one.unrelated), f"{one.chosen:.2f}")
        table.add_row(one.way, *row)
    out.print(table)


@bench_app.command("mixed", epilog="Example: turnwise bench mixed --minutes 30 --write BENCHMARKS.md")
def bench_mixed_command(
    config: ConfigFile = None,
    home: Home = None,
    sets: Set = None,
    minutes: Annotated[float, typer.Option(min=0.5, help="Time in which the person is there.")] = 10.0,
    parallel: Annotated[int, typer.Option(min=1, max=128, help="Rollouts at a time.")] = 4,
    seed: Annotated[int, typer.Option(help="Of what the person says.")] = 0,
    write: Write = None,
) -> None:
    """What a person waits while rollouts are played, beside what they wait without; and what both taught."""
    from turnwise.bench.mixed.run import bench_mixed
    from turnwise.demo.server import termination_unwinds

    settings = read_config_of("bench mixed", MODEL, config, home, sets)
    with termination_unwinds():
        report = bench_mixed(settings, minutes, parallel, seed)
    finish_bench(report, write)
