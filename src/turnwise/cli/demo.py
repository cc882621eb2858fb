"""`turnwise demo`: a person whose agent learns their wishes, or an agent that learns tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnwise.cli.options import out
from turnwise.errors import ConfigError, TurnwiseError
from turnwise.methods import METHODS
from turnwise.models.table import AUTO, EMBEDDED


def demo(
    persona: Annotated[
        str,
        typer.Option(help="reader (everyday questions), student (plain homework) or teacher (friendly comments)."),
    ] = "reader",
    model: Annotated[
        str, typer.Option(help="An embedded model (`turnwise pull --list`), or 'auto': what fits this machine.")
    ] = AUTO,
    method: Annotated[str, typer.Option(help=f"One of {', '.join(METHODS)}.")] = "combined",
    interactions: Annotated[int | None, typer.Option(min=1, help="Conversations to learn from.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of problems, replies and sampling.")] = 0,
    out_folder: Annotated[Path, typer.Option("--out", help="Where the report goes.")] = Path("demo-out"),
    quick: Annotated[bool, typer.Option("--quick", help="The same path in a few minutes.")] = False,
    problems: Annotated[
        Path | None, typer.Option(help="GSM8K problems (JSON lines) instead of generated ones.")
    ] = None,
    simulator_url: Annotated[str | None, typer.Option(help="OpenAI-compatible model that writes the replies.")] = None,
    simulator_model: Annotated[str | None, typer.Option(help="Its name there.")] = None,
    url: Annotated[str | None, typer.Option(help="Play against a running turnwise instead of starting one.")] = None,
    token: Annotated[str | None, typer.Option(help="Its admin token (`turnwise token admin`).")] = None,
    skills: Annotated[
        bool, typer.Option("--skills", help="A wish said once: skills alone, weights alone, both, and neither.")
    ] = False,
    stream: Annotated[
        str | None,
        typer.Option(help="terminal, tools, web or sites: an agent learns tasks there, from solutions and tries."),
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="With --stream: this many rounds of tries.")] = None,
    switch: Annotated[
        list[str] | None,
        typer.Option(help="With --stream: sft_epochs=0, dynamic_sampling=false, epochs=4, steps=2,4, lr=1e-4."),
    ] = None,
    go_on: Annotated[bool, typer.Option("--go-on", help="With --stream: a run that was stopped goes on.")] = False,
) -> None:
    """Play a person whose agent learns their wishes, and measure what was learned."""
    from turnwise.demo.play import DemoOptions, run_demo

    of_person = url or token or simulator_url or simulator_model or problems or interactions or persona != "reader"
    if stream is not None or rounds is not None or switch or go_on:
        from turnwise.demo.streams.play import StreamPlay, run_stream_demo
        from turnwise.demo.streams.recipe import read_switches
        from turnwise.demo.streams.table import STREAMS, stream_recipe

        if stream not in STREAMS:
            raise ConfigError(f"--stream is one of {', '.join(STREAMS)}; --rounds, --switch and --go-on go with it")
        if skills or of_person:
            raise ConfigError(
                "--stream goes with --model, --seed, --out, --rounds, --switch, --go-on and --quick alone"
            )
        served = EMBEDDED if model == AUTO else model
        options = StreamPlay(out_folder, served, seed, quick, rounds, read_switches(switch or []), go_on)
        run_stream_demo(stream_recipe(stream), options, out)
        return
    if skills:
        from turnwise.demo.skills.run import run_skills_demo

        if of_person:
            raise ConfigError("--skills goes with --model, --seed, --out and --quick alone")
        run_skills_demo(out_folder, model, seed, quick, out)
        return

    if url and model == AUTO:
        raise ConfigError("--url needs --model: the base model of that server, under which its answers are scored")
    result = run_demo(
        DemoOptions(
            persona=persona,
            model=model,
            method=method,
            interactions=interactions,
            seed=seed,
            out=out_folder,
            quick=quick,
            problems=problems,
            simulator_url=simulator_url,
            simulator_model=simulator_model,
            url=url,
            token=token,
        ),
        out,
    )
    if result.faults:
        raise TurnwiseError(f"the demo is not valid: {'; '.join(result.faults)}; the server's log is in {out_folder}")
