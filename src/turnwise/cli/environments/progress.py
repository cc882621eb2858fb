"""How a run of rollouts shows how far it is: a bar where a person looks on, a line for each rollout where none does."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from turnwise.cli.options import err, out
from turnwise.cli.stopping import until_stopped

if TYPE_CHECKING:
    from turnwise.environments.rollout import Ended, Play, Rollouts

STOPPING = "stopping when what is under way has ended"
ENDED_AT_ONCE = 130
"""Exit code of what a second Ctrl-C ended, as shells have it."""


def shown(
    rollouts: Rollouts, plays: Sequence[Play], parallel: int, done: Callable[[Ended], None], again: str
) -> list[Ended]:
    """Play them all, tell of each, also ``done``, and at the end of all together. After Ctrl-C those that had not begun
    are missing; ``again``: the command that goes on with them."""
    ended: list[Ended] = []
    number, started = len(plays), time.monotonic()
    columns = (TextColumn("rollouts"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    bar = Progress(*columns, TimeRemainingColumn(), console=out) if out.is_terminal else None
    with bar or nullcontext(), until_stopped(STOPPING, partial(_end_at_once, again), (signal.SIGINT,)) as stop:
        task = None if bar is None else bar.add_task("", total=number)
        for each in rollouts.run(plays, parallel, stop):
            ended.append(each)
            done(each)
            if bar is not None and task is not None:
                bar.update(task, completed=len(ended), description=_together(ended, time.monotonic() - started))
            if bar is None or each.failure is not None or each.note is not None:
                said = f"{len(ended)}/{number} {each.play.session}: {_said(each)}"
                out.print(said, highlight=False, markup=False, soft_wrap=True)
    out.print(_together(ended, time.monotonic() - started), highlight=False, markup=False)
    return ended


def _end_at_once(again: str) -> None:
    """End without waiting for anything: the next run takes away what is left, and plays again what was under way."""
    err.print(f"ended in the middle; after a minute {again} goes on", highlight=False, markup=False)
    out.show_cursor()
    os._exit(ENDED_AT_ONCE)


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
