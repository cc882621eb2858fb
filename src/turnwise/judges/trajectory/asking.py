"""Asks a model whether a trajectory did its task: any OpenAI-compatible endpoint, with a time limit, read strictly.

An endpoint that cannot be reached, refuses, or takes too long raises JudgeUnavailable: the rollout is masked then, and
not counted as a failure of the policy. A model that takes no pictures is asked again with the pages as text, which
its verdict says.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import openai

from turnwise.access_tokens import Scope, load_or_make_token, token_path
from turnwise.config import LOOPBACK, Config, TrajectoryJudgeConfig
from turnwise.home import running_url
from turnwise.judges.model import CALL_ATTEMPTS, FIRST_BACKOFF_S, NO_KEY, JudgeUnavailable
from turnwise.judges.trajectory.prompt import judge_prompt
from turnwise.judges.trajectory.verdict import parse_verdict, score_of
from turnwise.messages import storable
from turnwise.trajectories.trail import Trail

ROOMS = (None, 12_000, 6_000, 3_000, 1_500)
"""Tokens of material that are sent, one after the other where the one before is refused as too long; None: all."""
ROOMS_BESIDE_PICTURES = (None, 12_000, 3_000)
"""The same beside all screenshots, and beside the last one alone; then there are none."""
TOO_LARGE = 413
REFUSALS = (400, 404, 415, 422)
"""With one of these an endpoint may say that it takes no pictures."""


@dataclass(frozen=True, slots=True)
class TrajectoryVerdict:
    """What a judge said. ``success``: None where its reply has no verdict, which counts as none (`score`).

    ``pictures``: how many screenshots it was shown; ``refused``: it takes none, and read the pages as text.
    """

    success: bool | None
    reply: str
    judge: str
    pictures: int = 0
    refused: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0

    @property
    def score(self) -> float:
        return score_of(self.success)

    def details(self) -> dict[str, object]:
        """For the outcome's details."""
        said: dict[str, object] = {"judge": self.judge, "verdict": self.success, "judge_said": self.reply[:2000]}
        said |= {"judge_tokens": [self.prompt_tokens, self.completion_tokens], "judge_pictures": self.pictures}
        return said | ({"judge_refused_pictures": True} if self.refused else {})


