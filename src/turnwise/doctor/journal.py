"""What `turnwise doctor` says of the journal: it is read as it lies there, never migrated, locked or written to.

An earlier schema is therefore a finding and not mended here: the next start of a loop does that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from turnwise.config import Config
from turnwise.errors import JournalError
from turnwise.journal import Journal
from turnwise.journal.counts import differences, read_counts, recount
from turnwise.journal.queue.refusals import wall
from turnwise.journal.read_only import SchemaAge, exists, read_only, schema_age
from turnwise.loops.states import read_states
from turnwise.schedule.telling import when_trained
from turnwise.types import PolicyVersion

Said = tuple[str, Literal["ok", "note", "fault"], str]
"""A check, its level, and what was found."""


def examine_journal(config: Config) -> Iterator[Said]:
    """The journal's state, what its loops say of themselves, and the published versions whose files are gone."""
    try:
        if not exists(config):
            yield "journal", "ok", "none yet"
            return
        seen = read_only(config, _look)
    except JournalError as e:
        yield "journal", "fault", str(e)
        return
    if isinstance(seen, tuple):
        yield seen
        return
    status, versions = seen.status, seen.versions
    turns, serving = sum(status["turns"].values()), status["version"]["number"]
    yield "journal", "ok", f"{turns} turns, version {serving} serves"
    yield "training", "ok", when_trained(config, status["samples_ready"], status["loops"], read_states(config.home))
    path = config.journal_path
    if path.exists() and path.stat().st_mode & 0o077:
        yield "journal", "note", f"others can read {path}; run: chmod 600 {path}"
    for name, loop in status["loops"].items():
        for said in loop_errors(loop):
            yield name, "fault", f"says: {said}"
    if stands_in_the_way := wall(status["refused_in_a_row"]):
        yield "gate", "fault", stands_in_the_way
    if wrong := seen.wrong_counts:
        found = ", ".join(f"{name}: {kept} kept, {counted} counted" for name, (kept, counted) in wrong.items())
        yield "figures", "fault", f"they differ from what is recorded ({found}); run `turnwise journal recount`"
    for version in versions:
        if version.pruned:
            continue
        folder = config.home / version.path
        whole = (folder / "model.safetensors").is_file()
        for name in ("config.json",) if whole else ("adapter_model.safetensors", "adapter_config.json"):
            if not (folder / name).is_file():
                yield "versions", "fault", f"version {version.number} has lost {folder / name}; restore it"


@dataclass(frozen=True)
class _Sound:
    """What a journal in order holds."""

    status: dict[str, Any]
    versions: list[PolicyVersion]
    wrong_counts: dict[str, tuple[int, int]]


def _look(journal: Journal) -> _Sound | Said:
    """The journal's figures, or what is wrong with it. Raises JournalError."""
    with journal.store.reading() as c:
        if troubles := journal.store.database.troubles(c):
            return "journal", "fault", f"{journal.store.database.place}: {'; '.join(troubles)}"
    age = schema_age(journal)
    if age is not SchemaAge.OURS:
        return "journal", "note" if age in (SchemaAge.EARLIER, SchemaAge.NONE) else "fault", age.advice(journal)
    with journal.store.reading() as c:
        damage = journal.store.database.damage(c)
    if damage:
        # An error, because the file may only have changed while it was read.
        raise JournalError(
            f"the journal {journal.store.database.place} is damaged ({damage[0]}); move it away and restore a copy"
        )
    with journal.store.reading() as c:
        wrong = differences(read_counts(c), recount(c))
    return _Sound(journal.status.figures(), journal.versions.all(), wrong)


def loop_errors(loop: dict[str, object]) -> list[str]:
    """What is wrong by a loop's own account: its `error`, and the gateway's with a version it cannot serve."""
    return [str(loop[key]) for key in ("error", "version_error") if loop.get(key)]
