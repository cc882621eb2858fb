"""Skills from elsewhere and to elsewhere: packs of them, and runs of pipelines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnwise.cli.options import ConfigFile, Home, Json, print_json
from turnwise.cli.skills.commands import skills_app
from turnwise.cli.skills.library import counted, say, with_library
from turnwise.errors import SkillError
from turnwise.types import SkillState

if TYPE_CHECKING:
    from turnwise.journal import Journal
    from turnwise.skills.library import Library


@skills_app.command("import", epilog="Example: turnwise skills import pack.zip --trust")
def skills_import(
    path: Annotated[Path, typer.Argument(help="A folder of skills, or a .zip, .tar or .tar.gz of them.")],
    config: ConfigFile = None,
    home: Home = None,
    trust: Annotated[bool, typer.Option("--trust", help="Use them at once, without review.")] = False,
) -> None:
    """Take in skills from elsewhere, all or none; they wait for your review, unless you trust them."""
    from turnwise.skills.packs import read_pack

    skills = read_pack(path)
    state = SkillState.ACTIVE if trust else SkillState.REVIEW
    with_library(config, home, lambda library, _: library.add(skills, state, "import"))
    what = "are used from now on" if trust else "wait for `turnwise skills review`"
    say(f"{counted(len(skills))} ({', '.join(skill.name for skill in skills[:5])}) {what}")


@skills_app.command("learn-from", epilog="Example: turnwise skills learn-from run.json")
def skills_learn_from(
    runs: Annotated[list[Path], typer.Argument(help="Runs of a pipeline: .json files, or folders with such.")],
    config: ConfigFile = None,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Make skills of what the stages of a pipeline stumbled over; they wait for your review."""
    from turnwise.skills.pipeline.lessons import lessons_of, skills_of
    from turnwise.skills.pipeline.runs import read_runs

    lessons = lessons_of(read_runs(runs))

    def learn(library: Library, _: Journal) -> tuple[list[str], list[str]]:
        known = [skill.skill for skill in library.sync().skills.values()]
        new, old = skills_of(lessons, known)
        if new:
            library.add(new, SkillState.REVIEW, "pipeline")
        return [skill.name for skill in new], old

    new, old = with_library(config, home, learn)
    if as_json:
        print_json({"new": new, "known": old})
        return
    for name in new:
        say(name)
    say(f"{len(new)} new, {len(old)} known already" + ("; see `turnwise skills review`" if new else ""))


@skills_app.command("export", epilog="Example: turnwise skills export pack.zip")
def skills_export(
    path: Annotated[Path, typer.Argument(help="The .zip to write.")], config: ConfigFile = None, home: Home = None
) -> None:
    """Write all skills that are in the folder into an archive that `import` and other programs read."""
    from turnwise.skills.packs import write_pack
    from turnwise.types import IN_FOLDER

    view = with_library(config, home, lambda library, _: library.sync())
    skills = [known.skill for _, known in sorted(view.skills.items()) if known.state in IN_FOLDER]
    if not skills:
        raise SkillError("there is no skill to export; see `turnwise skills list`")
    write_pack(path, skills)
    say(f"{counted(len(skills))} in {path}")
