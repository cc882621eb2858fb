"""States of labelled texts, kept in the cache folder: they never change, and reading them anew takes minutes.

The first update behind each start read 700 short prompts for its lines, a quarter of its time with a 0.5B model on one
core. A file is found by its prompts and by what this very model says of one more text, to the bit: a model with other
weights, another number format or other rounding reads for itself, unless it differs in the embeddings of tokens alone
that this text does not have.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from turnwise.config import cache_dir
from turnwise.files import write_atomically
from turnwise.training.kinds.lines import DEPTHS, states_after
from turnwise.training.policy import Policy
from turnwise.training.step import Tick

log = logging.getLogger(__name__)

FOLDER = "states"
PROBE = "A person said something, and what they said is read by these weights."
MOST_FILES = 16
"""Files that are kept, of some MB each; the one that was written first goes first."""


def states_of_labelled(policy: Policy, prompts: Sequence[Sequence[int]], tick: Tick) -> Tensor:
    """The base model's states [n, len(DEPTHS), H] after each of these prompts, as `states_after` has them.

    A cache that cannot be read or written costs time alone. Processes that share a model read for themselves: what
    one of them found in a file the others would wait for.
    """
    if policy.ranks.size > 1:
        return states_after(policy, prompts, tick)
    probe = policy.states_within([policy.tokenizer.encode(PROBE, add_special_tokens=False).ids], DEPTHS)
    said = repr((DEPTHS, [list(ids) for ids in prompts])).encode()
    digest = hashlib.sha256(probe.numpy().tobytes() + said).hexdigest()
    file = cache_dir() / FOLDER / f"{digest[:32]}.safetensors"
    shape = (len(prompts), *probe.shape[1:])
    if (found := _read(file, shape)) is None:
        found = states_after(policy, prompts, tick)
        _write(file, found)
    return found


def _read(file: Path, shape: tuple[int, ...]) -> Tensor | None:
    try:
        states = load(file.read_bytes())["states"]
    except FileNotFoundError:
        return None
    except (OSError, SafetensorError, KeyError) as e:
        log.warning("%s cannot be read (%s); its texts are read again", file, e)
        return None
    fits = states.shape == shape and states.dtype == torch.float32 and bool(states.isfinite().all())
    return states if fits else None


def _write(file: Path, states: Tensor) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, save({"states": states.contiguous()}))
    except OSError as e:
        log.warning("%s cannot be written (%s); its texts are read again at the next start", file, e)
    with suppress(OSError):  # another process may do the same
        for oldest in sorted(file.parent.glob("*.safetensors"), key=lambda path: path.stat().st_mtime)[:-MOST_FILES]:
            oldest.unlink(missing_ok=True)
