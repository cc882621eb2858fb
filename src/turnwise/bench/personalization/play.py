"""Plays one person against a real server: conversations in waves, an examination after each, by HTTP like any client.

A course is one person with one seed and one way of learning of one model. Its points are written as they come, and
beside them what was answered at each, and which conversations were had. A course that has its last point is not played
again, and one that was ended in the middle goes on in its home.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import openai

from turnwise.bench.personalization.persons import NO_ANSWER, Person, Wish, says_nothing
from turnwise.config import TrainConfig
from turnwise.demo.arms import settle
from turnwise.demo.questions import TALKED
from turnwise.demo.server import Server, running_server
from turnwise.demo.stats import has_one_of, repetition
from turnwise.demo.talk import at_once
from turnwise.errors import ConfigError

WAVE = 8
"""Conversations between two examinations: about what a batch of the trainer's is made of."""
TEMPERATURE = 0.5
ANSWER_TOKENS = 64
AT_ONCE = 8
SETTLE_LIMIT_S = 900.0
DIRECTIVE_SHARE = 0.85
"""Share of the replies to an answer that misses a wish that say what is wanted; the others only grumble."""
ARMS: dict[str, dict[str, object]] = {
    "combined": {"method": "combined"},
    "opd": {"method": "opd"},
    "binary": {"method": "binary"},
    "control": {"enabled": False},
}
"""What the arms set beside the shipped defaults."""


@dataclass(frozen=True, slots=True)
class Course:
    """One run: a person, a seed, a way of learning, how many updates it may take, and the model that learns.

    Every so many of them the person is examined.
    """

    person: Person
    seed: int
    arm: str
    updates: int
    model: str
    every: int = 1

    @property
    def name(self) -> str:
        """Names its files too: the points of one model are never taken for another's."""
        return f"{Path(self.model).name}-{self.person.name}-{self.arm}-{self.seed}"


@dataclass(frozen=True, slots=True)
class Examined:
    """An examination after ``conversations``: shares of answers that meet each wish, and that are right.

    ``told`` are those of the base model with the wishes in its prompt. ``trained`` and ``excluded`` count turns,
    ``refused`` batches that the gate gave back, in a row; ``version`` serves, of which ``general_rise`` is what the
    gate found on its probe of general ability, in nats per token. ``home_mb`` is the home on disk, and ``seconds``
    those that the server has run, without what came to no examination before the course was ended.
    """

    conversations: int
    met: dict[str, float]
    told: dict[str, float]
    right: float
    repetition: float
    words: float
    trained: int
    excluded: int
    seconds: float
    version: int = 0
    refused: int = 0
    home_mb: float = 0.0
    general_rise: float | None = None


def play(course: Course, folder: Path, say: Callable[[str], None]) -> list[Examined]:
    """The points of a course, played where they are not there yet.

    Raises ConfigError where a course that was ended in the middle cannot go on as this one, and TurnwiseError where no
    server starts.
    """
    file = folder / f"{course.name}.jsonl"
    points, home = _points_in(file), (folder / f"home-{course.name}").resolve()
    if points and points[-1].conversations >= course.updates * WAVE:
        return points
    if not (points and home.is_dir()):
        points = []
        shutil.rmtree(home, ignore_errors=True)
        for old in (file, answers_of(file), talk_of(file)):
            old.unlink(missing_ok=True)
    _begin_or_go_on(course, talk_of(file))
    train: dict[str, object] = {"seed": course.seed, **ARMS[course.arm]}
    weights_alone: dict[str, object] = {"evolve": False}
    settings = {"model": {"path": course.model}, "train": train, "skills": weights_alone}
    with running_server(home, settings) as server:
        points = asyncio.run(_Player(course, server, home, say).play(file, points))
    shutil.rmtree(home, ignore_errors=True)
    return points


def answers_of(points: Path) -> Path:
    """The file with the answers that the points of a course are figures of: a line an answer, `said` by whom, when."""
    return points.with_suffix(".answers.jsonl")


def talk_of(points: Path) -> Path:
    """The file with how a course is played, the numbers of the conversations that were had, a line each, and "again"
    for each time that it went on."""
    return points.with_suffix(".talk.txt")


def _begin_or_go_on(course: Course, talk: Path) -> None:
    """Write down how a course is played, or see that it was begun so and has not talked beyond its end."""
    played_as = json.dumps({"model": course.model, "every": course.every})
    begun, had, _ = _talk_in(talk)
    if begun is None:
        talk.write_text(f"{played_as}\n", encoding="utf-8")
        return
    if begun != played_as:
        raise ConfigError(f"{course.name} was begun as {begun}; ask for that, or give --out another folder")
    if max(had, default=-1) >= course.updates * WAVE:
        least = max(had) // WAVE + 1
        raise ConfigError(f"{course.name} has had {len(had)} conversations; give --updates {least} or more")


