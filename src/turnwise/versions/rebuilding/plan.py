"""What has to be rebuilt when a session is forgotten: the line of versions that serves, from the last one without it.

Only that line is rebuilt. Versions that a rollback left and that learned from the session lose their weights, too.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from turnwise.config import Config, GateConfig, StreamsConfig, TrainConfig
from turnwise.errors import ConfigError, TurnwiseError
from turnwise.journal import Journal
from turnwise.models import resolve_model
from turnwise.training.publish import version_dir
from turnwise.training.weights.files import META, read_json
from turnwise.training.weights.moments import read_moments
from turnwise.types import BASE_VERSION, PolicyVersion
from turnwise.versions.known import fault_of

NOW = (
    *("backend", "processes", "rank_timeout_s", "device", "threads", "lease_s", "when", "microbatch_tokens"),
    *("tinker_url", "tinker_model", "tinker_reduction", "tinker_timeout_s"),
)
"""Settings of `train` that are of this machine and this moment, not of the update that is done again."""


@dataclass(frozen=True, slots=True)
class ChainLink:
    """A version of the line, and the batch that it came of."""

    version: PolicyVersion
    batch: int


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """``chain``: what is done again, oldest first, on top of version ``start``. ``gone``: versions whose weights go.

    ``notes``: why it begins earlier than the last version without the session.
    """

    start: int
    chain: list[ChainLink]
    gone: list[int]
    notes: list[str]


def plan_rebuild(journal: Journal, config: Config, tainted: Collection[int]) -> RebuildPlan:
    """What to rebuild without a session that the versions ``tainted`` depend on. Nothing is changed.

    Raises TurnwiseError where that cannot be done, with what to do.
    """
    versions = {version.number: version for version in journal.versions.all()}
    gone = _with_descendants(versions, tainted)
    line = _line(versions, journal.versions.latest())
    first = next((i for i, version in enumerate(line) if version.number in gone), None)
    if first is None:
        return RebuildPlan(journal.versions.latest(), [], sorted(n for n in gone if not versions[n].pruned), [])
    notes: list[str] = []
    at = first
    while at and (why := _no_start(config, line[at - 1])) is not None:
        notes.append(f"version {line[at - 1].number} cannot be gone on from ({why}), so it is rebuilt, too")
        at -= 1
    batches = journal.updates.batches_of([version.number for version in line[at:]])
    chain = [_link(journal, config, version, batches.get(version.number)) for version in line[at:]]
    for link in chain:  # one that is damaged is made anew anyway; of another base model it would be another one
        fault_of(config, link.version.number, resolve_model(config.model.path))
    start = line[at - 1].number if at else BASE_VERSION
    replaced = gone | {link.version.number for link in chain}
    return RebuildPlan(start, chain, sorted(n for n in replaced if not versions[n].pruned), notes)


def _line(versions: dict[int, PolicyVersion], serving: int) -> list[PolicyVersion]:
    """The versions from the base to the one that serves."""
    line: list[PolicyVersion] = []
    while serving in versions:
        line.append(versions[serving])
        serving = versions[serving].parent or BASE_VERSION
    return line[::-1]


def _with_descendants(versions: dict[int, PolicyVersion], tainted: Collection[int]) -> set[int]:
    """These, and all that stand on them: a version's number is higher than its parent's."""
    found = {number for number in tainted if number in versions}
    for number in sorted(versions):
        if versions[number].parent in found:
            found.add(number)
    return found


def _no_start(config: Config, version: PolicyVersion) -> str | None:
    """Why an update cannot go on from a version exactly as it once did, or None."""
    if version.pruned:
        return "its weights were pruned"
    if fault := fault_of(config, version.number, resolve_model(config.model.path)):
        return fault
    folder = version_dir(config.versions_dir, version.number)
    if read_json(folder / META).get("source"):
        return None  # what is learned after a fine-tuning begins with a new optimiser
    try:
        gone = read_moments(folder) is None
    except ValueError as e:
        return str(e)
    return "the state of its optimiser is gone" if gone else None


def _link(journal: Journal, config: Config, version: PolicyVersion, batch: int | None) -> ChainLink:
    if version.source is not None:
        raise TurnwiseError(
            f"version {version.number} was fine-tuned on the file {version.source.get('file')} behind what is to be "
            f"forgotten, and the journal does not have that file: `turnwise versions rollback` to a version before "
            f"both, run `turnwise sft` again, and then forget without --retrain"
        )
    if batch is None or not journal.updates.can_be_read(batch):
        raise TurnwiseError(
            f"version {version.number} cannot be rebuilt: what its update read was not kept (it is of an earlier "
            "turnwise); `turnwise versions rollback` to a version before it, and forget without --retrain"
        )
    as_it_was(config, journal.updates.again(batch, ()).settings)  # raises where its turns were pruned, too
    return ChainLink(version, batch)


def as_it_was(config: Config, settings: dict[str, Any]) -> Config:
    """The configuration with the sections of an earlier update. Raises ConfigError for one of a later turnwise."""
    now = {name: getattr(config.train, name) for name in NOW}
    try:
        train = TrainConfig.model_validate(settings["train"] | now)
        gate = GateConfig.model_validate(settings["gate"])
        streams = StreamsConfig.model_validate(settings.get("streams", {}))
    except ValueError as e:
        raise ConfigError(f"the settings of an earlier update cannot be read by this turnwise: {e}") from e
    return config.model_copy(update={"train": train, "gate": gate, "streams": streams})
