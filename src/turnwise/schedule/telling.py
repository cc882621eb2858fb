"""Says when weights are trained next, in one sentence, for `status`, `doctor` and `train now`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from turnwise.capabilities import capabilities
from turnwise.config import Config
from turnwise.schedule import asked, traffic, watch

NOTES = frozenset((traffic.STATUS_KEY, watch.STATUS_KEY, asked.STATUS_KEY))
"""What stands among the words of loops and is none: it has its place in the sentence, and falls silent as it likes."""


SILENT_S = 60.0
"""A trainer that has said nothing for so long is none: it says how it is every few seconds."""


def why_never(config: Config, supervised: Collection[str] = ()) -> str | None:
    """Why nothing is trained however long one waits, and which setting says so; None where something may be.

    `supervised` names the loops of the server that runs; empty where none does.
    """
    if not capabilities(config).trainable:
        return f"the engine is of the kind {config.engine.kind}, which takes messages"
    if not config.train.enabled:
        return "train.enabled is false" if config.mode == "both" else f'mode is "{config.mode}"'
    if config.train.when == "off":
        return 'train.when is "off"; set it to "idle", "manual" or "always" and start `turnwise serve` anew'
    if supervised and "trainer" not in supervised:
        return "the server that runs has no trainer: it was started with another train.when, train.enabled or mode"
    return None


def trainer_runs(loops: Mapping[str, Any], supervised: Collection[str] = ()) -> bool:
    """Whether a trainer is there that would take work up, of a server or alone."""
    trainer = loops.get("trainer")
    alone = trainer is not None and trainer.get("state") != "stopped" and trainer.get("seconds_ago", 0.0) < SILENT_S
    return bool(supervised) or alone


def when_trained(config: Config, ready: int, loops: dict[str, Any], supervised: Collection[str] = ()) -> str:
    """What comes of `ready` samples, and when.

    `loops` is what loops say of themselves; `supervised` names those of the server that runs, which may have been
    started with other settings than `config` has.
    """
    said = waiting(config, ready)
    runs = trainer_runs(loops, supervised)
    at_once = ", or `turnwise train now`" if ready and runs else ""
    trainer = loops.get("trainer", {})
    when = trainer.get("when", config.train.when)  # it may have been started with another
    if why := why_never(config, supervised):
        return f"never: {why}" if not config.train.enabled else f"{said}; nothing is trained: {why}"
    if not runs:
        return f"{said}; no trainer runs: start `turnwise serve`"
    if trainer.get("state") == "paused":
        return f"in the middle of a step, and stands: {trainer.get('for')}"
    if when == "manual":
        return f"{said}; `turnwise train now` trains"
    if when == "always":
        return f"{said}; trains as soon as there are {config.train.min_batch}{at_once}"
    return f"{said}; trains while you are away (`turnwise schedule status`){at_once}"


def waiting(config: Config, ready: int) -> str:
    """How many samples there are, and what is missing to a step."""
    least = config.train.min_batch
    if ready >= least:
        return f"{ready} samples are ready"
    if ready == 0:
        return f"no sample is ready (a step begins by itself at {least})"
    return f"{ready} of {least} samples are ready"
