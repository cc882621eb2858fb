"""Plays the demo of the terminal: an examination, a warm start on solutions, rounds of GRPO, and examinations again.

The server is `turnwise serve` in a fresh home. Fine-tuning and training are asked for with the commands that a person
would use.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout
from rich.console import Console
from rich.table import Table

from turnwise.config import load_config
from turnwise.demo.progress import Stages
from turnwise.demo.server import running_server, termination_unwinds
from turnwise.demo.terminal import recipe, report
from turnwise.demo.terminal.exam import Advance, Stage, command
from turnwise.demo.terminal.figures import TerminalExam, round_played
from turnwise.environments.base import Task
from turnwise.environments.transcript import Form
from turnwise.errors import ConfigError, TurnwiseError
from turnwise.journal import Journal
from turnwise.models import resolve_model
from turnwise.models.folders import model_named
from turnwise.sandbox.choice import Sandboxes

SFT_LIMIT_S, TRAIN_LIMIT_S = 3600.0, 1800.0
Name = Literal["base", "sft", "rl", "control"]
EXPECTED_S = {"examination: base": 60.0, "solutions": 10.0, "fine-tuning": 180.0, "examination: sft": 60.0}
EXPECTED_S |= {"rounds of GRPO": 330.0, "examination: rl": 60.0, "examination: control": 60.0}


def run_terminal_demo(
    out: Path, model: str, seed: int, quick: bool, rounds: int | None, console: Console
) -> report.TerminalReport:
    """Play it all and write its files into ``out``. Raises TurnwiseError."""
    Sandboxes().check()
    resolve_model(model)  # says what to do when the model is missing, before anything is started
    scale = recipe.QUICK if quick else recipe.WHOLE
    out.mkdir(parents=True, exist_ok=True)
    home = (out / "home").absolute()
    found = report.TerminalReport(model, seed)
    try:
        with termination_unwinds(), FileLock(out / ".lock", timeout=0), Stages(console, EXPECTED_S) as stages:
            shutil.rmtree(home, ignore_errors=True)  # of an earlier demo in this folder; the lock says it has ended
            told = recipe.settings(scale, seed) | {"model": {"path": model}}
            with running_server(home, told) as server:
                config = load_config(None, {"home": home})
                with (
                    closing(Journal.open(config)) as journal,
                    closing(Stage(config, journal, server, _form(model))) as stage,
                ):
                    _TerminalRun(stage, stages, scale, found, out, home).play(rounds)
    except Timeout:
        raise ConfigError(f"another demo is writing into {out}; give --out another folder") from None
    table = Table(*report.HEADINGS, title="share of tasks solved, 95 % intervals")
    for row in report.rows(found):
        table.add_row(*row)
    console.print(table)
    for name, parts in found.changes().items():
        if (by := parts["sampled"]) is not None:
            low, high = by.ci95
            console.print(f"{name}: {by.mean:+.2f} ({low:+.2f} to {high:+.2f})", highlight=False)
    console.print(f"Written to {out}: report.md, report.json, curve.png, episodes.jsonl", highlight=False)
    return found


def _form(model: str) -> Form:
    known = model_named(model)
    return "blocks" if known is not None and not known.tools else "calls"


class _TerminalRun:
    """One demo at its server."""

    def __init__(
        self,
        stage: Stage,
        stages: Stages,
        scale: recipe.TerminalScale,
        found: report.TerminalReport,
        out: Path,
        home: Path,
    ) -> None:
        self._stage, self._stages, self._scale = stage, stages, scale
        self._found, self._out, self._home = found, out, home

    def play(self, rounds: int | None) -> None:
        self._examine("base", "turnwise@base")
        self._warm_start()
        warm = self._stage.version()
        self._examine("sft", f"turnwise@v{warm}")
        self._rounds(rounds)
        self._examine("rl", f"turnwise@v{self._stage.version()}")
        self._examine("control", f"turnwise@v{warm}")

    @contextlib.contextmanager
    def _timed(self, name: str, total: int = 1) -> Iterator[Advance]:
        """A stage; what is known after it is written."""
        started = time.monotonic()
        with self._stages.stage(name, total) as advance:
            yield advance
        self._found.seconds[name] = round(time.monotonic() - started, 1)
        report.write(self._found, self._out)

    def _examine(self, name: Name, model: str) -> None:
        scale, seed = self._scale, self._found.seed
        known = recipe.tasks_for(recipe.SEEN, recipe.FIRST_EXAMINED, scale.examined, seed)
        unseen = recipe.tasks_for(recipe.UNSEEN, recipe.FIRST_EXAMINED, scale.unseen, seed)
        exam = TerminalExam(name, model.removeprefix("turnwise@"))
        self._found.exams.append(exam)
        at = 1_000_000 * (1 + len(self._found.exams)) + 10_000 * seed
        # A model that knows nothing of blocks and commands says much and solves next to nothing: one try will do.
        samples = 1 if name == "base" else scale.samples
        parts = [("sampled", known, samples), ("greedy", known, 1), ("unseen", unseen, samples)]
        parts = [part for part in parts if name != "base" or part[0] != "greedy"]
        with self._timed(f"examination: {name}", sum(len(tasks) * samples for _, tasks, samples in parts)) as advance:
            for part, tasks, samples in parts:
                exam.parts[part].extend(
                    self._stage.examine(
                        tasks, samples, name=f"{name}-{part}", seed=at, model=model, greedy=part == "greedy",
                        advance=advance,
                    )
                )  # fmt: skip

    def _warm_start(self) -> None:
        solutions = self._out / "solutions.jsonl"
        with self._timed("solutions"):
            tasks = recipe.tasks_for(recipe.SEEN, recipe.FIRST_SHOWN, self._scale.shown, self._found.seed)
            self._found.solutions = self._stage.solutions(tasks, solutions)
        log = self._out / "sft.log"
        told = ["--epochs", str(recipe.SFT_EPOCHS), "--lr", str(recipe.SFT_LR)]
        told += ["--batch-tokens", str(recipe.SFT_TOKENS), "--eval-share", "0"]
        with self._timed("fine-tuning"):
            if command(self._home, "sft", str(solutions.absolute()), *told, limit_s=SFT_LIMIT_S, log=log):
                raise TurnwiseError(f"the fine-tuning failed; see {log}")

    def _rounds(self, most: int | None) -> None:
        scale, found = self._scale, self._found
        number, limit = most or scale.rounds, None if most else scale.rounds_s
        tasks = recipe.tasks_for(recipe.SEEN, recipe.FIRST_TRIED, number * scale.tasks, found.seed)
        begun = time.monotonic()
        with self._timed("rounds of GRPO", number * scale.tasks * scale.group) as advance:
            for index in range(number):
                spent = time.monotonic() - begun
                if limit is not None and index and spent + spent / index > limit:
                    found.notes.append(
                        f"{index} of {number} rounds were played in the {limit:.0f} s that they may take."
                    )
                    break
                self._round(index + 1, tasks[index * scale.tasks : (index + 1) * scale.tasks], advance)

    def _round(self, number: int, tasks: list[Task], advance: Advance) -> None:
        begun = time.monotonic()
        episodes = self._stage.round(tasks, self._scale.group, name=f"round-{number}", advance=advance)
        # Groups that are all solved or all failed teach nothing: where there are no others, nothing is trained.
        log = self._out / "train.log"
        if command(self._home, "train", "now", "--wait", "--limit-min", "30", limit_s=TRAIN_LIMIT_S, log=log):
            self._found.notes.append(f"After round {number} nothing was trained; {log.name} says why.")
        played = round_played(number, episodes, self._stage.version(), time.monotonic() - begun)
        if played is not None:
            self._found.rounds.append(played)
        report.write(self._found, self._out)
