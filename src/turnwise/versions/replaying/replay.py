"""Replays a home: in a copy its turns are judged and learned once more, otherwise, and both outcomes are compared.

The home itself is only read. What is replayed are the answers that were given: other versions would have given others,
and people would have said other things to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnwise.config import Config
from turnwise.errors import TurnwiseError
from turnwise.journal import Journal
from turnwise.journal.read_only import read_ours
from turnwise.journal.replay.anew import SpokenTurn, begin_anew, spoken, use_the_persons
from turnwise.journal.replay.copying import copy_journal
from turnwise.training.gate.figures import FIGURES
from turnwise.training.worker import Stop
from turnwise.types import PolicyVersion
from turnwise.versions.replaying.judging import judge_all
from turnwise.versions.replaying.learning import learn_all, measured

NEVER_STALE = 10**6
"""Updates: in a replay all samples are of the base model, whatever made them."""
RETRY_S, ATTEMPTS = 1.0, 2
"""A judge that fails is asked once more, at once: nobody waits for a replay's judge to come back."""
NONE = "none"
WORDS = {1: "good", -1: "bad", 0: "neither", None: NONE}


@dataclass(frozen=True, slots=True)
class ReplayedSide:
    """One of the two outcomes. ``agreed`` of ``compared``: how often judge and person said the same of a turn.

    ``versions``: the line that serves, oldest first. ``figures``: what the gate measures of the last one.
    """

    versions: list[dict[str, Any]]
    figures: dict[str, Any]
    agreed: int
    compared: int


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """``verdicts``: how many turns the judges said what of before and after, in the words of WORDS."""

    verdicts: dict[tuple[str, str], int]
    before: ReplayedSide
    after: ReplayedSide
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        names = ReplayedSide.__slots__
        return {
            "verdicts": [{"before": b, "after": a, "turns": n} for (b, a), n in sorted(self.verdicts.items())],
            "before": {name: getattr(self.before, name) for name in names},
            "after": {name: getattr(self.after, name) for name in names},
            "notes": self.notes,
        }


def replay(original: Config, changed: Config, folder: Path, stop: Stop, say: Callable[[str], None]) -> ReplayReport:
    """Judge and learn once more in ``folder``, an empty one, as ``changed`` says. Raises TurnwiseError.

    ``original``: the configuration of the home, whose journal and versions are read.
    """
    before, line, aside = read_ours(original, _seen)
    copy_journal(original, folder)
    config = _of_the_copy(changed, folder)
    journal = Journal.open(config)
    try:
        waits = begin_anew(journal, original.home)
        if not waits:
            raise TurnwiseError("nothing can be replayed: no answer of this home was answered by anybody")
        say(f"{waits} turns are judged once more")
        judge_all(config, original, journal, say)
        use_the_persons(journal)
        after = spoken(journal)
        if not any(said.judge is not None for said in after.values()):
            raise TurnwiseError(_no_verdict(journal))
        learn_all(config, journal, stop, say)
        if stop.is_set():
            raise TurnwiseError("stopped; nothing was changed but the copy")
        now = _line(journal)
        probes = journal.batches.gate_probes(config.gate.probes, [])
        serves = [(original.versions_dir, _last(line)), (config.versions_dir, _last(now))]
        figures = measured(config, serves, probes, say)
    finally:
        journal.close()
    notes = [] if probes and aside else ["no session is set aside and judged well: figures are of the general probe"]
    notes += [f"version {number}: {f['fault']}" for (_, number), f in zip(serves, figures, strict=True) if "fault" in f]
    old, new = figures
    return ReplayReport(_table(before, after), _side(before, line, old), _side(after, now, new), notes)


def _seen(journal: Journal) -> tuple[dict[str, SpokenTurn], list[PolicyVersion], bool]:
    """What stands in the home: verdicts, the line of versions, and whether a session was set aside."""
    return spoken(journal), _line(journal), bool(journal.batches.gate_probes(1, []))


def _of_the_copy(changed: Config, folder: Path) -> Config:
    train = changed.train.model_copy(update={"max_staleness": NEVER_STALE, "when": "always", "enabled": True})
    judge = changed.judge.model_copy(update={"retry_s": RETRY_S, "max_attempts": ATTEMPTS})
    keeps = changed.journal.model_copy(update={"records": False, "keep_versions": 0})
    return changed.model_copy(update={"home": folder, "train": train, "judge": judge, "journal": keeps})


def _line(journal: Journal) -> list[PolicyVersion]:
    """The versions from the base to the one that serves."""
    known = {version.number: version for version in journal.versions.all()}
    line, at = list[PolicyVersion](), journal.versions.latest()
    while at in known:
        line.append(known[at])
        at = known[at].parent or 0
    return line[::-1]


def _last(line: list[PolicyVersion]) -> int:
    return line[-1].number if line else 0


def _no_verdict(journal: Journal) -> str:
    error = (journal.status.figures()["loops"].get("judge") or {}).get("error")
    return f"the judge gave no verdict at all: {error or 'it says nothing'}; see judge.kind and judge.url"


def _table(before: Mapping[str, SpokenTurn], after: Mapping[str, SpokenTurn]) -> dict[tuple[str, str], int]:
    nothing = SpokenTurn(None, None)
    pairs = [(before.get(turn, nothing).judge, after.get(turn, nothing).judge) for turn in {**before, **after}]
    return dict(Counter((WORDS[b], WORDS[a]) for b, a in pairs if (b, a) != (None, None)))


def _side(said: Mapping[str, SpokenTurn], line: list[PolicyVersion], figures: dict[str, Any]) -> ReplayedSide:
    both = [(one.judge, one.person) for one in said.values() if one.judge is not None and one.person is not None]
    versions = [
        {
            "number": version.number,
            "turns": len(version.turn_ids),
            "loss": version.metrics.get("loss"),
            "part": version.gate.get("alpha", 1.0),
        }
        for version in line
    ]
    kept = {name: figures.get(name) for name in (f.name for f in FIGURES) if name != "step_kl"} | (
        {"fault": figures["fault"]} if "fault" in figures else {}
    )
    return ReplayedSide(versions, kept, sum(judge == person for judge, person in both), len(both))
