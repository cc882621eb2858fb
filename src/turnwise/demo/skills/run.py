"""`turnwise demo --skills`: plays each way and shows them side by side, in the terminal and as files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from filelock import FileLock, Timeout
from rich.console import Console
from rich.table import Table

from turnwise.demo.progress import Stages
from turnwise.demo.server import termination_unwinds
from turnwise.demo.skills.ways import QUICK, WAYS, WHOLE, WISH, WishFigures, WishLimits, as_rows, play_at_own_server
from turnwise.errors import ConfigError
from turnwise.models import resolve_model
from turnwise.types import BASE_VERSION

HEADINGS = ("way", "first answer that keeps it", "weights", "keeps it", "right", "both")
_EXPECTED_S = {"neither": 30.0, "skills alone": 40.0, "weights alone": 300.0, "both": 330.0}


def run_skills_demo(out: Path, model: str, seed: int, quick: bool, console: Console) -> list[WishFigures]:
    """Play all ways and write `skills.json` and `skills.md` into ``out``. Raises TurnwiseError."""
    resolve_model(model)  # says what to do when the model is missing, before anything is started
    limits = QUICK if quick else WHOLE
    out.mkdir(parents=True, exist_ok=True)
    found: list[WishFigures] = []
    try:
        with termination_unwinds(), FileLock(out / ".lock", timeout=0), Stages(console, _EXPECTED_S) as stages:
            for way in WAYS:
                home = out / f"home-{way.name.replace(' ', '-')}"
                shutil.rmtree(home, ignore_errors=True)  # of an earlier demo in this folder; the lock says it has ended
                with stages.stage(way.name):
                    found += play_at_own_server(way, home.resolve(), model, seed, limits)
                _write(found, limits, out)
    except Timeout:
        raise ConfigError(f"another demo is writing into {out}; give --out another folder") from None
    table = Table(*HEADINGS, title=f'"{WISH}"')
    for one in found:
        table.add_row(*cells(one))
    console.print(table)
    console.print(f"Written to {out}: skills.md, skills.json", highlight=False)
    return found


def _write(found: list[WishFigures], limits: WishLimits, out: Path) -> None:
    """What is known so far: a demo that is stopped has shown something."""
    (out / "skills.json").write_text(json.dumps(as_rows(found), indent=2, ensure_ascii=False), encoding="utf-8")
    (out / "skills.md").write_text(as_markdown(found, limits), encoding="utf-8")


def cells(one: WishFigures) -> tuple[str, ...]:
    """A line of the table."""
    of = len(one.answers)
    first = one.note or ("never" if one.first_s is None else f"{one.first_s:.1f} s")
    counts = [one.count(lambda a: a.met), one.count(lambda a: a.right), one.count(lambda a: a.met and a.right)]
    weights = "base" if one.version == str(BASE_VERSION) else f"v{one.version}"
    return one.way, first, weights, *(f"{n} of {of}" for n in counts)


def as_markdown(found: list[WishFigures], limits: WishLimits) -> str:
    """The table, and the first answers of each way."""
    lines = [
        f"# A wish, said once: {WISH}",
        "",
        f"Everyday questions, {limits.questions} of them, at temperature 0.",
        "",
    ]
    lines += [f"| {' | '.join(row)} |" for row in (HEADINGS, ("---",) * len(HEADINGS), *map(cells, found))]
    for one in found:
        lines += ["", f"## {one.way}", ""]
        lines += [f"- {a.question} {' '.join(a.text.split())}" for a in one.answers[:4]]
    return "\n".join(lines) + "\n"
