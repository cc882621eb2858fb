"""Whether an answer did what the correction before it quotes: evidence beside what the person says of the answer.

"Say "All aboard!" first" quotes words that the answer before has not, so that they are wanted; 'drop the "Sure!"'
quotes words that it has. Where the next answer differs from it in these words, the correction was followed, and where
it does not, it was not, whatever language it is in. Pure functions.
"""

from __future__ import annotations

from turnwise.judges.sources.person import hiding_words
from turnwise.judges.sources.quotations import shown
from turnwise.messages import clean, text_of
from turnwise.patterns import pattern
from turnwise.types import Message

FOLLOWED, NOT_FOLLOWED = "correction.followed", "correction.not_followed"
WEIGHED = {FOLLOWED: (0.15, 0.15, 0.70), NOT_FOLLOWED: (0.70, 0.15, 0.15)}
"""How likely each means (bad, neutral, good); set by hand."""
BESIDE = 1.0
"""Weight beside what the person says of the answer."""
MAX_READ = 20_000
"""Characters of an answer that are looked at, half from each end."""
_QUOTED = pattern('["“”„«»「」『』]([^"“”„«»「」『』\\n]{1,80})["“”„«»「」『』]')
_EDGES = " \t.,;:!?…。，；：！？、*_~`'’"


def correction_evidence(messages: list[Message], answer: Message) -> str | None:
    """`FOLLOWED` or `NOT_FOLLOWED` by all words that the person's last message quotes; None where that is not clear.

    ``messages``: the request that was answered. An answer without text, as a call of a tool, shows nothing.
    """
    last = next((n for n in reversed(range(len(messages))) if messages[n].role == "user"), 0)
    before = next((m for m in reversed(messages[:last]) if m.role == "assistant"), None)
    if before is None:
        return None
    first, second = (_plain(_ends(text_of(m))) for m in (before, answer))
    said, _ = shown(hiding_words(messages[last]))
    quoted = [words for found in _QUOTED.findall(said) if _tells(words := _plain(found).strip(_EDGES))]
    if not (first and second and quoted):
        return None
    changed = {_has(words, first) != _has(words, second) for words in quoted}
    return None if len(changed) > 1 else FOLLOWED if changed.pop() else NOT_FOLLOWED


def _tells(words: str) -> bool:
    """Whether words are more than a letter or a sign that any answer may have."""
    return len(words) > 1 or not words.isascii()


def _has(words: str, text: str) -> bool:
    """Whether the words stand in a text, not within longer ones."""
    at = text.find(words)
    while at >= 0:
        around = text[at - 1 : at] if at else "", text[at + len(words) : at + len(words) + 1]
        edges = words[0], words[-1]
        if not any(a.isalnum() and b.isalnum() and a.isascii() for a, b in zip(around, edges, strict=True)):
            return True
        at = text.find(words, at + 1)
    return False


def _plain(text: str) -> str:
    return " ".join(clean(text).casefold().split())


def _ends(text: str) -> str:
    return text if len(text) <= MAX_READ else f"{text[: MAX_READ // 2]}\n{text[-MAX_READ // 2 :]}"
