"""Whether an answer did what the correction before it quotes: evidence beside what the person says of the answer.

"Say "All aboard!" first" quotes words that the answer before has not, so that they are wanted; 'drop the "Sure!"'
quotes words that it has. Where the next answer, which is the same one otherwise, differs from it in these words, the
correction was followed, and where neither has them, it was not, whatever language it is in. Pure functions.
"""

from __future__ import annotations

from itertools import pairwise

from turnwise.judges.sources.person import hiding_words
from turnwise.judges.sources.quotations import NO_SPACES, shown
from turnwise.judges.text import clip
from turnwise.messages import answer_words, clean
from turnwise.patterns import pattern
from turnwise.types import Message

FOLLOWED, NOT_FOLLOWED = "correction.followed", "correction.not_followed"
WEIGHED = {FOLLOWED: (0.15, 0.15, 0.70), NOT_FOLLOWED: (0.70, 0.15, 0.15)}
"""How likely each means (bad, neutral, good); set by hand."""
BESIDE = 1.0
"""Weight beside what the person says of the answer."""
MAX_QUOTED = 8
"""Quotations of a message that are looked at, the first ones."""
SHARED = 0.5
"""Share of the shorter answer's rows of three signs that the other has, from which the two answer the same."""
_EDGES = " \t.,;:!?…。，；：！？、*_~`'’"
_QUOTED = [
    pattern('(?<![A-Za-z0-9])["“„]([^\\s"“”„][^"“”„\\n]{0,79})["“”](?![A-Za-z0-9])'),
    pattern("«([^«»\\n]{1,80})»"),
    pattern("「([^「」\\n]{1,80})」"),
    pattern("『([^『』\\n]{1,80})』"),
]


def correction_evidence(messages: list[Message], answer: Message) -> str | None:
    """`FOLLOWED` or `NOT_FOLLOWED` by all words that the person's last message quotes; None where that is not clear.

    ``messages``: the request that was answered; of both answers the ends are read. An answer without text, as a call of
    a tool, shows nothing, nor does one that says something else: then the message was no correction. Words that both
    answers have may be praised, or wanted in another place.
    """
    last = next((n for n in reversed(range(len(messages))) if messages[n].role == "user"), 0)
    before = next((m for m in reversed(messages[:last]) if m.role == "assistant"), None)
    if before is None:
        return None
    first, second = (_plain(clip(answer_words(m))) for m in (before, answer))
    quoted = _quotations(messages[last]) if _alike(first, second) else []
    found = {(_has(words, first), _has(words, second)) for words in quoted}
    if not found or (True, True) in found:
        return None
    changed = {was != now for was, now in found}
    return None if len(changed) > 1 else FOLLOWED if changed.pop() else NOT_FOLLOWED


def _quotations(message: Message) -> list[str]:
    """What the person quotes, without the marks at its edges; patterns as "YYYY-MM-DD" are none."""
    said, _ = shown(hiding_words(message))
    text = clip(said.replace('""', " "))
    found = [words for one in _QUOTED for words in one.findall(text) if not (words.isupper() and _doubled(words))]
    plain = dict.fromkeys(_plain(words).strip(_EDGES) for words in found)
    return [words for words in plain if len(words) > 1 or not words.isascii()][:MAX_QUOTED]


def _doubled(words: str) -> bool:
    return any(a == b and a.isalpha() for a, b in pairwise(words))


def _alike(first: str, second: str) -> bool:
    one, other = ({text[n : n + 3] for n in range(len(text) - 2)} for text in (first, second))
    return len(one & other) >= SHARED * max(1, min(len(one), len(other)))


def _has(words: str, text: str) -> bool:
    """Whether the words stand in a text, not within longer ones."""
    at = text.find(words)
    while at >= 0:
        end = at + len(words)
        around = (text[at - 1 : at], words[0]), (words[-1], text[end : end + 1])
        if not any(_joined(a) and _joined(b) for a, b in around):
            return True
        at = text.find(words, end)
    return False


def _joined(sign: str) -> bool:
    return sign.isalnum() and sign < NO_SPACES


def _plain(text: str) -> str:
    return " ".join(clean(text).casefold().split())
