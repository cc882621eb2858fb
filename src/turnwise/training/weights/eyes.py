"""What a policy sees in the pictures of samples: its own tower, frozen, over files that are looked at once each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from turnwise.errors import PictureLost, PictureRefused
from turnwise.pictures.features import PictureFeatures
from turnwise.pictures.placed import misplaced
from turnwise.pictures.store import PictureStore
from turnwise.training.batching import Row
from turnwise.types import Sample


class PolicyEyes:
    """The tower of ``model``, which came from ``folder``; ``store`` has the pictures that samples name."""

    def __init__(self, model: nn.Module, folder: Path, store: PictureStore | None) -> None:
        self._model: Any = model
        self._store = store
        self._features = PictureFeatures(folder, self._look)

    def of(self, sha256: str) -> Tensor:
        """What is seen in a picture [n, H]. Raises PictureLost and PictureRefused."""
        if self._store is None:
            raise PictureLost(f"the picture {sha256[:12]}… is nowhere: this policy was given no home")
        store = self._store
        return self._features.of(sha256, lambda: store.read(sha256))

    def fault(self, sample: Sample) -> str | None:
        """Why a sample's pictures cannot be trained on; None where they can. A file is looked at anew."""
        try:
            if self._store is not None:
                for picture in sample.pictures:
                    self._store.read(picture.sha256)
            counts = [len(self.of(picture.sha256)) for picture in sample.pictures]
        except (PictureLost, PictureRefused) as e:
            return str(e)
        return misplaced(sample.prompt_ids, sample.pictures, counts)

    def put_into(self, embeddings: Tensor, rows: Sequence[Row], starts: Sequence[tuple[int, int]]) -> Tensor:
        """The ``embeddings`` [B, W, H] with what is seen in place of placeholders; row r begins at ``starts[r]``, a
        line and a column of it."""
        embeddings = embeddings.clone()
        for row, (line, column) in zip(rows, starts, strict=True):
            for sha256, places in row.shown.items():
                at = torch.tensor([place + column for place, _ in places], device=embeddings.device)
                nth = torch.tensor([n for _, n in places])
                embeddings[line, at] = self.of(sha256)[nth].to(embeddings)
        return embeddings

    def _look(self, pixels: Any, mask: Any) -> Tensor:
        device = next(self._model.parameters()).device
        tiles, shown = torch.from_numpy(pixels)[None].to(device), torch.from_numpy(mask).bool()[None].to(device)
        with torch.no_grad():
            seen = self._model.get_image_features(tiles, shown).pooler_output
        return (torch.cat(list(seen)) if isinstance(seen, list | tuple) else seen.flatten(0, -2)).detach()
