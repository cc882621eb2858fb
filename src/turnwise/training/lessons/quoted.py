"""Words that a wish quotes: "begin with "In short:"" wants these very words, once, and most often at one end.

A small model that is asked for them writes "In short, …" or "In short: In short, …"; learned from, the second one is
said without end. Where the words open or close an answer, the plain answer with them put there is a better lesson:
nothing of what it says is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import combinations, pairwise
from typing import NamedTuple

from turnwise.patterns import any_of, pattern
from turnwise.training.lessons.echoes import QUOTED, WORD

MOST_WORDS = 8
"""A longer quotation is an example rather than words to be said."""
MARKS = ".,:;!?-–— "
COMMON = 0.5
"""Share of the questions with an answer that has the words, from which the wish is to say them."""
BESIDE = 0.25
"""The same of words beside such ones: a small model told of two labels has the one more often than both."""


def quoted_words(wishes: Sequence[str]) -> list[str]:
    """What the wishes quote, each once: of two that differ in capitals and marks alone the one with a capital.

    Dots at the end stand for what is to follow: "A common mistake is …" wants the words before them.
    """
    found: dict[str, str] = {}
    for wish in wishes:
        for quotation in QUOTED.findall(wish):
            words = _without_dots(" ".join(quotation[1:-1].split()))
            if words and len(words.split()) <= MOST_WORDS:
                known = found.get(key := same_words(words), words)
                found[key] = words if words[0].isupper() and not known[0].isupper() else known
    return list(found.values())


def _without_dots(words: str) -> str:
    """Words without the last dots, which stand for what is to follow; one dot alone is theirs ("e.g. ...")."""
    bare = words.rstrip(".…")
    several = words.endswith("…") or len(words) - len(bare) > 1
    return bare.removesuffix(" ") if several else words


def same_words(words: str) -> str:
    """What two quotations have in common that ask for the same words."""
    return words.casefold().strip(MARKS) or words.casefold()


def with_marks(words: str, wish: str, form: str | None = None) -> str:
    """The wish with these words in quotation marks, spelled as in ``form``, where it has them and no marks yet.

    Of several places it is the one where they stand as in `named_at`.
    """
    text = " ".join(wish.split())
    if QUOTED.search(text) or not _ANY_MARK.isdisjoint(text) or len(text.casefold()) != len(text):
        return wish
    if not (places := places_in(words, text)):
        return wish
    at = named_at(form, wish) if form else None
    begin, end = next((place for place in places if place[0] == at), places[0])
    form = form or text[begin:end]
    ending = form[len(form.rstrip(MARKS)) :]
    return f'{text[:begin]}"{form}"{text[end:].removeprefix(ending)}'


_ANY_MARK = frozenset('"“”„«»')


def same_wish(wish: str, other: str) -> bool:
    """Whether two wishes have the same words, whatever marks and capitals these have."""
    return WORD.findall(wish.casefold()) == WORD.findall(other.casefold())


def times(words: str, answer: str) -> int:
    """How often an answer has these words, in whatever capitals, and not within longer ones."""
    return len(places_in(words, answer))


_LETTERS = pattern(r"[^\W\d_]+")
_SAID = ":!?"
_GOES_ON = pattern(
    r"\W*$|[^\w\s]|\s+(?:please|at|in|on|as|or|and|plus|too|before|after|behind|from|always|every|each)\b"
)
"""What stands behind words that are to be said, and seldom behind a name: "write Captain Sam a poem"."""
_GOES_ON_NEAR = any_of(_GOES_ON.pattern, r"\s+(?:with|when|whenever|then|first|inside)\b")


def named_at(form: str, text: str, near: bool = False) -> int | None:
    """Where a text, in one layout, has these words as words to be said.

    To the letter, with their capital, they have their colon behind them there ("add Handy tip: to it"), or an order to
    say them before them and a pause or such behind ("start with For instance, please"); one word alone has its mark.
    Two words stand in many texts by chance ("of course"), and names of people and places with their capitals. In other
    capitals words without a colon have such an order as well ("say mic check before anything else"), and a label has
    its colon and an order ("write your turn: and a question"). A text ``near`` one that quotes them, as it is about the
    same thing, needs one of these, in whatever capitals.
    """
    first, several = _LETTERS.match(form), len(form.split()) > 1
    if first is None or not form[0].isupper() or len(first[0]) == 1:  # "I think" has its capital everywhere
        return None
    if not several and form[-1] not in _SAID:
        return None
    words, bare, at = form.rstrip(MARKS) if several else form, " ".join(text.split()), -1
    folds = all(len(one.casefold()) == len(one) for one in (words, bare))  # "ß" does not
    sought, there = (words.casefold(), bare.casefold()) if folds else (words, bare)
    asks, goes_on = (_ASKS_NEAR, _GOES_ON_NEAR) if near else (_ASKS_FOR_WORDS, _GOES_ON)
    while (at := there.find(sought, at + 1)) >= 0:
        before, behind = bare[:at].rstrip(), bare[at + len(words) :]
        whole = not bare[at - 1 : at].isalnum() and not (words[-1].isalnum() and behind[:1].isalnum())
        if not (whole and before and (before[-1].isalnum() or before[-1] == ",")):
            continue
        exact, label = bare.startswith(words, at), ":" in (form[-1], behind[:1])
        colon = form[-1] == ":" and (words[-1] == ":" or behind.startswith(":"))
        asked = asks.search(before.casefold()) is not None
        ordered = asked and (goes_on.match(behind.casefold()) is not None if several else exact)
        anyhow = (colon and asked) or (ordered and not label)
        if anyhow or ((exact or near) and (colon or ordered)):
            return at
    return None


COLONS = 3
"""Colons of a text before which a label is looked for."""
_AFTER_WORDS = frozenset(
    ("this", "that", "these", "way", "format", "follows", "following", "thing", "end", "now", "on", "time", "example")
)
"""What the words before a colon end in where they announce the rest of the sentence."""


def labels_said(texts: Sequence[str]) -> list[str]:
    """For each text the label that it says without quotation marks, with its colon and a capital, or "".

    It has several words and an order to say them before it, "add look it up in: and a source", in two texts or more.
    One with words that a text quotes is none: these are what is to be said.
    """
    found = ["" if QUOTED.search(text) else _ordered_label(" ".join(text.split())) for text in texts]
    often = Counter(same_words(label) for label in found if label)
    quoted = [same_words(words) for words in quoted_words(texts)]

    def counts(label: str) -> bool:
        return often[same_words(label)] > 1 and not any(times(words, label) for words in quoted)

    return [label if label and counts(label) else "" for label in found]


def _ordered_label(text: str) -> str:
    """The words between an order to say them and a colon, if a text in one layout has such."""
    words = text.split(" ")
    for at in [i for i, word in enumerate(words) if word.endswith(":")][:COLONS]:
        if same_words(words[at]) in _AFTER_WORDS:
            continue
        for first in range(at - 1, max(0, at - MOST_WORDS), -1):
            if not words[first][-1].isalnum():  # another part of the sentence
                break
            if _ASKS_NEAR.search(" ".join(words[:first]).casefold()):
                label = " ".join(words[first : at + 1])
                return label[0].upper() + label[1:]
    return ""


def misses_words(wish: str, answer: str, said_of: Collection[str], praised: Collection[str], now: str = "") -> bool:
    """Whether an answer has none of the words that a wish quotes and wants said, whatever marks these have.

    It wants them said where none of the answers that it was ``said_of`` has them, and one of the ``praised`` answers
    has: 'drop the "Sure!"' is said of one that has, and of 'dates as "YYYY-MM-DD"' no answer has the words. Who says
    the same words again ``now``, of the answer that has none of them, wants them as much, if neither forbids something.
    """
    words = [_spaced(one) for one in quoted_words([wish]) if WORD.search(one)]

    def has(text: str) -> bool:
        there = _spaced(text)
        return any(one in there for one in words)

    if not (words and said_of) or has(answer) or any(map(has, said_of)):
        return False
    again = any(one in _spaced(now) for one in words if len(one.split()) > 1)
    return (again and not _FORBIDS.search(f"{wish}. {now}".casefold())) or any(map(has, praised))


_FORBIDS = pattern(
    r"\b(?:never|dont|do not|stop|drop|skip|avoid|quit|lose|less|leave out|no more|no longer|any ?more)\b|n['’]t\b"
)


def words_praised(wishes: Sequence[str], judged: Sequence[Reaction], said_of: Sequence[str]) -> list[str]:
    """What the wordings of a wish quote that the person wants said, as answers show, in small letters.

    Several praised ones of those that were judged since have it, and no smaller a share of these than of the others;
    and fewer than half of the answers that the wish was ``said_of`` have it: 'drop the "Sure!"' is said of such ones.
    """
    praised, others = ([one.answer for one in judged if (one.score > 0) == yes] for yes in (True, False))

    def having(words: str, texts: Sequence[str]) -> int:
        return sum(times(words, text) > 0 for text in texts)

    def wanted(words: str) -> bool:
        liked = having(words, praised)
        if liked < SEVERAL or 2 * having(words, said_of) >= len(said_of):
            return False
        return liked * max(1, len(others)) >= having(words, others) * len(praised)

    return [words for words in map(same_words, quoted_words(wishes)) if WORD.search(words) and wanted(words)]


def _spaced(text: str) -> str:
    """The words of a text alone, with a space around each."""
    return f" {' '.join(WORD.findall(text.casefold()))} "


def places_in(words: str, answer: str) -> list[tuple[int, int]]:
    text, sought = " ".join(answer.casefold().split()), words.casefold()
    found, at = [], text.find(sought)
    while at >= 0:
        end = at + len(sought)
        before, behind = text[at - 1 : at], text[end : end + 1]
        if not (sought[0].isalnum() and before.isalnum()) and not (sought[-1].isalnum() and behind.isalnum()):
            found.append((at, end))
        at = text.find(sought, end)
    return found


def _stutters(words: str, answer: str) -> bool:
    """Whether an answer says words and says them again at once, as in "In short: In short, …"."""
    text, places = " ".join(answer.casefold().split()), places_in(words.strip(MARKS) or words, answer)
    return any(not any(map(str.isalnum, text[end:begin])) for (_, end), (begin, _) in pairwise(places))


AGAIN = 3
"""So many answers with words at one end, of which they were asked for again, say that they do not belong there."""


class Reaction(NamedTuple):
    """An answer that was judged, its score, of which the sign counts, and whether a wish was said of it again."""

    answer: str
    score: float
    asked: bool


def since_said(answers: Sequence[tuple[str, str, float]], said_of: Collection[str]) -> list[Reaction]:
    """The judged answers (turn, answer, score), oldest first, since a wish was said first, of these turns.

    It may have been said of earlier turns than these. What came back before is about another wish.
    """
    turns = [turn for turn, _, _ in answers]
    within = [turn in said_of for turn in turns]
    first = within.index(True) if any(within) and set(said_of) <= set(turns) else 0
    kept = zip(answers[first:], within[first:], strict=True)
    return [Reaction(answer, score, asked) for (_, answer, score), asked in kept]


SEVERAL = 2
"""So many praised answers at least with the same words at one end show that they are those of a wish."""
FEWEST_WORDS = 3
"""Words in a row that a wish and an answer have in common by chance are fewer."""


def said_again(wishes: Sequence[str]) -> bool:
    """Whether two wishes have several words in a row in common, which may be words that the person wants said."""
    words = [WORD.findall(wish.casefold()) for wish in dict.fromkeys(wishes)]
    runs = [{tuple(one[i : i + FEWEST_WORDS]) for i in range(len(one) - FEWEST_WORDS + 1)} for one in words]
    return any(not one.isdisjoint(other) for one, other in combinations(runs, 2))


_ASKS = (
    r"with|says?|saying|write|put|add|include|words?|phrase|sentence|line"
    r"|begin(?:s|ning)?|start(?:s|ing)?|end(?:s|ing)?|reads?|reading"
)
_ASKS_FOR_WORDS = pattern(rf"(?:(?:^|[^\w])(?:{_ASKS})|^)[^\w]*$")
"""What stands before words that are asked for as they stand; nothing does where the wish begins with them."""
_ASKS_NEAR = pattern(rf"(?:^|[^\w])(?:{_ASKS}|label|need|want|miss|close on|finish)(?: in)?(?: an?| the)?[^\w]*$")
"""The same where less is needed, since the words are known to be said."""


def praised_words(wish: str, judged: Sequence[Reaction]) -> str | None:
    """What praised answers begin with, or close with, and the wish says without marks; None where there is nothing.

    "I like answers that start with here is what the books say" quotes nothing, and where its words end is seen in
    answers that were what the person wanted. The wish has to ask for words there: of "explain it in simple terms" a
    small model begins with "In simple terms" as well.
    """
    text = " ".join(wish.casefold().split())
    praised = [one.answer.casefold().split() for one in judged if one.score > 0]
    for count in range(MOST_WORDS, FEWEST_WORDS - 1, -1):
        for ends in ([words[:count] for words in praised], [words[-count:] for words in praised]):
            often = Counter(same_words(" ".join(words)) for words in ends if len(words) == count)
            for words, n in often.most_common():
                places = places_in(words, text) if n >= max(SEVERAL, len(praised) / 2) else []
                if places and _ASKS_FOR_WORDS.search(text[: places[0][0]]):
                    return words
    return None


def end_of(words: str, answer: str) -> int:
    """1 where an answer has these words at its beginning, -1 where at its end, 0 where at both, or at none."""
    text, sought = (" ".join(each.casefold().split()).strip(MARKS) for each in (answer, words))
    places = places_in(sought, text) if sought else []
    return sum(begin == 0 for begin, _ in places) - sum(end == len(text) for _, end in places)


def shown(words: str, judged: Sequence[Reaction]) -> int:
    """What judged answers say of where these words belong: above 0 at the beginning, below 0 at the end.

    Who praises an answer that begins with them wants them there: that counts twice. Who asks for them again, of an
    answer that closes with them, may be about something beside ("shorter before the "Cheers!", please"), so that such
    words count from ``AGAIN`` answers on alone.
    """
    praised = sum(end_of(words, answer) for answer, score, _ in judged if score > 0)
    asked_again = [end_of(words, answer) for answer, score, asked in judged if score < 0 and asked]
    against = sum(asked_again)
    return 2 * praised - (against if abs(against) >= AGAIN else 0)


def said_by_wish(words: Sequence[str], answers: dict[int, list[str]], plain: dict[int, str]) -> list[str]:
    """The words that answers to half of the questions have, where fewer of the plain ones do.

    Of labels it is enough that those to a quarter have them together with such a one. ``answers``: those of each
    question that were made by the wish, and ``plain`` the one that was not.
    """

    def wanted(some: tuple[str, ...], share: float) -> bool:
        by_wish, by_itself = (
            sum(any(all(times(one, text) for one in some) for text in texts) for texts in each)
            for each in (answers.values(), [[text] for text in plain.values()])
        )
        return by_wish >= share * len(answers) and by_wish > by_itself

    first = [one for one in words if answers and wanted((one,), COMMON)]
    labels = [one for one in first if one[-1] == ":"]

    def beside(one: str) -> bool:
        return one[-1] == ":" and wanted((one,), BESIDE) and any(wanted((one, label), BESIDE) for label in labels)

    return [one for one in words if one in first or (labels and beside(one))]


def no_frames(opening: Sequence[str], words: Sequence[str], wishes: Sequence[str], answers: Sequence[str]) -> list[str]:
    """The opening words without those that frame something: what a wish wants between "Q:" and "A:" is the question.

    They are words of a wish that quotes others as well, of which in half of the answers that have both something stands
    between the two and behind the other one. What closes an answer ("Cheers!") frames nothing.
    """
    frames: set[str] = set()
    for wish in wishes:
        own = quoted_words([wish])
        for one in [one for one in opening if one in own]:
            for other in [other for other in words if other in own and other != one]:
                both = [answer for answer in answers if times(one, answer) and times(other, answer)]
                if both and 2 * sum(_frame(one, other, answer) for answer in both) >= len(both):
                    frames |= {one, other}
    return [one for one in opening if one not in frames]


def _frame(first: str, other: str, answer: str) -> bool:
    text = " ".join(answer.casefold().split())
    (_, begins), (ends, last) = places_in(first, text)[0], places_in(other, text)[-1]
    return any(map(str.isalnum, text[begins:ends])) and any(map(str.isalnum, text[last:]))


def rank(words: Sequence[str], answer: str) -> int:
    """How many of the words an answer has; -1 where it says some twice in a row."""
    if any(_stutters(one, answer) for one in words):
        return -1
    return sum(times(one, answer) > 0 for one in words)
