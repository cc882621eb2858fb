"""`turnwise journal`: what is kept of what was recorded, and what is not any more."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from turnwise.cli.options import ConfigFile, DryRun, Home, Json, ago, change_journal, out, print_json, read_config
from turnwise.errors import TurnwiseError
from turnwise.patterns import anchored

journal_app = typer.Typer(help="The journal's size.", no_args_is_help=True)

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
