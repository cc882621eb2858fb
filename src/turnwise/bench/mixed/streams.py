"""The streams beside the person: small tasks of each, and a warm start on how they are solved.

All of it is asked for with the commands that a person would use. Without the warm start the small model solves none of
its tasks, so that all of a group end alike and nothing can be learned of them.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from turnwise.errors import TurnwiseError

STREAMS: dict[str, Sequence[str]] = {
    "terminal": ("--families", "append-line,replace-word,count-matching,sort-lines"),
    "tools": ("--families", "syllogism,ransom_note,isomorphic_strings,course_schedule", "--no-python"),
    "web": ("--pages", "click-test,click-button,click-link,focus-text"),
}
"""What `turnwise tasks STREAM` is told."""
SOLVED: dict[str, Sequence[str]] = {"web": ("--record",)}
"""And beside it for tasks whose solutions are shown: how a page is solved depends on where things stand on it."""
SHOWN, TRIED, FIRST_LAST = "1000-1004", "0-19", 100
"""Seeds of the tasks whose solutions are shown, of those that are tried beside the person, and of those behind it,
run by run."""
COMMAND_S = 900.0
SETTINGS: dict[str, object] = {
    "method": "grpo",
    "beta_kl": 0.0,
    "groups": 4,
    "group_size": 4,
    "max_steps": 2,
    "max_tokens": 48,
    "temperature": 1.0,
    "cut_off": "score",
    "dynamic_sampling": True,
}
"""Of each stream: its outcomes alone are learned from, of groups whose rollouts did not all end alike."""


def written_tasks(folder: Path, seeds: str, rng: random.Random) -> Path:
    """A file with the tasks of all streams with these seeds, mixed. Raises TurnwiseError."""
    lines = [line for stream in STREAMS for line in _made(stream, seeds, folder)]
    rng.shuffle(lines)
    file = folder / f"tasks-{seeds}.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file


def warm_start(home: Path, folder: Path) -> int:
    """Fine-tune on solutions of other tasks of the same kinds; gives how many there were. Raises TurnwiseError."""
    shown, solutions = folder / "shown.jsonl", folder / "solutions.jsonl"
    lines = [line for stream in STREAMS for line in _made(stream, SHOWN, folder, SOLVED.get(stream, ()))]
    shown.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    oracle = ["--agent", "oracle", "--group", "1", "--parallel", "2", "--form", "blocks", "--record", str(solutions)]
    command("rollout", str(shown), *oracle, home=home)
    told = ["--epochs", "3", "--lr", "5e-4", "--batch-tokens", "256", "--eval-share", "0"]
    command("sft", str(solutions), *told, home=home)
    return solutions.read_text(encoding="utf-8").count("\n")


def _made(stream: str, seeds: str, folder: Path, more: Sequence[str] = ()) -> list[str]:
    """The tasks of a stream with these seeds, their names told apart from those of the other streams."""
    file = folder / f"{stream}.jsonl"
    command("tasks", stream, *STREAMS[stream], *more, "--seeds", seeds, "--out", str(file))
    tasks = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [json.dumps(task | {"id": f"{stream}-{task['id']}"}) for task in tasks]


def command(*words: str, home: Path | None = None) -> str:
    """What a command of turnwise said. Raises TurnwiseError where it failed or was not done in time."""
    asked = [sys.executable, "-P", "-m", "turnwise", *words, *(("--home", str(home)) if home is not None else ())]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=COMMAND_S)
    except subprocess.TimeoutExpired:
        raise TurnwiseError(f"`turnwise {words[0]}` was not done within {COMMAND_S:.0f} s") from None
    if done.returncode:
        raise TurnwiseError(f"`turnwise {words[0]}` failed: {done.stderr.strip()[-500:]}")
    return done.stdout
