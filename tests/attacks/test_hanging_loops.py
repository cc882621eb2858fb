"""Loops that hang: stopped, spinning, deaf. Each is replaced, nothing is left behind, and what is wrong is said.

The loops of most tests are small stand-in processes with the real line to the real supervisor; the last test has the
real ones.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from filelock import FileLock
from typer.testing import CliRunner

from tests.support.models import make_tiny_model
from tests.support.processes import Server, serving
from tests.support.servers import wait_until
from turnwise.cli.main import app
from turnwise.config import Config, load_config
from turnwise.doctor.checks import examine
from turnwise.journal import Journal
from turnwise.loops import supervisor as module
from turnwise.loops.states import FILE, LOCK, LoopState, fit_words, read_states, troubled, write_states
from turnwise.loops.supervisor import Address, Loop, Supervisor
from turnwise.loops.table import HealthAddress
from turnwise.loops.watching import ANSWER, ENGINE, GATEWAY, HEARTBEAT, JUDGE, TRAINER, SilenceLimits, Watch

SHORT = SilenceLimits(start_s=60.0, silent_s=2.0)
BEGIN = "import os, signal, sys, time\nfrom turnwise.loops.lifeline import beat\n"
BEGIN += "from turnwise.loops.process import die_with_parent\n"
BEGIN += "die_with_parent()\nprint('begun', flush=True)\n"
LIVING = BEGIN + "while True: beat(); time.sleep(0.2)\n"
DEAF_AND_SPINNING = BEGIN + "beat(); signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass\n"
HOLDS_THE_LOCK = BEGIN + "import re\nbeat(); signal.signal(signal.SIGTERM, lambda *_: None)\n"
HOLDS_THE_LOCK += "def the_pattern_of_exponential_time(): re.match('(a+)+$', 'a' * 64 + 'b')\n"
HOLDS_THE_LOCK += "the_pattern_of_exponential_time()\n"
NEVER_BEGINS = BEGIN + "time.sleep(600)\n"
STUCK_BESIDE_A_LIVING_THREAD = BEGIN + "import threading\n"
STUCK_BESIDE_A_LIVING_THREAD += "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
STUCK_BESIDE_A_LIVING_THREAD += "beat(); threading.Event().wait()\n"
LEAVES_A_CHILD = BEGIN + "import subprocess\nbeat(); print(subprocess.Popen(['sleep', '60']).pid, flush=True)\n"
AS_ON_MACOS = """
import sys, types, turnwise.loops.process as loops
loops.sys = types.SimpleNamespace(platform="darwin", exit=sys.exit, stderr=sys.stderr)
"""
"""Before a loop: the kernel is not asked to end it, the line alone is left."""
SERVES = """
import http.server, socket, threading
class Ok(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(str(os.getpid())[:2].encode())
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ok, bind_and_activate=False)
server.socket = socket.socket(fileno=int(sys.argv[1]))
"""
GATEWAY_ALIKE = BEGIN + SERVES + "server.service_actions = beat\nserver.serve_forever(0.2)\n"
LIVES_BUT_DOES_NOT_ANSWER = BEGIN + "while True: beat(); time.sleep(0.2)\n"


class Small(Supervisor):
    """A supervisor over a web server that answers /readyz, and over the loops that a test gives."""

    def __init__(self, home: Path, *loops: Loop, gateway: str = GATEWAY_ALIKE, ask: bool = False) -> None:
        super().__init__(Config.model_validate({"home": home, "server": {"port": 0}}), [])
        self.given, self.program, self.ask = loops, gateway, ask
        self.url = ""

    def _prepare(self, sock: socket.socket) -> Address:
        self.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        asked = HealthAddress(self.url, "/healthz") if self.ask else None
        command = [sys.executable, "-c", self.program, str(sock.fileno())]
        gateway = Loop("gateway", command, pass_fds=(sock.fileno(),), limits=SHORT, asked=asked)
        self._loops += [gateway, *self.given]
        return Address(self.url, None)

    @property
    def gateway(self) -> Loop:
        return self._loops[0]


def loop(program: str, name: str = "loop", limits: SilenceLimits = SHORT) -> Loop:
    return Loop(name, [sys.executable, "-c", program], limits=limits)


@asynccontextmanager
async def supervised(supervisor: Supervisor) -> AsyncGenerator[None, None]:
    stop = asyncio.Event()

    async def nothing(_: Address) -> None:
        return None

    running = asyncio.create_task(supervisor.run(nothing, stop))
    try:
        await until(lambda: supervisor._loops or running.done())
        yield
    finally:
        stop.set()
        await asyncio.wait_for(running, 60)
        assert [p for p in psutil.Process().children(recursive=True) if "turnwise" in " ".join(p.cmdline())] == []


async def until(condition: Callable[[], object], limit_s: float = 90) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0.05)


def pid(of: Loop) -> int:
    assert of.process is not None
    return of.process.pid


async def test_a_stopped_loop_is_replaced_while_requests_are_answered(tmp_path: Path) -> None:
    small = Small(tmp_path, loop(LIVING, "judge"))
    async with supervised(small), httpx.AsyncClient(timeout=20) as client:
        judge = small.given[0]
        await until(lambda: judge.state == "running")
        first = pid(judge)
        os.kill(first, signal.SIGSTOP)
        answers = []
        while judge.starts < 2 or judge.state != "running":
            answers.append((await client.get(small.url)).status_code)
            await asyncio.sleep(0.05)
        assert set(answers) == {200}
        assert pid(judge) != first
        assert not psutil.pid_exists(first)
        assert small.gateway.starts == 1
        assert HEARTBEAT in (judge.why or "")
        await until(lambda: read_states(tmp_path)["judge"].restarts == 1)
        assert "restarted 1 time" in read_states(tmp_path)["judge"].said()
    assert not (tmp_path / FILE).exists(), "after a stop nothing is supervised"


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("program", [DEAF_AND_SPINNING, HOLDS_THE_LOCK, STUCK_BESIDE_A_LIVING_THREAD])
async def test_a_loop_that_does_not_get_on_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(module, "TERM_LIMIT_S", 1.0)
    small = Small(tmp_path, loop(program))
    async with supervised(small):
        await until(lambda: small.given[0].last_lines)
        first = pid(small.given[0])
        await until(lambda: small.given[0].starts >= 2)
        assert not psutil.pid_exists(first)
        said = "\n".join(small.given[0].last_words)
        assert "most recent call first" in said, "it showed where it hung"
        if program is HOLDS_THE_LOCK:
            assert "the_pattern_of_exponential_time" in said
        monkeypatch.setattr(module, "STOP_LIMIT_S", 3.0)


async def test_a_loop_that_never_begins_is_replaced(tmp_path: Path) -> None:
    small = Small(tmp_path, loop(NEVER_BEGINS, limits=SilenceLimits(start_s=4.0, silent_s=60.0)))
    async with supervised(small):
        await until(lambda: small.given[0].starts >= 2)


@pytest.mark.slow
@pytest.mark.long
async def test_a_web_server_that_lives_but_does_not_answer_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ASK_EVERY_S", 0.2)
    monkeypatch.setattr(module, "ASK_LIMIT_S", 1.0)
    small = Small(tmp_path, gateway=LIVES_BUT_DOES_NOT_ANSWER, ask=True)
    monkeypatch.setattr(sys.modules[__name__], "SHORT", SilenceLimits(start_s=5.0, silent_s=2.0))
    async with supervised(small):
        await until(lambda: small.gateway.starts >= 2)
        assert ANSWER in (small.gateway.why or "")


@pytest.mark.slow
@pytest.mark.long
async def test_a_web_server_that_is_stopped_is_replaced_and_waiting_requests_are_answered(tmp_path: Path) -> None:
    small = Small(tmp_path, ask=True)
    async with supervised(small), httpx.AsyncClient(timeout=60) as client:
        await until(lambda: small.gateway.state == "running")
        os.kill(pid(small.gateway), signal.SIGSTOP)
        asked = asyncio.create_task(client.get(small.url))
        await until(lambda: small.gateway.starts >= 2)
        with suppress(httpx.HTTPError):  # it was taken by the process that hung: gone with it
            await asked
        assert (await client.get(small.url)).status_code == 200


async def test_what_a_loop_leaves_running_does_not_keep_it_from_starting_again(tmp_path: Path) -> None:
    small = Small(tmp_path, loop(LEAVES_A_CHILD))
    async with supervised(small):
        started = time.monotonic()
        await until(lambda: small.given[0].starts >= 2)
        assert time.monotonic() - started < 55, "the child, which has its output, was not waited for"


KILLED = """
import asyncio, sys
from pathlib import Path
from tests.attacks import test_hanging_loops as t

