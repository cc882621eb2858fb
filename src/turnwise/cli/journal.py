"""`turnwise journal`, `turnwise forget` and `turnwise versions prune`: what is kept, and what is not any more."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from turnwise.cli.options import ConfigFile, Home, Json, ago, change_journal, out, print_json, read_config
from turnwise.cli.records import versions_app
from turnwise.errors import TurnwiseError
from turnwise.patterns import anchored

journal_app = typer.Typer(help="The journal's size.", no_args_is_help=True)

DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would go and change nothing.")]
_AMOUNT = anchored(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s?([a-z]{1,2})")
_UNITS = {"h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}


def amount(text: str, units: tuple[str, ...], option: str) -> float:
    """A number with one of these units, in seconds or bytes. Raises TurnwiseError."""
    found = _AMOUNT.fullmatch(text.strip().lower())
    if found is None or found[2] not in units or not float(found[1]):
        raise TurnwiseError(f"{option} is a number with one of {', '.join(units)}, such as 90{units[1]}; not {text!r}")
    return float(found[1]) * _UNITS[found[2]]


def megabytes(size: float) -> str:
    return f"{size / 1e6:.1f} MB"


@journal_app.command("prune", epilog="Example: turnwise journal prune --older-than 90d --dry-run")
def journal_prune(
    older_than: Annotated[str | None, typer.Option(help="Turns recorded before that: 90d, 12h, 8w.")] = None,
    keep_size: Annotated[
        str | None, typer.Option(help="The oldest turns, until rows and indexes take no more: 2GB, 500MB.")
    ] = None,
    records: Annotated[
        bool, typer.Option("--records", help="With --older-than, lines of records.jsonl as well.")
    ] = False,
    dry_run: DryRun = False,
    config: ConfigFile = None,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Delete old turns that training does not need any more; works beside a running server."""
    from turnwise.journal.deletion.retention import prune, prune_records

    if older_than is None and keep_size is None:
        raise TurnwiseError("say what may go: --older-than 90d, --keep-size 2GB, or both")
    if records and older_than is None:
        raise TurnwiseError("--records goes with --older-than")
    before = None if older_than is None else time.time() - amount(older_than, ("h", "d", "w"), "--older-than")
    keep_bytes = None if keep_size is None else int(amount(keep_size, ("kb", "mb", "gb", "tb"), "--keep-size"))
    settings = read_config(config, home, None)
    done = change_journal(settings, lambda journal: prune(journal, before, keep_bytes, dry_run))
    told = dict(done.__dict__)
    if records and before is not None:
        told["records"] = prune_records(settings, before, dry_run)
    if as_json:
        print_json(told)
        return
    if not done.turns and not told.get("records"):
        out.print("nothing to prune: what is left is newer, or training needs it", highlight=False)
        return
    goes = "would go" if dry_run else "are deleted"
    span = "" if done.oldest is None else f", recorded {ago(done.oldest)} to {ago(done.newest)}"
    out.print(f"{done.turns} turns{span}, about {megabytes(done.bytes)}, {goes}", highlight=False)
    if "records" in told:
        out.print(f"{told['records']} lines of records.jsonl {goes}", highlight=False)
    if not dry_run:
        out.print("the space is used again; `turnwise journal vacuum` gives it back to the disk", highlight=False)


@journal_app.command("vacuum", epilog="Example: turnwise journal vacuum")
def journal_vacuum(config: ConfigFile = None, home: Home = None) -> None:
    """Write the journal's file anew without the space that is free in it; the server must be stopped."""
    from turnwise.journal.deletion.erasing import vacuum

    before, after = change_journal(read_config(config, home, None), vacuum)
    out.print(f"{megabytes(before)} before, {megabytes(after)} after", highlight=False)


@journal_app.command("recount", epilog="Example: turnwise journal recount")
def journal_recount(config: ConfigFile = None, home: Home = None) -> None:
    """Count what `turnwise status` shows anew, where `turnwise doctor` says that it is wrong."""
    from turnwise.journal.counts import mend_counts

    def mend(journal: Any) -> dict[str, tuple[int, int]]:
        with journal.store.transaction() as c:
            return mend_counts(c)

    wrong = change_journal(read_config(config, home, None), mend)
    for name, (kept, counted) in wrong.items():
        out.print(f"{name.replace('|', ' ')}: {kept} was kept, {counted} are there", highlight=False, markup=False)
    out.print("the figures are mended" if wrong else "all figures are right", highlight=False)


@versions_app.command("prune", epilog="Example: turnwise versions prune --keep 20 --dry-run")
def versions_prune(
    keep: Annotated[int, typer.Option(min=1, help="Newest versions to keep, beside those in use.")],
    dry_run: DryRun = False,
    config: ConfigFile = None,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Delete the weights of old versions; what is known of them stays."""
    from turnwise.journal.deletion.retention import prune_versions

    settings = read_config(config, home, None)
    going = change_journal(settings, lambda journal: prune_versions(journal, keep, dry_run))
    if as_json:
        print_json({"versions": going})
        return
    said = ", ".join(map(str, going)) or "none"
    out.print(f"versions whose weights {'would go' if dry_run else 'are deleted'}: {said}", highlight=False)


def forget_session(
    session: Annotated[str, typer.Argument(help="Its id, or as much of its beginning as no other has.")],
    with_branches: Annotated[
        bool, typer.Option("--with-branches", help="Also the sessions that branched off: they hold copies of its text.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: DryRun = False,
    config: ConfigFile = None,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Delete a session from every file of the home; says which versions learned from it."""
    from functools import partial

    from turnwise.journal import Journal
    from turnwise.journal.deletion.forgetting import Forgotten, forget, plan
    from turnwise.skills.library import Library

    settings = read_config(config, home, None)
    session_id = change_journal(settings, lambda journal: journal.sessions.find(session))
    planned = change_journal(settings, lambda journal: plan(journal, session_id, with_branches))
    if dry_run:
        _say(planned.__dict__, as_json, "would be forgotten")
        return
    if not yes:
        asked = f"{planned.turns} turns of {', '.join(planned.sessions)} will be deleted for good. Go on?"
        typer.confirm(asked, abort=True, err=True)

    def forgotten(journal: Journal) -> Forgotten:
        erase = partial(forget, journal, session_id, with_branches)
        made = plan(journal, session_id, with_branches).skills
        return Library(settings, journal).forget(made, erase) if made else erase()

    done = change_journal(settings, forgotten)
    _say(done.__dict__, as_json, "are forgotten")


def _say(told: dict[str, Any], as_json: bool, what: str) -> None:
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
    line("versions that learned from it, whose weights cannot forget, nor those built on them:")
    for version, ids in told["versions"].items():
        line(f"  version {version}: {len(ids)} turn{'s' if len(ids) > 1 else ''}")
