"""Publishing: a policy version is a folder that is there whole or not at all, and reading one back.

``versions/v{N}/`` is a PEFT directory, or a model folder where every weight was trained (`weights/`), with a
``meta.json``. Which version serves is the journal's word. A directory gets its name inside of the transaction that
records it, while its trainer holds the batch: one that is recorded is never written to, moved or replaced, but that
the optimiser's state beside its weights is deleted when newer ones have theirs. One whose number the journal gave out
and has no row for is a leftover of a crash.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

from turnwise.files import put_in_place, remove, staged, sync_all
from turnwise.journal import Journal
from turnwise.models.identity import BASE
from turnwise.training.weights.base import State
from turnwise.training.weights.files import META
from turnwise.training.weights.moments import FILE as MOMENTS
from turnwise.training.weights.moments import write_moments
from turnwise.types import PolicyVersion

HELD = "held"


def version_dir(versions: Path, number: int) -> Path:
    return versions / f"v{number}"


def held_dir(versions: Path) -> Path:
    """Where the last candidate is that the gate refused: a folder like a version's, of which the journal knows none."""
    return versions / HELD


class Written(Protocol):
    """What the files of a version are made by: that part of `TrainedWeights`."""

    @property
    def kind(self) -> Literal["lora", "full"]: ...

    @property
    def base(self) -> str | None: ...

    def write(self, state: State, folder: Path) -> None: ...


@contextmanager
def staged_version(
    version: PolicyVersion, weights: Written, state: State, moments: State | None, told: Mapping[str, Any] | None = None
) -> Iterator[Callable[[], None]]:
    """Write a version beside ``version.path``, whole and synced. What is given puts it in place; unused, it is deleted.

    ``moments`` are the optimiser's, for the update that goes on from here; ``told`` stands in ``meta.json`` as well.
    """
    meta = dataclasses.asdict(version) | {"weights": weights.kind} | dict(told or {})
    if weights.base is not None:
        meta[BASE] = weights.base
    del meta["path"], meta["pruned"]  # the folder may be moved or copied
    if version.source is None:  # it learned from turns
        del meta["source"]
    target = Path(version.path)
    with staged(target) as folder:
        weights.write(state, folder)
        if moments:
            write_moments(moments, folder)
        (folder / META).write_text(json.dumps(meta, indent=2), encoding="utf-8")
        sync_all(folder)
        yield lambda: put_in_place(folder, target)


def numbers_on_disk(versions: Path) -> list[int]:
    """The numbers of the version directories, whoever made them."""
    return sorted(int(d.name[1:]) for d in versions.glob("v*") if d.name[1:].isdigit())


def clean_leftovers(journal: Journal, versions: Path) -> None:
    """Delete the directories that a killed trainer put in place and could not record.

    Those of numbers that this journal kept for no batch are another one's, where an older copy was put back: they stay.
    """
    with journal.versions.unrecorded() as numbers:
        for number in numbers & set(numbers_on_disk(versions)):
            remove(version_dir(versions, number))


def keep_moments(versions: Path, count: int) -> None:
    """Delete the optimiser's state of all versions on disk but the newest ``count``."""
    for number in numbers_on_disk(versions)[:-count]:
        (version_dir(versions, number) / MOMENTS).unlink(missing_ok=True)
