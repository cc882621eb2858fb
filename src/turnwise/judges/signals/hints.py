"""Hints without a model: the sentences of a reply that say how the answer should be, as the person wrote them.

Which sentences those are is the head's to say (`head.py`); here they are put together. A hint is text for the teacher's
context and is never executed or obeyed here. Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.judges.sources.by_source import Sources
from turnwise.messages import clean

MAX_SENTENCES = 3
MAX_CHARS = 300
MIN_CHARS = 10  # P §4.2, step 2: hints of up to ten characters carry nothing
QUOTED = '""'
"""What is left of a quotation: a sentence that lost one would say something else."""


def hint_of(sentences: Sequence[str], chances: Sequence[float], least: float) -> str | None:
    """The sentences whose chance to be directive is at least ``least``, in their order; the likeliest three of more."""
    chosen = [i for i, p in enumerate(chances) if p >= least and QUOTED not in sentences[i]]
    likeliest = sorted(chosen, key=lambda i: -chances[i])[:MAX_SENTENCES]
    text = ""
    for line in (clean(sentences[i]) for i in sorted(likeliest)):
        if text and len(text) + len(line) >= MAX_CHARS:
            break
        text = f"{text} {line}".strip()
    return text[:MAX_CHARS].rstrip() if len(text) > MIN_CHARS else None


def hint_from_reports(sources: Sources) -> str | None:
    """A sentence of ours about a failed check; of the tool's own text it holds error codes and nothing else."""
    failed = [result for result in sources.results if result.kind == "tool.check_failed"]
    found = list(dict.fromkeys(code for result in failed for code in result.codes))
    if found:
        return f"Write code that the compiler or checker accepts; avoid {', '.join(found[:MAX_SENTENCES])}."
    if any(result.kind == "tool.bad_call" for result in sources.results):
        return "Give a tool every argument that its definition requires, and none that it does not have."
    if any(result.kind == "tool.command_not_found" for result in sources.results):
        return "Use only programs that are installed; check for one before it is run."
    return None
