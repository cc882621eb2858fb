"""Wishes: sentences in which a person says how answers should be, and what such a sentence is about.

All of it is the person's own words, one sentence a wish. A wish is about the form or manner of every answer, or about a
topic; a later one about the same thing takes the place of an earlier one, and "no more of it" takes it back. Pure
functions; the patterns run in the child that reads foreign text.
"""
# ruff: noqa: SIM905  (word lists read better as text)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnwise.messages import clean
from turnwise.patterns import IGNORECASE, anchored, pattern
from turnwise.skills.retrieval import stems

if TYPE_CHECKING:  # it takes a second to import, which the child that reads turns has no use for
    from turnwise.skills.vectors import WordVectors

LEAST_CHARS, MOST_CHARS = 6, 300
MOST_WISHES = 3
"""Of one reply."""
SAME = 0.3
"""Cosine of two wishes, without the words that all of them share, from which they are about one thing. Of 21 wishes of
13 kinds the pairs about one thing lie at 0.34 and above, or share an aspect (below); those about two lie below 0.15."""
TAKEN_BACK = 0.6
"""Share of the words of what is taken back that a wish must have."""

_LEADS = r"(?:(?:please|ok|okay|and|but|now|also|so|thanks|thank you|no|great|good)\b[,.!:]? ){0,4}"
_STANDING = pattern(
    rf"\bfrom now on\b|\bgoing forward\b|^{_LEADS}in (?:the )?future\b|\bin (?:the )?future[.!]?$"
    r"|\b(?:every|each|all|any)(?: of)?(?: your| my)? (?:answers?|repl(?:y|ies)|responses?|messages?)\b"
    rf"|^{_LEADS}(?:(?:you (?:should|must)|i (?:want|need|would like) you to|remember to|make sure to) )?"
    r"(?:always|never)\b"
    rf"|^{_LEADS}remember\b"
    rf"|^{_LEADS}(?:(?:you (?:can|may|could)|could you|can you) )?(?:stop|quit) (?:\w+ing|it|with)\b|^{_LEADS}no more\b"
    rf"|^{_LEADS}(?:don't|do not|you don't|you do not|you needn't|no need to)\b.{{1,200}}\b(?:any ?more|any longer)\b"
    rf"|^{_LEADS}you (?:don't|do not|no longer) (?:have|need) to\b",
    IGNORECASE,
)
_TAKES_BACK = anchored(
    rf"{_LEADS}(?:(?:you (?:can|may|could)|could you|can you) )?(?:please )?"
    r"(?:(?:stop|quit)(?: it)?(?: with)?(?: the)?|no more|forget(?: about)?|enough(?: of)?"
    r"|(?:you (?:don't|do not|no longer|needn't)|no need)(?: have| need)?(?: to)?"
    r"|(?:don't|do not)(?=.{1,200}\bany ?(?:more|longer)))"
    r" (.{1,200})",
    IGNORECASE,
)
_CONDITION = pattern(
    r"(?:^|[,;] ?)(?:when(?:ever)?|if|where|while|once|before|after)\b"
    r"|\b(?:in|for|with|about|on|to) (?:the|my|our|a|an|any|these|those|this|such)\b "
    r"(?!(?:answers?|repl|responses?|messages?|future|end\b|beginning\b|start\b|same\b))",
    IGNORECASE,
)
_STATES = anchored(r"(?:it|this|that|there|these|those|he|she|they|i|we|my|your?|the)(?:'\w+)?\b", IGNORECASE)
_WANTS = pattern(
    r"\b(?:should|must|needs?|want|like|prefer|wish|please|instead|rather|from now on|every|no longer|stop|have to)\b"
    r"|\bany ?(?:more|longer)\b",
    IGNORECASE,
)
"""Words that make a wish of a sentence that states something: "it should be shorter", "I want no emojis"."""
_NOTHING = pattern(
    r"^(?:oh |ok |hm )?never ?mind\b"
    r"|^(?:please |just )?(?:stop|quit) (?:it|that|this|(?:doing|saying) (?:it|that|this))\b\W*$"
    r"|\b(?:says?|said|writes?|wrote|reads?|told)\b.{0,20}:",
    IGNORECASE,
)
"""What names nothing to keep to, and what is somebody else's word."""
_ASKS = pattern(r"\?\s*$")

