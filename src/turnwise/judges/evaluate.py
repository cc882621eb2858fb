"""Measuring a judge on labelled next states: what it decides, how often it is right, and what abstaining buys.

Nothing here changes the shipped heads; `signals/fit.py` cross-validates them on what they were fitted on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table

from turnwise.capabilities import CAPABILITIES
from turnwise.config import Config
from turnwise.errors import TurnwiseError
from turnwise.judges.cases import Case, read_cases
from turnwise.judges.choice import SignalJudge
from turnwise.judges.model import JudgeUnavailable, ModelJudge
from turnwise.judges.signals.own_engine import own_engine
from turnwise.judges.signals.states import ReplyJudge
from turnwise.types import JudgeTask

LABELS = (-1, 0, 1)
COVERAGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 1.0)
REPORTED = (1.0, 0.75, 0.6)
BANDS = (0.0, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Lower ends of the stretches of confidence in which it is looked how often the judge is right."""
KINDS = ("signals", "model", "signals-then-model")


@dataclass(frozen=True, slots=True)
class Judged:
    """One case and what the judge said. ``score`` None: it abstained; ``best``: its guess all the same, if any."""

    case: Case
    score: int | None
    best: int | None
    confidence: float
    hint: str | None
    tokens: int = 0


def evaluate_file(path: Path, kind: str, config: Config) -> dict[str, Any]:
    """Judge every case of ``path`` with the judge ``kind`` ('signals', 'model' or 'signals-then-model') and report.

    Raises CaseError for a malformed line, TurnwiseError for an unknown kind. A case for which the model gives no
    valid vote counts as abstained. The free signals read replies by an engine of their own, where the kind of engine
    that is configured gives hidden states.
    """
    if kind not in KINDS:
        raise TurnwiseError(f"no judge of kind {kind!r}; choose signals, model or signals-then-model")
    cases = read_cases(path)
    free, who = judge_by_signals(cases, config) if kind != "model" else ([], "model")
    judged = asyncio.run(_judge_by_model(cases, free, config)) if kind != "signals" else free
    return {"file": str(path), "judge": kind, "by": who, **report(judged)}


def judge_by_signals(cases: Sequence[Case], config: Config) -> tuple[list[Judged], str]:
    """The free signals on each case, and which head judged the replies."""
    with contextlib.ExitStack() as stack:
        able = CAPABILITIES[config.engine.kind].pooling
        url = stack.enter_context(own_engine(config)) if able else None
        return asyncio.run(signals_at(cases, config, url))


async def signals_at(cases: Sequence[Case], config: Config, url: str | None) -> tuple[list[Judged], str]:
    """The same with an engine that runs already."""
    judge = SignalJudge(replies=ReplyJudge(config, url))
    out = []
    try:
        for case in cases:
            v = await judge.signals(_task(case))
            out.append(Judged(case, v.score, v.best, v.confidence, v.hint))
        return out, judge.who
    finally:
        await judge.close()


def _task(case: Case) -> JudgeTask:
    return JudgeTask(case.id, "", 1, case.messages, case.answer, case.next_state)


async def _judge_by_model(cases: list[Case], free: list[Judged], config: Config) -> list[Judged]:
    """The model on each case, or on those from which the free signals abstained."""
    judge = ModelJudge.from_config(config)
    gate = asyncio.Semaphore(config.judge.concurrency)

    async def one(i: int, case: Case) -> Judged:
        if free and free[i].score is not None:
            return free[i]
        async with gate:
            try:
                v = await judge.judge(_task(case))
            except JudgeUnavailable:
                return Judged(case, None, None, 0.0, None)
        valid = [vote.score for vote in v.votes[: config.judge.votes] if vote.score is not None]
        share = valid.count(v.score) / config.judge.votes
        return Judged(case, v.score, v.score, share, v.hint, v.prompt_tokens + v.completion_tokens)

    try:
        return list(await asyncio.gather(*(one(i, case) for i, case in enumerate(cases))))
    finally:
        await judge.close()


def report(judged: list[Judged]) -> dict[str, Any]:
    """Accuracy on decided cases, share abstained, per-label precision and recall, hints, confusion, the whole curve."""
    decided = [j for j in judged if j.score is not None]
    right = sum(j.score == j.case.label for j in decided)
    rows = {str(label): {str(s): 0 for s in (*LABELS, "abstained")} for label in LABELS}
    for j in judged:
        rows[str(j.case.label)][str(j.score) if j.score is not None else "abstained"] += 1
    settings = sorted({j.case.setting for j in judged})
    return {
        "cases": len(judged),
        "decided": len(decided),
        "abstained": 1 - len(decided) / len(judged) if judged else 0.0,
        "accuracy_decided": _ratio(right, len(decided)),
        "labels": {str(label): _label_scores(decided, judged, label) for label in LABELS},
        "hints": _hint_scores(judged),
        "confusion": rows,
        "curve": _curve(judged),
        "accuracy_at": {f"{share:.0%}": _right_at(judged, share) for share in REPORTED},
        "calibration": _calibration(judged),
        "settings": {s: _ratio(*_right_of(decided, s)) for s in settings},
        "tokens": sum(j.tokens for j in judged),
    }


