"""A wish said once, and when it is kept: by skills alone, by weights alone, by both, and by neither.

Each way is the real server in a fresh home, one after the other, and is talked to by HTTP as any client does. A person
asks a question, says the wish, and goes on with other questions in conversations of their own, until an answer keeps
it. Then everyday questions are asked whose right answers are known. A wait ends when nothing has gone on at the server
for so long: what a machine takes for it, busy or not, is no fault of the way.
"""

from __future__ import annotations

import json
import string
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import openai

from turnwise.demo.questions import HELD_OUT, TALKED
from turnwise.demo.server import Server, running_server
from turnwise.demo.stats import has_one_of
from turnwise.errors import TurnwiseError

WISH = "From now on end every answer with Cheers."
KEPT = "cheers"
ASKED_FIRST = "What is the capital of Mongolia?"
ANSWER_TOKENS = 64
REQUEST_S = 600.0
LONGEST_PAUSE_S = 10.0

Settings = Mapping[str, Mapping[str, object]]
NO_TRAINER: Settings = {"train": {"enabled": False}}
NO_SKILLS: Settings = {"skills": {"enabled": False, "evolve": False}}
ONE_SAMPLE: Settings = {"train": {"min_batch": 1}, "gate": {"probe_share": 0.0}}
"""The one turn that the wish was said of is a batch, and is not set aside: the demo has no other to wait for."""


@dataclass(frozen=True, slots=True)
class WishWay:
    """A way to learn a wish: what its server is told beside the defaults, and how."""

    name: str
    settings: Settings
    has_skills: bool
    has_weights: bool


WAYS = (
    WishWay("neither", {**NO_TRAINER, **NO_SKILLS}, False, False),
    WishWay("skills alone", NO_TRAINER, True, False),
    WishWay("weights alone", {**NO_SKILLS, **ONE_SAMPLE}, False, True),
    WishWay("both", ONE_SAMPLE, True, True),
)


@dataclass(frozen=True, slots=True)
class WishLimits:
    """How many questions are asked, and for how many seconds nothing may have gone on before a wait is given up: for an
    answer that keeps the wish once all is there for it, and while the wish is judged and weights are trained."""

    questions: int
    answer_s: float
    silent_s: float


WHOLE = WishLimits(questions=16, answer_s=120.0, silent_s=900.0)
QUICK = WishLimits(questions=8, answer_s=60.0, silent_s=900.0)


@dataclass(frozen=True, slots=True)
class GivenForWish:
    """An answer to a question, the version of the weights that gave it, and what is seen in it."""

    question: str
    text: str
    version: str
    met: bool
    right: bool


@dataclass(frozen=True, slots=True)
class WishFigures:
    """How a way went. ``first_s``: seconds from the wish to the first answer that keeps it (None: none did in time);
    ``version`` of the weights that answered; ``answers`` to the questions, and what became of the wait."""

    way: str
    first_s: float | None
    version: str
    answers: list[GivenForWish]
    note: str = ""

    def count(self, of: Callable[[GivenForWish], bool]) -> int:
        return sum(map(of, self.answers))


