"""The course of a fine-tuning: step after step, with the held-out loss between, from wherever it was left.

All of it is a function of the rows, the settings and the weights at the start, so a run that was killed goes on to the
same weights. It knows nothing of files, journals and versions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turnwise.errors import DataError
from turnwise.training.backends.base import Backend
from turnwise.training.batching import TokenText
from turnwise.training.sft.checkpoints import Checkpoint, CheckpointStore
from turnwise.training.sft.encoding import Encoded, texts_of
from turnwise.training.sft.plan import all_steps
from turnwise.training.sft.schedule import cosine, warm_up_steps
from turnwise.training.sft.unfinished import SftSettings
from turnwise.training.step import NotFinite, Tick

CHECKPOINT_S = 60.0
"""Most work that a kill undoes, where a checkpoint takes little; that of an adapter takes a tenth of a second."""
SAVING = 20
"""Times that a checkpoint takes itself pass between two: one of a whole model may take a minute."""
MEASURED = 10
"""Times that the held-out loss is taken on the way, beside the beginning and the end of each epoch."""
MOST_SKIPPED = 5
"""Steps in a row without a finite gradient: weights or data are beyond it, and more of it mends nothing."""


class SftStopped(Exception):
    """The run was told to stop in the middle. What is done is on disk."""


@dataclass(frozen=True, slots=True)
class SftProgress:
    """How far it is. ``loss`` is None for a step that was skipped, ``held_out`` where it was not taken."""

    step: int
    steps: int
    loss: float | None
    held_out: float | None
    lr: float
    tokens_s: float
    left_s: float


@dataclass(frozen=True)
class TuningCourse:
    """``learn`` are the conversations to learn, ``aside`` those that are only measured on."""

    backend: Backend
    checkpoints: CheckpointStore
    origin: str
    learn: Sequence[Encoded]
    aside: Sequence[Encoded]
    settings: SftSettings
    seed: int

    def run(
        self, tick: Tick, say: Callable[[str], None], report: Callable[[SftProgress], None]
    ) -> list[dict[str, float]]:
        """Make all steps that are left; gives the metrics of the beginning and of each step.

        ``tick`` may raise to stop it: what is done is then on disk. Raises DataError where nothing can be learned.
        """
        steps = all_steps([e.tokens for e in self.learn], self.settings.batch_tokens, self.seed, self.settings.epochs)
        metrics: list[dict[str, float]] = [{}]
        if done := self.checkpoints.latest(self.origin):
            self.backend.restore(done.weights, done.moments)
            metrics = [dict(one) for one in done.metrics]
            say(f"goes on behind step {done.position} of {len(steps)}")
        saved, saved_at, took = len(metrics), time.monotonic(), 0.0
        warm_up, points = warm_up_steps(len(steps), self.settings.warm_up), self._points(len(steps))
        try:
            while True:
                at = len(metrics) - 1
                if at in points and self.aside and "held_out" not in metrics[at]:
                    metrics[at]["held_out"] = self.backend.imitation_loss(self._texts(self.aside), tick)
                if at or "held_out" in metrics[at]:
                    report(_progress(metrics, len(steps)))
                if at == len(steps):
                    break
                lr = self.settings.lr * cosine(at, len(steps), warm_up)
                metrics.append(self._step([self.learn[i] for i in steps[at]], lr, tick, say))
                if all("skipped" in one for one in metrics[-MOST_SKIPPED:]) and len(metrics) > MOST_SKIPPED:
                    raise DataError(
                        f"{MOST_SKIPPED} steps in a row had no finite gradient, so the run is given up; lower --lr, or "
                        "look at the lines that were named, and begin with --anew"
                    )
                began = time.monotonic()
                if began - saved_at >= max(CHECKPOINT_S, SAVING * took):
                    self._save(metrics)
                    saved, saved_at = len(metrics), time.monotonic()
                    took = saved_at - began
        except Exception:
            if len(metrics) > saved:
                self._save(metrics)
            raise
        self._save(metrics)
        if all("skipped" in one for one in metrics[1:]):
            raise DataError("no step had a finite gradient, so nothing was learned; lower --lr, and begin with --anew")
        return metrics

    def _step(self, chosen: Sequence[Encoded], lr: float, tick: Tick, say: Callable[[str], None]) -> dict[str, float]:
        began = time.monotonic()
        tokens, learned = sum(e.tokens for e in chosen), sum(e.learned for e in chosen)
        measured = {"lr": lr, "tokens": float(tokens), "learned": float(learned)}
        try:
            measured |= self.backend.imitate(self._texts(chosen), lr, tick)
        except NotFinite as e:
            lines = sorted({one.line for one in chosen})
            shown = ", ".join(map(str, lines[:10])) + (", …" if len(lines) > 10 else "")
            say(f"a step is skipped: {e}; its conversations are those of lines {shown}")
            measured["skipped"] = 1.0
        return measured | {"seconds": time.monotonic() - began}

    def _texts(self, chosen: Sequence[Encoded]) -> list[TokenText]:
        return [text for i, one in enumerate(chosen) for text in texts_of(one, i)]

    def _points(self, steps: int) -> set[int]:
        """Behind which steps the held-out loss is taken."""
        epochs = {steps * epoch // self.settings.epochs for epoch in range(self.settings.epochs + 1)}
        return epochs | {steps * k // MEASURED for k in range(MEASURED + 1)}

    def _save(self, metrics: list[dict[str, float]]) -> None:
        self.checkpoints.save(Checkpoint(*self.backend.snapshot(), len(metrics) - 1, metrics, self.origin))


def _progress(metrics: Sequence[dict[str, float]], steps: int) -> SftProgress:
    last, done = metrics[-1], len(metrics) - 1
    timed = [one for one in metrics[1:][-20:] if one["seconds"] > 0]
    seconds = sum(one["seconds"] for one in timed)
    return SftProgress(
        step=done,
        steps=steps,
        loss=None if "skipped" in last else last.get("loss"),
        held_out=last.get("held_out"),
        lr=last.get("lr", 0.0),
        tokens_s=sum(one["tokens"] for one in timed) / seconds if seconds else 0.0,
        left_s=seconds / len(timed) * (steps - done) if timed else 0.0,
    )


def summary(metrics: Sequence[dict[str, float]], epochs: int) -> dict[str, float]:
    """One set of figures for a version: the loss is that of the last epoch, a mean over its learned tokens."""
    steps = metrics[1:]
    last = [one for one in steps[len(steps) * (epochs - 1) // epochs :] if "loss" in one]
    last = last or [one for one in steps if "loss" in one]
    learned = sum(one["learned"] for one in last)
    held = [one["held_out"] for one in metrics if "held_out" in one]
    found = {
        "loss": sum(one["loss"] * one["learned"] for one in last) / learned,
        "tokens": sum(one["learned"] for one in steps if "loss" in one),
        "tokens_read": sum(one["tokens"] for one in steps),
        "optimiser_steps": float(len(steps)),
        "skipped_steps": float(sum("skipped" in one for one in steps)),
        "seconds": sum(one["seconds"] for one in steps),
    }
    if norms := [one["grad_norm"] for one in last if "grad_norm" in one]:
        found["grad_norm"] = sum(norms) / len(norms)
    return found | ({"held_out_before": held[0], "held_out": held[-1]} if held else {})
