"""`turnwise forget`: a session goes out of every file of the home, and with --retrain out of the weights as well."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnwise.cli.options import ConfigFile, DryRun, Home, Json, Set, change_journal, err, out, print_json, read_config
from turnwise.cli.stopping import until_stopped

if TYPE_CHECKING:
    from turnwise.config import Config
    from turnwise.journal.queue.rebuilt import RebuiltUpdate

STOPPED = 130
"""Exit code of what Ctrl-C ended, as shells have it."""


def forget_command(
    session: Annotated[str, typer.Argument(help="Its id, or as much of its beginning as no other has.")],
    with_branches: Annotated[
        bool, typer.Option("--with-branches", help="Also the sessions that branched off: they hold copies of its text.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    retrain: Annotated[
        bool, typer.Option("--retrain", help="Rebuild the versions that learned from it, without it.")
    ] = False,
    dry_run: DryRun = False,
    config: ConfigFile = None,
    home: Home = None,
    sets: Set = None,
    as_json: Json = False,
) -> None:
    """Delete a session from every file of the home; says which versions learned from it.

    With --retrain the versions are rebuilt from the last one without it: the same batches are learned again without its
    turns, its wishes, and turns with a skill in their prompts that was made of it. The old ones serve until the new
    ones do, and lose their weights then. Ctrl-C stops it; the same command goes on.
    """
    from turnwise.journal.deletion.forgetting import plan
    from turnwise.versions.forgetting import forget_session

    settings = read_config(config, home, sets)
    session_id = change_journal(
        settings, lambda journal: (journal.rebuilding.meant if retrain else journal.sessions.find)(session)
    )
    note = change_journal(settings, lambda journal: journal.rebuilding.noted(session_id)) if retrain else None
    with_branches = with_branches or (note is not None and note.with_branches)
    planned = change_journal(settings, lambda journal: plan(journal, session_id, with_branches))
    if dry_run:
        rebuilt = _plan_body(settings, session_id, with_branches) if retrain else None
        if as_json or planned.turns or note is None:
            say_forgotten(planned.__dict__ | (rebuilt or {}), as_json, "would be forgotten", retrain)
        else:
            _say(f"{session_id} is forgotten already")
        if rebuilt is not None and not as_json:
            _say_plan(rebuilt)
        return
    if not yes and planned.turns:
        asked = f"{planned.turns} turns of {', '.join(planned.sessions)} will be deleted for good. Go on?"
        typer.confirm(asked, abort=True, err=True)

    if retrain:
        _forget_with_versions(settings, session_id, with_branches, as_json)
        return
    done = change_journal(settings, lambda journal: forget_session(settings, journal, session_id, with_branches))
    say_forgotten(done.__dict__, as_json, "are forgotten")


def say_forgotten(told: dict[str, Any], as_json: bool, what: str, retrain: bool = False) -> None:
    """What goes, or is gone. ``retrain``: the versions are rebuilt, so that weights do forget."""
    if as_json:
        print_json(told)
        return
    line: Callable[[str], None] = lambda text: out.print(text, highlight=False, markup=False, soft_wrap=True)  # noqa: E731
    line(f"{told['turns']} turns of {', '.join(told['sessions'])} {what}")
    if told["records"]:
        line(f"{told['records']} lines of records.jsonl {what}")
    if told["reactions"]:
        line(f"what came back from here to turns of other sessions as well: {', '.join(told['reactions'])}")
    for name, turns in told["skills"].items():
        had = f"; {turns} turn{'s' if turns > 1 else ''} of other sessions had it in the prompt" if turns else ""
        line(f"the skill {name}, which was made from it, goes with it{had}")
    if told["released_batches"]:
        line("a training step that used it is done again without it")
    if told["branches"]:
        line(f"sessions that branched off stay and hold copies of its text: {', '.join(told['branches'])}")
        line("(--with-branches forgets them too)")
    if not told["versions"]:
        line("no version learned from it")
        return
    cannot = "" if retrain else ", whose weights cannot forget, nor those built on them"
    line(f"versions that learned from it{cannot}:")
    for version, ids in told["versions"].items():
        line(f"  version {version}: {len(ids)} turn{'s' if len(ids) > 1 else ''}")


def _plan_body(settings: Config, session_id: str, with_branches: bool) -> dict[str, Any]:
    """What would be rebuilt, and nothing is."""
    from turnwise.versions.rebuilding.forgetting import look_ahead

    plan = change_journal(settings, lambda journal: look_ahead(settings, journal, session_id, with_branches))
    chain = [link.version.number for link in plan.chain]
    return {"rebuild": chain, "start": plan.start, "weights_deleted": plan.gone, "notes": plan.notes}


def _say_plan(plan: dict[str, Any]) -> None:
    for note in plan["notes"]:
        _say(note)
    on = f"version {plan['start']}" if plan["start"] else "the base model"
    gone = _numbers(plan["weights_deleted"])
    _say(f"would be rebuilt on {on}: {_numbers(plan['rebuild'])}; weights that would go: {gone}")


def _forget_with_versions(settings: Config, session_id: str, with_branches: bool, as_json: bool) -> None:
    """Forget and rebuild, or go on with it."""
    from turnwise.versions.rebuilding.forgetting import forget_and_rebuild
    from turnwise.versions.rebuilding.rebuild import RebuildStopped

    os.nice(max(0, 10 - os.nice(0)))  # it must not take the processor from answers
    with until_stopped("stopping; the same command goes on, and until then the old versions serve") as stop:
        try:
            forgotten, done = change_journal(
                settings,
                lambda journal: forget_and_rebuild(
                    settings, journal, session_id, with_branches, stop, lambda text: err.print(text, markup=False)
                ),
            )
        except RebuildStopped as e:
            _say(str(e))
            raise typer.Exit(STOPPED) from None
    if as_json:
        print_json({"forgotten": forgotten and forgotten.__dict__, "rebuilt": [_body(one) for one in done]})
        return
    if forgotten is not None:
        say_forgotten(forgotten.__dict__, as_json, "are forgotten", retrain=True)
    _say_rebuilt(done)


def _say_rebuilt(done: list[RebuiltUpdate]) -> None:
    if not done:
        _say("what serves did not learn from it: nothing was rebuilt")
    for one in done:
        if one.version is None:
            why = "; ".join(one.gate.get("reasons", [])) or "its gate refused it"
            _say(f"version {one.old} has no successor: {why}")
        else:
            _say(f"version {one.version.number} takes the place of version {one.old}: {_turns(one)}")
    numbers = [one.version.number for one in done if one.version is not None]
    if numbers:
        _say(f"version {numbers[-1]} serves from now on")


def _turns(one: RebuiltUpdate) -> str:
    turns = len(one.version.turn_ids) if one.version else 0
    return f"{turns} turn{'' if turns == 1 else 's'}"


def _body(one: RebuiltUpdate) -> dict[str, object]:
    return {"old": one.old, "new": one.version and one.version.number, "batch": one.batch, "gate": one.gate}


def _numbers(numbers: list[int]) -> str:
    return ", ".join(f"version {number}" for number in numbers) or "none"


def _say(text: str) -> None:
    out.print(text, highlight=False, markup=False, soft_wrap=True)
