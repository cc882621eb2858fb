"""Which versions a person may name, and whether their folders can be used with the base model that is there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from turnwise.config import Config
from turnwise.errors import AdapterError, TurnwiseError
from turnwise.journal import Journal
from turnwise.models.identity import refuse_other_base
from turnwise.training.publish import version_dir
from turnwise.training.weights.files import load_version_dir
from turnwise.types import BASE_VERSION, PolicyVersion


@dataclass(frozen=True, slots=True)
class Usable:
    """A version whose folder can be read, and what had to be said on the way to it. ``folder`` None: the base model."""

    number: int
    folder: Path | None
    notes: tuple[str, ...] = ()


def published(journal: Journal, number: int) -> PolicyVersion:
    """A version by its number. Raises TurnwiseError where there is none, or its weights were pruned."""
    found = journal.versions.get(number)
    if found is None:
        raise TurnwiseError(f"there is no published version {number}; see `turnwise versions list`")
    if found.pruned:
        raise TurnwiseError(f"the weights of version {number} were pruned; see `turnwise versions list`")
    return found


def fault_of(config: Config, number: int, model: Path | str) -> str | None:
    """What is wrong with the folder of a version, or None. Raises AdapterError where its base model is another one."""
    try:
        there = load_version_dir(version_dir(config.versions_dir, number))
    except AdapterError as e:
        return str(e)
    refuse_other_base(number, there.meta, model)
    return None


def usable(journal: Journal, config: Config, number: int, model: Path | str) -> Usable:
    """The version, or in place of a damaged one the nearest before it that is whole.

    Raises TurnwiseError for one that is not there, and AdapterError for one of another base model.
    """
    notes: list[str] = []
    if number != BASE_VERSION:
        published(journal, number)
    while number != BASE_VERSION:
        known = journal.versions.get(number)
        assert known is not None
        fault = "its weights were pruned" if known.pruned else fault_of(config, number, model)
        if fault is None:
            return Usable(number, version_dir(config.versions_dir, number), tuple(notes))
        before = known.parent or BASE_VERSION
        instead = f"version {before}" if before else "the base model"
        notes.append(f"version {number} cannot be used ({fault}); {instead}, the one before it, stands in for it")
        number = before
    return Usable(BASE_VERSION, None, tuple(notes))
