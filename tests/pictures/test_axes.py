"""Positions by time, row and column: those of transformers, of whole texts, of pieces and of rows with forks."""

from __future__ import annotations

import random
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLModel

from turnwise.pictures.axes import GridAt, axes_between
from turnwise.training.batching import Fork, Row, Span

SEEN = 9
"""The placeholder's id; all others are words."""
Grid = tuple[int, int]


def text_of(pieces: list[int | Grid]) -> tuple[list[int], list[GridAt]]:
    """Ids, and where the pictures stand among them: a number is so many words, a pair a picture's rows and columns."""
    ids: list[int] = []
    grids = []
    for piece in pieces:
        if isinstance(piece, int):
            ids += [1] * piece
        else:
            grids.append(GridAt(len(ids), *piece))
            ids += [SEEN] * (piece[0] * piece[1])
    return ids, grids


def by_transformers(ids: list[int], grids: list[GridAt]) -> list[list[int]]:
    model: Any = SimpleNamespace(config=SimpleNamespace(vision_config=SimpleNamespace(spatial_merge_size=2)))
    model.get_vision_position_ids = Qwen3VLModel.get_vision_position_ids.__get__(model)
    tokens = torch.tensor([ids])
    sizes = torch.tensor([[1, 2 * grid.rows, 2 * grid.columns] for grid in grids]) if grids else None
    found, _ = Qwen3VLModel.get_rope_index(
        model, tokens, mm_token_type_ids=(tokens == SEEN).int(), image_grid_thw=sizes
    )
    return found[:, 0].tolist()


def some(rng: random.Random) -> list[int | Grid]:
    pieces: list[int | Grid] = [rng.randint(1, 4)]
    for _ in range(rng.randint(0, 4)):
        pieces += [(rng.randint(1, 5), rng.randint(1, 5)), rng.randint(1, 4)]
    return pieces


@pytest.mark.parametrize("seed", range(20))
def test_they_are_those_of_transformers_whole_and_in_pieces(seed: int) -> None:
    rng = random.Random(seed)
    ids, grids = text_of(some(rng))
    expected = by_transformers(ids, grids)
    assert [list(axis) for axis in axes_between(0, len(ids), grids)] == expected
    cuts = sorted({0, len(ids), *(rng.randint(0, len(ids)) for _ in range(4))})
    pieces = [axes_between(*cut, [g for g in grids if g.first < cut[1]]) for cut in pairwise(cuts)]
    assert [[at for piece in pieces for at in piece[axis]] for axis in range(3)] == expected


@pytest.mark.parametrize("seed", range(20))
def test_each_text_of_a_row_with_forks_has_its_own(seed: int) -> None:
    """Two texts that begin alike, the second from the fork on: the same picture may stand in both."""
    rng = random.Random(seed)
    begins, one, other = some(rng), some(rng), some(rng)
    grids = {f"{rows}x{columns}": (rows, columns) for rows in range(1, 6) for columns in range(1, 6)}
    shared = len(text_of(begins)[0])
    texts = [text_of([*begins, *rest]) for rest in (one, other)]
    first, second = (ids for ids, _ in texts)
    row = Row([*first, *second[shared:]], [Span(0, 1, 2)], [Fork(len(first), shared - 1)])
    for ids, placed in texts:
        moved = 0 if ids is first else len(first) - shared
        for grid in placed:
            if ids is second and grid.first < shared:
                continue
            places = row.shown.setdefault(f"{grid.rows}x{grid.columns}", [])
            places += [(grid.first + moved + nth, nth) for nth in range(grid.rows * grid.columns)]
    found = row.axes({sha256: grids[sha256] for sha256 in row.shown})
    whole = [by_transformers(*text) for text in texts]
    assert [list(axis) for axis in found] == [a + b[shared:] for a, b in zip(*whole, strict=True)]
