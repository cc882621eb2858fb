"""Promoting a version: a person decides which one serves, and why is kept. Nothing is trained and nothing deleted."""

from __future__ import annotations

import json
from typing import Any

from turnwise.config import Config
from turnwise.errors import AdapterError, TurnwiseError
from turnwise.files import put_in_place, write_atomically
from turnwise.journal import Journal
from turnwise.messages import storable
from turnwise.models import resolve_model
from turnwise.models.identity import refuse_other_base
from turnwise.training.publish import held_dir, numbers_on_disk, version_dir
from turnwise.training.weights.files import META, load_version_dir
from turnwise.types import BASE_VERSION, PolicyVersion
from turnwise.versions.known import fault_of, published

MOST_OF_A_REASON = 1000
"""Characters that are kept of a reason."""


def promote(journal: Journal, config: Config, number: int, reason: str) -> int:
    """Make a published version the serving one; gives the number of the one that served until then.

    Raises TurnwiseError for one that is not there or damaged, and AdapterError for one of another base model.
    """
    reason = _said(reason)
    if number == BASE_VERSION:
        raise TurnwiseError("the base model is gone back to with `turnwise versions rollback 0`")
    version = published(journal, number)
    if fault := fault_of(config, number, resolve_model(config.model.path)):
        before = f"version {version.parent}" if version.parent else "the base model"
        raise TurnwiseError(f"version {number} cannot serve: {fault}; the one before it is {before}")
    return journal.versions.promote(number, reason)


def promote_held(journal: Journal, config: Config, reason: str) -> tuple[int, int]:
    """Publish what the gate refused last; gives its number, and that of the version that served until then.

    Raises TurnwiseError where there is none, or it is damaged, or what it is built on is gone, and AdapterError for one
    of another base model.
    """
    reason, folder = _said(reason), held_dir(config.versions_dir)
    if not folder.is_dir():
        raise TurnwiseError("the gate holds no version: nothing was refused, or it was forgotten since")
    try:
        meta = load_version_dir(folder).meta
        parent, batch = int(meta["parent"]), int(meta["gate"]["batch"])
    except (AdapterError, KeyError, TypeError, ValueError) as e:
        raise TurnwiseError(f"what the gate held is damaged and cannot serve: {e}") from e
    refuse_other_base(0, meta, resolve_model(config.model.path))
    if parent != BASE_VERSION:
        published(journal, parent)
    number = max(journal.rebuilding.free_number(), max(numbers_on_disk(config.versions_dir), default=0) + 1)
    target = version_dir(config.versions_dir, number)
    write_atomically(folder / META, json.dumps(meta | {"number": number}, indent=2).encode())
    version = _as_version(meta, number, parent, str(target))
    return number, journal.versions.promote_held(batch, version, reason, lambda: put_in_place(folder, target))


def _as_version(meta: dict[str, Any], number: int, parent: int, path: str) -> PolicyVersion:
    made = float(meta.get("created_at", 0.0))
    return PolicyVersion(number, parent, path, made, meta["metrics"], meta["gate"], list(meta["turn_ids"]))


def _said(reason: str) -> str:
    reason = storable(reason).strip()[:MOST_OF_A_REASON]
    if not reason:
        raise TurnwiseError("say why with --reason: it is what is left of the decision")
    return reason
