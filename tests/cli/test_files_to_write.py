"""Files that commands add lines to: a line that a kill cut off is mended, and what cannot be written is said first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from typer.testing import CliRunner

from tests.support.servers import running
from turnwise.cli.environments.rollout import _context
from turnwise.cli.main import app
from turnwise.environments.base import Task
from turnwise.environments.rollout import GatewayAt
from turnwise.environments.tasks import written
from turnwise.errors import ConfigError, TurnwiseError
from turnwise.files import ready_for_lines
from turnwise.judges.trajectory.collecting import CollectedVerdict, verdicts_in
from turnwise.trajectories.record import SavedTrajectory, written_trajectory
from turnwise.trajectories.trail import ShownPage, Trail, TrailStep

TRAIL = Trail("t", (TrailStep("", ("click(x=1)",), ("ok",)),), (ShownPage("p"),), "a")
SAVED = SavedTrajectory("one", "t1", "web", "Do it.", 1.0, details={"ended": "page"}, trail=TRAIL)
LONG = b'{"a": "' + b"x" * 200_000


@pytest.mark.parametrize(
    ("was", "then"),
    [
        (b"", b""),
        (b'{"a": 1}\n', b'{"a": 1}\n'),
        (b'{"a": 1}\n{"b": ', b'{"a": 1}\n'),
        (b'{"a": 1}\n{"b": {"c": 2}', b'{"a": 1}\n'),
        (b'{"a": 1}\n{"b": "\xc3', b'{"a": 1}\n'),
        (b'{"a', b""),
        (b'{"a": 1}\n{"b": 2}', b'{"a": 1}\n{"b": 2}\n'),
        (b'{"a": 1}\n  ', b'{"a": 1}\n'),
        (b"x" * 200_000 + b"\n" + LONG, b"x" * 200_000 + b"\n"),
        (LONG + b'"}', LONG + b'"}\n'),
        (b"x" * 65_535 + b"\n" + b"{" + b"x" * 65_535, b"x" * 65_535 + b"\n"),
    ],
)
def test_a_line_without_an_end_is_cut_off_unless_it_is_whole(tmp_path: Path, was: bytes, then: bytes) -> None:
    (tmp_path / "lines").write_bytes(was)
    ready_for_lines(tmp_path / "lines")
    assert (tmp_path / "lines").read_bytes() == then


def test_a_file_of_something_else_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("to do:\n- water the plants")
    with pytest.raises(ConfigError, match="name another file"):
        ready_for_lines(tmp_path / "notes")
    assert (tmp_path / "notes").read_text() == "to do:\n- water the plants"


def test_a_file_that_is_not_there_is_not_made_yet(tmp_path: Path) -> None:
    ready_for_lines(tmp_path / "lines")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["nowhere/lines", "file/lines", ".", "n" * 300])
def test_what_cannot_be_written_is_said(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot be written.*make its folder, or name another file"):
        ready_for_lines(tmp_path / place)


@pytest.mark.parametrize("flags", [["--save"], ["--record"], ["--keep", "task=1", "--record"]])
def test_a_rollout_says_so_before_it_plays(tmp_path: Path, flags: list[str]) -> None:
    task = Task("t", "web", "Do it.", {"url": "http://a.example", "answer": "42"})
    (tmp_path / "tasks").write_text(written(task))
    asked = ["rollout", str(tmp_path / "tasks"), "--agent", "nothing", "--home", str(tmp_path / "home")]
    done = CliRunner().invoke(app, [*asked, *flags, str(tmp_path / "nowhere" / "lines")])
    assert isinstance(done.exception, ConfigError) and "make its folder" in str(done.exception)
    assert not (tmp_path / "home" / "rollouts").exists()


def test_verdicts_are_added_after_one_that_a_kill_cut_off(tmp_path: Path) -> None:
    (tmp_path / "run").write_text(f"{written_trajectory(SAVED)}\n")
    line = CollectedVerdict("zero", "m", True, "yes", None).line()
    for name in ("v", "sft"):
        (tmp_path / name).write_text(f"{line}\n{line[:40]}")
    files = ["--out", str(tmp_path / "v"), "--sft", str(tmp_path / "sft")]
    done = CliRunner().invoke(app, ["judge", "collect", str(tmp_path / "run"), *files, "--by", "verifier"])
    assert done.exit_code == 0, done.exception
    assert [verdict.session for verdict in verdicts_in(tmp_path / "v")] == ["zero", "one"]
    assert [set(json.loads(line)) & {"messages"} for line in (tmp_path / "sft").read_text().split("\n")[:-1]] == [
        set(),
        {"messages"},
    ]


@pytest.mark.parametrize("flag", ["--out", "--sft"])
def test_a_judge_is_not_asked_for_what_cannot_be_written(tmp_path: Path, flag: str) -> None:
    (tmp_path / "run").write_text(f"{written_trajectory(SAVED)}\n")
    files = {"--out": str(tmp_path / "v"), "--sft": str(tmp_path / "sft")} | {flag: str(tmp_path / "nowhere" / "f")}
    asked = ["judge", "collect", str(tmp_path / "run"), "--by", "verifier"]
    done = CliRunner().invoke(app, [*asked, *(word for pair in files.items() for word in pair)])
    assert isinstance(done.exception, ConfigError) and "make its folder" in str(done.exception)
    assert not (tmp_path / "v").exists()


@pytest.mark.parametrize(
    ("status", "body"), [(500, "no"), (200, "no"), (200, "[]"), (200, '{"data": []}'), (200, '{"data": ["m"]}')]
)
def test_a_server_that_does_not_say_what_it_serves_is_named(status: int, body: str) -> None:
    async def models(request: object) -> Response:
        return Response(body, status)

    said = "does not say which model it serves"
    with running(Starlette(routes=[Route("/v1/models", models)])) as url, pytest.raises(TurnwiseError, match=said):
        _context(GatewayAt(url, "a", "p"))
    with pytest.raises(TurnwiseError, match=said):  # it is gone by now
        _context(GatewayAt(url, "a", "p"))
