"""The library of skills as the journal holds it: every version of a skill, and the library after every change.

A revision names for each skill the version that counts and its state. To go back is to write an earlier revision's
entries down once more, as the newest: nothing is taken out. The folder follows what stands here (`skills/library.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, bindparam, exists, func, insert, select

from turnwise.errors import SkillError
from turnwise.journal import schema
from turnwise.journal.packing import pack_json, unpack_json
from turnwise.journal.skills.failures import use_up
from turnwise.journal.skills.generations import batches_with, leave_out
from turnwise.journal.skills.replays import ReplayResult, write_replay
from turnwise.journal.skills.taught import taught
from turnwise.journal.store import Store
from turnwise.types import LibraryRevision, SkillEntry, SkillState

L, V, U, D = schema.libraries.c, schema.skill_versions.c, schema.skill_uses.c, schema.verdicts.c

MOST_BUMPS = 20
"""Generations whose cost is told."""
_SOURCES = select(schema.skill_sources.c.turn_id).where(schema.skill_sources.c.version == bindparam("which"))
_NEWEST = select(func.coalesce(func.max(schema.versions.c.number), 0))
_USED = select(U.version).where(U.turn_id == bindparam("which"), ~U.withheld).order_by(U.version)


@dataclass(frozen=True, slots=True)
class SkillVersion:
    """One text of a skill. ``number`` counts the texts of its name, from 1."""

    id: int
    name: str
    number: int
    content: bytes
    made_by: str
    created_at: float


@dataclass(frozen=True, slots=True)
class SkillChange:
    """What becomes of one skill. ``content``: its new text; None keeps the version it has. ``sources``: the failures
    or wishes that it comes of, as turn and session. ``replay``: what came of asking the failures again with that text.
    """

    name: str
    state: SkillState
    content: bytes | None = None
    sources: tuple[tuple[str, str], ...] = ()
    replay: ReplayResult | None = None


@dataclass(frozen=True, slots=True)
class SkillUse:
    """In how many recorded turns a skill stood, and how those were judged."""

    turns: int = 0
    good: int = 0
    bad: int = 0


@dataclass(frozen=True, slots=True)
class SkillTrial:
    """How the judged turns went that a version of a skill fitted: with it in the prompt, and without it."""

    good_with: int = 0
    bad_with: int = 0
    good_without: int = 0
    bad_without: int = 0


class SkillRecords:
    """Revisions of the library, versions of skills, and their use."""

    def __init__(self, store: Store, put_back: Callable[[Connection, int], None]) -> None:
        """`put_back` gives an open batch's samples back to the queue."""
        self._store = store
        self._put_back = put_back

    def current(self) -> LibraryRevision:
        """The library in force; number 0, and empty, where there never was a skill."""
        with self._store.reading() as c:
            return _current(c)

    def revision(self, number: int) -> LibraryRevision:
        """The library as it was after that change. Raises SkillError."""
        with self._store.reading() as c:
            return _revision(c, number)

    def revisions(self, limit: int) -> list[LibraryRevision]:
        """The newest revisions, newest first."""
        with self._store.reading() as c:
            rows = c.execute(select(schema.libraries).order_by(L.number.desc()).limit(limit))
            return [_read(row) for row in rows]

    def bumps(self) -> list[LibraryRevision]:
        """The revisions that began a generation, newest first, without their skills."""
        first = select(func.min(L.number)).where(L.generation > 0).group_by(L.generation)
        with self._store.reading() as c:
            rows = c.execute(
                select(schema.libraries).where(L.number.in_(first)).order_by(L.number.desc()).limit(MOST_BUMPS)
            )
            return [replace(_read(row), entries={}) for row in rows]

    def versions(self, ids: Iterable[int]) -> dict[int, SkillVersion]:
        """Versions by their ids."""
        return self._versions(V.id.in_(list(ids)))

    def history(self, name: str) -> list[SkillVersion]:
        """Every version of a skill, oldest first."""
        return sorted(self._versions(V.name == name).values(), key=lambda version: version.number)

    def _versions(self, which: Any) -> dict[int, SkillVersion]:
        with self._store.reading() as c:
            rows = c.execute(select(schema.skill_versions).where(which))
            return {row.id: SkillVersion(row.id, row.name, row.number, row.content, row.made_by, row.created_at)
                    for row in rows}  # fmt: skip

    def change(self, base: LibraryRevision, what: str, made_by: str, changes: Sequence[SkillChange]) -> LibraryRevision:
        """The library after these changes to `base`, by a person or as a person wished, which begin no generation.

        The turns that they come of are used up and stay samples. Raises SkillError where `base` is not in force any
        more.
        """
        with self._store.transaction() as c:
            entries = dict(_in_force(c, base).entries)
            for change in changes:
                known = entries.get(change.name)
                if change.content is not None:
                    version = self._add_version(c, change, made_by, support=False)
                elif known is not None:
                    version = known.version
                    self._add_sources(c, version, change, support=False)
                else:
                    raise SkillError(f"there is no skill {change.name!r} in the library")
                entries[change.name] = SkillEntry(version, change.state)
            use_up(c, [source for change in changes for source in change.sources])
            return self._write(c, base, what, entries)

    def evolve(
        self, base: LibraryRevision, what: str, changes: Sequence[SkillChange], made_by: str = "evolver"
    ) -> LibraryRevision:
        """The next generation: the library after changes that came of failures, which their `sources` name. A change
        without a text retires a skill.

        In one transaction the failures are excluded for good and used up, and what is not trained yet of the
        generations before leaves the queue; an open batch that holds any of it is put back. Raises SkillError.
        """
        with self._store.transaction() as c:
            entries = dict(_in_force(c, base).entries)
            for change in changes:
                known = entries.get(change.name)
                if change.content is not None:
                    entries[change.name] = SkillEntry(self._add_version(c, change, made_by, support=True), change.state)
                elif known is not None and change.state is SkillState.RETIRED:
                    self._add_sources(c, known.version, change, support=True)
                    entries[change.name] = replace(known, state=change.state)
                else:
                    raise SkillError(f"the skill {change.name!r} comes of a failure and has no text")
            support = sorted({turn for change in changes for turn, _ in change.sources})
            for batch in batches_with(c, self._store, support, base.generation):
                self._put_back(c, batch)
            cost = leave_out(c, self._store, support, base.generation)
            use_up(c, [source for change in changes for source in change.sources])
            return self._write(c, replace(base, generation=base.generation + 1), what, entries, cost)

    def go_back(self, base: LibraryRevision, number: int) -> LibraryRevision:
        """The library as it was after change `number`, as the newest revision. Raises SkillError."""
        with self._store.transaction() as c:
            earlier = _revision(c, number)
            return self._write(c, _in_force(c, base), f"rollback to {number}", earlier.entries)

    def sources(self, version: int) -> list[tuple[str, str]]:
        """The turns that a version was made from, each with its session."""
        S = schema.skill_sources.c
        with self._store.reading() as c:
            rows = c.execute(select(S.turn_id, S.session_id).where(S.version == version).order_by(S.turn_id))
            return [(row.turn_id, row.session_id) for row in rows]

    def used(self, turn_id: str) -> tuple[int, ...]:
        """The versions that stand in a turn's prompt, by their ids."""
        with self._store.reading() as c:
            return tuple(c.execute(_USED, {"which": turn_id}).scalars())

    def taught(self, policy: int, versions: Sequence[int]) -> set[int]:
        """Of these versions of skills, those whose sources the weights of a policy version had lessons of."""
        with self._store.reading() as c:
            return taught(c, policy, versions)

    def uses(self) -> dict[str, SkillUse]:
        """Of each skill, over all its versions: the recorded turns that it stood in, and the last verdicts on these."""
        last = select(D.score).where(D.turn_id == U.turn_id)
        last = last.order_by((D.judge == "person").desc(), D.id.desc()).limit(1).scalar_subquery()
        joined = schema.skill_uses.join(schema.skill_versions, V.id == U.version)
        used = select(V.name, last.label("score")).select_from(joined).where(~U.withheld).subquery()
        found: dict[str, SkillUse] = {}
        with self._store.reading() as c:
            rows = c.execute(select(used.c.name, used.c.score, func.count()).group_by(used.c.name, used.c.score))
            for name, score, count in rows:
                known = found.get(name, SkillUse())
                good, bad = (count if score == 1 else 0), (count if score == -1 else 0)
                found[name] = SkillUse(known.turns + count, known.good + good, known.bad + bad)
        return found

    def trials(self, versions: Sequence[int]) -> dict[int, SkillTrial]:
        """Of versions of skills, how the turns were judged that they fitted: with them, and where they were left out.

        Turns that a skill was made from do not count: what went wrong there is why it exists.
        """
        made = schema.skill_sources.c
        last = select(D.score).where(D.turn_id == U.turn_id)
        last = last.order_by((D.judge == "person").desc(), D.id.desc()).limit(1).scalar_subquery()
        stood = select(U.version, U.withheld, last.label("score"))
        stood = stood.where(U.version.in_(versions), ~exists().where(made.turn_id == U.turn_id)).subquery()
        found = {version: SkillTrial() for version in versions}
        columns = (stood.c.version, stood.c.withheld, stood.c.score)
        with self._store.reading() as c:
            for version, withheld, score, n in c.execute(select(*columns, func.count()).group_by(*columns)):
                if score in (1, -1):
                    name = f"{'good' if score == 1 else 'bad'}_{'without' if withheld else 'with'}"
                    found[version] = replace(found[version], **{name: n})
        return found

    def _add_version(self, c: Connection, change: SkillChange, made_by: str, support: bool) -> int:
        last = c.execute(select(func.coalesce(func.max(V.number), 0)).where(V.name == change.name)).scalar_one()
        values = {
            "name": change.name,
            "number": last + 1,
            "content": change.content,
            "made_by": made_by,
            "created_at": self._store.clock(),
            "after": c.execute(_NEWEST).scalar_one(),
        }
        version = c.execute(insert(schema.skill_versions).values(values).returning(V.id)).scalar_one()
        self._add_sources(c, version, change, support)
        if change.replay is not None:
            write_replay(c, version, change.replay, self._store.clock())
        return version

    @staticmethod
    def _add_sources(c: Connection, version: int, change: SkillChange, support: bool) -> None:
        of = {"version": version, "support": support}
        rows = [of | {"turn_id": turn, "session_id": session} for turn, session in change.sources]
        known = set(c.execute(_SOURCES, {"which": version}).scalars()) if rows else set()
        if rows := [row for row in rows if row["turn_id"] not in known]:
            c.execute(insert(schema.skill_sources), rows)

    def _write(
        self, c: Connection, base: LibraryRevision, what: str, entries: Mapping[str, SkillEntry], cost: int = 0
    ) -> LibraryRevision:
        at = self._store.clock()
        new = replace(base, number=base.number + 1, what=what, at=at, cost=cost, entries=dict(entries))
        packed = {name: [entry.version, entry.state] for name, entry in new.entries.items()}
        values = {"number": new.number, "generation": new.generation, "what": what, "created_at": new.at, "cost": cost}
        c.execute(insert(schema.libraries).values(values | {"entries": pack_json(packed)}))
        return new


def _current(c: Connection) -> LibraryRevision:
    row = c.execute(select(schema.libraries).order_by(L.number.desc()).limit(1)).one_or_none()
    return LibraryRevision(0, 0, "empty", 0.0) if row is None else _read(row)


def _in_force(c: Connection, base: LibraryRevision) -> LibraryRevision:
    current = _current(c)
    if current.number != base.number:
        raise SkillError("the library was changed meanwhile by another; say it again")
    return current


def _revision(c: Connection, number: int) -> LibraryRevision:
    if number == 0:
        return LibraryRevision(0, 0, "empty", 0.0)
    row = c.execute(select(schema.libraries).where(L.number == number)).one_or_none()
    if row is None:
        raise SkillError(f"there is no library {number}; see `turnwise skills history`")
    return _read(row)


def _read(row: Any) -> LibraryRevision:
    entries = {
        name: SkillEntry(version, SkillState(state)) for name, (version, state) in unpack_json(row.entries).items()
    }
    return LibraryRevision(row.number, row.generation, row.what, row.created_at, row.cost, entries)
