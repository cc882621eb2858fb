"""A host that is killed again and again, at random moments: each rollout ends once, and nothing of it is left."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.conftest import Running
from tests.environments.test_rollout import needs_box, outcomes, plays, rollouts
from tests.environments.test_terminal import SOLVE
from tests.support.servers import wait_until
from turnwise.environments.rollout import CRASHED
from turnwise.sandbox.choice import clean_up
from turnwise.sandbox.groups import GROUPS
from turnwise.sandbox.leftovers import mounts_below

GROUP = 400
"""Rollouts, of which some are played between two kills."""
MARK = "31.4747"
"""Seconds that a program sleeps which each rollout leaves in the background."""
HOST = """
import os, sys
from contextlib import closing
from pathlib import Path
from tests.environments.test_kills import *
from tests.environments.test_rollout import *
from turnwise.config import load_config
from turnwise.journal import Journal

home, folder, url, agent, person, size = sys.argv[1:]

def actor(play):
    at = f"{url}/s/{play.session}/v1"
    return ModelActor(at, agent, MODEL_NAME, play.headers, KIND.instructions(play.task), KIND.read)

def host_that_plays():
    with closing(Journal.open(load_config(None, {"home": home}))) as journal:
        make = lambda kind, place: TerminalEnvironment(place, limits=LIMITS)
        with closing(Host(journal.environments, make, Path(folder), 3, warm=2)) as host:
            playing = Rollouts(host, journal.environments, GatewayAt(url, agent, person), actor)
            for ended in playing.run(plays(int(size)), 3):
                pass

# All programs are loaded once; each host is a process of its own.
print("ready", flush=True)
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        host_that_plays()
        os._exit(0)
    print(pid, flush=True)
    print(os.waitpid(pid, 0)[1], flush=True)
"""


@needs_box
@pytest.mark.slow
def test_kills_of_a_host_at_six_moments(gateway: Running, tmp_path: Path) -> None:
    kill_and_look(gateway, tmp_path, 6, 3)


@needs_box
@pytest.mark.widest
@pytest.mark.timeout(1200)
def test_kills_of_a_host_at_fifty_moments(gateway: Running, tmp_path: Path) -> None:
    kill_and_look(gateway, tmp_path, 50, random.SystemRandom().randrange(1 << 32))


def kill_and_look(gateway: Running, tmp_path: Path, kills: int, seed: int) -> None:
    print(f"seed {seed}")
    moments, at, leases = random.Random(seed), tmp_path / "at", gateway.journal.environments
    gateway.stub.reply = lambda prompt: (
        "```bash\nsubmit\n```" if "(exit status 0)" in prompt else f"```bash\n(setsid sleep {MARK} &); {SOLVE}\n```"
    )
    person = gateway.person["Authorization"].removeprefix("Bearer ")
    given = [str(gateway.config.home), str(at), gateway.url, gateway.token, person, str(GROUP)]
    command, root = [sys.executable, "-c", HOST, *given], Path(__file__).parents[2]
    known: dict[str, tuple[float | None, str | None]] = {}
    pids: list[int] = []
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as hosts,
        contextlib.ExitStack() as at_the_end,
    ):
        at_the_end.callback(hosts.kill)
        at_the_end.callback(lambda: pids and psutil.pid_exists(pids[-1]) and os.kill(pids[-1], signal.SIGKILL))
        assert hosts.stdin is not None and hosts.stdout is not None and hosts.stdout.readline() == "ready\n"
        longest = 0.0
        for kill in range(kills):
            started = time.monotonic()
            print("go", file=hosts.stdin, flush=True)
            pids.append(int(hosts.stdout.readline()))
            if kill == 0:  # how long one takes for its first rollouts, here and now
                wait_until(lambda: sum(row.state == "posted" for row in leases.of_run("r")) >= 3, limit_s=120)
                longest = time.monotonic() - started
            else:
                time.sleep(moments.uniform(0.0, longest))
            os.kill(pids[-1], signal.SIGKILL)
            assert hosts.stdout.readline() == f"{int(signal.SIGKILL)}\n", "it was killed, and had not ended"
            # As the time limit of its leases would.
            with gateway.journal.store.transaction() as c:
                c.exec_driver_sql("UPDATE environment_leases SET until_mono = 0")
            for row in leases.of_run("r"):
                if row.state != "leased":
                    before = known.setdefault(row.session_id, (row.reward, row.failure))
                    assert before == (row.reward, row.failure), "what was written of a rollout stays"
        hosts.stdin.close()
    clean_up(at)
    assert mounts_below(at) == [] and list(at.iterdir()) == []
    assert [path for pid in pids for path in GROUPS.rglob(f"turnwise-*-{pid}-*")] == []
    sleepers = [p.pid for p in psutil.process_iter(["cmdline"]) if MARK in (p.info["cmdline"] or ())]
    assert sleepers == []

    begun = plays(GROUP)[: len(leases.of_run("r")) + 3]
    ended = {each.play.name: each for each in rollouts(gateway, at).run(begun, 3)}
    posted, rows = outcomes(gateway), leases.of_run("r")
    assert {row.state for row in rows} == {"posted"} and len(rows) == len(begun) == len(ended)
    assert list(at.iterdir()) == []
    for row in rows:
        assert (row.reward, row.failure) in ((1.0, None), (None, CRASHED)), "no reward for a failure of the machine"
        tries = [posted[name] for name in posted if name.split("@")[0] == row.session_id]
        counted = [reward for reward, _ in tries if reward is not None]
        assert counted == [row.reward] * (row.reward is not None), "and the gateway has it once, as it was written"
        assert known.get(row.session_id, (row.reward, row.failure)) == (row.reward, row.failure)
    crashed = sum(row.failure is not None for row in rows)
    again = sum("@" in name for name in posted)
    print(f"{kills} kills, {len(rows)} rollouts, {again} tries of them once more, {crashed} masked")
    assert len(rows) > crashed and (again or kills < 50)
