"""`kill -9` of rollout, gateway, judge and trainer at any moment: no lease stays, no outcome is lost or counted twice,
and what failed for the machine's sake has no reward. The journal is the witness."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.environments.test_terminal import HOLDS
from tests.support.models import make_tiny_model
from tests.support.processes import Server, serving
from tests.support.servers import wait_until
from turnwise.journal.packing import unpack_json

GROUP = 2
# The tiny model says nothing that is a command: the tasks that are solved as they stand have a reward, and no other.
TASKS = [
    {"id": "solved", "prompt": "Leave a.txt as it is.", "files": {"a.txt": "a\n"}, "expect": {"a.txt": "a"}},
    {"id": "open", "prompt": "Make b.txt.", "files": {"a.txt": "a\n"}, "expect": {"b.txt": "b"}},
]
SETTINGS: dict[str, object] = {
    "streams__terminal__groups": 1,
    "streams__terminal__max_tokens": 8,
    "streams__terminal__cut_off": "score",
    "train__lease_s": 1.5,
    "judge__lease_s": 1.5,
    "train__lora_rank": 2,
    "gate__enabled": False,
    "train__max_staleness": 1000,
    "engine__threads": 1,
    "train__threads": 1,
}
VICTIMS = ["rollout", "rollout", "gateway", "judge", "trainer"]


class Player:
    """Runs of `turnwise rollout`, one after the other; each goes on until all of it is done."""

    def __init__(self, server: Server, tasks: Path) -> None:
        self.server, self.tasks = server, tasks
        self.run, self.done = 0, 0
        self.process: subprocess.Popen[bytes] | None = None

    def look(self) -> None:
        """Begin the next run where the last one is done, or go on with it where it is not."""
        if self.process is not None and self.process.poll() is None:
            return
        if self.process is not None and self.process.returncode == 0:
            self.done += 1
            self.run += 1
        with contextlib.closing(self.server.journal()) as journal, journal.store.transaction() as c:
            c.exec_driver_sql("UPDATE environment_leases SET until_mono = 0")  # as time does; its holder is dead
        words = ["rollout", str(self.tasks), "--group", str(GROUP), "--parallel", "2", "--run", f"r{self.run}"]
        command = [sys.executable, "-m", "turnwise", *words, "--home", str(self.server.config.home)]
        with (self.server.config.home / "rollout.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> bool:
        if self.process is None or self.process.poll() is not None:
            return False
        self.process.kill()
        self.process.wait(20)
        return True


def kill(server: Server, player: Player, name: str) -> bool:
    if name == "rollout":
        return player.kill()
    if (process := server.loop(name)) is None:
        return False
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
        return True
    return False


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(not HOLDS, reason="no bubblewrap here (make sandbox)")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kills", [6, pytest.param(50, marks=pytest.mark.widest)])
def test_what_is_killed_costs_no_outcome_and_no_lease(tmp_path: Path, model_dir: Path, kills: int) -> None:
    seed = 20261124
    rng = random.Random(f"{seed}/{kills}")
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(f"{json.dumps(task)}\n" for task in TASKS))
    killed: Counter[str] = Counter()
    with serving(tmp_path / "home", make_tiny_model(tmp_path / "model", model_dir), **SETTINGS) as server:
        player = Player(server, tasks)
        deadline = time.monotonic() + 900
        while sum(killed.values()) < kills:
            assert time.monotonic() < deadline, f"only {killed}"
            player.look()
            time.sleep(rng.uniform(0.2, 4.0))
            name = rng.choice(VICTIMS)
            killed[name] += kill(server, player, name)
        last = player.run
        while player.run == last:  # the run that was under way comes to its end
            assert time.monotonic() < deadline, (server.config.home / "rollout.log").read_text()[-2000:]
            player.look()
            time.sleep(0.2)
        player.kill()
        player.look()
        assert player.process is not None and player.process.wait(240) == 0
        wait_until(lambda: server.status()["batches"].get("open", 0) == 0, 120)
        told = witness(server, player.run + 1)
    print(f"\nseed {seed}: killed {dict(killed)} in {player.run + 1} runs; {told}")


def witness(server: Server, runs: int) -> str:
    home = server.config.home
    with contextlib.closing(server.journal()) as journal, journal.store.reading() as c:

        def rows(query: str) -> list[Any]:
            return list(c.exec_driver_sql(query).all())

        leases = rows("SELECT session_id, state, reward, failure, details FROM environment_leases")
        played = {row.session_id: row for row in rows("SELECT * FROM trajectories")}
        groups = {row.id: row for row in rows("SELECT * FROM task_groups")}
        turns = rows("SELECT t.id, t.session_id, t.state FROM turns t")
        batches = rows("SELECT turn_ids, state FROM batches")
    assert len(leases) == runs * len(TASKS) * GROUP
    assert {row.state for row in leases} == {"posted"}, "no lease is open"
    assert list((home / "environments").iterdir()) == [], "no folder is left"
    trained = Counter(turn for row in batches if row.state == "done" for turn in unpack_json(row.turn_ids))
    assert all(times == 1 for times in trained.values()), "nothing is trained twice"
    sessions = {row.id: row.session_id for row in turns}
    for row in leases:
        tries = {name: each for name, each in played.items() if name.split("@")[0] == row.session_id}
        counted = [each for each in tries.values() if each.outcome is not None]
        assert len(counted) <= 1, "an outcome counts once"
        if row.reward is not None:
            assert [each.outcome for each in counted] == [row.reward], "no outcome is lost"
            assert row.reward == float(".solved." in row.session_id), "and it is the verifier's"
        else:
            assert row.failure and not counted, "what failed has no reward"
        assert all(each.ended_at is not None for each in tries.values())
    masked = {name for name, each in played.items() if each.outcome is None}
    assert not [turn for turn in trained if sessions[turn] in masked], "nothing of what failed is trained on"
    for name, group in groups.items():
        mine = [each for each in played.values() if each.group_id == name]
        assert len(mine) == group.size and group.state != "open", name
    rewards = [row.reward for row in leases if row.reward is not None]
    again = sum("@" in name for name in played)
    assert rewards and trained, "else nothing is shown by it"
    return f"{len(rewards)} rewards, {len(masked)} masked, {again} played again, {len(trained)} steps trained"
