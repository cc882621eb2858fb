"""What `turnwise serve` says once it is ready: how every kind of client connects, and no token in a log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from rich.console import Console

from turnwise.cli import main as cli
from turnwise.loops import supervisor

TOKEN = "tw-secret-token"
ADDRESS = supervisor.Address("http://127.0.0.1:8377", TOKEN)


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that is ready and stops: what it starts is tested elsewhere."""

    async def run(
        _: supervisor.Supervisor, on_ready: Callable[[supervisor.Address], Awaitable[None]], stop: asyncio.Event
    ) -> None:
        await on_ready(ADDRESS)

    monkeypatch.setattr(supervisor.Supervisor, "run", run)


@pytest.mark.usefixtures("ready")
@pytest.mark.parametrize("terminal", [True, False])
def test_both_makers_clients_get_their_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    screen = Console(width=40, color_system=None)
    monkeypatch.setattr(cli, "out", screen)
    monkeypatch.setattr(cli.sys.stdout, "isatty", lambda: terminal)
    with screen.capture() as captured:
        cli.serve(home=tmp_path)
    said, key = captured.get(), TOKEN if terminal else "TOKEN"
    assert f"export OPENAI_BASE_URL={ADDRESS.url}/v1 OPENAI_API_KEY={key}\n" in said
    assert f"export ANTHROPIC_BASE_URL={ADDRESS.url} ANTHROPIC_AUTH_TOKEN={key}\n" in said
    assert (TOKEN in said) is terminal
