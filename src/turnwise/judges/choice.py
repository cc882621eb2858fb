"""Which judge decides a turn: the free signals, the model, or the signals first and the model where they abstain."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from turnwise.config import Config
from turnwise.judges.child import Work, right_here
from turnwise.judges.model import ModelJudge
from turnwise.judges.signals.reading import read
from turnwise.judges.signals.states import ReplyJudge
from turnwise.judges.signals.verdict import SignalVerdict, weigh
from turnwise.types import JudgeTask, Verdict


class Judge(Protocol):
    """What the worker calls. ``judge`` raises JudgeUnavailable or TooSlow when the turn must be tried again later, and
    ChildUnavailable or StatesUnavailable when that is no fault of the turn's. ``who``: what decides, for the status."""

    @property
    def who(self) -> str: ...

    async def judge(self, task: JudgeTask) -> Verdict: ...

    async def close(self) -> None: ...


class SignalJudge:
    """The free signals alone. Where they abstain the verdict is 0 (no signal), with the hint if there is one."""

    def __init__(self, work: Work = right_here, replies: ReplyJudge | None = None) -> None:
        self._replies = replies or ReplyJudge()
        self._work = work

    @property
    def who(self) -> str:
        return f"signals, {self._replies.who}" if self._replies.who else "signals"

    async def signals(self, task: JudgeTask) -> SignalVerdict:
        """What the free signals say. The texts are read in the child, and weighed here."""
        reading = await self._work(read, task)
        return weigh(reading, await self._replies.opinion(reading) if reading.sentences else None)

    async def judge(self, task: JudgeTask) -> Verdict:
        return _verdict(await self.signals(task))

    async def close(self) -> None:
        await self._replies.close()


class SignalsThenModelJudge:
    """The free signals, and the model for the turns on which they abstain."""

    def __init__(self, free: SignalJudge, model: ModelJudge) -> None:
        self._free = free
        self._model = model

    @property
    def who(self) -> str:
        return f"{self._free.who}; where they abstain, {self._model.who}"

    async def judge(self, task: JudgeTask) -> Verdict:
        free = await self._free.signals(task)
        if free.score is not None:
            return _verdict(free)
        verdict = await self._model.judge(task)
        hint = verdict.hint or free.hint
        return replace(verdict, hint=hint, proposal=None if hint else verdict.proposal or free.proposal)

    async def close(self) -> None:
        await self._free.close()
        await self._model.close()


def make_judge(config: Config, work: Work, engine_url: str | None = None) -> Judge:
    """The judge that ``judge.kind`` names; ``work`` is where it reads foreign text.

    ``engine_url``: the local engine, whose hidden states the free signals read a reply by; None: its words alone.
    """
    if config.judge.kind == "model":
        return ModelJudge.from_config(config, work)
    free = SignalJudge(work, ReplyJudge(config, engine_url))
    return free if config.judge.kind == "signals" else SignalsThenModelJudge(free, ModelJudge.from_config(config, work))


def _verdict(free: SignalVerdict) -> Verdict:
    evidence = ", ".join(free.reasons) or "no evidence"
    if free.score is None:
        score, reason = 0, f"no signal ({evidence})"
    else:
        score, reason = free.score, f"p={free.confidence:.2f}: {evidence}"
    return Verdict(score, free.hint, "signals", reason, proposal=free.proposal, confidence=free.confidence)
