"""The bench's own agent at a real HTTP endpoint that says what a test wrote; runs that are killed and go on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.workdays import FIRST, SECOND, choice, write_days
from turnwise.bench.metaclaw.data import read_days
from turnwise.bench.metaclaw.model_agent import MOST_SHOWN, ModelAgent, ModelAt
from turnwise.bench.metaclaw.play import RoundPoint, play_day
from turnwise.bench.metaclaw.run import MetaclawOptions, bench_metaclaw
from turnwise.config import Config
from turnwise.errors import BenchDataError, EngineError, EngineUnreachable, SandboxError
from turnwise.sandbox.bubblewrap import check_machine

TIME = "2026-03-16T09:30:00+08:00"
Say = Callable[[list[dict[str, Any]]], dict[str, Any] | int]
"""The answer to a conversation: a message, or a status."""


@pytest.fixture(autouse=True)
def _sandbox() -> None:
    try:
        check_machine()
    except SandboxError as e:
        pytest.skip(str(e))


@contextmanager
def endpoint(say: Say) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server of chat completions on loopback; gives its address and the requests that it got."""
    heard: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"{}")
            heard.append({"path": self.path, "session": self.headers.get("X-Session-Id"), **body})
            told = say(body["messages"]) if "messages" in body else 404
            status = told if isinstance(told, int) else 200
            choice = {"index": 0, "finish_reason": "stop", "message": told}
            answer = {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
            content = json.dumps({"error": {"message": "no"}} if isinstance(told, int) else answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", heard
    finally:
        server.shutdown()
        server.server_close()


def text(said: str) -> dict[str, Any]:
    return {"role": "assistant", "content": said}


def call(name: str, arguments: object) -> dict[str, Any]:
    given = arguments if isinstance(arguments, str) else json.dumps(arguments)
    tool = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": given}}
    return {"role": "assistant", "content": None, "tool_calls": [tool]}


def played(say: Say, tmp_path: Path, rounds: list[dict[str, Any]], **more: Any) -> tuple[list[RoundPoint], list[Any]]:
    """The points of a made-up day, and the requests."""
    days = read_days(write_days(tmp_path / "data", rounds))
    with endpoint(say) as (url, heard):
        agent = ModelAgent(ModelAt(url, "m", "key", "s", **more))
        return play_day(days[0], agent, tmp_path / "work"), heard


def after(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What came since the last question."""
    last = max(n for n, message in enumerate(messages) if message["role"] == "user")
    return messages[last:]


def works(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Does the first made-up day as a good agent would: it reads, writes and runs."""
    asked, *done = after(messages)
    steps = len(done) // 2
    if "Which are right" in asked["content"]:
        return text("So \\bbox{A, C}.")
    if "add a line" in asked["content"]:
        command = "cp day01/notes.md day01/notes.md.bak && echo more >> day01/notes.md && cat day01/notes.md"
        return call("run", {"command": command}) if steps == 0 else text("done")
    content = json.dumps({"at": TIME, "items": [{"due": TIME}]})
    tools = [
        call("read", {"path": "day01/notes.md"}),
        call("write", {"path": "day01/standup.json", "content": content}),
    ]
    return tools[steps] if steps < 2 else text("done")


def test_an_agent_that_works_passes_and_hears_what_was_said_to_it(tmp_path: Path) -> None:
    points, heard = played(works, tmp_path, FIRST)
    assert [(p.round, p.passed, p.steps) for p in points] == [("r1", True, 3), ("r2", True, 1), ("r3", True, 2),
                                                              ("r5", False, 1)]  # fmt: skip
    turns = [request for request in heard if "messages" in request]
    assert {request["session"] for request in turns} == {"s-day01"}
    said = [message["content"] for message in turns[-1]["messages"] if message["role"] == "user"]
    assert said[1].startswith("Well done.\n\nWhich are right?") and said[2].startswith("Right.\n\n")
    assert said[-1] == "That is not right.\nB is right.\nD is right.", "the last feedback is said, too"
    results = [message["content"] for message in turns[-1]["messages"] if message["role"] == "tool"]
    assert results == ["# Notes\n", "wrote day01/standup.json", "# Notes\nmore\n\n(exit status 0)"]
    assert heard[-1]["path"] == "/v1/sessions/s-day01/close"
    assert "You are an agent." in turns[0]["messages"][0]["content"]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (call("read", {"path": "../../secret.txt"}), "leads out of the folder"),
        (call("read", {"path": "/etc/passwd"}), "leads out of the folder"),
        (call("read", {"path": "day01/none.md"}), "there are: day01/notes.md"),
        (call("write", {"path": "../escaped.txt", "content": "x"}), "leads out of the folder"),
        (call("write", {"path": "a.txt", "content": "x" * 300_000}), "at most"),
        (call("write", {"path": "a.txt"}), "write wants path and content"),
        (call("write", {"path": "a.txt", "content": 3}), "as text"),
        (call("write", "{broken"), "are not JSON"),
        (call("write", "[" * 50_000), "are not JSON"),
        (call("write", '["path"]'), "write wants"),
        (call("format_disk", {}), "there is no tool"),
        (call("run", {"command": "cat /etc/shadow"}), "No such file"),
        (call("run", {"command": "echo \0"}), "no NUL"),
        (call("run", {"command": "sleep 5 & yes | head -c 9000"}), "characters more)\n(exit status 0)"),
        (call("run", {"command": "yes"}), "(ended by the limit of output)"),
        (call("run", {"command": "printf '\\377\\376'"}), "exit status 0"),
    ],
    ids=lambda given: given["tool_calls"][0]["function"]["arguments"][:30] if isinstance(given, dict) else "",
)
def test_a_tool_call_that_is_wrong_is_answered(tmp_path: Path, made: dict[str, Any], said: str) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    points, heard = played(lambda m: text("done") if len(after(m)) > 1 else made, tmp_path, [choice("r1", "A")])
    results = [message["content"] for message in heard[1]["messages"] if message["role"] == "tool"]
    assert said in results[0] and len(results[0]) < MOST_SHOWN + 200
    assert "secret" not in results[0].replace("secret.txt", "") and not (tmp_path / "escaped.txt").exists()
    assert points[0].steps == 2 and not points[0].passed


def test_an_agent_that_never_stops_is_stopped(tmp_path: Path) -> None:
    points, heard = played(lambda _: call("run", {"command": "true"}), tmp_path, [choice("r1", "A")], steps=3)
    assert points[0].steps == 3 and len([r for r in heard if "messages" in r]) == 4


def test_a_conversation_that_is_refused_is_a_round_not_passed(tmp_path: Path) -> None:
    def say(messages: list[dict[str, Any]]) -> dict[str, Any] | int:
        return 400 if len(messages) == 2 else text("\\bbox{A}")

    points, _ = played(say, tmp_path, [choice("r1", "A"), choice("r2", "A")])
    assert [point.passed for point in points] == [False, False]


def test_an_endpoint_that_is_down_is_no_wrong_answer(tmp_path: Path) -> None:
    for status in (401, 404, 500):
        with pytest.raises(EngineError, match=str(status)):
            played(lambda _, status=status: status, tmp_path / str(status), [choice("r1", "A")])
    days = read_days(write_days(tmp_path / "data", [choice("r1", "A")]))
    with pytest.raises(EngineUnreachable, match="nothing answers"):
        play_day(days[0], ModelAgent(ModelAt("http://127.0.0.1:9/v1", "m", "k", "s")), tmp_path / "work")


def test_a_run_beside_the_floors(tmp_path: Path) -> None:
    data, said = write_days(tmp_path / "data", FIRST), []
    with endpoint(works) as (url, heard):
        options = MetaclawOptions(data, tmp_path / "out", url=url.removesuffix("/v1"), model="good")
        report = bench_metaclaw(options, Config(), said.append)
        before = len(heard)
        again = bench_metaclaw(options, Config(), said.append)
        assert len(heard) == before and said[-1] == "day01 (1 of 1) is played already"
        with pytest.raises(BenchDataError, match="another run"):
            bench_metaclaw(
                MetaclawOptions(data, tmp_path / "out", url=url, model="good", seed=5), Config(), said.append
            )
    rows = {row[0]: row[1:] for row in report.grids[0].rows}
    assert rows["good"] == ["2 of 2 (100.0%)", "1 of 2 (50.0%)", "3 of 4 (75.0%)", "87.5%"]
    assert again.grids == report.grids
    assert not any((tmp_path / "out/work").iterdir())


def test_a_model_with_a_strange_name_deletes_nothing(tmp_path: Path) -> None:
    data = write_days(tmp_path / "data", [choice("r1", "A")])
    (tmp_path / "out").mkdir()
    (tmp_path / "out/kept.txt").write_text("mine")
    with endpoint(lambda _: text("\\bbox{A}")) as (url, _):
        for model in ("..", ".", "../..", "/", "a" * 300):
            options = MetaclawOptions(data, tmp_path / "out", url=url, model=model)
            bench_metaclaw(options, Config(), lambda _: None)
    assert (tmp_path / "out/kept.txt").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "out"]


