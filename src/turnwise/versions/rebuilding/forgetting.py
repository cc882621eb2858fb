"""Forgetting a session and what was learned from it: its text goes first, then the versions are rebuilt without it.

Whether the versions can be rebuilt is looked at before anything is deleted. From then on the same command finishes it,
whatever ended it early; until the rebuilt versions serve, the old ones do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from turnwise.config import Config
from turnwise.errors import JournalError, LeaseLost, TurnwiseError
from turnwise.journal import Journal
from turnwise.journal.deletion.forgetting import Forgotten, plan
from turnwise.journal.queue.batches import REBUILDING
from turnwise.journal.queue.rebuilt import RebuildNote, RebuiltUpdate
from turnwise.training.worker import Stop
from turnwise.types import Batch
from turnwise.versions.forgetting import forget_session
from turnwise.versions.rebuilding.plan import RebuildPlan, plan_rebuild
from turnwise.versions.rebuilding.rebuild import Say, rebuild, rebuilding_place


def depends(journal: Journal, session_id: str, with_branches: bool) -> RebuildNote:
    """What depends on a session that is still there: versions, and turns of others with its skills in their prompts."""
    going = plan(journal, session_id, with_branches)
    turns = journal.updates.turns_of(going.sessions)
    with_skills = journal.rebuilding.with_skills_of(going.sessions)
    versions = set(going.versions) | journal.updates.examined_on(turns)
    versions |= journal.updates.learned_from(with_skills)
    return RebuildNote(session_id, sorted(versions), with_skills, with_branches)


def look_ahead(config: Config, journal: Journal, session_id: str, with_branches: bool) -> RebuildPlan:
    """What would be rebuilt. Raises TurnwiseError where that cannot be done, and PlaceTaken while a trainer works."""
    journal.tuning.refuse_if_taken(config.train.lease_s, REBUILDING + session_id)
    return plan_rebuild(journal, config, _depends_by_now(journal, session_id, with_branches).versions)


def forget_and_rebuild(
    config: Config, journal: Journal, session_id: str, with_branches: bool, stop: Stop, say: Say
) -> tuple[Forgotten | None, list[RebuiltUpdate]]:
    """Forget a session, or finish what was begun of it, and rebuild; gives what was deleted now, and what was rebuilt.

    ``session_id`` is the whole id. The trainer's place is taken before anything is deleted and kept to the end. Raises
    PlaceTaken while a trainer works, and what `rebuild` does.
    """
    done = None
    with rebuilding_place(config, journal, session_id) as (workspace, place):
        note = _depends_by_now(journal, session_id, with_branches)
        if journal.rebuilding.is_there(session_id):
            plan_rebuild(journal, config, note.versions)
            journal.rebuilding.begin(note)
            with _kept(config, journal, place):
                done = forget_session(config, journal, session_id, note.with_branches)
            say(f"{done.turns} turns of {', '.join(done.sessions)} are deleted; its versions are rebuilt now")
        else:
            say(f"{session_id} is forgotten already; its versions are rebuilt")
        try:
            return done, rebuild(config, journal, workspace, place, note, stop, say)
        except LeaseLost:
            raise TurnwiseError(
                "another version came to serve meanwhile, so nothing is rebuilt yet; the session is deleted, and the "
                "same command goes on"
            ) from None


def _depends_by_now(journal: Journal, session_id: str, with_branches: bool) -> RebuildNote:
    """What was noted when it was begun, and what has come to depend on what is left of it since."""
    note = journal.rebuilding.noted(session_id) or RebuildNote(session_id)
    note.with_branches |= with_branches
    if not journal.rebuilding.is_there(session_id):
        return note
    return note.joined(depends(journal, session_id, note.with_branches))


@contextmanager
def _kept(config: Config, journal: Journal, place: Batch) -> Iterator[None]:
    """Keep the trainer's place while a session is deleted, which may take longer than a lease."""
    over = threading.Event()

    def keep() -> None:
        while not over.wait(config.train.lease_s / 4):
            with suppress(JournalError):  # a later try may succeed, and who has lost it learns that when it rebuilds
                journal.batches.renew(place, config.train.lease_s)

    keeper = threading.Thread(target=keep, name="place", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()
