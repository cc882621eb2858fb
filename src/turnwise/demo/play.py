"""The demo: a person uses the agent, the agent learns, and the same examination is taken before and after.

`run_demo` starts the real server twice (learning off as the control arm, then learning on), talks to it by HTTP like
any client, and writes report.json, report.md, curve.png and what was said. It reaches into nothing of the server.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import openai
from filelock import FileLock, Timeout
from rich.console import Console

from turnwise.config import TrainConfig
from turnwise.demo import arms, plot, report, stats
from turnwise.demo.coherence import ScoredText, mean_nll, with_wish
from turnwise.demo.heard import Heard, heard_in
from turnwise.demo.personas import PERSONAS, Persona
from turnwise.demo.problems import everyday_problems, load_problems
from turnwise.demo.progress import Stages
from turnwise.demo.report import Point, Report
from turnwise.demo.server import Server, ServerError, running_server, termination_unwinds
from turnwise.demo.talk import Conversation, DemoAnswer, Talk, Writer
from turnwise.errors import ConfigError
from turnwise.models import EMBEDDED, resolve_model

HEARD_SESSIONS = 8
"""Conversations of which the report shows what became of the person's words."""

LEARNING_S = 480.0
"""Of the conversations that are learned from, where their number is not given: the demo is to end within 15 minutes."""
SIMULATOR_KEY_ENV = "TURNWISE_SIMULATOR_API_KEY"

