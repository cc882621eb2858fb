"""`turnwise skills`: the library of skills, and what a person does with it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import click
import typer
from rich.table import Column, Table

from turnwise.cli.hints import safe
from turnwise.cli.options import ConfigFile, Home, Json, ago, out, print_json, read_config
from turnwise.cli.skills.library import say, with_library
from turnwise.errors import SkillError
from turnwise.files import write_atomically
from turnwise.types import SkillState

if TYPE_CHECKING:
    from turnwise.journal import Journal
    from turnwise.journal.skills.records import SkillTrial
    from turnwise.journal.skills.replays import ReplayResult
    from turnwise.skills.library import KnownSkill, Library, LibraryView

T = TypeVar("T")

skills_app = typer.Typer(
    help="Skills: short instructions that are put into the prompts they fit.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(help="The skill's name, or as much of its beginning as no other has.")]
MOST_READ = 1 << 20
"""Bytes of standard input that are looked at."""


@skills_app.command("list", epilog="Example: turnwise skills list")
def skills_list(
    config: ConfigFile = None,
    home: Home = None,
    everything: Annotated[bool, typer.Option("--all", help="Also those that are retired.")] = False,
    as_json: Json = False,
) -> None:
    """The skills of the library: their state, how often each stood in a prompt, and how those turns were judged."""

    def read(library: Library, journal: Journal) -> tuple[LibraryView, dict[str, Any]]:
        return library.sync(), journal.skills.uses()

    view, uses = with_library(config, home, read)
    rows = [known for _, known in sorted(view.skills.items()) if everything or known.state is not SkillState.RETIRED]
    if as_json:
        told = [_body(known) | _used(uses.get(known.skill.name)) for known in rows]
        revision = view.revision
        print_json({"library": revision.number, "generation": revision.generation, "skills": told,
                    "faults": view.faults})  # fmt: skip
        return
    if rows:
        table = Table("skill", "state", "text", "in turns", "good", "bad", Column("for", overflow="fold"))
        for known in rows:
            used = _used(uses.get(known.skill.name))
            text = f"{known.version.number} by {known.version.made_by}"
            figures = (str(used[figure]) for figure in ("turns", "good", "bad"))
            table.add_row(known.skill.name, str(known.state), text, *figures, safe(known.skill.description))
        out.print(table)
    else:
        out.print("there is no skill yet; `turnwise skills add FILE` takes one", highlight=False)
    for fault in view.faults.values():
        out.print(f"[yellow]not taken:[/] {safe(fault)}", highlight=False, soft_wrap=True)


@skills_app.command("show", epilog="Example: turnwise skills show tidy-dates")
def skills_show(
    name: Name,
    config: ConfigFile = None,
    home: Home = None,
    version: Annotated[int | None, typer.Option(min=1, help="An earlier text of it, by its number.")] = None,
    as_json: Json = False,
) -> None:
    """One skill's text as it stands in its file, and how turns went with it and without it."""

    def read(
        library: Library, journal: Journal
    ) -> tuple[KnownSkill, list[Any], list[tuple[str, str]], SkillTrial, ReplayResult | None]:
        known = library.find(library.sync(), name)
        version = known.version.id
        trial = journal.skills.trials([version])[version]
        history, sources = journal.skills.history(known.skill.name), journal.skills.sources(version)
        return known, history, sources, trial, journal.replays.of(version)

    known, history, sources, trial, replay = with_library(config, home, read)
    if as_json:
        versions = [{"number": v.number, "made_by": v.made_by, "created_at": v.created_at} for v in history]
        made_from = [{"turn": turn, "session": session} for turn, session in sources]
        tried = {"with": {"good": trial.good_with, "bad": trial.bad_with},
                 "without": {"good": trial.good_without, "bad": trial.bad_without}}  # fmt: skip
        told = {"body": known.skill.body, "versions": versions, "sources": made_from, "judged_turns": tried,
                "replay": None if replay is None else asdict(replay)}  # fmt: skip
        print_json(_body(known) | told)
        return
    texts = {each.number: each.content for each in history}
    wanted = known.version.number if version is None else version
    if wanted not in texts:
        raise SkillError(f"{known.skill.name} has the texts 1 to {max(texts)}, and no {wanted}")
    text = texts[wanted].decode("utf-8-sig")
    out.print(text.rstrip("\n"), markup=False, highlight=False, soft_wrap=True)
    if sources or known.state is SkillState.CANDIDATE:
        say(_life(known, len(sources), trial))
    if replay is not None:
        say(_replayed(replay))


