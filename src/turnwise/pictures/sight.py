"""What a model's tower makes of a picture, whichever family it is of. With torch, for engine and trainer alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Sight:
    """What is seen in a picture: ``features`` [n, H] in place of the embeddings of its n placeholders.

    ``deeper`` [L, n, H] are added to the hidden states behind the first L blocks. ``grid``: of how many rows and
    columns the n places are, where rows and columns have positions of their own.
    """

    features: Tensor
    deeper: Tensor | None = None
    grid: tuple[int, int] | None = None

    @property
    def nbytes(self) -> int:
        return self.features.nbytes + (0 if self.deeper is None else self.deeper.nbytes)

    def __len__(self) -> int:
        return len(self.features)


@torch.no_grad()
def look(model: Any, made: Mapping[str, Any], device: torch.device | str = "cpu") -> Sight:
    """What ``model`` sees in what its own processor ``made`` of one picture."""
    if "image_grid_thw" in made:
        grid = torch.from_numpy(made["image_grid_thw"])
        seen = model.get_image_features(torch.from_numpy(made["pixel_values"]).to(device), grid.to(device))
        merged = model.config.vision_config.spatial_merge_size
        _, rows, columns = grid[0].tolist()
        # A tensor for all pictures together, or one for each of them: transformers' releases differ.
        deeper = torch.stack([f if isinstance(f, Tensor) else f[0] for f in seen.deepstack_features])
        return Sight(seen.pooler_output[0].detach(), deeper.detach(), (rows // merged, columns // merged))
    tiles = torch.from_numpy(made["pixel_values"][0])[None].to(device)
    shown = torch.from_numpy(made["pixel_attention_mask"][0]).bool()[None].to(device)
    found = model.get_image_features(tiles, shown).pooler_output
    return Sight((torch.cat(list(found)) if isinstance(found, list | tuple) else found.flatten(0, -2)).detach())
