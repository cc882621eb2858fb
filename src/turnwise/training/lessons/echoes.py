"""Answers that repeat what was asked instead of answering it.

A small model that is told a wish often says the wish back ("I'd be glad if you started with …"), or the question in the
wished form. Such an answer is likely, for all of it was just read, and what it teaches is to say it to everybody.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from turnwise.patterns import pattern

WORD = pattern(r"\w+")
RUN = 4
"""Words in a row that an answer may not have in common with a wish, unless they are wished for."""
Run = tuple[str, ...]
"""``RUN`` words that stand in a row."""
LONG = 4
"""Letters of a word that counts as content whatever it is."""
COMMON = 0.75
"""Share of the answers with such a run from which it is what the person wants to read."""
QUOTED = pattern(r"\"[^\"]*\"|“[^”]*”|„[^“”]*[“”]|«[^»]*»|(?<!\w)'[^']*'(?!\w)")


def says_something(answer: str, question: str, wish: str, plain: str) -> bool:
    """Whether an answer has a word of its own, one that neither question nor wish has in any form: a long one, or a
    short one that is a name or a number of the plain answer."""
    known = {*_words(question), *_words(wish)}
    stems = {word[:LONG] for word in known if len(word) >= LONG and word.isascii()}
    names = {word.casefold() for n, word in enumerate(WORD.findall(plain)) if _is_name(word, n == 0)}
    own = (word for word in _words(answer) if word not in known and word[:LONG] not in stems)
    return any(len(word) >= LONG or word in names for word in own)


def _is_name(word: str, first: bool) -> bool:
    """Whether a word is more than a short one of the language, as "Au", "27" and words in other scripts are."""
    return (
        len(word) >= LONG
        or not word.isascii()
        or not word.isalpha()
        or (len(word) > 1 and not first and word[0].isupper())
    )


def echoing(answers: Sequence[str], wish: str) -> list[bool]:
    """Which answers say the wish back. Words that nearly all of them have in common with it are no echo: a person who
    wants to read them need not put them into quotation marks."""
    found = [echoes(answer, wish) for answer in answers]
    return [False] * len(found) if sum(found) >= COMMON * len(found) else found


def echoes(answer: str, wish: str, wanted: Collection[Run] = ()) -> bool:
    """Whether an answer has several words in a row from a wish, other than what the wish quotes, or is ``wanted``."""
    quoted = map(runs_of, QUOTED.findall(wish))
    return not runs_of(wish).difference(wanted, *quoted).isdisjoint(runs_of(answer))


def runs_of(text: str) -> set[Run]:
    """All the runs of a text, without capitals and marks."""
    words = _words(text)
    return {tuple(words[i : i + RUN]) for i in range(len(words) - RUN + 1)}


def _words(text: str) -> list[str]:
    return WORD.findall(text.casefold())
