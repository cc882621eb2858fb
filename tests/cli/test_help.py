"""Every command's help shows one example, and the example is one that the command takes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from turnwise.cli.main import app


def walk(command: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command below this one, with its words, however deep."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
    for name, below in (inner or {}).items():
        yield from walk(below, *words, name)


COMMANDS = dict(walk(typer.main.get_command(app)))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_help_of_a_command_shows_an_example_that_it_takes(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80"})
    assert done.exit_code == 0
    [example] = [line.strip() for line in done.output.splitlines() if line.strip().startswith("Example: ")]
    said = shlex.split(example.removeprefix("Example: "))
    assert said[: len(words) + 1] == ["turnwise", *words]
    COMMANDS[words].make_context(" ".join(words), said[len(words) + 1 :])  # it raises for what it does not take


def test_there_are_commands() -> None:
    assert ("sessions", "show") in COMMANDS and len(COMMANDS) > 20
