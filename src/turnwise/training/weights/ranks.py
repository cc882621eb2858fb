"""The processes that train one policy together, each a rank: who reads which micro-batch, and what all know afterwards.

Every rank runs the same code. What is dealt out is read by one of them; all else is done by each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor

from turnwise.training.batching import Row, Span

NOBODY = -1
IDLE = [Row([0, 0], [Span(NOBODY, 1, 2)])]
"""What a rank reads for which there is no micro-batch: all take part in every pass. Nothing is learned of it."""

Sums = dict[str, dict[str, float]]


class Ranks:
    """One process alone, which is all of them."""

    size = 1
    rank = 0

    def deal(self, groups: Sequence[list[Row]]) -> list[list[Row]]:
        """The micro-batches of this rank; as many for each, with `IDLE` ones at the end."""
        dealt = list(groups[self.rank :: self.size])
        return dealt + [IDLE] * (-(-len(groups) // self.size) - len(dealt))

    def share(self, found: dict[int, Tensor]) -> dict[int, Tensor]:
        """What all ranks found, by sample."""
        return found

    def total(self, sums: Sums) -> Sums:
        """The sums over all ranks."""
        return sums

    def agree(self, said: bool) -> bool:
        """What the first rank says, where clocks may differ."""
        return said


class ManyRanks(Ranks):
    """This process among those of torch's process group; ``control`` is a group that waits as long as it takes."""

    def __init__(self, control: Any) -> None:
        self.size, self.rank, self._control = dist.get_world_size(), dist.get_rank(), control

    def share(self, found: dict[int, Tensor]) -> dict[int, Tensor]:
        device = next(iter(found.values())).device
        merged: dict[int, Tensor] = {}
        for part in self._gathered({i: tensor.cpu() for i, tensor in found.items() if i != NOBODY}):
            merged |= {i: tensor.to(device) for i, tensor in part.items()}
        return merged

    def total(self, sums: Sums) -> Sums:
        total: Sums = {}
        for part in self._gathered(sums):
            for stream, values in part.items():
                ours = total.setdefault(stream, {})
                for name, value in values.items():
                    ours[name] = ours.get(name, 0.0) + value
        return total

    def agree(self, said: bool) -> bool:
        return bool(self.told(said))

    def told(self, said: object) -> Any:
        """What the first rank says; the others wait for it for as long as it takes."""
        box = [said if self.rank == 0 else None]
        dist.broadcast_object_list(box, src=0, group=self._control)
        return box[0]

    def _gathered(self, mine: Mapping[Any, Any]) -> list[Any]:
        """What each rank has, in the order of ranks."""
        boxes: list[Any] = [None] * self.size
        dist.all_gather_object(boxes, mine)
        return boxes