class TrajectoryJudge:
    """A model at an OpenAI-compatible endpoint as judge. May be asked from several threads."""

    def __init__(
        self,
        url: str,
        key: str,
        model: str,
        settings: TrajectoryJudgeConfig,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url, self._key, self.model, self._settings, self._sleep = url, key or NO_KEY, model, settings, sleep
        self._takes_pictures = settings.pictures != "never"
        self._lock = threading.Lock()

    @classmethod
    def from_config(cls, config: Config) -> TrajectoryJudge:
        """The judge of `judge.trajectory`. Raises JudgeUnavailable where no endpoint is named and no gateway runs."""
        ours = config.judge.trajectory
        url = ours.url or config.judge.url
        key = os.environ.get(ours.api_key_env or config.judge.api_key_env, "")
        if url is None:
            running = running_url(config)
            if running is None:
                raise JudgeUnavailable(
                    "no judge of trajectories can be asked: name its endpoint in judge.trajectory.url, or start "
                    "`turnwise serve`, whose base model judges then"
                )
            url, key = f"{running}/v1", key or load_or_make_token(token_path(config, Scope.AGENT))
        return cls(url, key, ours.model or config.judge.model, ours)

    def judge(self, trail: Trail) -> TrajectoryVerdict:
        """Whether the task was done. Raises JudgeUnavailable."""
        started = time.monotonic()
        wants = any(page.picture is not None for page in trail.pages) and self._takes_pictures
        try:
            verdict = self._asked(trail, wants)
        except _Refused as e:
            if not wants or self._settings.pictures == "require":
                raise JudgeUnavailable(f"the trajectory judge refused the request: {e}") from e
            try:
                verdict = replace(self._asked(trail, False), refused=True)
            except _Refused as again:
                raise JudgeUnavailable(f"the trajectory judge refused the request: {again}") from again
            with self._lock:
                self._takes_pictures = False  # it answered without them: it is not asked with any again
        refused = verdict.refused or (self._settings.pictures == "auto" and not self._takes_pictures)
        return replace(verdict, refused=refused, seconds=time.monotonic() - started)

    def _asked(self, trail: Trail, pictures: bool) -> TrajectoryVerdict:
        """The verdict on as much of it as the model's context takes: the older screenshots are left out first."""
        views = [(trail, pictures, room) for room in (ROOMS_BESIDE_PICTURES if pictures else ROOMS)]
        if pictures:
            views += [(_with_last_picture(trail), True, room) for room in ROOMS_BESIDE_PICTURES[1:]]
            views += [(trail, False, room) for room in ROOMS] if self._settings.pictures != "require" else []
        for shown, seen, room in views:
            try:
                return self._call(judge_prompt(shown, seen, room=room), seen, shown)
            except _TooLong:
                continue
        raise JudgeUnavailable(
            f"the trajectory does not fit the context of {self.model}; judge with one of a longer one"
        )

    def _call(self, messages: list[dict[str, Any]], pictures: bool, trail: Trail) -> TrajectoryVerdict:
        fault: Exception | None = None
        for attempt in range(CALL_ATTEMPTS):
            if attempt:
                self._sleep(FIRST_BACKOFF_S * 2 ** (attempt - 1) * (0.5 + random.random()))
            try:
                done = asyncio.run(self._completion(messages))
                return self._read(done, sum(page.picture is not None for page in trail.pages) if pictures else 0)
            except (openai.APITimeoutError, TimeoutError) as e:
                raise JudgeUnavailable(f"the trajectory judge took longer than {self._settings.timeout_s:g} s") from e
            except (openai.APIConnectionError, openai.RateLimitError, openai.InternalServerError) as e:
                fault = e
            except openai.APIStatusError as e:
                said = self._without_key(str(e))[:300]
                long = e.status_code == 400 and ("context" in said.lower() or "too long" in said.lower())
                if long or e.status_code == TOO_LARGE:
                    raise _TooLong(said) from e
                if e.status_code in REFUSALS:
                    raise _Refused(said) from e
                raise JudgeUnavailable(f"the trajectory judge refused the request: {said}") from e
            except (openai.APIError, ValueError) as e:  # its body is not what it should be
                fault = e
        said = self._without_key(str(fault))[:300]
        raise JudgeUnavailable(f"the trajectory judge did not answer in {CALL_ATTEMPTS} tries: {said}") from fault

    async def _completion(self, messages: list[dict[str, Any]]) -> Any:
        """One completion. The limit holds for all of it: an endpoint that sends a byte a minute ends as well."""
        async with (
            asyncio.timeout(self._settings.timeout_s),
            openai.AsyncOpenAI(
                base_url=self._url,
                api_key=self._key,
                max_retries=0,
                timeout=self._settings.timeout_s,
                http_client=openai.DefaultAsyncHttpxClient(trust_env=not is_loopback(self._url)),
            ) as client,
        ):
            return await client.chat.completions.create(
                model=self.model,
                messages=messages,  # pyright: ignore[reportArgumentType]  # OpenAI's shape
                temperature=self._settings.temperature,
                max_tokens=self._settings.max_tokens,
                extra_headers={"X-Turn-Type": "side"},  # the gateway records it, and never trains on it
            )

    def _read(self, done: Any, pictures: int) -> TrajectoryVerdict:
        choices = getattr(done, "choices", None)
        text = getattr(getattr(choices[0], "message", None), "content", None) if choices else None
        if not isinstance(text, str):
            raise ValueError("the endpoint's reply holds no message")
        text, usage = storable(text), getattr(done, "usage", None)
        tokens = (getattr(usage, "prompt_tokens", 0) or 0, getattr(usage, "completion_tokens", 0) or 0)
        whole = (
            getattr(done.choices[0], "finish_reason", None) != "length"
        )  # one that was cut had not come to its verdict
        return TrajectoryVerdict(parse_verdict(text) if whole else None, text, self.model, pictures, False, *tokens)

    def _without_key(self, text: str) -> str:
        return text if self._key == NO_KEY else text.replace(self._key, "[the key]")


def is_loopback(url: str) -> bool:
    """Whether an address is of this machine, and so no proxy's business."""
    return (urlsplit(url).hostname or "") in LOOPBACK


def _with_last_picture(trail: Trail) -> Trail:
    older = [replace(page, picture=None) for page in trail.pages[:-1]]
    return replace(trail, pages=(*older, *trail.pages[-1:]))


class _TooLong(Exception):
    """The endpoint says that the prompt does not fit its context, or the request its limit of bytes."""


class _Refused(Exception):
    """The endpoint takes no such request."""
