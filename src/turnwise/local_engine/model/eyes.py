"""What a vision-language model sees in pictures: its tower and connector, without the part that reads.

These are transformers' own modules with the folder's weights; what they make of a picture takes the places of its
placeholders' embeddings. Adapters do not change them.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, PreTrainedConfig

from turnwise.errors import EngineError, ModelError, PictureRefused
from turnwise.local_engine.model.attention import SeenPicture
from turnwise.local_engine.model.checkpoint import StoredWeights
from turnwise.pictures.features import PictureFeatures
from turnwise.pictures.placed import PlacedPicture, misplaced
from turnwise.pictures.sight import Sight, look

_PARTS = ("vision_model.", "connector.", "visual.")


class Eyes:
    """What is seen in pictures, each looked at once. ``placeholder``: the id at which the model sees one."""

    def __init__(self, folder: Path, config: Any, checkpoint: StoredWeights, dtype: torch.dtype) -> None:
        self.placeholder: int = config.image_token_id
        self._model = _without_text(config)
        weights = {
            name.removeprefix("model."): checkpoint.tensor(name).to(dtype)
            for name in checkpoint.shapes
            if name.removeprefix("model.").startswith(_PARTS)
        }
        lacking = [n for n in self._model.state_dict() if n.startswith(_PARTS) and n not in weights]
        if lacking:
            raise ModelError(f"the weights in {folder} have no {lacking[0]}, which would be random numbers")
        for parameter in self._model.parameters():  # not the tower's frequencies, which stay in float32
            parameter.data = parameter.data.to(dtype)
        self._model.load_state_dict(weights, strict=False)
        self._model.eval().requires_grad_(False)
        self._sights = PictureFeatures(folder, partial(look, self._model))

    def of(self, sha256: str, data: bytes) -> Sight:
        """What is seen in a picture's file. Raises PictureRefused."""
        return self._sights.of(sha256, lambda: data)


def look_at(
    prompt: list[int], given: Sequence[tuple[str, int, int, bytes]], eyes: Eyes | None
) -> tuple[list[PlacedPicture], tuple[SeenPicture, ...]]:
    """Where the pictures of a prompt stand, and what is seen in them: ``given`` are the hash, start, end and file of
    each. Takes seconds for large ones on a CPU.

    Raises EngineError (400) for a model that sees none, and for pictures that are not what is said of them.
    """
    if not given:
        return [], ()
    if eyes is None:
        raise EngineError("features: this model sees no pictures", 400)
    placed, seen = [], []
    for sha256, start, end, data in given:
        if hashlib.sha256(data).hexdigest() != sha256:
            raise EngineError(f"features: the file of the picture {sha256[:12]}… has another hash", 400)
        try:
            seen.append(eyes.of(sha256, data))
        except PictureRefused as e:
            raise EngineError(f"features: {e}", 400) from e
        placed.append(PlacedPicture(sha256, start, end, eyes.placeholder, 0, 0, 0, 0))
    if fault := misplaced(prompt, placed, [len(sight) for sight in seen]):
        raise EngineError(f"features: {fault}", 400)
    for at, sight in zip(placed, seen, strict=True):
        where = at.places(prompt)
        if sight.grid is not None and where[-1] - where[0] >= len(where):
            raise EngineError("features: the placeholders of a picture with rows and columns must stand together", 400)
    return placed, tuple(SeenPicture(p.places(prompt), sight) for p, sight in zip(placed, seen, strict=True))


def _without_text(config: PreTrainedConfig) -> Any:
    """The model with a reader of no layers and one word, so that only what sees takes room."""
    seeing = copy.deepcopy(config)
    text: Any = seeing.get_text_config()
    text.num_hidden_layers, text.vocab_size = 0, 1
    text.pad_token_id = text.bos_token_id = text.eos_token_id = None
    return AutoModel.from_config(seeing)