def _talk_in(talk: Path) -> tuple[str | None, set[int], int]:
    """How a course was begun (None: not at all), the conversations that were had, and how often it went on."""
    if not talk.exists():
        return None, set(), 0
    begun, *lines = talk.read_text(encoding="utf-8").split("\n")[:-1] or [None]
    return begun, {int(line) for line in lines if line and line.isdecimal()}, lines.count("again")


def _points_in(file: Path) -> list[Examined]:
    """The points that were written there. A last one that was cut is no point, and taken out of the file."""
    points, text = [], file.read_text(encoding="utf-8") if file.exists() else ""
    for line in text.split("\n"):
        try:
            points.append(Examined(**json.loads(line)))
        except (json.JSONDecodeError, TypeError):
            break
    kept = "".join(f"{line}\n" for line in text.split("\n")[: len(points)])
    if kept != text:
        file.write_text(kept, encoding="utf-8")
    return points


def _forget_answers_behind(file: Path, conversations: int) -> None:
    """Take out of a file of answers those of an examination whose point was not written any more."""
    kept = []
    for line in file.read_text(encoding="utf-8").split("\n") if file.exists() else []:
        with suppress(json.JSONDecodeError):  # the last one may be cut
            if json.loads(line)["conversations"] <= conversations:
                kept.append(line)
    file.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")


