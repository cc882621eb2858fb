"""Which judge decides a turn: the free signals, the model, or the signals first and the model where they abstain."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Protocol

from turnwise.config import Config
from turnwise.judges.model import ModelJudge
from turnwise.judges.signals import SignalVerdict, judge_from_signals
from turnwise.types import JudgeTask, Verdict


class Judge(Protocol):
    """What the worker calls. ``judge`` raises JudgeUnavailable when the turn must be tried again later."""

    async def judge(self, task: JudgeTask) -> Verdict: ...

    async def close(self) -> None: ...


class SignalJudge:
    """The free signals alone. Where they abstain the verdict is 0 (no signal), with the hint if there is one."""

    async def judge(self, task: JudgeTask) -> Verdict:
        return _verdict(await _signals(task))

    async def close(self) -> None:
        return None


class CascadeJudge:
    """The free signals, and the model for the turns on which they abstain."""

    def __init__(self, model: ModelJudge) -> None:
        self._model = model

    async def judge(self, task: JudgeTask) -> Verdict:
        free = await _signals(task)
        if free.score is not None:
            return _verdict(free)
        verdict = await self._model.judge(task)
        return replace(verdict, hint=verdict.hint or free.hint)

    async def close(self) -> None:
        await self._model.close()


def make_judge(config: Config) -> Judge:
    """The judge that ``judge.kind`` names."""
    if config.judge.kind == "signals":
        return SignalJudge()
    model = ModelJudge.from_config(config)
    return model if config.judge.kind == "model" else CascadeJudge(model)


async def _signals(task: JudgeTask) -> SignalVerdict:
    # Pattern matching over long tool output is CPU work: keep it off the event loop.
    return await asyncio.to_thread(judge_from_signals, task.messages, task.answer, task.next_state)


def _verdict(free: SignalVerdict) -> Verdict:
    evidence = ", ".join(free.reasons[:4]) or "no evidence"
    if free.score is None:
        return Verdict(score=0, hint=free.hint, judge="signals", reason=f"no signal ({evidence})")
    return Verdict(score=free.score, hint=free.hint, judge="signals", reason=f"p={free.confidence:.2f}: {evidence}")