def _life(known: KnownSkill, sources: int, trial: SkillTrial) -> str:
    """What is known of a skill that turnwise made."""
    from turnwise.evolving.lifecycle import chance_of_help

    made = f"{known.state}; text {known.version.number} by {known.version.made_by}, of {sources} turns"
    stood = f"with it {trial.good_with} judged turns were good and {trial.bad_with} bad"
    out_of = f"without it {trial.good_without} and {trial.bad_without}"
    return f"\n({made}; {stood}, {out_of}; chance that it helps: {chance_of_help(trial):.2f})"


def _replayed(result: ReplayResult) -> str:
    """What came of asking the turns again that the skill was made of."""
    if result.state == "waits":
        return f"(its turns will be asked again: {result.why})"
    counts = f"{result.better} better, {result.worse} worse, {result.same} the same, {result.unclear} not to be told"
    return f"(its turns were asked again with it and without it: {counts}; {result.why})"


@skills_app.command("add", epilog="Example: turnwise skills add tidy-dates/SKILL.md")
def skills_add(
    file: Annotated[str, typer.Argument(help="A SKILL.md, the folder that it is in, or - for standard input.")],
    config: ConfigFile = None,
    home: Home = None,
) -> None:
    """Put a skill into the library; it is used from the next turn on."""
    from turnwise.skills.packs import read_skill
    from turnwise.skills.skill_file import parse

    skill = parse(sys.stdin.buffer.read(MOST_READ), "standard input") if file == "-" else read_skill(Path(file))
    with_library(config, home, lambda library, _: library.add([skill], SkillState.ACTIVE, "person"))
    say(f"the skill {skill.name} is in the library")


@skills_app.command("edit", epilog="Example: turnwise skills edit tidy-dates --file new.md")
def skills_edit(
    name: Name,
    config: ConfigFile = None,
    home: Home = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="The new text; without it your editor opens ($EDITOR).")
    ] = None,
) -> None:
    """Give a skill another text. Its file can as well be edited in the folder: that is noticed."""
    from turnwise.skills.packs import read_skill

    known = with_library(config, home, lambda library, _: library.find(library.sync(), name))
    if file is not None:
        content = read_skill(file).content
    else:
        try:
            edited = click.edit(known.skill.content.decode("utf-8-sig"), extension=".md", require_save=True)
        except click.ClickException as e:
            said = f"your editor failed ({e.message}); nothing was changed; set $EDITOR, or give --file"
            raise SkillError(said) from e
        if edited is None:
            say("nothing was changed")
            return
        content = edited.encode()
    try:
        view = with_library(config, home, lambda library, _: library.edit(known.skill.name, content))
    except SkillError as e:
        if file is not None:
            raise
        kept = read_config(config, home, None).home / f"edited-{known.skill.name}.md"
        write_atomically(kept, content)
        raise SkillError(f"{e}; what you wrote is in {kept}: mend it, and give it as --file") from e
    say(f"{known.skill.name} has its text {view.skills[known.skill.name].version.number} now")


@skills_app.command("disable", epilog="Example: turnwise skills disable tidy-dates")
def skills_disable(name: Name, config: ConfigFile = None, home: Home = None) -> None:
    """Leave a skill in its folder, and in no prompt."""
    from turnwise.types import INJECTED

    _move(config, home, name, SkillState.DISABLED, "disable", INJECTED, "is in no prompt any more")


@skills_app.command("enable", epilog="Example: turnwise skills enable tidy-dates")
def skills_enable(name: Name, config: ConfigFile = None, home: Home = None) -> None:
    """Use a skill again that was disabled or retired."""
    stopped = frozenset({SkillState.DISABLED, SkillState.RETIRED})
    _move(config, home, name, SkillState.ACTIVE, "enable", stopped, "is used again")


@skills_app.command("retire", epilog="Example: turnwise skills retire tidy-dates")
def skills_retire(name: Name, config: ConfigFile = None, home: Home = None) -> None:
    """Take a skill out of the folder; its texts stay in the journal, and `enable` brings it back."""
    from turnwise.types import IN_FOLDER

    _move(config, home, name, SkillState.RETIRED, "retire", IN_FOLDER, "is retired")