BASE, WISHED, CONTROL_TALK = "examination before", "base model told the wish", "control: conversations, learning off"
CONTROL, LEARNING, FINAL = "control: examination", "conversations, learning on", "examination after"
LANGUAGE = "language of the answers"


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What to play. ``url`` and ``token`` play against a server that runs already, instead of starting one."""

    persona: str = "reader"
    method: str = "combined"
    interactions: int | None = None
    seed: int = 0
    out: Path = Path("demo-out")
    quick: bool = False
    problems: Path | None = None
    simulator_url: str | None = None
    simulator_model: str | None = None
    url: str | None = None
    token: str | None = None
    model: str = EMBEDDED


@dataclass(frozen=True, slots=True)
class _Scale:
    """How large a run is. ``control``: conversations of the control arm."""

    interactions: int
    control: int
    held_out: int
    max_tokens: int
    wave: int


@dataclass(slots=True)
class _Played:
    """What the arms gave: answers to the held-out problems, the curve, and what went wrong."""

    base: list[DemoAnswer] = field(default_factory=list)
    wished: list[DemoAnswer] = field(default_factory=list)
    control: list[DemoAnswer] = field(default_factory=list)
    final: list[DemoAnswer] = field(default_factory=list)
    curve: list[Point] = field(default_factory=list)
    conversations: list[Conversation] = field(default_factory=list)
    failed_requests: int = 0
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    heard: list[Heard] = field(default_factory=list)
    versions_published: int = 0


def run_demo(options: DemoOptions, console: Console | None = None) -> Report:
    """Play the demo and write its results into ``options.out``; the caller exits with 1 when there are `Report.faults`.

    Raises TurnwiseError when a phase cannot be run at all: bad options, no model, a server that does not start.
    """
    console = console or Console()
    run = _Run(options, *_checked(options))
    options.out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    try:
        with (
            termination_unwinds(),
            FileLock(options.out / ".lock", timeout=0),
            Stages(console, run.expected_s()) as stages,
        ):
            asyncio.run(run.play(stages))
            with stages.stage(LANGUAGE):
                result = run.report(started)
    except Timeout:
        raise ConfigError(f"another demo is writing into {options.out}; give --out another folder") from None
    report.write(result, options.out)
    plot.draw(result, options.out / "curve.png")
    report.print_table(result, console)
    console.print(f"Written to {options.out}: report.json, report.md, curve.png, conversations.jsonl", highlight=False)
    return result


def _checked(options: DemoOptions) -> tuple[Persona, _Scale]:
    """The persona and the size of the run. Raises ConfigError for options that contradict each other."""
    if options.persona not in PERSONAS:
        raise ConfigError(f"no persona {options.persona!r}; there are {', '.join(PERSONAS)}")
    if bool(options.simulator_url) != bool(options.simulator_model):
        raise ConfigError("--simulator-url and --simulator-model go together")
    if options.url and not options.token:
        raise ConfigError("--url needs the server's admin --token (`turnwise token admin` prints it there)")
    if options.interactions is not None and options.interactions < 1:
        raise ConfigError(f"--interactions must be at least 1, not {options.interactions}")
    persona = PERSONAS[options.persona]
    resolve_model(options.model)  # says what to do when the model is missing, before anything is started
    if persona.everyday and options.problems:
        raise ConfigError(
            f"the {persona.name} asks everyday questions; --problems goes with --persona student or teacher"
        )
    if options.quick:
        count = options.interactions or persona.wave
        tokens = min(80, persona.max_tokens)
        return persona, _Scale(count, control=min(4, count), held_out=8, max_tokens=tokens, wave=persona.wave)
    count = options.interactions or persona.interactions
    return persona, _Scale(count, count, persona.held_out, persona.max_tokens, persona.wave)


class _Run:
    """One demo: its options, its problems, and what has been played of it so far."""

    def __init__(self, options: DemoOptions, persona: Persona, scale: _Scale) -> None:
        self.options = options
        self.persona = persona
        self.scale = scale
        if persona.everyday:
            self.problems = everyday_problems(scale.interactions, scale.held_out, seed=options.seed)
        else:
            self.problems = load_problems(
                scale.interactions,
                scale.held_out,
                seed=options.seed,
                file=options.problems,
                pupils=persona.name == "teacher",
            )
        self.played = _Played()
        # The same sampling seeds before and after would hide the noise of sampling, so after has its own.
        self.before, self.after = 10_000 * options.seed, 10_000 * options.seed + 5_000

    async def play(self, stages: Stages) -> None:
        """Both arms, one server after the other; with ``url`` the running server, whose base model is the control."""
        async with AsyncExitStack() as stack:
            writer = await _writer(self.options, stack)
            if self.options.url:
                server = Server(self.options.url.rstrip("/"), self.options.token or "", self.options.token or "")
                async with self._talk(server, writer) as talk:
                    await self._control_arm(talk, stages, model="turnwise@base")
                    await self._learning_arm(talk, stages)
                return
            with self._server("control", learning=False) as server:
                async with self._talk(server, writer) as talk:
                    await self._control_arm(talk, stages, model="turnwise")
            with self._server("learning", learning=True) as server:
                async with self._talk(server, writer) as talk:
                    await self._learning_arm(talk, stages)

    async def _control_arm(self, talk: Talk, stages: Stages, *, model: str) -> None:
        played, held_out = self.played, self.problems.held_out
        with stages.stage(BASE, len(held_out)) as advance:
            played.base = await arms.evaluate(talk, held_out, advance, stage="base", seed=self.before, model=model)
        with stages.stage(WISHED, len(held_out)) as advance:
            played.wished = await arms.evaluate(
                talk, held_out, advance, stage="wished", seed=self.before, model=model, wish=self.persona.wish
            )
        if not self.options.url:
            practice = self.problems.interactions[: self.scale.control]
            with stages.stage(CONTROL_TALK, len(practice)) as advance:
                curve, _, _ = await arms.converse(
                    talk, practice, advance, arm="control", seed=self.after, wave=self.scale.wave, min_batch=None
                )
                played.curve.extend(curve)
        with stages.stage(CONTROL, len(held_out)) as advance:
            played.control = await arms.evaluate(talk, held_out, advance, stage="control", seed=self.after, model=model)

    async def _learning_arm(self, talk: Talk, stages: Stages) -> None:
        played, practice, held_out = self.played, self.problems.interactions, self.problems.held_out
        published = (await talk.status())["versions_published"]
        with stages.stage(LEARNING, len(practice)) as advance:
            curve, played.conversations, played.notes = await arms.converse(
                talk,
                practice,
                advance,
                arm="learning",
                seed=self.after,
                wave=self.scale.wave,
                min_batch=TrainConfig().min_batch,
                budget_s=LEARNING_S if self.options.interactions is None else math.inf,
            )
            played.curve.extend(curve)
        if not self.options.url:
            said = min(len(practice), HEARD_SESSIONS)
            names = [f"learning-{i}" for i in range(said)]
            played.heard, unread = await heard_in(self.options.out / "home-learning", names)
            if unread:
                played.notes.append(f"of what became of the words, this could not be read: {', '.join(unread)}")
        with stages.stage(FINAL, len(held_out)) as advance:
            model = _pinned(await talk.status())
            played.final = await arms.evaluate(talk, held_out, advance, stage="final", seed=self.after, model=model)
        played.versions_published = (await talk.status())["versions_published"] - published

    @asynccontextmanager
    async def _talk(self, server: Server, writer: Writer | None) -> AsyncIterator[Talk]:
        """A client of ``server``. What failed while it talked is added to the account, the server's view included."""
        async with Talk(server, self.persona, max_tokens=self.scale.max_tokens, writer=writer) as talk:
            already = (await talk.status())["failed_requests"]
            yield talk
            on_server = (await talk.status())["failed_requests"] - already
            self.played.failed_requests += max(talk.failures.count, on_server)
            self.played.failures.extend(talk.failures.reasons)

    def _server(self, arm: str, *, learning: bool) -> AbstractContextManager[Server]:
        home = self.options.out / f"home-{arm}"
        shutil.rmtree(home, ignore_errors=True)  # of an earlier demo in this folder; the lock says it has ended
        return running_server(
            home.resolve(),
            {
                "model": {"path": self.options.model},
                "train": {"method": self.options.method, "seed": self.options.seed, "enabled": learning},
                "skills": {"evolve": False},  # what is measured is what the weights learn
            },
        )

    def expected_s(self) -> dict[str, float]:
        """The stages and about how many seconds each takes; `Stages` corrects them by the pace."""
        s = self.scale
        exam = 5 + s.held_out * s.max_tokens / 90
        talk = s.max_tokens / 35
        stages = {
            BASE: 20 + exam,
            WISHED: exam,
            CONTROL_TALK: s.control * talk,
            CONTROL: exam,
            LEARNING: 20 + s.interactions * (talk + 7),
            FINAL: 1.5 * exam,
            LANGUAGE: 15 + s.held_out,
        }
        if self.options.url:
            del stages[CONTROL_TALK]
        return stages

    def report(self, started: float) -> Report:
        """Measure what was played. Raises ConfigError when an evaluation has no answer at all."""
        played, persona = self.played, self.persona
        exams = {"base": played.base, "final": played.final, "control": played.control, "reference": played.wished}
        for name, answers in exams.items():
            if not any(answer.text.strip() for answer in answers):
                raise ServerError(
                    f"the evaluation {name!r} got no answers: {'; '.join(played.failures) or 'all empty'}"
                )
        nll = self._likelihoods(exams)
        _write_conversations(played.conversations, self.options.out / "conversations.jsonl")
        arm = {name: arms.measured(persona, exams[name], nll, name) for name in ("base", "final", "control")}
        score = partial(arms.score_of, persona)
        told = [score(answer) for answer in played.wished]
        had = [point.interactions for point in played.curve if point.arm == "learning"]
        return Report(
            persona=persona.name,
            method=self.options.method,
            interactions=max(had, default=self.scale.interactions),
            seed=self.options.seed,
            base=arm["base"],
            final=arm["final"],
            control=arm["control"],
            wish_reference={"nll_with_wish": nll["reference/wish"], "mean": stats.mean(told)},
            rise=arms.paired_change(score, played.base, played.final),
            rise_over_control=arms.paired_change(score, played.control, played.final),
            # The base model was examined twice: what its answers repeat by chance is known better from both.
            repetition_change=arms.paired_change(arms.repetition_of, [*played.base, *played.control], played.final),
            failed_requests=played.failed_requests,
            versions_published=played.versions_published,
            seconds=round(time.monotonic() - started, 1),
            failures=played.failures,
            notes=played.notes,
            curve=played.curve,
            answers=arms.side_by_side(persona, played.base, played.final),
            heard=played.heard,
        )

    def _likelihoods(self, exams: dict[str, list[DemoAnswer]]) -> dict[str, float]:
        groups: dict[str, Sequence[ScoredText]] = {}
        for name, answers in exams.items():
            if answers is not self.played.wished:  # they never saw the plain prompt
                groups[name] = [ScoredText(a.prompt, a.text, a.ended) for a in answers]
            groups[f"{name}/wish"] = [
                ScoredText(with_wish(a.prompt, self.persona.wish), a.text, a.ended) for a in answers
            ]
        return mean_nll(groups, str(resolve_model(self.options.model)))


def _pinned(status: dict[str, Any]) -> str:
    """The version that serves, whatever is published meanwhile."""
    number = status["version"]["number"]
    return f"turnwise@v{number}" if number else "turnwise@base"


async def _writer(options: DemoOptions, stack: AsyncExitStack) -> Writer | None:
    if not options.simulator_url or not options.simulator_model:
        return None
    key = os.environ.get(SIMULATOR_KEY_ENV, "none")
    client = await stack.enter_async_context(openai.AsyncOpenAI(base_url=options.simulator_url, api_key=key))
    return Writer(client, options.simulator_model)


def _write_conversations(conversations: Sequence[Conversation], file: Path) -> None:
    with file.open("w", encoding="utf-8") as out:
        for conversation in conversations:
            line = {"messages": conversation.messages, "replies": [asdict(reply) for reply in conversation.replies]}
            out.write(json.dumps(line, ensure_ascii=False) + "\n")
