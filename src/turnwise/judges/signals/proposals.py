"""What content seems to advise, for the review list: shown to the person, never trained on and never obeyed.

A compiler's help or a service's "use … instead" may be good advice, and a planted order looks just like it. So a person
decides. Pure functions of linear time.
"""

from __future__ import annotations

from turnwise.judges.sources.by_source import Sources
from turnwise.judges.sources.visible import visible
from turnwise.judges.text import clip
from turnwise.messages import clean
from turnwise.patterns import IGNORECASE, pattern
from turnwise.types import Proposal

MAX_CHARS = 300
MIN_CHARS = 10
MAX_LINES = 200
MAX_SOURCES = 50

_ADVISES = pattern(
    r"\bdid you mean\b|\b(?:please )?use\b|\binstead\b|\bmust\b|\bshould\b|\balways\b|\bnever\b|\brequired\b|\bhint\b"
    r"|\bhelp:|\bexpected\b|\btry\b",
    IGNORECASE,
)


def propose(sources: Sources) -> Proposal | None:
    """The first line of foreign text that advises something, at most MAX_CHARS of it; None where no line does."""
    for source, text in sources.foreign[:MAX_SOURCES]:
        for line in clip(visible(clip(text))).split("\n")[:MAX_LINES]:
            if _ADVISES.search(line):
                hint = clean(" ".join(line.split()))[:MAX_CHARS].strip()
                if len(hint) > MIN_CHARS:
                    return Proposal(visible(source)[:80], hint)
    return None
