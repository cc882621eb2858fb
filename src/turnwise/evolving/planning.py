"""From what was found to changes of the library. Pure functions of the library as it is and of what turns show.

What a person wrote or changed by hand is never rewritten here; only skills that turnwise made are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from turnwise.errors import SkillError
from turnwise.evolving.clusters import Cluster
from turnwise.evolving.evidence import ShownTurn
from turnwise.evolving.writing import MADE_BY, skill_of_tool, skill_of_wish
from turnwise.journal.skills.records import SkillChange
from turnwise.journal.skills.replays import ReplayResult
from turnwise.skills.folder import MOST_SKILLS
from turnwise.skills.library import KnownSkill, LibraryView
from turnwise.skills.placing import words_of_wish
from turnwise.skills.skill_file import parse, write
from turnwise.skills.vectors import WordVectors
from turnwise.skills.wishes import PersonsWish, ends, same_thing, says_nothing_new
from turnwise.types import INJECTED, Skill, SkillState

EVOLVER = "evolver"
OURS = frozenset({MADE_BY, EVOLVER})
NEAR = 0.9
"""Cosine of two skills' whole texts from which the second is an edit of the first."""
FULL = f"the library has its {MOST_SKILLS} skills; retire some of them"


@dataclass(slots=True)
class PlannedChanges:
    """``changes`` of the library, and turns of which nothing is made, each with the reason."""

    changes: list[SkillChange] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)

    def names(self) -> str:
        """What changes, for the history."""
        said = [f"{'retire ' if change.content is None else ''}{change.name}" for change in self.changes]
        return ", ".join(said[:3]) + (f" and {len(said) - 3} more" if len(said) > 3 else "")


def plan_wishes(
    turns: Sequence[ShownTurn],
    view: LibraryView,
    vectors: WordVectors,
    taught: Mapping[str, Sequence[tuple[str, str]]] = MappingProxyType({}),
) -> PlannedChanges:
    """A skill for each new wish; of two about one thing the later one counts, and one may take back another.

    ``taught``: the names of wishes that prompts have no more, for the weights should know them, with their sources. One
    that is said again gets its text anew: it is told until a later version keeps it.
    """
    plan = PlannedChanges()
    standing = {name: known.skill for name, known in view.skills.items() if _is_ours(known)}
    others = {name for name, known in view.skills.items() if known.state is not SkillState.RETIRED} - standing.keys()
    for turn in turns:
        for wish in turn.wishes:
            why = _plan_wish(plan, wish, turn, standing, others, vectors, taught)
            if why is not None:
                plan.left[turn.turn_id] = why
    made = {turn for change in plan.changes for turn, _ in change.sources}
    plan.left = {turn: why for turn, why in plan.left.items() if turn not in made}
    return plan


def _plan_wish(
    plan: PlannedChanges,
    wish: PersonsWish,
    turn: ShownTurn,
    standing: dict[str, Skill],
    others: set[str],
    vectors: WordVectors,
    taught: Mapping[str, Sequence[tuple[str, str]]],
) -> str | None:
    """Add what one wish changes; gives why it changes nothing."""
    ended = [name for name, skill in standing.items() if ends(wish, words_of_wish(skill) or skill.description)]
    words = {name: said for name, skill in standing.items() if (said := words_of_wish(skill)) is not None}
    same = [] if ended else [name for name, said in words.items() if says_nothing_new(wish.words, said, vectors)]
    if same:
        planned = {change.name for change in plan.changes}
        for name in taught.keys() & set(same) - planned:
            sources = (*taught[name], turn.source)
            plan.changes.append(SkillChange(name, SkillState.ACTIVE, standing[name].content, sources))
        return "the same wish stands already"
    if not ended:
        about = same_thing(wish.words, list(words.values()), vectors)
        ended = [name for name, same in zip(words, about, strict=True) if same]
        try:
            skill = skill_of_wish(wish, turn.question, others | standing.keys())
        except SkillError as e:
            return str(e)
        if len(standing) + len(others) >= MOST_SKILLS:
            return FULL
        plan.changes.append(SkillChange(skill.name, SkillState.ACTIVE, skill.content, (turn.source,)))
        standing[skill.name] = skill
    for name in ended:
        del standing[name]
        earlier = next((change for change in plan.changes if change.name == name), None)
        if earlier is not None:  # said and taken back between two looks
            plan.changes.remove(earlier)
            sources = tuple(dict.fromkeys((*earlier.sources, turn.source)))
            plan.changes.append(SkillChange(name, SkillState.RETIRED, earlier.content, sources))
        else:
            plan.changes.append(SkillChange(name, SkillState.RETIRED, None, (turn.source,)))
    return None