@skills_app.command("history", epilog="Example: turnwise skills history --limit 5")
def skills_history(
    config: ConfigFile = None,
    home: Home = None,
    limit: Annotated[int, typer.Option(min=1, help="Most changes to show.")] = 20,
    as_json: Json = False,
) -> None:
    """The changes of the library, newest first; each number can be rolled back to."""

    def read(library: Library, journal: Journal) -> list[Any]:
        library.sync()
        return journal.skills.revisions(limit)

    rows = with_library(config, home, read)
    if as_json:
        print_json([{"number": r.number, "generation": r.generation, "cost": r.cost, "what": r.what, "at": r.at,
                     "skills": {n: e.state for n, e in r.entries.items()}} for r in rows])  # fmt: skip
        return
    table = Table("library", "when", "what was changed", "skills", "generation", "samples it cost")
    for row in rows:
        used = sum(entry.state is not SkillState.RETIRED for entry in row.entries.values())
        table.add_row(str(row.number), ago(row.at), safe(row.what), str(used), str(row.generation), str(row.cost))
    out.print(table)


@skills_app.command("rollback", epilog="Example: turnwise skills rollback 3")
def skills_rollback(
    number: Annotated[int, typer.Argument(min=0, help="Of `turnwise skills history`; 0 is the empty library.")],
    config: ConfigFile = None,
    home: Home = None,
) -> None:
    """Have the library as it was after that change, byte for byte; this is a change, too, and can be taken back."""
    view = with_library(config, home, lambda library, _: library.rollback(number))
    say(f"the library is as it was after change {number}; this is change {view.revision.number}")


@skills_app.command("review", epilog="Example: turnwise skills review --accept tidy-dates")
def skills_review(
    config: ConfigFile = None,
    home: Home = None,
    accept: Annotated[str | None, typer.Option(metavar="NAME", help="Use this one from now on.")] = None,
    reject: Annotated[str | None, typer.Option(metavar="NAME", help="Drop this one.")] = None,
    as_json: Json = False,
) -> None:
    """The skills that wait for your word, with their texts: what came from elsewhere is in no prompt before that."""
    waiting = frozenset({SkillState.REVIEW})
    if accept is not None and reject is not None:
        raise SkillError("say one: --accept NAME or --reject NAME")
    if accept is not None:
        _move(config, home, accept, SkillState.ACTIVE, "accept", waiting, "is used from now on")
        return
    if reject is not None:
        _move(config, home, reject, SkillState.RETIRED, "reject", waiting, "is dropped")
        return
    view = with_library(config, home, lambda library, _: library.sync())
    rows = [known for _, known in sorted(view.skills.items()) if known.state is SkillState.REVIEW]
    if as_json:
        print_json([_body(known) | {"body": known.skill.body} for known in rows])
        return
    if not rows:
        out.print("no skill waits for review")
        return
    for known in rows:
        out.rule(f"{known.skill.name} (by {known.version.made_by})")
        out.print(known.skill.content.decode("utf-8-sig").rstrip(), markup=False, highlight=False, soft_wrap=True)
    out.rule()
    say("Take one with `turnwise skills review --accept NAME`, or drop it with `--reject NAME`.")


@skills_app.command("prompts", epilog="Example: turnwise skills prompts")
def skills_prompts(
    config: ConfigFile = None,
    home: Home = None,
    again: Annotated[bool, typer.Option("--again", help="Have those that were refused made once more.")] = False,
    as_json: Json = False,
) -> None:
    """The long system prompts of agents: which are shorter by now (compress.url), and how much that saves."""
    from turnwise.journal.skills.compressions import told_of

    if again:
        say(f"{with_library(config, home, lambda _, journal: journal.compressions.start_over())} are made once more")
    rows = [told_of(one) for one in with_library(config, home, lambda _, journal: journal.compressions.all())]
    if as_json:
        print_json(rows)
        return
    table = Table("prompt", "state", "bytes", "shorter", "in turns", Column("why", overflow="fold"))
    for row in rows:
        table.add_row(*(safe(str("" if row[key] is None else row[key])) for key in
                        ("prompt", "state", "bytes", "shorter", "turns", "why")))  # fmt: skip
    out.print(table) if rows else say("no long system prompt came yet, or compress.url is not set")


def _move(
    config: Path | None,
    home: Path | None,
    name: str,
    to: SkillState,
    what: str,
    only_from: frozenset[SkillState],
    said: str,
) -> None:
    def move(library: Library, _: Journal) -> str:
        whole = library.find(library.sync(), name).skill.name
        library.move(whole, to, what, only_from)
        return whole

    say(f"the skill {with_library(config, home, move)} {said}")


def _body(known: KnownSkill) -> dict[str, Any]:
    skill, version = known.skill, known.version
    return {
        "name": skill.name,
        "description": skill.description,
        "category": skill.category,
        "state": known.state,
        "version": version.number,
        "made_by": version.made_by,
        "created_at": version.created_at,
    }


def _used(use: Any) -> dict[str, int]:
    return {"turns": 0, "good": 0, "bad": 0} if use is None else {"turns": use.turns, "good": use.good, "bad": use.bad}
