"""The library: what the journal holds and what lies in the folder, brought together, and every change to it.

The journal is written first, in one transaction, and the folder follows; a kill between the two leaves a folder that
the next call finishes. What lies in the folder and is neither what turnwise last wrote there nor what the journal says
was changed by hand: it is taken into the journal as a new version. Of two changes at once the one by hand counts last,
and no text is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from filelock import FileLock, Timeout

from turnwise.config import Config
from turnwise.errors import SkillError
from turnwise.journal import Journal
from turnwise.journal.skills.records import SkillChange, SkillVersion
from turnwise.skills.folder import MOST_SKILLS, FolderContent, SkillFolder, digest
from turnwise.skills.skill_file import FILE, check_name, parse
from turnwise.types import IN_FOLDER, INJECTED, LibraryRevision, Skill, SkillEntry, SkillState

T = TypeVar("T")

LOCK_S = 10.0
"""Longest wait for another process that changes the library."""


@dataclass(frozen=True, slots=True)
class KnownSkill:
    """A skill of the library, its state, and which recorded version of it this is."""

    skill: Skill
    state: SkillState
    version: SkillVersion


@dataclass(frozen=True, slots=True)
class LibraryView:
    """The library at one moment. ``faults``: files in the folder that cannot be taken, by name, as sentences."""

    revision: LibraryRevision
    skills: dict[str, KnownSkill] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)

    @property
    def injected(self) -> list[KnownSkill]:
        """Those that may stand in a prompt, by name."""
        return [known for _, known in sorted(self.skills.items()) if known.state in INJECTED]


class Library:
    """The skills of one home."""

    def __init__(self, config: Config, journal: Journal) -> None:
        self._home = config.home
        self._records = journal.skills
        self.folder = SkillFolder(config.skills_dir)

    # -- reading -------------------------------------------------------------------------------------------------------

    def sync(self) -> LibraryView:
        """Take in what was changed by hand, finish what was cut off, and give the library. Raises SkillError."""
        with self._alone():
            return self._sync()

    def find(self, view: LibraryView, given: str) -> KnownSkill:
        """The skill of that name, or the only one whose name begins so. Raises SkillError."""
        if given in view.skills:
            return view.skills[given]
        names = sorted(name for name in view.skills if given and name.startswith(given))
        if len(names) > 1:
            raise SkillError(f"several skills begin with {given!r}: {', '.join(names[:5])}; give more of the name")
        if not names:
            raise SkillError(f"there is no skill {given!r}; see `turnwise skills list`")
        return view.skills[names[0]]

    # -- changes -------------------------------------------------------------------------------------------------------

    def add(
        self, skills: Sequence[Skill], state: SkillState, made_by: str, sources: tuple[tuple[str, str], ...] = ()
    ) -> LibraryView:
        """Put new skills into the library, all or none. Raises SkillError where one of the names is taken."""
        with self._alone():
            view = self._sync()
            for skill in skills:
                known = view.skills.get(skill.name)
                if known is not None and known.state is not SkillState.RETIRED:
                    raise SkillError(f"there is a skill {skill.name!r} already; `turnwise skills edit` changes it")
                if skill.name in view.faults:
                    raise SkillError(f"{view.faults[skill.name]} (mend or delete it first)")
            if len(view.skills) + len(skills) > MOST_SKILLS:
                raise SkillError(f"a library has at most {MOST_SKILLS} skills; retire some of them")
            changes = [SkillChange(skill.name, state, skill.content, sources) for skill in skills]
            return self._change(view, f"add {_named(skills)}", made_by, changes)

    def edit(self, name: str, content: bytes, made_by: str = "person") -> LibraryView:
        """Give a skill another text; it keeps its state. Raises SkillError."""
        with self._alone():
            view = self._sync()
            known = self.find(view, name)
            skill = parse(content, f"the new text of {known.skill.name}")
            if skill.name != known.skill.name:
                raise SkillError(f"the new text says name: {skill.name}; a skill keeps its name, {known.skill.name}")
            if content == known.skill.content:
                return view
            change = SkillChange(skill.name, known.state, content)
            return self._change(view, f"edit {skill.name}", made_by, [change])

    def move(self, name: str, to: SkillState, what: str, only_from: frozenset[SkillState] | None = None) -> LibraryView:
        """Give a skill another state. Raises SkillError where it is in none of those that it may come from."""
        with self._alone():
            view = self._sync()
            known = self.find(view, name)
            if only_from is not None and known.state not in only_from:
                raise SkillError(f"the skill {known.skill.name!r} is {known.state}; nothing was changed")
            change = SkillChange(known.skill.name, to)
            return self._change(view, f"{what} {known.skill.name}", "person", [change])

    def take_wishes(self, view: LibraryView, what: str, changes: Sequence[SkillChange], made_by: str) -> LibraryView:
        """Changes that a person asked for in their own words: no generation begins. Raises SkillError as `evolve`."""
        with self._alone():
            now = self._as_shown(view, changes)
            return self._settled(self._records.change(now.revision, what, made_by, changes), self._found(now))

    def give_up(self, view: LibraryView, what: str, changes: Sequence[SkillChange], made_by: str) -> LibraryView:
        """Keep skills that are not used, retired from the beginning: no generation begins. Raises SkillError as
        `evolve`."""
        return self.take_wishes(view, what, changes, made_by)

    def evolve(self, view: LibraryView, what: str, changes: Sequence[SkillChange], made_by: str) -> LibraryView:
        """Begin a generation with changes that came of failures. Raises SkillError where the library is not any more as
        `view` showed it."""
        with self._alone():
            now = self._as_shown(view, changes)
            return self._settled(self._records.evolve(now.revision, what, changes, made_by), self._found(now))

    def rollback(self, number: int) -> LibraryView:
        """Have the library as it was after change `number`, byte for byte. Raises SkillError.

        A file that cannot be read as a skill is in no version, so it would be lost: it is asked for first.
        """
        with self._alone():
            view = self._sync()
            concerned = view.revision.entries.keys() | self._records.revision(number).entries.keys()
            if name := next((name for name in sorted(view.faults) if name in concerned), None):
                raise SkillError(f"{view.faults[name]} (mend, delete or move it before a rollback)")
            return self._settled(self._records.go_back(view.revision, number), self._found(view))

    def forget(self, names: Collection[str], erase: Callable[[], T]) -> T:
        """Have skills' texts deleted by `erase`, and then their files. What was changed by hand is taken in before: it
        goes with them. Raises SkillError for a file that cannot be read, and so may hold what no version has."""
        with self._alone():
            view = self._sync()
            if fault := next((view.faults[name] for name in sorted(names) if name in view.faults), None):
                raise SkillError(f"{fault} (mend or delete it first)")
            done = erase()
            self._sync()
            return done

    # -- how ----------------------------------------------------------------------------------------------------------

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep all other processes of this home from changing the library meanwhile. Raises SkillError."""
        lock = FileLock(self._home / "skills.lock", timeout=LOCK_S)
        try:
            lock.acquire()
        except Timeout:
            raise SkillError("another process changes the skills of this home; try again") from None
        except OSError as e:
            raise SkillError(f"the skills of {self._home} cannot be changed: {e.strerror or e}") from e
        try:
            yield
        finally:
            lock.release()

    def _as_shown(self, view: LibraryView, changes: Sequence[SkillChange]) -> LibraryView:
        """The library, which is still as `view` showed it, and whose files may be changed so. Raises SkillError."""
        now = self._sync()
        if now.revision.number != view.revision.number:
            raise SkillError("the library was changed meanwhile by another; say it again")
        if fault := next((now.faults[change.name] for change in changes if change.name in now.faults), None):
            raise SkillError(f"{fault} (mend or delete it first)")
        return now

    def _change(self, view: LibraryView, what: str, made_by: str, changes: Sequence[SkillChange]) -> LibraryView:
        return self._settled(self._records.change(view.revision, what, made_by, changes), self._found(view))

    def _found(self, view: LibraryView) -> FolderContent:
        """What lies in the folder after a sync gave this view."""
        texts = {name: known.skill.content for name, known in view.skills.items() if known.state in IN_FOLDER}
        return FolderContent(texts, dict(view.faults))

    def _sync(self) -> LibraryView:
        """`sync` for who is alone."""
        revision = self._records.current()
        self.folder.tidy()
        found, written = self.folder.read(), self.folder.written()
        texts = self._texts(revision)
        changes: list[SkillChange] = []
        for name in sorted(found.files.keys() | revision.entries.keys()):
            if name in found.faults:
                continue
            lies, entry = found.files.get(name), revision.entries.get(name)
            wanted = texts[entry.version].content if entry is not None and entry.state in IN_FOLDER else None
            if lies == wanted or (None if lies is None else digest(lies)) == written.get(name):
                continue  # as it should be, or as we left it before the journal went on
            try:
                changes.append(_by_hand(name, lies, entry, self.folder))
            except SkillError as e:
                found.faults[name] = str(e)
        if changes:
            names = ", ".join(change.name for change in changes[:3]) + (", …" if len(changes) > 3 else "")
            revision = self._records.change(revision, f"by hand: {names}", "hand", changes)
        return self._settled(revision, found)

    def _settled(self, revision: LibraryRevision, found: FolderContent) -> LibraryView:
        """The folder as the journal says, and the view of it. `found`: what was read there; a file that is another one
        by now, or that cannot be read as a skill, is left as it lies."""
        lying, before = self.folder.read().files, self.folder.written()
        texts, hashes = self._texts(revision), {}
        wanted = {
            name: texts[entry.version].content for name, entry in revision.entries.items() if entry.state in IN_FOLDER
        }
        for name in sorted(wanted.keys() | lying.keys()):
            lies, content = lying.get(name), wanted.get(name)
            if name in found.faults or lies not in (content, found.files.get(name)):
                hashes |= {name: before[name]} if name in before else {}
                continue
            if content is None:
                assert lies is not None
                self.folder.take_out(name, lies)
                continue
            if lies != content:
                self.folder.put(name, content, lies)
            hashes[name] = digest(content)
        if hashes != before:
            self.folder.note_written(hashes)
        skills = {
            name: KnownSkill(_parsed(texts[entry.version].content, name), entry.state, texts[entry.version])
            for name, entry in revision.entries.items()
        }
        return LibraryView(revision, skills, dict(found.faults))

    def _texts(self, revision: LibraryRevision) -> dict[int, SkillVersion]:
        return self._records.versions(entry.version for entry in revision.entries.values())


def _by_hand(name: str, lies: bytes | None, entry: SkillEntry | None, folder: SkillFolder) -> SkillChange:
    """What somebody did to a file. Raises SkillError where it is no skill now."""
    if lies is None:
        return SkillChange(name, SkillState.RETIRED)
    skill = parse(lies, str(folder.path / name / FILE))
    if skill.name != check_name(name):
        raise SkillError(
            f"{folder.path / name / FILE} says name: {skill.name}, and its folder is {name}; make them one"
        )
    kept = entry.state if entry is not None and entry.state in IN_FOLDER else SkillState.ACTIVE
    return SkillChange(name, kept, lies)


@lru_cache(maxsize=MOST_SKILLS)
def _parsed(content: bytes, name: str) -> Skill:
    return parse(content, f"the recorded skill {name}")


def _named(skills: Sequence[Skill]) -> str:
    names = [skill.name for skill in skills]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