class _Player:
    """A person at a server."""

    def __init__(self, course: Course, server: Server, home: Path, say: Callable[[str], None]) -> None:
        self._course = course
        self._home = home
        self._say = say
        self._had: set[int] = set()
        self._behind_s, self._again = 0.0, 0
        self._started = time.monotonic()
        self._least = TrainConfig().min_batch
        self._openai = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=server.token, max_retries=1, timeout=300)
        self._http = httpx.AsyncClient(
            base_url=server.url, headers={"Authorization": f"Bearer {server.person_token}"}, timeout=60
        )

    async def play(self, file: Path, points: Sequence[Examined]) -> list[Examined]:
        """The waves and examinations that are left; each point is appended to ``file`` when it is known."""
        course, points, first = self._course, list(points), 0
        if points:
            _forget_answers_behind(answers_of(file), points[-1].conversations)
            first, self._behind_s = points[-1].conversations // WAVE + 1, points[-1].seconds
            self._go_on(talk_of(file))
        async with self._http, self._openai:
            for wave in range(first, course.updates + 1):
                if wave:
                    await self._talk(wave - 1, talk_of(file))
                if wave % course.every and wave < course.updates:
                    continue
                point, answers = await self._examine(wave * WAVE, points[-1].conversations if points else None)
                points.append(point)
                _append(answers_of(file), answers)
                _append(file, [asdict(point)])
                self._say(f"{course.name}: {points[-1].conversations} conversations, {points[-1].met}")
        return points

    def _go_on(self, talk: Path) -> None:
        """Take up what was talked about. The conversation in which the course was ended is had again, as a new one."""
        _, self._had, again = _talk_in(talk)
        self._again = again + 1
        with talk.open("a", encoding="utf-8") as out:
            out.write("again\n")

    async def _talk(self, wave: int, talk: Path) -> None:
        """Eight conversations, one after the other as a person has them, and the wait for what is learned of them."""
        for i in range(wave * WAVE, (wave + 1) * WAVE):
            if i not in self._had:
                await self._converse(i)
                with talk.open("a", encoding="utf-8") as out:
                    out.write(f"{i}\n")
        await self._settled()

    async def _converse(self, number: int) -> None:
        """Question, answer, what the person says to it, perhaps a second try, and the last word."""
        course = self._course
        rng = random.Random(f"{course.person.name}/{course.seed}/{number}")
        order = random.Random(course.seed).sample(TALKED, len(TALKED))
        session = f"{course.name}-{number}" + (f"-again-{self._again}" if self._again else "")
        messages: list[dict[str, str]] = [{"role": "user", "content": order[number % len(order)]}]
        for attempt in range(2):
            answer = await self._ask(messages, session, number)
            messages.append({"role": "assistant", "content": answer})
            wishes = course.person.wishes_at(number)
            missed = [w for w in wishes if not w.met(answer)]
            empty = says_nothing(answer, wishes)
            messages.append({"role": "user", "content": self._reply(missed, empty, attempt, rng)})
            if not missed and not empty:
                break
        await self._ask(messages, session, number, longest=8)  # the last word is the next state of the answer before
        (await self._http.post(f"/v1/sessions/{session}/close")).raise_for_status()

    def _reply(self, missed: list[Wish], empty: bool, attempt: int, rng: random.Random) -> str:
        if empty and not missed:
            return rng.choice(NO_ANSWER)
        if not missed:
            return rng.choice(self._course.person.praise)
        wish = rng.choice(missed)
        return rng.choice(wish.asks if attempt == 0 and rng.random() < DIRECTIVE_SHARE else wish.grumbles)

    async def _examine(self, conversations: int, before: int | None) -> tuple[Examined, list[dict[str, Any]]]:
        """The held-out questions as side turns, without the wishes, and of the base model with them; all answers.

        The base model is asked where the wishes are others than at the examination ``before``.
        """
        wishes = self._course.person.wishes_at(max(0, conversations - 1))
        questions = self._course.person.examination
        seed = 1000 + 100 * self._course.seed
        asked = [partial(self._question, q, seed + i, "turnwise") for i, (q, _) in enumerate(questions)]
        answers = await at_once(asked, AT_ONCE)
        told: list[str] = []
        if before is None or wishes != self._course.person.wishes_at(max(0, before - 1)):
            under = "\n\n" + " ".join(w.told for w in wishes)
            told = await at_once(
                [partial(self._question, q + under, seed + i, "turnwise@base") for i, (q, _) in enumerate(questions)],
                AT_ONCE,
            )
        status = await self._status()
        turns = status["turns"]
        right = [has_one_of(answer, words) for answer, (_, words) in zip(answers, questions, strict=True)]
        said = [
            {"conversations": conversations, "said": who, "question": question, "answer": answer}
            for who, given in (("unasked", answers), ("told", told))
            for (question, _), answer in zip(questions, given, strict=False)
        ]
        point = Examined(
            conversations=conversations,
            met={w.name: _share([w.met(a) for a in answers]) for w in wishes},
            told={w.name: _share([w.met(a) for a in told]) for w in wishes} if told else {},
            right=_share(right),
            repetition=sum(map(repetition, answers)) / len(answers),
            words=sum(len(a.split()) for a in answers) / len(answers),
            trained=turns.get("trained", 0),
            excluded=turns.get("excluded", 0),
            seconds=round(self._behind_s + time.monotonic() - self._started, 1),
            version=status["version"]["number"],
            refused=status["refused_in_a_row"]["count"],
            home_mb=_megabytes(self._home),
            general_rise=_general_rise(self._home, status["version"]["number"]),
        )
        return point, said

    async def _question(self, question: str, seed: int, model: str) -> str:
        session = f"{self._course.name}-examination-{seed}"
        return await self._ask([{"role": "user", "content": question}], session, seed, model=model, side=True)

    async def _ask(
        self,
        messages: list[dict[str, str]],
        session: str,
        seed: int,
        *,
        model: str = "turnwise",
        side: bool = False,
        longest: int = ANSWER_TOKENS,
    ) -> str:
        response = await self._openai.chat.completions.create(
            model=model,
            messages=list(messages),  # pyright: ignore[reportArgumentType]
            temperature=TEMPERATURE,
            max_tokens=longest,
            seed=seed,
            extra_headers={"X-Session-Id": session, "X-Turn-Type": "side" if side else "main"},
        )
        return response.choices[0].message.content or ""

    async def _status(self) -> dict[str, Any]:
        response = await self._http.get("/v1/status")
        response.raise_for_status()
        return response.json()

    async def _settled(self) -> None:
        """Wait until what could be learned now is learned, and answers."""
        least = self._least if self._course.arm != "control" else sys.maxsize
        if await settle(self._status, least, SETTLE_LIMIT_S) == "late":
            self._say(f"{self._course.name}: judge and trainer were not done after {SETTLE_LIMIT_S:.0f} s; going on")


def _megabytes(home: Path) -> float:
    """What a home takes on disk, while its server writes there."""
    total = 0
    for folder, _, files in os.walk(home):  # a folder that is deleted meanwhile is left out
        for name in files:
            with suppress(FileNotFoundError):
                total += Path(folder, name).lstat().st_size
    return round(total / 1e6, 1)


def _general_rise(home: Path, version: int) -> float | None:
    """How much less likely the gate's general probe is to a version than to its parent or the base model."""
    file = home / "versions" / f"v{version}" / "meta.json"
    return json.loads(file.read_text(encoding="utf-8"))["gate"].get("general_rise") if file.exists() else None


def _append(file: Path, lines: Iterable[dict[str, Any]]) -> None:
    with file.open("a", encoding="utf-8") as out:
        out.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def _share(found: list[bool]) -> float:
    return round(sum(found) / len(found), 4) if found else 0.0
