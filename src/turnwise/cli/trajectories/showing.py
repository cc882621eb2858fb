"""`turnwise trajectory`: what an agent did in a task, or a session, as one page of HTML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnwise.cli.options import ConfigFile, Home, out, read_config, read_journal
from turnwise.errors import TurnwiseError

if TYPE_CHECKING:
    from turnwise.journal import Journal
    from turnwise.trajectories.page import StoryPage
    from turnwise.trajectories.record import SavedTrajectory
    from turnwise.trajectories.steps import CallsIn

SHOWN_ELSEWHERE = ("judge_said", "answer")
"""Details that stand by themselves."""


def trajectory(
    session: Annotated[str, typer.Argument(help="The session, or as much of its beginning as no other has.")],
    out_file: Annotated[Path, typer.Option("--out", help="The page to write.")] = Path("trajectory.html"),
    saved: Annotated[
        Path | None, typer.Option("--from", help="A file of `turnwise rollout --save` or `turnwise eval` to look in.")
    ] = None,
    config: ConfigFile = None,
    home: Home = None,
) -> None:
    """Write a trajectory as one HTML file: pictures with the clicks, reasoning, calls, what came of them, verdict."""
    from turnwise.files import write_atomically
    from turnwise.pictures.store import PictureStore
    from turnwise.trajectories.page import as_page

    if saved is not None:
        page = as_page(_of_saved(_found(saved, session)))
    else:
        settings = read_config(config, home, None)
        told = read_journal(settings, lambda journal: _of_session(journal, session))
        page = as_page(told, PictureStore(settings.home).read)
    write_atomically(out_file, page.encode("utf-8", "replace"))
    out.print(f"{out_file}", highlight=False, markup=False, soft_wrap=True)


def _found(path: Path, session: str) -> SavedTrajectory:
    from turnwise.trajectories.record import saved_trajectories

    found = None
    for each in saved_trajectories(path):
        if each.session == session:
            return each
        if each.session.startswith(session):
            if found is not None:
                raise TurnwiseError(f"{path} has several trajectories that begin with {session!r}; give more of it")
            found = each
    if found is None:
        raise TurnwiseError(f"{path} has no trajectory {session!r}")
    return found


def _of_saved(saved: SavedTrajectory) -> StoryPage:
    from turnwise.messages import from_chat
    from turnwise.trajectories.page import StoryPage, data_url
    from turnwise.trajectories.steps import add_feedback, story_of

    story = story_of([from_chat(dict(message)) for message in saved.messages], _calls_in(saved.environment))
    for step, spent in zip(story.steps, saved.spent, strict=False):
        step.thought = step.thought or spent.thought
        if spent.picture is not None:
            step.picture = data_url(spent.picture)
        step.notes.append(f"{spent.prompt_tokens} + {spent.completion_tokens} tokens")
    for step, taken in zip(story.steps, saved.trail.steps if saved.trail else (), strict=False):
        for told in taken.feedback[len(step.feedback) :]:  # what no later message told
            add_feedback(step, told)
    facts = [("task", saved.task_id), ("asked", saved.prompt), ("environment", saved.environment)]
    facts += _facts(saved.details)
    verdict = _verdict(saved.reward, saved.failure, saved.cut_off)
    pages = () if saved.trail is None else saved.trail.pages
    pictures = [page.picture for page in pages if page.picture is not None]
    ends = [("The last page", pages[-1].text), *_ends(saved.details)] if pages else _ends(saved.details)
    return StoryPage(saved.session, verdict, saved.succeeded, facts, story, ends, pictures)


def _of_session(journal: Journal, given: str) -> StoryPage:
    from turnwise.cli.transcript import Transcript
    from turnwise.messages import from_chat
    from turnwise.trajectories.page import StoryPage
    from turnwise.trajectories.steps import story_of

    found = journal.sessions.show(journal.sessions.find(given), Transcript().new)
    if found is None:
        raise TurnwiseError(f"the turns of {given} were pruned; see `turnwise sessions list`")
    session, rollout = found["id"], journal.rollouts.owner(found["id"])
    played = journal.environments.ended(session)
    messages = [
        from_chat(message)
        for turn in found["turns"]
        for message in (*turn["added"], *([turn["answer"]] if turn["answer"] else []))
    ]
    story = story_of(messages, _calls_in(rollout.stream) if rollout is not None else None)
    answered = [turn for turn in found["turns"] if turn["answer"]]
    for step, turn in zip(story.steps, answered, strict=False):
        step.notes.append(f"version {turn['version']}, {turn['prompt_tokens']} + {turn['response_tokens']} tokens")
        step.notes += [f"{v['score']:+d} by {v['judge']} ({v['reason']})" for v in turn["verdicts"]]
    details: Mapping[str, Any] = {} if played is None else played.details
    facts = [] if rollout is None else [("task", rollout.task_id), ("environment", rollout.stream)]
    facts += [("turns", str(len(found["turns"]))), *_facts(details)]
    if played is None:
        verdict, good = found["close_reason"] or "open", True
    else:
        verdict = _verdict(played.reward, played.failure, details.get("cut_off"))
        good = played.reward is not None and played.reward >= 1
    return StoryPage(session, verdict, good, facts, story, _ends(details))


def _calls_in(environment: str) -> CallsIn | None:
    """What reads calls out of words, for agents that write them as text."""
    from turnwise.environments.kinds import KINDS, kind_of

    if environment not in KINDS:
        return None
    kind = kind_of(environment)
    return lambda words: [(call.name, call.arguments) for call in kind.read(words).calls]


def _verdict(reward: float | None, failure: str | None, cut_off: object) -> str:
    if failure is not None:
        return f"no reward: {failure}"
    if reward is None:
        return "not ended"
    return f"reward {reward:g}" + (f", cut off by {cut_off}" if cut_off else "")


def _facts(details: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(str(key), _plain(value)) for key, value in details.items() if key not in SHOWN_ELSEWHERE]


def _ends(details: Mapping[str, Any]) -> list[tuple[str, str]]:
    named = (("The answer", details.get("answer")), ("What the judge said", details.get("judge_said")))
    return [(name, text) for name, text in named if isinstance(text, str) and text]


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