def test_a_killed_run_goes_on_with_the_first_day_that_is_not_whole(tmp_path: Path) -> None:
    data = write_days(tmp_path / "data", [choice("r1", "A"), choice("r2", "B")], SECOND)
    held = threading.Event()
    asked: list[str] = []

    def say(messages: list[dict[str, Any]]) -> dict[str, Any]:
        asked.append(messages[-1]["content"])
        if "Please make" in messages[-1]["content"]:
            held.wait(60)
        return text("\\bbox{A}")

    with endpoint(say) as (url, _):
        command = [sys.executable, "-P", "-m", "turnwise", "bench", "metaclaw", str(data), "--url", url, "--model", "m",
                   "--out", str(tmp_path / "out"), "--home", str(tmp_path / "home")]  # fmt: skip
        with (tmp_path / "log").open("wb") as log:
            run = subprocess.Popen(command, stdout=log, stderr=log)
            until = time.monotonic() + 120
            while not any("Please make" in said for said in asked) and time.monotonic() < until and run.poll() is None:
                time.sleep(0.05)
            run.send_signal(signal.SIGKILL)
            run.wait(30)
        points = (tmp_path / "out/m.jsonl").read_text(encoding="utf-8").splitlines()
        assert [json.loads(line).get("round") for line in points] == [None, "r1", "r2"], (tmp_path / "log").read_text()
        held.set()
        del asked[:]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "day01 (1 of 2) is played already" in done.stderr
    assert not any("r1" in said for said in asked) and sum("Please make" in said for said in asked) == 3
    points = (tmp_path / "out/m.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(points) == 1 + 2 + len(SECOND)
