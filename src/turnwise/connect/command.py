"""`turnwise connect`: find the endpoint and the client's file, show the difference, write, remember, undo."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from turnwise.agents.fits import advice, fits_whole
from turnwise.agents.known import AGENTS, Agent
from turnwise.config import Config
from turnwise.connect.endpoint import find_endpoint
from turnwise.connect.files import Changes, plan_change
from turnwise.errors import ConfigError


def connect_client(
    config: Config,
    name: str,
    file: Path | None,
    url: str | None,
    model: str | None,
    ask: Callable[[str], bool] | None,
    token: str | None = None,
) -> str:
    """Connect a client and say what was done. `ask` is given the difference and decides; None only shows it.
    `token` is that of a server that is not this home's.

    Raises ConfigError.
    """
    agent = _agent(name)
    endpoint = find_endpoint(config, url, model, make_token=ask is not None, given=token)
    plan = plan_change(name, file or agent.file(dict(os.environ)), lambda text: agent.edit(text, endpoint))
    fits, said = advice(name, endpoint.context, config if endpoint.own else None)
    too_long = "" if fits else f"\nnote: it does not fit yet. {said}; then connect it again, so that it is told"
    if fits and not fits_whole(name, endpoint.context):
        too_long = f"\nnote: {said.partition('; ')[2]}"
    if not plan.changes:
        return f"{name} is connected to {endpoint.url} already; {plan.path} needs no change{too_long}"
    if ask is None:
        then = f"`turnwise connect {name}` asks, and writes this; then try: {agent.try_it}"
        return f"{plan.diff()}\nnothing was written to {plan.path}. {then}{too_long}"
    if not ask(plan.diff() + too_long):
        return f"nothing was written to {plan.path}"
    changes(config).apply(plan)
    works = f"; try: {agent.try_it}" if fits else ", but its prompt does not fit yet: see the note above"
    return (
        f"{name} is connected to {endpoint.url} ({plan.path}){works}\n"
        f"To put the file back as it was: turnwise connect {name} --undo"
    )


def undo_client(config: Config, name: str, file: Path | None, force: bool) -> str:
    """Undo the last change of a client's file and say so. Raises TurnwiseError."""
    _agent(name)
    path, still_there = changes(config).undo(name, file, force)
    return f"{path} is as it was before" if still_there else f"{path} is removed; it did not exist before"


def changes(config: Config) -> Changes:
    return Changes(config.home / "connect")


def _agent(name: str) -> Agent:
    if name not in AGENTS:
        raise ConfigError(f"turnwise cannot connect {name!r}; it knows {', '.join(AGENTS)}. See docs/clients.md")
    return AGENTS[name]
