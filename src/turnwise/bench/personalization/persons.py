"""People with wishes, who use an agent: what they want of an answer, how they see that they got it, what they say.

Wishes are about form or about content. Each person has wordings of their own. Those here may be tuned on; those of
`unseen.py` are for figures that are reported.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass

from turnwise.demo.questions import HELD_OUT
from turnwise.patterns import pattern


@dataclass(frozen=True, slots=True)
class Wish:
    """One thing that a person wants of every answer.

    ``told`` is the wish as an instruction: the reference writes it under the question, the person never says it so.
    ``met`` looks at an answer. ``asks`` are the person's words where it is not met, ``grumbles`` those that do not say
    what is wanted.
    """

    name: str
    about: str
    told: str
    met: Callable[[str], bool]
    asks: tuple[str, ...]
    grumbles: tuple[str, ...] = ("that's not how i wanted it", "no, not like this", "hm, not what i had in mind")


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody with one or two wishes, for all conversations or for so many of them.

    After ``change_after`` conversations the wishes are the first of ``later``, after as many again the next, and behind
    the last one that one stays, or with ``begins_again`` the first ones return. ``examination`` are questions that they
    never talk about, with the words of right answers.
    """

    name: str
    wishes: tuple[Wish, ...]
    praise: tuple[str, ...] = (
        "great, thank you",
        "perfect, just what i wanted",
        "thanks, exactly right",
        "lovely, that's it",
    )
    later: tuple[tuple[Wish, ...], ...] = ()
    change_after: int = 0
    begins_again: bool = False
    examination: tuple[tuple[str, tuple[str, ...]], ...] = HELD_OUT

    def wishes_at(self, conversation: int) -> tuple[Wish, ...]:
        """What the person wants in their conversation of this number, from 0."""
        every = self.wishes, *self.later
        at = conversation // self.change_after if self.change_after else 0
        return every[at % len(every) if self.begins_again else min(at, len(every) - 1)]


NO_ANSWER = ("you did not answer my question", "fine, but what is the answer?", "that says nothing at all")
"""What anybody says of an answer that has what they wished for and no answer in it."""


def says_nothing(answer: str, wishes: tuple[Wish, ...]) -> bool:
    """Whether an answer has no word but those of the wishes: "Cheers!" alone is no answer that ends with it."""
    asked = {word for wish in wishes for word in _WORDS.findall(wish.told.lower())}
    return not set(_WORDS.findall(answer.lower())) - asked


_WORDS = pattern(r"[^\W_]+")


def words_at_most(count: int) -> Callable[[str], bool]:
    """Some words, and no more than ``count``."""
    return lambda text: 0 < word_count(text) <= count


def has(*words: str) -> Callable[[str], bool]:
    """Whether any of the words is in a text, as they stand, in any case."""
    return lambda text: any(word in text.lower() for word in words)


_SENTENCE_END = pattern(r"[.!?](?=\s|$)")


def one_sentence(text: str) -> bool:
    """At most 25 words and one full stop."""
    return 0 < word_count(text) <= 25 and len(_SENTENCE_END.findall(text.strip())) <= 1


def capitals(text: str) -> bool:
    """More than four of five letters are capitals."""
    letters = [c for c in text if c.isalpha()]
    return len(letters) > 1 and sum(c.isupper() for c in letters) > 0.8 * len(letters)


def lower_case(text: str) -> bool:
    """Letters, and none of them a capital."""
    letters = [c for c in text if c.isalpha()]
    return len(letters) > 1 and not any(c.isupper() for c in letters)


def ends_with(words: str) -> Callable[[str], bool]:
    """Whether a text ends with the words, punctuation apart."""
    return lambda text: text.lower().rstrip(_MARKS).endswith(words)


def begins_with(words: str) -> Callable[[str], bool]:
    """Whether a text begins with the words, punctuation apart."""
    return lambda text: text.lower().lstrip(_MARKS).startswith(words)


def line_begins_with(words: str) -> Callable[[str], bool]:
    """Whether a line of a text begins with the words."""
    return lambda text: any(line.lower().lstrip().startswith(words) for line in text.splitlines())


def word_count(text: str) -> int:
    """How many there are."""
    return len(text.split())


def line_count(text: str) -> int:
    """How many have something in them."""
    return sum(bool(line.strip()) for line in text.splitlines())


def sentence_count(text: str) -> int:
    """How many end; a text without an end has one."""
    return max(bool(text.strip()), len(_SENTENCE_END.findall(text.strip())))


def edges_off(text: str) -> str:
    """A text without punctuation and spaces at its edges."""
    return text.strip(_MARKS)


_MARKS = string.punctuation + string.whitespace

CHEERS = Wish(
    "cheers",
    "form",
    'End every answer with "Cheers!".',
    ends_with("cheers"),
    (
        'please end your answers with "Cheers!"',
        'i\'d like you to finish every answer with "Cheers!"',
        'you forgot to end with "Cheers!" - always do that',
    ),
)
CAPITALS = Wish(
    "capitals",
    "form",
    "Write your whole answer in capital letters.",
    capitals,
    (
        "please write everything in capital letters, my eyes are bad",
        "ALL CAPS please",
        "use capital letters only, always",
    ),
)
BRIEF = Wish(
    "brief",
    "form",
    "Answer in one short sentence only.",
    one_sentence,
    (
        "too long. one short sentence is enough",
        "just one sentence please, always",
        "keep it to a single short sentence",
    ),
)
AHOY = Wish(
    "ahoy",
    "form",
    'Begin every answer with the word "Ahoy".',
    begins_with("ahoy"),
    ('start with "Ahoy" please, every time', 'begin each answer with the word "Ahoy"', 'say "Ahoy" first, i like that'),
)
NO_CHEERS = Wish(
    "no cheers",
    "form",
    'Do not say "Cheers".',
    lambda text: "cheers" not in text.lower(),
    (
        'you can stop saying "Cheers!" now',
        'no more "Cheers!" please, just the answer',
        'leave out the "Cheers!" from now on',
    ),
)
EXAMPLE = Wish(
    "example",
    "content",
    'Always give an example, introduced by "For example".',
    has("for example", "for instance", "e.g."),
    (
        'give me an example too, starting with "For example"',
        "i always want a for-example with it",
        'add "For example, ..." to your answers',
    ),
)

DEVELOPMENT = (
    Person("cheers", (CHEERS,)),
    Person("capitals", (CAPITALS,)),
    Person("brief", (BRIEF,)),
    Person("ahoy-brief", (AHOY, BRIEF)),
    Person("example", (EXAMPLE,)),
    Person("cheers-back", (CHEERS,), later=((NO_CHEERS,),), change_after=24),
    Person("restless", (CHEERS,), later=((BRIEF,), (AHOY,), (EXAMPLE,)), change_after=40, begins_again=True),
)
"""People to tune on."""