async def main():
    small = t.Small(Path(sys.argv[1]), t.loop(t.AS_ON_MACOS + t.LIVING), t.loop(t.AS_ON_MACOS + t.DEAF_AND_SPINNING),
                    gateway=t.AS_ON_MACOS + t.GATEWAY_ALIKE)
    small.given[1].limits = t.SilenceLimits(600, 600)
    asyncio.create_task(t.tell(small))
    await small.run(t.tell_nothing, asyncio.Event())

asyncio.run(main())
"""


async def tell_nothing(_: Address) -> None:
    return None


async def tell(small: Small) -> None:
    await until(lambda: all(each.last_lines for each in (small.gateway, *small.given)))
    print(json.dumps([pid(each) for each in (small.gateway, *small.given)]), flush=True)


def test_a_supervisor_that_is_killed_leaves_no_loop_by_the_line_alone(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        cwd=root,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        children = [psutil.Process(pid) for pid in json.loads(process.stdout.readline())]
    finally:
        process.kill()
        process.wait(timeout=20)
    assert len(children) == 3
    assert psutil.wait_procs(children, timeout=20)[1] == []


# -- the limits -------------------------------------------------------------------------------------------------------


def test_silence_counts_from_the_last_sign() -> None:
    watch = Watch(SilenceLimits(start_s=100, silent_s=10), [HEARTBEAT], now=0)
    assert (watch.fault(99), watch.living) == (None, False)
    assert "for 101 s" in (watch.fault(101) or "")
    watch.sign(HEARTBEAT, 101)
    assert (watch.fault(111), watch.living) == (None, True)
    assert watch.fault(112) == f"{HEARTBEAT} for 11 s"


def test_each_kind_of_sign_is_wanted() -> None:
    watch = Watch(SilenceLimits(start_s=10, silent_s=5), [HEARTBEAT, ANSWER], now=0)
    for now in range(0, 20, 2):
        watch.sign(HEARTBEAT, now)
    assert not watch.living
    assert ANSWER in (watch.fault(18) or "")


def test_a_machine_that_slept_is_no_loops_fault() -> None:
    watch = Watch(SilenceLimits(start_s=10, silent_s=5), [HEARTBEAT], now=0)
    watch.sign(HEARTBEAT, 1)
    watch.excuse(3600)
    assert watch.fault(3605) is None
    assert watch.fault(3607) is not None


def test_every_limit_leaves_time_for_honest_work() -> None:
    for limits in (ENGINE, GATEWAY, JUDGE, TRAINER):
        assert limits.silent_s >= 4 * (module.ASK_EVERY_S + module.ASK_LIMIT_S)
        assert limits.start_s >= limits.silent_s


# -- what is said -----------------------------------------------------------------------------------------------------

HUNG = LoopState("hung", restarts=2, recent=2, why=f"{HEARTBEAT} for 61 s", last_words=("where it stood",))


def test_trouble_is_said_by_doctor_and_status(tmp_path: Path) -> None:
    Journal.open(load_config(overrides={"home": tmp_path})).close()
    write_states(tmp_path, os.getpid(), {"judge": HUNG, "trainer": LoopState("running")})
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0
    with FileLock(tmp_path / LOCK):
        [finding] = [f for f in examine(None, tmp_path) if f.check == "judge" and f.level != "ok"]
        shown = CliRunner().invoke(app, ["status", "--home", str(tmp_path)], env={"COLUMNS": "200"}).output
        figures = CliRunner().invoke(app, ["status", "--json", "--home", str(tmp_path)]).output
    assert finding.level == "fault"
    assert all(part in finding.text for part in ("hung", "61 s", "where it stood"))
    assert all(part in shown for part in ("judge process", "hung", "where it stood", "trainer process"))
    assert json.loads(figures)["supervised"]["judge"]["restarts"] == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pid": 1}', '{"pid": "x", "loops": {}}', '{"pid": 1, "loops": 5}'])
def test_a_file_of_states_that_makes_no_sense_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert read_states(tmp_path) == {}


def test_the_states_of_a_dead_supervisor_are_none(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait(timeout=20)
    write_states(tmp_path, gone.pid, {"judge": HUNG})
    assert read_states(tmp_path) == {}


def test_the_states_of_a_dead_supervisor_are_none_although_its_number_is_anothers_now(tmp_path: Path) -> None:
    write_states(tmp_path, os.getpid(), {"judge": HUNG})
    assert read_states(tmp_path) == {}, "no lock was ever made"
    with FileLock(tmp_path / LOCK):
        assert set(read_states(tmp_path)) == {"judge"}
    assert read_states(tmp_path) == {}, "nobody holds it"


def test_what_is_trouble() -> None:
    states = {
        "beginning": LoopState("starting"),
        "again": LoopState("starting", restarts=1, recent=1),
        "fine": LoopState("running", restarts=1, recent=1),
        "often": LoopState("running", restarts=7, recent=3),
        "ended": LoopState("down"),
        "hung": HUNG,
    }
    assert set(troubled(states)) == {"again", "often", "ended", "hung"}


def test_last_words_have_no_secret_and_no_length() -> None:
    (line,) = fit_words(["\x1b[31mthe key tw-secret-key is wrong\x07" + "x" * 5000], ["tw-secret-key", ""])
    assert "secret-key" not in line
    assert line.isprintable()
    assert len(line) <= 300


async def test_a_full_disk_does_not_stop_the_supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_states", full)
    small = Small(tmp_path, loop(LIVING))
    async with supervised(small):
        await until(lambda: small.given[0].state == "running")
        os.kill(pid(small.given[0]), signal.SIGKILL)
        await until(lambda: small.given[0].starts == 2 and small.given[0].state == "running")


# -- the real loops ---------------------------------------------------------------------------------------------------

SERVE = """
import sys
from turnwise.loops import table as loop_table
from turnwise.loops import supervisor
from turnwise.loops import watching
from turnwise.loops.watching import SilenceLimits
for name in ("ENGINE", "GATEWAY", "JUDGE", "TRAINER"):
    setattr(watching, name, SilenceLimits(start_s=120, silent_s=8))