def _right_of(decided: list[Judged], setting: str) -> tuple[int, int]:
    own = [j for j in decided if j.case.setting == setting]
    return sum(j.score == j.case.label for j in own), len(own)


def _label_scores(decided: list[Judged], judged: list[Judged], label: int) -> dict[str, float | int | None]:
    """Precision over decided cases; recall over decided cases and over all cases of the label."""
    hit = sum(j.score == label and j.case.label == label for j in decided)
    of_decided = sum(j.case.label == label for j in decided)
    support = sum(j.case.label == label for j in judged)
    return {
        "precision": _ratio(hit, sum(j.score == label for j in decided)),
        "recall_decided": _ratio(hit, of_decided),
        "recall_all": _ratio(hit, support),
        "cases": support,
    }


def _hint_scores(judged: list[Judged]) -> dict[str, float | int | None]:
    """Does the judge find a hint exactly where the case is directive?"""
    both = sum(j.hint is not None and j.case.directive for j in judged)
    found = sum(j.hint is not None for j in judged)
    real = sum(j.case.directive for j in judged)
    return {"precision": _ratio(both, found), "recall": _ratio(both, real), "found": found, "directive": real}


def _right_at(judged: list[Judged], share: float) -> float | None:
    """Accuracy of the surest ``share`` of the cases; None where fewer have a guess."""
    ranked = _ranked(judged)
    n = round(share * len(judged))
    return _ratio(sum(j.best == j.case.label for j in ranked[:n]), n) if n <= len(ranked) else None


def _calibration(judged: list[Judged]) -> list[dict[str, float]]:
    """In each stretch of confidence: how many guesses, how sure they were and how many were right."""
    out = []
    for low, high in zip(BANDS, [*BANDS[1:], 1.01], strict=True):
        mine = [j for j in judged if j.best is not None and low <= j.confidence < high]
        if mine:
            said = sum(j.confidence for j in mine) / len(mine)
            right = sum(j.best == j.case.label for j in mine) / len(mine)
            out.append({"from": low, "cases": len(mine), "confidence": said, "right": right})
    return out


def _ranked(judged: list[Judged]) -> list[Judged]:
    return sorted((j for j in judged if j.best is not None), key=lambda j: (-j.confidence, j.case.id))


def _curve(judged: list[Judged]) -> list[dict[str, float]]:
    """Accuracy of the guesses when only the most confident share of the cases is decided."""
    ranked = _ranked(judged)
    points = []
    for share in COVERAGES:
        n = round(share * len(judged))
        if 0 < n <= len(ranked):
            right = sum(j.best == j.case.label for j in ranked[:n])
            points.append(
                {"abstained": round(1 - share, 2), "accuracy": right / n, "min_confidence": ranked[n - 1].confidence}
            )
    return points


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def render(result: dict[str, Any]) -> Group:
    """The report as tables for a terminal."""
    head = Table(title=f"Judge '{result['judge']}' on {result['cases']} cases", show_header=False)
    head.add_row("by", result["by"])
    head.add_row("accuracy on decided cases", _percent(result["accuracy_decided"]))
    for share, right in result["accuracy_at"].items():
        head.add_row(f"right of the surest {share}", _percent(right))
    head.add_row("abstained", _percent(result["abstained"]))
    head.add_row("hint precision", _percent(result["hints"]["precision"]))
    head.add_row("hint recall", _percent(result["hints"]["recall"]))
    if result["tokens"]:
        head.add_row("tokens used", f"{result['tokens']:,}")
    labels = Table("label", "precision", "recall (decided)", "recall (all)", "cases", title="Per label")
    for label, s in result["labels"].items():
        row = (_percent(s["precision"]), _percent(s["recall_decided"]), _percent(s["recall_all"]), str(s["cases"]))
        labels.add_row(_signed(label), *row)
    confusion = Table("label \\ verdict", "-1", "0", "+1", "abstained", title="Confusion")
    for label, row in result["confusion"].items():
        confusion.add_row(_signed(label), *(str(row[k]) for k in ("-1", "0", "1", "abstained")))
    curve = Table("abstained", "accuracy", "confidence at least", title="Accuracy against abstention")
    for p in result["curve"]:
        curve.add_row(_percent(p["abstained"]), _percent(p["accuracy"]), f"{p['min_confidence']:.2f}")
    bands = Table("confidence from", "cases", "mean confidence", "right", title="Calibration")
    for b in result["calibration"]:
        bands.add_row(f"{b['from']:.1f}", str(b["cases"]), _percent(b["confidence"]), _percent(b["right"]))
    return Group(head, labels, confusion, curve, bands)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _signed(label: str) -> str:
    return f"+{label}" if label == "1" else label
