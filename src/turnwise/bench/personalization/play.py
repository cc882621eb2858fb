"""Plays one person against a real server: conversations in waves, an examination after each, by HTTP like any client.

A course is one person with one seed and one way of learning of one model. Its points are written as they come, and
beside them what was answered at each; a course that has its last point is not played again.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterable
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
    """One run: a person, a seed, a way of learning, how many updates it may take, and the model that learns."""

    person: Person
    seed: int
    arm: str
    updates: int
    model: str

    @property
    def name(self) -> str:
        """Names its files too: the points of one model are never taken for another's."""
        return f"{Path(self.model).name}-{self.person.name}-{self.arm}-{self.seed}"


@dataclass(frozen=True, slots=True)
class Examined:
    """An examination after ``conversations``: shares of answers that meet each wish, and that are right.

    ``told`` are those of the base model with the wishes in its prompt. ``trained`` and ``excluded`` count turns,
    ``seconds`` those since the server started.
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


def play(course: Course, folder: Path, say: Callable[[str], None]) -> list[Examined]:
    """The points of a course, played where they are not there yet. Raises TurnwiseError where no server starts."""
    file = folder / f"{course.name}.jsonl"
    points = _points_in(file)
    if points and points[-1].conversations >= course.updates * WAVE:
        return points
    file.unlink(missing_ok=True)
    answers_of(file).unlink(missing_ok=True)
    home = (folder / f"home-{course.name}").resolve()
    shutil.rmtree(home, ignore_errors=True)
    train: dict[str, object] = {"seed": course.seed, **ARMS[course.arm]}
    weights_alone: dict[str, object] = {"evolve": False}
    settings = {"model": {"path": course.model}, "train": train, "skills": weights_alone}
    with running_server(home, settings) as server:
        points = asyncio.run(_Player(course, server, say).play(file))
    shutil.rmtree(home, ignore_errors=True)
    return points


def answers_of(points: Path) -> Path:
    """The file with the answers that the points of a course are figures of: a line an answer, `said` by whom, when."""
    return points.with_suffix(".answers.jsonl")


def _points_in(file: Path) -> list[Examined]:
    """The points that were written there; none where the last one was cut off, since a course is played as a whole."""
    try:
        return [Examined(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]
    except (FileNotFoundError, json.JSONDecodeError, TypeError):
        return []


class _Player:
    """A person at a server."""

    def __init__(self, course: Course, server: Server, say: Callable[[str], None]) -> None:
        self._course = course
        self._server = server
        self._say = say
        self._started = time.monotonic()
        self._least = TrainConfig().min_batch
        self._openai = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=server.token, max_retries=1, timeout=300)
        self._http = httpx.AsyncClient(
            base_url=server.url, headers={"Authorization": f"Bearer {server.person_token}"}, timeout=60
        )

    async def play(self, file: Path) -> list[Examined]:
        """All waves and examinations; each point is appended to ``file`` when it is known."""
        course, points = self._course, []
        async with self._http, self._openai:
            for wave in range(course.updates + 1):
                if wave:
                    await self._talk(wave - 1)
                point, answers = await self._examine(wave * WAVE)
                points.append(point)
                _append(answers_of(file), answers)
                _append(file, [asdict(point)])
                self._say(f"{course.name}: {points[-1].conversations} conversations, {points[-1].met}")
        return points

    async def _talk(self, wave: int) -> None:
        """Eight conversations, one after the other as a person has them, and the wait for what is learned of them."""
        for i in range(wave * WAVE, (wave + 1) * WAVE):
            await self._converse(i)
        await self._settled()

    async def _converse(self, number: int) -> None:
        """Question, answer, what the person says to it, perhaps a second try, and the last word."""
        course = self._course
        rng = random.Random(f"{course.person.name}/{course.seed}/{number}")
        order = random.Random(course.seed).sample(TALKED, len(TALKED))
        session = f"{course.name}-{number}"
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

    async def _examine(self, conversations: int) -> tuple[Examined, list[dict[str, Any]]]:
        """The held-out questions as side turns, without the wishes, and of the base model with them; all answers."""
        wishes = self._course.person.wishes_at(max(0, conversations - 1))
        questions = self._course.person.examination
        seed = 1000 + 100 * self._course.seed
        asked = [partial(self._question, q, seed + i, "turnwise") for i, (q, _) in enumerate(questions)]
        answers = await at_once(asked, AT_ONCE)
        told: list[str] = []
        if not conversations or wishes != self._course.person.wishes_at(max(0, conversations - WAVE - 1)):
            under = "\n\n" + " ".join(w.told for w in wishes)
            told = await at_once(
                [partial(self._question, q + under, seed + i, "turnwise@base") for i, (q, _) in enumerate(questions)],
                AT_ONCE,
            )
        turns = (await self._status())["turns"]
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
            seconds=round(time.monotonic() - self._started, 1),
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


def _append(file: Path, lines: Iterable[dict[str, Any]]) -> None:
    with file.open("a", encoding="utf-8") as out:
        out.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def _share(found: list[bool]) -> float:
    return round(sum(found) / len(found), 4) if found else 0.0
