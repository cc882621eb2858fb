"""What `turnwise doctor` says of the library of skills. Nothing is written: edits by hand are taken up elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from turnwise.config import Config
from turnwise.doctor.journal import Said
from turnwise.errors import TurnwiseError
from turnwise.journal.read_only import exists, read_only
from turnwise.skills.embedding import embedder
from turnwise.skills.folder import SkillFolder
from turnwise.skills.skill_file import parse
from turnwise.types import INJECTED, LibraryRevision, SkillState


def examine_skills(config: Config) -> Iterator[Said]:
    """The library, its files, and whether questions can find their skills; nothing where there is no skill."""
    try:
        revision = read_only(config, lambda journal: journal.skills.current()) if exists(config) else _none()
        found = SkillFolder(config.skills_dir).read()
    except TurnwiseError as e:
        yield "skills", "fault", str(e)
        return
    if not revision.entries and not found.files and not found.faults:
        return
    states = Counter(entry.state for entry in revision.entries.values())
    in_use = sum(states[state] for state in INJECTED)
    off = "" if config.skills.enabled else "; skills.enabled is false, so none stands in a prompt"
    yield "skills", "ok", f"{in_use} in use, generation {revision.generation}{off}"
    if waiting := states[SkillState.REVIEW]:
        yield "skills", "note", f"{waiting} wait for your word: turnwise skills review"
    for fault in found.faults.values():
        yield "skills", "fault", fault
    for name, content in found.files.items():
        try:
            parse(content, str(config.skills_dir / name))
        except TurnwiseError as e:
            yield "skills", "fault", str(e)
    if config.skills.enabled:
        try:
            embedder(config.skills).embed(["Which skills fit?"])
        except TurnwiseError as e:
            yield "skills", "fault", f"{e}; only skills that are named are found"


def _none() -> LibraryRevision:
    return LibraryRevision(0, 0, "empty", 0.0)
