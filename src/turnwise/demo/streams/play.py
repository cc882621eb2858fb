"""Plays the demo of a stream: an examination, a warm start on solutions, rounds of GRPO, and examinations again.

The server is `turnwise serve` in a home of its own. Fine-tuning and training are asked for with the commands that a
person would use. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout
from rich.console import Console
from rich.table import Table

from turnwise.config import load_config
from turnwise.demo.progress import Stages
from turnwise.demo.server import running_server, termination_unwinds
from turnwise.demo.streams import report
from turnwise.demo.streams.exam import Advance, Stage, command
from turnwise.demo.streams.figures import StreamExam, round_played
from turnwise.demo.streams.recipe import (
    AS_IT_IS,
    FIRST_EXAMINED,
    FIRST_SHOWN,
    FIRST_TRIED,
    StreamRecipe,
    StreamScale,
    Switches,
)
from turnwise.environments.base import Task
from turnwise.environments.transcript import Form
from turnwise.errors import ConfigError, TurnwiseError
from turnwise.journal import Journal
from turnwise.models import resolve_model
from turnwise.models.folders import model_named

SFT_LIMIT_S, TRAIN_LIMIT_MIN = 4 * 3600.0, 120
"""Longest wait for the fine-tuning and for one update: pages of real sites are many tokens for few cores."""
Name = Literal["base", "sft", "rl", "control"]
EXPECTED_S = {"examination: base": 60.0, "solutions": 10.0, "fine-tuning": 180.0, "examination: sft": 60.0}
EXPECTED_S |= {"examination: rl": 60.0, "examination: control": 60.0}


@dataclass(frozen=True, slots=True)
class StreamPlay:
    """How a demo is played. ``rounds``: exactly so many. ``go_on``: a run in ``out`` that was stopped goes on."""

    out: Path
    model: str
    seed: int
    quick: bool = False
    rounds: int | None = None
    switches: Switches = AS_IT_IS
    go_on: bool = False


def run_stream_demo(recipe: StreamRecipe, options: StreamPlay, console: Console) -> report.StreamReport:
    """Play it all and write its files into the folder. Raises TurnwiseError."""
    recipe.check_switches(options.switches)
    recipe.check()
    model, out = options.model, options.out
    resolve_model(model)  # says what to do when the model is missing, before anything is started
    scale = recipe.quick if options.quick else recipe.whole
    out.mkdir(parents=True, exist_ok=True)
    home = (out / "home").absolute()
    expected = EXPECTED_S | {"rounds of GRPO": scale.rounds_s}
    try:
        with (
            termination_unwinds(),
            FileLock(out / ".lock", timeout=0),
            Stages(console, expected) as stages,
        ):
            found = report.StreamReport(recipe, model, options.seed, scale, options.switches)
            if options.go_on:
                found.take_up(out)
            elif report.was_stopped(out):
                raise ConfigError(
                    f"{out} holds a stream's run that was stopped before its end; --go-on goes on with it. To begin "
                    "another, give --out another folder, or delete this one"
                )
            else:
                shutil.rmtree(home, ignore_errors=True)  # of an earlier demo in this folder, which has ended: the lock
            told = recipe.settings(scale, options.seed, options.switches) | {"model": {"path": model}}
            with recipe.around(home), running_server(home, told) as server:
                config = load_config(None, {"home": home})
                with (
                    closing(Journal.open(config)) as journal,
                    closing(Stage(recipe, home, journal, server, _form(model))) as stage,
                ):
                    _StreamRun(recipe, stage, stages, scale, found, out, home).play(options.rounds)
    except Timeout:
        raise ConfigError(f"another demo is writing into {out}; give --out another folder") from None
    table = Table(*report.headings(recipe), title="share of tasks solved, 95 % intervals")
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


class _StreamRun:
    """One demo at its server. What an earlier run of it has done already is not done again."""

    def __init__(
        self,
        recipe: StreamRecipe,
        stage: Stage,
        stages: Stages,
        scale: StreamScale,
        found: report.StreamReport,
        out: Path,
        home: Path,
    ) -> None:
        self._recipe, self._stage, self._stages, self._scale = recipe, stage, stages, scale
        self._found, self._out, self._home = found, out, home

    def play(self, rounds: int | None) -> None:
        self._examine("base", "turnwise@base")
        if self._found.switches.sft_epochs != 0:
            self._warm_start()
            self._examine("sft", f"turnwise@{self._found.warm}")
        self._rounds(rounds)
        self._examine("rl", f"turnwise@v{self._stage.version()}")
        self._examine("control", f"turnwise@{self._found.warm}")

    @contextlib.contextmanager
    def _timed(self, name: str, total: int = 1) -> Iterator[Advance]:
        """A stage; what is known after it is written."""
        started = time.monotonic()
        with self._stages.stage(name, total) as advance:
            yield advance
        self._found.seconds[name] = round(time.monotonic() - started + self._found.seconds.get(name, 0.0), 1)
        report.write(self._found, self._out)

    def _examine(self, name: Name, model: str) -> None:
        if self._found.exam(name) is not None:
            return
        recipe, scale, seed = self._recipe, self._scale, self._found.seed
        # A model that knows nothing of blocks and commands says much and solves next to nothing: few tries will do.
        most = scale.before if name == "base" else max(scale.examined, scale.unseen)
        known = recipe.tasks_for(recipe.seen, FIRST_EXAMINED, min(scale.examined, most), seed)
        unseen = recipe.tasks_for(recipe.unseen, FIRST_EXAMINED, min(scale.unseen, most), seed)
        exam = StreamExam(name, model.removeprefix("turnwise@"))
        at = 1_000_000 * (2 + len(self._found.exams)) + 10_000 * seed
        samples = 1 if name == "base" else scale.samples
        parts = [("sampled", known, samples), ("greedy", known, 1), ("unseen", unseen, samples)]
        parts = [part for part in parts if name != "base" or part[0] != "greedy"]
        self._stage.most_steps = max(self._found.switches.steps or (recipe.most_steps,))
        with self._timed(f"examination: {name}", sum(len(tasks) * samples for _, tasks, samples in parts)) as advance:
            for part, tasks, samples in parts:
                exam.parts[part].extend(
                    self._stage.examine(
                        tasks, samples, name=f"{name}-{part}", seed=at, model=model, greedy=part == "greedy",
                        advance=advance,
                    )
                )  # fmt: skip
            self._found.exams.append(exam)

    def _warm_start(self) -> None:
        if self._found.warm != "base":
            return
        recipe, solutions = self._recipe, self._out / "solutions.jsonl"
        kept = bool(self._found.solutions) and solutions.is_file()
        if not kept:  # else a run that was stopped wrote them
            with self._timed("solutions"):
                tasks = recipe.tasks_for(recipe.seen, FIRST_SHOWN, self._scale.shown, self._found.seed)
                self._found.solutions = self._stage.solutions(tasks, solutions)
        elif published := self._stage.version():  # of this home's versions the fine-tuning's is the first
            self._found.warm = f"v{published}"
            return
        log = self._out / "sft.log"
        told = ["--epochs", str(self._found.switches.sft_epochs or recipe.sft_epochs), "--lr", str(recipe.sft_lr)]
        told += ["--batch-tokens", str(recipe.sft_tokens), "--eval-share", "0"]
        told += [] if kept else ["--anew"]  # one that a run that was stopped began was of other solutions
        with self._timed("fine-tuning"):
            if command(self._home, "sft", str(solutions.absolute()), *told, limit_s=SFT_LIMIT_S, log=log):
                raise TurnwiseError(f"the fine-tuning failed; see {log}")
            self._found.warm = f"v{self._stage.version()}"

    def _rounds(self, most: int | None) -> None:
        scale, found = self._scale, self._found
        number, limit = most or scale.rounds, None if most else scale.rounds_s
        per_family = -(-number * scale.tasks // len(self._recipe.seen))
        tasks = self._recipe.tasks_for(self._recipe.seen, FIRST_TRIED, per_family, found.seed)
        if found.played >= number:
            return
        begun, here = time.monotonic(), found.played
        with self._timed("rounds of GRPO", (number - here) * scale.tasks * scale.group) as advance:
            for index in range(here, number):
                spent, done = time.monotonic() - begun, index - here
                if limit is not None and done and spent + spent / done > limit:
                    found.notes.append(
                        f"{index} of {number} rounds were played in the {limit:.0f} s that they may take."
                    )
                    break
                self._stage.most_steps = found.switches.steps_of(self._recipe, index, number)
                self._round(index + 1, tasks[index * scale.tasks : (index + 1) * scale.tasks], advance)

    def _round(self, number: int, tasks: list[Task], advance: Advance) -> None:
        begun = time.monotonic()
        episodes = self._stage.round(tasks, self._scale.group, name=f"round-{number}", advance=advance)
        played_s = time.monotonic() - begun
        # Groups that are all solved or all failed teach nothing: where there are no others, nothing is trained.
        log, told_s = self._out / "train.log", TRAIN_LIMIT_MIN * 60 + 300
        if command(self._home, "train", "now", "--wait", "--limit-min", str(TRAIN_LIMIT_MIN), limit_s=told_s, log=log):
            self._found.notes.append(f"After round {number} nothing was trained; {log.name} says why.")
        version = self._stage.version()
        played = round_played(number, episodes, version, played_s, time.monotonic() - begun)
        if played is not None:
            self._found.rounds.append(played)
        self._found.played = number
        report.write(self._found, self._out)