supervisor.ASK_EVERY_S, supervisor.ASK_LIMIT_S, supervisor.TERM_LIMIT_S = 1.0, 3.0, 1.0
real = supervisor.loop_table
PRELUDE = %r + '''
import runpy
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
'''
def table(*given):
    rows = real(*given)
    for row in rows:
        assert row.command[1:3] == ["-P", "-m"]
        row.command[1:3] = ["-c", PRELUDE]
    return rows
supervisor.loop_table = table
from turnwise.cli.main import main
main()
"""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
def test_each_real_loop_that_is_stopped_is_replaced(tmp_path: Path, model_dir: Path) -> None:
    model = make_tiny_model(tmp_path / "model", model_dir)
    settings = {"engine__threads": 1, "train__threads": 1, "train__lora_rank": 2}
    with serving(tmp_path / "home", model, program=SERVE % AS_ON_MACOS, **settings) as server:
        home = server.config.home
        wait_until(lambda: {s.state for s in read_states(home).values()} == {"running"}, 120)
        assert set(read_states(home)) == {"engine", "gateway", "judge", "evolver", "trainer"}
        # the trainer asks no engine: it is not given the key
        holders = {n for n in read_states(home) if "TURNWISE_LOCAL_ENGINE_KEY" in environment_of(server, n)}
        assert holders == {"engine", "gateway", "judge", "evolver"}, "the evolver asks failing turns again"
        for name in ("judge", "trainer"):
            answers = while_it_is_replaced(server, name)
            assert answers, "requests were answered meanwhile"
            assert set(answers) == {200}
        for name in ("engine", "gateway"):
            while_it_is_replaced(server, name)
            assert ask(server) == 200
        ready = httpx.get(f"{server.url}/readyz", timeout=30)
        assert ready.status_code == 200
        children = psutil.Process(server.process.pid).children(recursive=True)
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait(timeout=10)
        assert psutil.wait_procs(children, timeout=20)[1] == []


def environment_of(server: Server, name: str) -> dict[str, str]:
    process = server.loop(name)
    assert process is not None
    return process.environ()


def while_it_is_replaced(server: Server, name: str) -> list[int]:
    """Stop a loop, and wait for another one in its place; gives the statuses of what was asked meanwhile."""
    home, process = server.config.home, server.loop(name)
    assert process is not None
    process.suspend()
    answers: list[int] = []
    over = threading.Event()

    def keep_asking() -> None:
        while not over.is_set():
            with suppress(httpx.HTTPError):
                answers.append(ask(server))
            time.sleep(0.2)

    asking = threading.Thread(target=keep_asking, daemon=True)
    asking.start()
    said: dict[str, Any] = {}

    def replaced() -> bool:
        if name in ("judge", "trainer"):
            said.update(httpx.get(f"{server.url}/readyz", timeout=30).json().get("degraded", {}))
        state = read_states(home).get(name)
        return state is not None and state.restarts == 1 and state.state == "running"

    wait_until(replaced, 120)
    over.set()
    asking.join(timeout=60)
    assert not process.is_running()
    assert HEARTBEAT in (read_states(home)[name].why or "") or ANSWER in (read_states(home)[name].why or "")
    if name in ("judge", "trainer"):
        assert said[name]["restarts"] >= 0
        assert "last_words" not in said[name], "the open route shows no line of a log"
    return answers


def ask(server: Server) -> int:
    body = {"model": "turnwise", "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]}
    return httpx.post(f"{server.url}/v1/chat/completions", json=body, headers=server.auth, timeout=90).status_code
