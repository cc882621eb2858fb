"""What a policy sees in the pictures of samples: its own tower, frozen, over files that are looked at once each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from turnwise.errors import PictureLost, PictureRefused
from turnwise.pictures.features import PictureFeatures
from turnwise.pictures.placed import misplaced
from turnwise.pictures.sight import Sight, look
from turnwise.pictures.store import PictureStore
from turnwise.training.batching import Row
from turnwise.types import Sample


class PolicyEyes:
    """The tower of ``model``, which came from ``folder``; ``store`` has the pictures that samples name."""

    def __init__(self, model: nn.Module, folder: Path, store: PictureStore | None) -> None:
        self._model: Any = model
        self._store = store
        self._sights = PictureFeatures(folder, self._look)
        self._shapes: dict[str, tuple[int, tuple[int, int] | None]] = {}
        """Of each picture that was looked at, as how many ids it is seen, and of how many rows and columns."""

    def of(self, sha256: str) -> Sight:
        """What is seen in a picture. Raises PictureLost and PictureRefused."""
        if self._store is None:
            raise PictureLost(f"the picture {sha256[:12]}… is nowhere: this policy was given no home")
        store = self._store
        sight = self._sights.of(sha256, lambda: store.read(sha256))
        self._shapes[sha256] = len(sight), sight.grid
        return sight

    def fault(self, sample: Sample) -> str | None:
        """Why a sample's pictures cannot be trained on; None where they can. A file is looked at anew."""
        try:
            if self._store is not None:
                for picture in sample.pictures:
                    self._store.read(picture.sha256)
            counts = [self._shape(picture.sha256)[0] for picture in sample.pictures]
        except (PictureLost, PictureRefused) as e:
            return str(e)
        return misplaced(sample.prompt_ids, sample.pictures, counts)

    def put_into(self, embeddings: Tensor, rows: Sequence[Row], starts: Sequence[tuple[int, int]]) -> dict[str, Tensor]:
        """What a model is given: the ``embeddings`` [B, W, H] with what is seen in place of placeholders, and what is
        seen behind its first blocks. Row r begins at ``starts[r]``, a line and a column of it."""
        embeddings = embeddings.clone()
        deeper: Tensor | None = None
        seen = torch.zeros(embeddings.shape[:2], dtype=torch.bool, device=embeddings.device)
        for row, (line, column) in zip(rows, starts, strict=True):
            for sha256, places in row.shown.items():
                at = torch.tensor([place + column for place, _ in places], device=embeddings.device)
                sight, nth = self.of(sha256), torch.tensor([n for _, n in places])
                embeddings[line, at] = sight.features[nth].to(embeddings)
                if sight.deeper is not None:
                    if deeper is None:
                        deeper = embeddings.new_zeros(len(sight.deeper), *embeddings.shape)
                    deeper[:, line, at] = sight.deeper[:, nth].to(embeddings)
                    seen[line, at] = True
        given = {"inputs_embeds": embeddings}
        return (
            given if deeper is None else given | {"visual_pos_masks": seen, "deepstack_visual_embeds": deeper[:, seen]}
        )

    def grids(self, row: Row) -> dict[str, tuple[int, int]]:
        """Of how many rows and columns each picture of a row is; none where they have no positions of their own."""
        return {sha256: grid for sha256 in row.shown if (grid := self._shape(sha256)[1]) is not None}

    def _shape(self, sha256: str) -> tuple[int, tuple[int, int] | None]:
        if sha256 not in self._shapes:
            self.of(sha256)
        return self._shapes[sha256]

    def _look(self, made: Mapping[str, Any]) -> Sight:
        return look(self._model, made, next(self._model.parameters()).device)
