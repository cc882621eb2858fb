"""`turnwise sft`: supervised fine-tuning on a file of conversations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnwise.cli.options import ConfigFile, Home, Set, out, read_config
from turnwise.cli.stopping import until_stopped
from turnwise.errors import TurnwiseError

if TYPE_CHECKING:
    from turnwise.config import Config
    from turnwise.training.sft.course import SftProgress
    from turnwise.training.sft.unfinished import SftSettings

STOPPED = 130
"""Exit code of what Ctrl-C ended, as shells have it."""


def sft(
    data: Annotated[Path, typer.Argument(help="The conversations: JSON, one object a line.")],
    epochs: Annotated[int, typer.Option(min=1, max=1000, help="Passes over the conversations.")] = 2,
    lr: Annotated[
        float | None,
        typer.Option(min=1e-9, max=1, help="Learning rate at its peak; default: 2e-4, or 1e-5 for every weight."),
    ] = None,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens of an optimiser step, about.")] = 4096,
    eval_share: Annotated[
        float, typer.Option(min=0, max=0.5, help="Share of the conversations to measure on, not to learn; 0: none.")
    ] = 0.05,
    warm_up: Annotated[float, typer.Option(min=0, max=1, help="Share of the steps in which the rate rises.")] = 0.05,
    context: Annotated[
        int | None, typer.Option(min=16, help="Longest prompt and answer, in tokens; default: engine.max_model_len.")
    ] = None,
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="Leave out lines that cannot be read.")] = False,
    anew: Annotated[
        bool, typer.Option("--anew", help="Drop a run that was stopped, and begin from the start.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Read the file, say what would be learned, and end.")] = False,
    config: ConfigFile = None,
    home: Home = None,
    sets: Set = None,
) -> None:
    """Learn the answers of conversations, and publish what comes of it as a version.

    A line of DATA is {"messages": […]} as OpenAI's API has them, with "tools", tool calls and results,
    "reasoning_content", and "weight": 0 at an answer that is not to be learned; or {"prompt": …, "completion": …}, each
    a text or a list of messages, of which the completion is learned. A file with any other line is refused, by the
    line's number. Only answers are learned, each up to the token that ends it. A conversation that is longer than the
    context ends with the last answer that fits; one whose first answer does not fit is left out.

    Ctrl-C stops it; the same command then goes on, to the same weights. `turnwise versions rollback` goes back.
    """
    from turnwise.config.sections import FULL_LR
    from turnwise.training.sft.unfinished import LORA_SFT_LR, SftSettings

    settings = read_config(config, home, sets)
    longest = context or settings.engine.max_model_len
    rate = lr or (LORA_SFT_LR if settings.train.weights == "lora" else FULL_LR)
    asked = SftSettings(epochs, rate, batch_tokens, eval_share, warm_up, longest, skip_broken)
    if check:
        from turnwise.training.sft.run import look

        look(settings, data, asked, _say)
        return
    _fine_tune(settings, data, asked, anew)


def _fine_tune(settings: Config, data: Path, asked: SftSettings, anew: bool) -> None:
    from turnwise.training.sft.course import SftStopped
    from turnwise.training.sft.run import SftTeller, fine_tune

    with until_stopped("stopping; the same command goes on", _end_at_once) as stop:
        try:
            version = fine_tune(settings, data, asked, stop, SftTeller(_say, _report), anew=anew)
        except SftStopped:
            _say("stopped; the same command goes on from here")
            raise typer.Exit(STOPPED) from None
    now, base = version.number, version.parent
    _say(
        f"version {now} serves from now on; `turnwise versions rollback {base}` goes back to {base or 'the base model'}"
    )


def _end_at_once() -> None:
    raise TurnwiseError("ended in the middle; the same command goes on from the last checkpoint")


def _report(at: SftProgress) -> None:
    if at.step == 0:
        _say(f"held-out loss before: {at.held_out:.4f}")
        return
    loss = "skipped" if at.loss is None else f"{at.loss:.4f}"
    held = "" if at.held_out is None else f"  held out {at.held_out:.4f}"
    left = f"  {at.left_s / 60:.0f} min left" if at.left_s >= 90 else f"  {at.left_s:.0f} s left" if at.left_s else ""
    _say(f"step {at.step}/{at.steps}  loss {loss}{held}  lr {at.lr:.2e}  {at.tokens_s:.0f} tokens/s{left}")


def _say(text: str) -> None:
    out.print(text, highlight=False, markup=False, soft_wrap=True)
