"""Which judge decides a turn: the free signals, the model, or the signals first and the model where they abstain."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from turnwise.config import Config
from turnwise.judges.child import Work, right_here
from turnwise.judges.model import ModelJudge
from turnwise.judges.signals.verdict import SignalVerdict, judge_from_signals
from turnwise.types import JudgeTask, Verdict


class Judge(Protocol):
    """What the worker calls. ``judge`` raises JudgeUnavailable or TooSlow when the turn must be tried again later."""

    async def judge(self, task: JudgeTask) -> Verdict: ...

    async def close(self) -> None: ...


class SignalJudge:
    """The free signals alone. Where they abstain the verdict is 0 (no signal), with the hint if there is one."""

    def __init__(self, work: Work = right_here) -> None:
        self._work = work

    async def judge(self, task: JudgeTask) -> Verdict:
        return _verdict(await _signals(self._work, task))

    async def close(self) -> None:
        return None


class SignalsThenModelJudge:
    """The free signals, and the model for the turns on which they abstain."""

    def __init__(self, model: ModelJudge, work: Work = right_here) -> None:
        self._model = model
        self._work = work

    async def judge(self, task: JudgeTask) -> Verdict:
        free = await _signals(self._work, task)
        if free.score is not None:
            return _verdict(free)
        verdict = await self._model.judge(task)
        hint = verdict.hint or free.hint
        return replace(verdict, hint=hint, proposal=None if hint else verdict.proposal or free.proposal)

    async def close(self) -> None:
        await self._model.close()


def make_judge(config: Config, work: Work) -> Judge:
    """The judge that ``judge.kind`` names; ``work`` is where it reads foreign text."""
    if config.judge.kind == "signals":
        return SignalJudge(work)
    model = ModelJudge.from_config(config, work)
    return model if config.judge.kind == "model" else SignalsThenModelJudge(model, work)


async def _signals(work: Work, task: JudgeTask) -> SignalVerdict:
    return await work(judge_from_signals, task.messages, task.answer, task.next_state, tools=task.tools)


def _verdict(free: SignalVerdict) -> Verdict:
    evidence = ", ".join(free.reasons[:4]) or "no evidence"
    if free.score is None:
        score, reason = 0, f"no signal ({evidence})"
    else:
        score, reason = free.score, f"p={free.confidence:.2f}: {evidence}"
    return Verdict(score, free.hint, "signals", reason, proposal=free.proposal, confidence=free.confidence)