class WishTalk:
    """A person at one server."""

    def __init__(self, server: Server, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = openai.OpenAI(
            base_url=f"{server.url}/v1", api_key=server.token, max_retries=0, timeout=REQUEST_S
        )
        self._http = httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.person_token}"})
        self._clock = clock
        self._asked = 0
        self.said_at = 0.0

    def __enter__(self) -> WishTalk:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._http.close()

    def say_wish(self) -> None:
        """A question, its answer, and the wish; the time counts from when the wish is sent. Raises TurnwiseError."""
        messages = [{"role": "user", "content": ASKED_FIRST}]
        text, _ = self._complete(messages, "wish")
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": WISH}]
        self.said_at = self._clock()
        self._complete(messages, "wish")

    def since(self) -> float:
        """Seconds since the wish was sent."""
        return self._clock() - self.said_at

    def ask(self, question: str, right: Sequence[str] = ()) -> GivenForWish:
        """A question in a conversation of its own. Raises TurnwiseError."""
        self._asked += 1
        text, version = self._complete([{"role": "user", "content": question}], f"asked-{self._asked}")
        return GivenForWish(question, text, version, keeps(text), has_one_of(text, right))

    def first_kept(self, limits: WishLimits, pause: Callable[[float], None] = time.sleep) -> float | None:
        """Ask one question after another until an answer keeps the wish; the seconds since the wish, or None when none
        has for `answer_s` since the wish was judged. The pauses grow, for whoever asks all the time leaves the trainer
        no time."""
        asked, began = 0, self._clock()
        judged: float | None = None
        while self._clock() < began + limits.silent_s if judged is None else self._clock() < judged + limits.answer_s:
            if self.ask(TALKED[asked % len(TALKED)]).met:
                return self.since()
            if judged is None and self._status()["verdicts"]:
                judged = self._clock()
            asked += 1
            pause(min(LONGEST_PAUSE_S, self.since() / 10))
        return None

    def until_version(self, limits: WishLimits, pause: Callable[[float], None] = time.sleep) -> str:
        """Wait until a version of the weights is served, for as long as something goes on; why none is, or ""."""
        heard, before = self._clock(), ""
        while True:
            status = self._status()
            if status["version"]["number"] > 0:
                return ""
            now = _goes_on(status)
            if now != before:
                heard, before = self._clock(), now
            if refused := status["refused_in_a_row"]["count"]:
                return f"the gate refused {refused} batches"
            if self._clock() - heard >= limits.silent_s:
                return f"nothing went on for {limits.silent_s:.0f} s"
            pause(1.0)

    def _status(self) -> dict[str, Any]:
        try:
            return self._http.get("/v1/status", timeout=REQUEST_S).raise_for_status().json()
        except httpx.HTTPError as e:
            raise TurnwiseError(f"the demo's server does not say how it is: {e}") from e

    def _complete(self, messages: list[dict[str, str]], session: str) -> tuple[str, str]:
        try:
            raw = self._client.chat.completions.with_raw_response.create(
                model="turnwise",
                messages=messages,  # pyright: ignore[reportArgumentType]
                temperature=0,
                max_tokens=ANSWER_TOKENS,
                extra_headers={"X-Session-Id": session},
            )
            return raw.parse().choices[0].message.content or "", raw.headers.get("x-turnwise-version", "")
        except openai.OpenAIError as e:
            raise TurnwiseError(f"the demo's server gave no answer: {e}") from e


def _goes_on(status: Mapping[str, Any]) -> str:
    """What of a server's figures changes while it judges and trains, and at no other time."""
    told = [status["turns"], status["verdicts"], status["samples_ready"], status["batches"], status["version"]]
    trainer = {key: value for key, value in status["loops"].get("trainer", {}).items() if key != "seconds_ago"}
    return json.dumps([*told, trainer], sort_keys=True)


def keeps(answer: str) -> bool:
    """Whether an answer ends as wished, punctuation apart."""
    return answer.lower().rstrip(string.punctuation + string.whitespace).endswith(KEPT)


def play_way(way: WishWay, talk: WishTalk, limits: WishLimits) -> list[WishFigures]:
    """Play a way at its server. "Both" is examined twice: as soon as the wish is kept, and once the weights have it."""
    talk.say_wish()
    found: list[WishFigures] = []
    if way.has_skills:
        first = talk.first_kept(limits)
        found.append(_examined(way.name + (", before the weights" if way.has_weights else ""), talk, limits, first))
    if way.has_weights:
        why = talk.until_version(limits)
        first = None if why else talk.first_kept(limits)
        name = f"{way.name}, with the weights" if way.has_skills else way.name
        found.append(_examined(name, talk, limits, first, f"no version: {why}" if why else ""))
    if not found:
        found.append(_examined(way.name, talk, limits, None))
    return found


def _examined(name: str, talk: WishTalk, limits: WishLimits, first: float | None, note: str = "") -> WishFigures:
    answers = [talk.ask(question, right) for question, right in HELD_OUT[: limits.questions]]
    return WishFigures(name, first, answers[-1].version, answers, note)


def play_at_own_server(way: WishWay, home: Path, model: str, seed: int, limits: WishLimits) -> list[WishFigures]:
    """Play a way at a server of its own in a fresh home. Raises TurnwiseError."""
    settings = {section: dict(values) for section, values in way.settings.items()}
    settings["model"] = {"path": model}
    settings.setdefault("train", {})["seed"] = seed
    with running_server(home, settings) as server, WishTalk(server) as talk:
        return play_way(way, talk, limits)


def as_rows(figures: Sequence[WishFigures]) -> list[dict[str, object]]:
    """The figures as data, with every answer."""
    return [asdict(one) for one in figures]