MANNER = frozenset(
    stem
    for word in """
    short shorter brief briefly concise terse long longer detail detailed details length sentence sentences word words
    paragraph paragraphs bullet bullets list lists table tables emoji emojis smiley formal informal casual polite
    friendly rude tone humour humor joke jokes greeting greet sign signature bye cheers regards apologise apologize
    apologies sorry praise flattery preamble introduction summary markdown heading headings bold capitals uppercase
    lowercase simple plain simpler jargon step steps example examples source sources unit units metric imperial
    language english german french spanish italian portuguese dutch russian chinese japanese korean arabic hindi polish
    turkish swedish deutsch answer answers answering reply replies respond response responses explain explanation
    saying call address name thinking opinion rhyme poem pirate emphasis punctuation exclamation
    """.split()
    for stem in stems(word)
)
FILLER = frozenset(
    stem
    for word in """
    please always never every each all any answer answers reply replies response responses message messages say saying
    use using used write writing written put putting add adding end ending begin beginning start starting stop quit
    future now forward remember more anymore longer longer's do doing don dont keep really just also still again want
    prefer you your them it that this with
    """.split()
    for stem in stems(word)
)
NOTHING_SAID = frozenset(
    stem
    for word in """
    wrong right again try still meant mean means asked ask bad good answer correct incorrect like no nope yes ok okay
    sorry hm hmm really please thanks thank don doesn didn isn wasn didnt dont what better worse false true fine sure
    okay great perfect useless terrible awful disappointing think know sense work works working help helpful hello
    """.split()
    for stem in stems(word)
)
"""What is left of a mere rejection ("no, not like this", "that is wrong"), which names nothing to do instead."""
ASPECTS = (
    frozenset(stems("short shorter brief briefly concise terse long longer lengthy detail detailed length")),
    frozenset(stems("english german french spanish italian portuguese dutch russian chinese japanese korean polish")),
    frozenset(stems("formal informal casual polite friendly tone")),
)
"""Words of which two wishes about one thing may have different ones."""
SIDES = (
    (
        frozenset(stems("short shorter brief briefly concise terse")),
        frozenset(stems("long longer lengthy detail detailed")),
    ),
    (frozenset(stems("formal polite")), frozenset(stems("informal casual"))),
)
"""Aspects that have two ends."""
ALIKE = 0.8
"""Cosine of two wishes from which the second says nothing new, where both deny or neither does."""
_DENIES = pattern(r"\b(?:no|not|never|less|fewer|without|stop|avoid|too|don't|doesn't|isn't|so)\b", IGNORECASE)


@dataclass(frozen=True, slots=True)
class PersonsWish:
    """``words``: the sentence. ``general``: it holds for every answer. ``takes_back``: the stems of what shall end."""

    words: str
    general: bool
    takes_back: frozenset[str] = frozenset()


def wishes_among(said: Sequence[str], hint: str | None) -> list[PersonsWish]:
    """The wishes among a person's sentences: those that the judge took into its hint, and those that say outright that
    they are meant to last."""
    given = clean(" ".join((hint or "").split()))
    found: list[PersonsWish] = []
    for sentence in said:
        words = " ".join(clean(sentence).split())
        if not LEAST_CHARS <= len(words) <= MOST_CHARS or set(stems(words)) <= NOTHING_SAID:
            continue
        if _NOTHING.search(words) or (_STATES.match(words) and not _WANTS.search(words)):
            continue  # "it always crashes"
        standing = bool(_STANDING.search(words))
        asks = bool(_ASKS.search(words)) and not _TAKES_BACK.match(words)
        if (standing and not asks) or (given and words in given):
            found.append(wish_of(words))
    return found[:MOST_WISHES]


def wish_of(words: str) -> PersonsWish:
    """What a sentence asks for."""
    back = _TAKES_BACK.match(words)
    ended = frozenset(stems(back.group(1))) - FILLER if back else frozenset()
    return PersonsWish(words, bool(ended) or _is_general(words), ended)


def _is_general(words: str) -> bool:
    if _CONDITION.search(words):
        return False
    return bool(_STANDING.search(words)) or bool(MANNER.intersection(stems(words)))


def ends(wish: PersonsWish, earlier: str) -> bool:
    """Whether it takes back an earlier wish, of which the words are given."""
    if not wish.takes_back:
        return False
    return len(wish.takes_back & set(stems(earlier))) / len(wish.takes_back) >= TAKEN_BACK


def same_thing(wish: str, others: Sequence[str], vectors: WordVectors) -> list[bool]:
    """Whether each of the other wishes is about what this one is about, whichever way it goes."""
    if not others:
        return []
    mine, *theirs = (set(stems(text)) for text in (wish, *others))
    embedded = vectors.embed([_core(text) for text in (wish, *others)])
    near = embedded[1:] @ embedded[0]
    aspects = [any(mine & aspect and their & aspect for aspect in ASPECTS) for their in theirs]
    return [float(close) >= SAME or aspect for close, aspect in zip(near, aspects, strict=True)]


def says_nothing_new(wish: str, earlier: str, vectors: WordVectors) -> bool:
    """Whether a wish says in other words what stands already ("short, please" after "be brief")."""
    same_way = bool(_DENIES.search(wish)) == bool(_DENIES.search(earlier))
    mine, theirs = (_ends_of(text) for text in (wish, earlier))
    if mine and theirs:
        return mine == theirs
    near, far = vectors.embed([_core(wish), _core(earlier)])
    return same_way and float(near @ far) >= ALIKE


def _ends_of(text: str) -> set[tuple[int, int]]:
    """Which ends of which aspects a wish asks for; "too long" asks for the other one."""
    said, turned = set(stems(text)), bool(_DENIES.search(text))
    return {
        (aspect, end ^ turned) for aspect, ends in enumerate(SIDES) for end, words in enumerate(ends) if said & words
    }


def _core(text: str) -> str:
    """A wish without the words that wishes share."""
    words = "".join(c if c.isalnum() or c in "-'" else " " for c in text.lower()).split()
    kept = [word for word in words if not FILLER.issuperset(stems(word)) and stems(word)]
    return " ".join(kept) or text
