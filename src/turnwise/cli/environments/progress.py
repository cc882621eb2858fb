"""How a run of rollouts shows how far it is: a bar where a person looks on, a line for each rollout where none does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from turnwise.cli.options import out

if TYPE_CHECKING:
    from turnwise.environments.rollout import Ended


def shown(rollouts: Iterator[Ended], number: int, done: Callable[[Ended], None]) -> list[Ended]:
    """Play them all, tell of each, also ``done``, and at the end of all together."""
    ended: list[Ended] = []
    started = time.monotonic()
    columns = (TextColumn("rollouts"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    bar = Progress(*columns, TimeRemainingColumn(), console=out) if out.is_terminal else None
    with bar or nullcontext():
        task = None if bar is None else bar.add_task("", total=number)
        for each in rollouts:
            ended.append(each)
            done(each)
            if bar is not None and task is not None:
                bar.update(task, completed=len(ended), description=_together(ended, time.monotonic() - started))
            if bar is None or each.failure is not None or each.note is not None:
                said = f"{len(ended)}/{number} {each.play.session}: {_said(each)}"
                out.print(said, highlight=False, markup=False, soft_wrap=True)
    out.print(_together(ended, time.monotonic() - started), highlight=False, markup=False)
    return ended


def _said(ended: Ended) -> str:
    if ended.failure is not None:
        what = f"failed, no reward: {ended.failure}"
    elif ended.reward is None:
        what = "not played"
    else:
        cut = "" if ended.cut_off is None else f", cut off by {ended.cut_off}"
        what = f"reward {ended.reward:g}, {ended.steps} steps{cut}"
    return what if ended.note is None else f"{what} ({ended.note})"


def _together(ended: list[Ended], seconds: float) -> str:
    """All that ended so far, in a line."""
    rewards = [each.reward for each in ended if each.reward is not None]
    mean = f"mean reward {sum(rewards) / len(rewards):.3f} of {len(rewards)}" if rewards else "no reward"
    failed, cut = sum(each.failure is not None for each in ended), sum(each.cut_off is not None for each in ended)
    steps = sum(each.steps for each in ended)
    cut_off = f", {cut} cut off" if cut else ""
    return f"{mean}{cut_off}, {failed} failed, {steps / max(seconds, 1e-9):.1f} steps/s"