def plan_tool(cluster: Cluster, view: LibraryView) -> PlannedChanges:
    """Our own words about one kind of failure of a tool, where there are some."""
    plan = PlannedChanges()
    skill = skill_of_tool(cluster.evidence or "", cluster.tool, ())
    if skill is None:
        return plan
    known = view.skills.get(skill.name)
    if known is not None and known.state is SkillState.RETIRED and known.version.made_by == MADE_BY:
        plan.left = {turn.turn_id: f"{skill.name} did not help, and was retired" for turn in cluster.turns}
    elif known is not None and known.state is not SkillState.RETIRED:
        plan.left = {turn.turn_id: f"there is the skill {skill.name} already" for turn in cluster.turns}
    elif len(view.skills) >= MOST_SKILLS:
        plan.left = {turn.turn_id: FULL for turn in cluster.turns}
    else:
        plan.changes.append(SkillChange(skill.name, SkillState.CANDIDATE, skill.content, cluster.sources))
    return plan


def plan_written(
    cluster: Cluster, written: Sequence[Skill], view: LibraryView, review: bool, vectors: WordVectors
) -> PlannedChanges:
    """What a model wrote about a cluster. What rests on foreign text (`review`) waits for the person's word; a skill
    that is nearly one that turnwise made is an edit of that one."""
    plan = PlannedChanges()
    kept = {name: known for name, known in view.skills.items() if known.state is not SkillState.RETIRED}
    given_up = {name: known for name, known in view.skills.items() if name not in kept}
    taken = set(kept)
    for skill in written:
        if _nearest(skill, given_up, vectors) is not None:
            continue  # it did not help, or the person wanted it no more
        near = _nearest(skill, kept, vectors)
        if near is not None and not _is_ours(near):
            continue  # the person has said so already
        if near is not None and near.skill.body == skill.body:
            continue
        if near is not None and (not review or near.state is SkillState.REVIEW):
            if any(change.name == near.skill.name for change in plan.changes):
                continue
            text = write(near.skill.name, skill.description, skill.body, near.skill.category)
            plan.changes.append(SkillChange(text.name, near.state, text.content, cluster.sources))
            continue
        if len(taken) >= MOST_SKILLS:
            continue
        named = write(free_name(skill.name, taken), skill.description, skill.body, skill.category)
        state = SkillState.REVIEW if review else SkillState.CANDIDATE
        plan.changes.append(SkillChange(named.name, state, named.content, cluster.sources))
        taken.add(named.name)
    if not plan.changes:
        plan.left = {turn.turn_id: "the library says so already, or gave it up" for turn in cluster.turns}
    return plan


def text_to_try(change: SkillChange) -> Skill | None:
    """The text of a change that would stand in prompts."""
    if change.content is None or change.state not in INJECTED:
        return None
    return parse(change.content, f"the new text of {change.name}")


def after_replay(
    plan: PlannedChanges, view: LibraryView, results: Mapping[str, ReplayResult]
) -> tuple[PlannedChanges, PlannedChanges]:
    """What is taken of a plan, and what is given up, by what came of the failing turns (by the text's body).

    A new skill that is given up is kept, retired. One that would have been a new text of another skill is dropped: the
    text before it stands.
    """
    taken, given_up = PlannedChanges(left=plan.left), PlannedChanges()
    for change in plan.changes:
        skill = text_to_try(change)
        result = results.get(skill.body) if skill is not None else None
        if result is None or result.state != "failed":
            taken.changes.append(replace(change, replay=result))
            continue
        known = view.skills.get(change.name)
        if known is None or known.state is SkillState.RETIRED:
            given_up.changes.append(replace(change, state=SkillState.RETIRED, replay=result))
        else:
            why = f"a new text of {change.name} was not taken: {result.why}"
            given_up.left |= {turn: why for turn, _ in change.sources}
    used = {turn for change in (*taken.changes, *given_up.changes) for turn, _ in change.sources}
    given_up.left = {turn: why for turn, why in given_up.left.items() if turn not in used}
    return taken, given_up


def free_name(name: str, taken: set[str]) -> str:
    """The name, or the first of its numbers that no skill has."""
    number = 1
    while (tried := name if number == 1 else f"{name[:56].rstrip('-')}-{number}") in taken:
        number += 1
    return tried


def _nearest(skill: Skill, kept: Mapping[str, KnownSkill], vectors: WordVectors) -> KnownSkill | None:
    known = list(kept.values())
    if not known:
        return None
    embedded = vectors.embed([_whole(skill), *(_whole(one.skill) for one in known)])
    near = embedded[1:] @ embedded[0]
    best = int(near.argmax())
    return known[best] if float(near[best]) >= NEAR else None


def _whole(skill: Skill) -> str:
    return f"{skill.name.replace('-', ' ')}. {skill.description}. {skill.body}"


def _is_ours(known: KnownSkill) -> bool:
    """Whether turnwise made a skill that is in force or waits."""
    return known.version.made_by in OURS and known.state in INJECTED | {SkillState.REVIEW}
