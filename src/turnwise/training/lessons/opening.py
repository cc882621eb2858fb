"""Where quoted words have their place: which of them an answer begins with, and answers that do so.

What the person wrote, what came back on answers that have them, and how likely they are to the base model at either end
say so together.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

from turnwise.patterns import pattern
from turnwise.tokens.rendering import PromptRenderer
from turnwise.training.lessons.candidates import Answered, ask_for_more
from turnwise.training.lessons.comparing import token_likelihoods
from turnwise.training.lessons.echoes import QUOTED
from turnwise.training.lessons.quoted import (
    Reaction,
    no_frames,
    quoted_words,
    rank,
    same_words,
    shown,
    times,
)
from turnwise.training.lessons.wishes import Standing
from turnwise.training.policy import Policy
from turnwise.training.step import Tick

ENOUGH = 8
"""Questions by which it is told where words have their place."""
SHOWN = 2.0
"""Nats per answer that one judged answer counts for, beside how much likelier words are at the beginning than the end.

Told to start with "Ahoy", the embedded model has it 7 nats likelier at the end. The 0.5B model has what eight wishes
want at the beginning 7 to 18 nats likelier there, and what six want at the end up to 1 nat.
"""
BEFORE = "*_#>\"“„«'‘([ "
"""What may stand before the first word of an answer."""


_ANSWERS = (
    r"(?:(?:every|each|the|your|ur|all|any|an?)(?: (?:single|the|your|ur))? )?"
    r"(?:answers?|reply|replies|messages?|responses?)"
)
_BEHIND = r"(?: off| up)? (?:with|by saying)\b"
_WHOLE = "".join(rf"(?<!\b{word} )" for word in ("of", "in", "all", "your", "the", "each", "every", "any", "single"))
"""Not a line of an answer."""
_END = r"(?:(?P<first>begin|start|open)|end|finish|close)"
_SAYS_PLACE = (
    pattern(rf"\b{_END}(?:s|ing)?(?: off| up)? {_ANSWERS}{_BEHIND}"),
    pattern(rf"{_WHOLE}\b{_ANSWERS} (?:always |should |must |to )*{_END}s?{_BEHIND}"),
)
_IN_SHORT = pattern(rf"(?:(?:^|[,.;!?]\s?)|\b(?:you|please|always|just) ){_END}{_BEHIND}")
_A_PART = pattern(r"\b(?:lines?|sentences?|questions?|paragraphs?|parts?|notes?|lists?|steps?)\b")
_THE_WORDS = pattern(r"\W*(?:the )?(?:exact )?(?:words?|phrase|line|label|sentence)?\W*")
_REFUSED = pattern(r"\b(?:not?|dont|never|stop|avoid|quit|instead|without|rather|why|hate)\b|n['’]t\b")
_CLAUSE = pattern(r"[.;!?]")


def place_said(words: str, wishes: Sequence[str]) -> int:
    """1 where the last wish that quotes these words says "begin every answer with" them, -1 where "end …"; else 0.

    Who wants "a line that begins with" them says neither, nor who wants no answer to begin so.
    """
    of = [wish for wish in wishes if same_words(words) in map(same_words, quoted_words([wish]))]
    text = " ".join(of[-1].casefold().split()) if of else ""
    told = 0
    for quotation in QUOTED.finditer(text):
        if [*map(same_words, quoted_words([quotation[0]]))] != [same_words(words)]:
            continue
        begins = quotation.start()
        found = [one for says in _SAYS_PLACE for one in says.finditer(text, 0, begins)]
        if not _A_PART.search(text, 0, begins):
            found += _IN_SHORT.finditer(text, 0, begins)
        for one in found:
            refused = _REFUSED.search(_CLAUSE.split(text[: one.start()])[-1])
            if not refused and _THE_WORDS.fullmatch(text, one.end(), begins):
                told = 1 if one["first"] else -1
    return told


def opening_words(
    policy: Policy,
    renderer: PromptRenderer,
    asked: Sequence[Answered],
    candidates: Sequence[tuple[int, list[int]]],
    words: Sequence[str],
    labels: Sequence[str],
    standing: Standing,
    tick: Tick,
) -> list[str]:
    """Those of the wanted words that a plain answer is to begin with, ``labels`` being those that announce more."""
    more = ask_for_more(policy, renderer, asked[:ENOUGH], words, tick)
    sayings = [one for one, asks in zip(words, more, strict=True) if not asks and one not in labels]
    places = [place_said(one, standing.wishes) for one in sayings]
    unclear = [one for one, place in zip(sayings, places, strict=True) if not place]
    judged = reactions(unclear, standing)
    may = [begins(policy, renderer, asked, candidates, one, said) for one, said in zip(unclear, judged, strict=True)]
    unclear, judged = list(compress(unclear, may)), list(compress(judged, may))
    likelier = likelier_first(policy, renderer, asked, unclear, judged, tick)
    opening = [one for one, place in zip(sayings, places, strict=True) if place > 0 or one in likelier]
    return no_frames(opening, words, standing.wishes, [renderer.decode(answer) for _, answer in candidates])


def likelier_first(
    policy: Policy,
    renderer: PromptRenderer,
    asked: Sequence[Answered],
    words: Sequence[str],
    judged: Sequence[Sequence[Reaction]],
    tick: Tick,
) -> list[str]:
    """The words with which answers are to begin.

    They begin them where that is likelier to who knows the wishes, over a few questions, than that they close them,
    and what was said of answers that have them at one end (``judged``, for each of the words) counts beside it.
    """
    ended = [a for a in asked if a.ended][:ENOUGH]

    def likelihood(answers: Sequence[list[int]]) -> float:
        return sum(float(x.sum()) for x in token_likelihoods(policy, [a.told for a in ended], answers, tick))

    def opens(one: str, judged: Sequence[Reaction]) -> bool:
        first, last = ([between(policy, renderer, a, *at) for a in ended] for at in ((one, ""), ("", one)))
        return (likelihood(first) - likelihood(last)) / len(ended) + SHOWN * shown(one, judged) > 0

    return [one for one, of_it in zip(words, judged, strict=True) if ended and opens(one, of_it)]


def begins(
    policy: Policy,
    renderer: PromptRenderer,
    asked: Sequence[Answered],
    candidates: Sequence[tuple[int, list[int]]],
    words: str,
    judged: Sequence[Reaction],
) -> bool:
    """Whether words may begin an answer that is plain behind them.

    With a colon they announce something that is added ("Handy tip:"), unless half of the answers that were written anew
    by the wish and have them begin with them ("In short:"), or what was judged shows that they belong there.
    """
    if words[-1] != ":" or shown(words, judged) > 0:
        return True
    plain = [renderer.decode(policy.without_end(one.plain)).strip() for one in asked]
    texts = [(plain[i], renderer.decode(ids).strip()) for i, ids in candidates]
    anew = [text for own, text in texts if not (own and text.startswith(own)) and times(same_words(words), text)]
    first = [text for text in anew if text.casefold().lstrip(BEFORE).startswith(same_words(words))]
    return 2 * len(first) >= max(1, len(anew))


def reactions(words: Sequence[str], standing: Standing) -> list[list[Reaction]]:
    """What came back on answers since the person asked for each of the words: in the last wish that quotes them."""
    of = {
        same_words(one): judged
        for wish, judged in zip(standing.wishes, standing.judged, strict=False)
        for one in quoted_words([wish])
    }
    return [of.get(same_words(one), []) for one in words]


def between(policy: Policy, renderer: PromptRenderer, one: Answered, before: str, after: str) -> list[int]:
    """The plain answer between these words."""
    plain = policy.without_end(one.plain)
    text = " ".join(filter(None, (before, renderer.decode(plain).strip(), after)))
    return [*renderer.encode(text), *one.plain[len(plain) :]]


def with_opening(
    policy: Policy,
    renderer: PromptRenderer,
    asked: Sequence[Answered],
    candidates: Sequence[tuple[int, list[int]]],
    words: Sequence[str],
    opening: Sequence[str],
) -> list[tuple[int, list[int]]]:
    """The plain answers, and those that go on with a wish, behind the words with which an answer is to begin."""
    first, other = " ".join(opening), [w for w in words if w not in opening]
    opened = [(i, between(policy, renderer, one, first, "")) for i, one in enumerate(asked)]
    if other:  # an answer that closes with the other words
        closed = [(i, a) for i, a in candidates if rank(other, renderer.decode(a)) == len(other)]
        for i, answer in closed:
            content = policy.without_end(answer)
            opened.append((i, [*renderer.encode(f"{first} {renderer.decode(content)}"), *answer[len(content) :]]))
    return opened
