"""Wishes: sentences in which a person says how answers should be, and what such a sentence is about.

All of it is the person's own words, one sentence a wish. A wish is about the form or manner of every answer, or about a
topic; a later one about the same thing takes the place of an earlier one, and "no more of it" takes it back. Pure
functions: the evolver makes skills by them, and the gateway leaves out what the person ends in this very turn.
"""
# ruff: noqa: SIM905  (word lists read better as text)

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnwise.messages import clean
from turnwise.patterns import IGNORECASE, anchored, pattern
from turnwise.skills.opposed import opposed
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
_FROM_NOW_ON = pattern(
    rf"\bfrom now on\b|\bgoing forward\b|^{_LEADS}in (?:the )?future\b|\bin (?:the )?future[.!]?$"
    rf"|^{_LEADS}remember (?:to|me|my|i|that i|that you|that my)\b"
    rf"|^{_LEADS}(?:(?:you (?:can|may|could)|could you|can you) )?(?:stop|quit) (?:\w+ing|it|with)\b|^{_LEADS}no more\b"
    rf"|^{_LEADS}(?:don't|do not|you don't|you do not|you needn't|no need to)\b.{{1,200}}\b(?:any ?more|any longer)\b"
    rf"|^{_LEADS}you (?:don't|do not|no longer) (?:have|need) to\b"
    r"|\b(?:ab jetzt|ab sofort|von nun an|von jetzt an|künftig|zukünftig|in zukunft|nie wieder)\b"
    r"|\b(?:désormais|dorénavant|à partir de maintenant|à l'avenir)\b"
    r"|\b(?:de ahora en adelante|a partir de ahora|en adelante|de agora em diante|a partir de agora)\b"
    r"|\b(?:d'ora in poi|da ora in poi|d'ora in avanti)\b|\b(?:vanaf nu|voortaan|in het vervolg)\b"
    r"|\b(?:отныне|впредь|с этого момента)\b|\b(?:od teraz|odtąd)\b|\b(?:från och med nu|hädanefter)\b"
    r"|以后|从现在|今后|今後|これから",
    IGNORECASE,
)
"""Words that say outright that something is meant to last, whatever the sentence is about."""
_EACH_TIME = pattern(
    r"\b(?:every|each|all|any)(?: of)?(?: your| my)? (?:answers?|repl(?:y|ies)|responses?|messages?)\b"
    rf"|^{_LEADS}(?:(?:you (?:should|must)|i (?:want|need|would like) you to|remember to|make sure to) )?"
    r"(?:always|never)\b"
    r"|^(?:your |my |the )?(?:answers?|repl(?:y|ies)|responses?) (?:should|must|shall|have to|need to)\b"
    r"|\b(?:jede[rsn]?|alle[n]?) (?:deiner |deine )?antwort(?:en)?\b|\bchaque réponse\b|\btoutes (?:tes|vos) réponses\b"
    r"|\b(?:cada|todas? (?:tus|sus)|tus) respuestas?\b|\b(?:ogni risposta|le tue risposte)\b"
    r"|\b(?:elk antwoord|je antwoorden)\b"
    r"|^(?:bitte )?(?:antworte|schreibe?|benutze?|verwende|nenne?|beende|beginne|sprich|sage?|erkläre?|gib)"
    r"(?: mir| mich)? (?:bitte )?(?:immer|stets|nie|niemals)\b"
    r"|^(?:réponds|répondez|écris|écrivez|utilise|utilisez|termine|terminez|commence|commencez|explique)"
    r" (?:toujours|jamais)\b"
    r"|^(?:responde|contesta|escribe|usa|termina|empieza|explica|rispondi|scrivi|inizia|spiega)"
    r" (?:siempre|sempre|nunca)\b"
    r"|^(?:nunca|siempre|jamás) (?:uses|digas|escribas|respondas|pongas|responde|contesta|usa|escribe"
    r"|termina|empieza)\b"
    r"|^(?:antwoord|schrijf|gebruik|noem) (?:altijd|nooit)\b|^(?:отвечай|пиши|используй)(?:те)? (?:всегда|только)\b"
    r"|^(?:请)?(?:总是|一直|永远)|^(?:いつも|常に)",
    IGNORECASE,
)
"""Words that ask for something each time; a sentence about a thing has them as well ("it must never fail")."""
_OF_A_THING = anchored(
    rf"{_LEADS}(?:(?:please )?(?:make sure|be sure|ensure|see to it)(?: that)? )?"
    r"((?:[^.!?\n]{1,80}, )?[^,.!?\n]{1,60}?) "
    r"(must|should|shall|ha(?:s|ve) to|needs? to|always|never|is|are|muss|müssen|soll|sollen|darf|dürfen"
    r"|(?:ne )?doi(?:t|vent)|(?:siempre |nunca )?deben?|deve|devono|moet|moeten|mag) (\w+(?: \w+)?)",
    IGNORECASE,
)
_THINGS = frozenset(
    "it this that these those he she they we there the a an our my its his her their each every all any no some both"
    " der die das ein eine le la les un une el los las il lo gli het de".split()
)
"""What a sentence about something else begins with, where no such word as "must" says it."""
_MODALS = frozenset("must should shall has have need needs muss müssen soll sollen darf dürfen moet moeten".split())
_OURS = frozenset(
    "you your yours i me answer answers reply replies response responses explanation explanations antwort antworten"
    " réponse réponses respuesta respuestas risposta risposte antwoord antwoorden du dein deine tu tes vous vos".split()
)
"""A sentence with one of these words before its verb is about the answers."""
_IT = frozenset("it this that they these those".split())
_CODE_TASK = pattern(
    r"\b(?:write|implement|create|build|make|code|develop|design|refactor|fix|add|extend)\b.{0,60}\b(?:functions?|methods?"
    r"|class|classes|scripts?|programs?|endpoints?|apis?|quer(?:y|ies)|regex|modules?|components?|tests?|parsers?|servers?"
    r"|apps?|pages?|websites?|cli|services?|handlers?|library|package|schema|tables?|databases?|bots?|caches?)\b",
    IGNORECASE,
)
"""A task, whose other sentences say what its result must do."""
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
_COMPLAINT = anchored(
    rf"{_LEADS}(?:(?:that|this|it|your answer|the answer)(?:'s| is| was)? )?"
    r"(?:just |still |way |far |much |a bit |a little ){0,3}"
    r"too \w+(?:(?: and|,| or)(?: too)? \w+){0,2}\W*",
    IGNORECASE,
)
"""What is only wrong with this answer, and says of no other how it should be: "too long."."""
_ASKS = pattern(r"\?\s*$")
_SENTENCE_END = pattern(r"[.!?] ")

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

_FORBIDS = pattern(r"\b(?:never|don't|do not|no|not|without|avoid)\b", IGNORECASE)


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
    of_a_task = any(_CODE_TASK.search(sentence) for sentence in said)
    found: list[PersonsWish] = []
    for sentence in said:
        words = " ".join(clean(sentence).split())
        if not LEAST_CHARS <= len(words) <= MOST_CHARS or tells_nothing(words):
            continue
        if _COMPLAINT.fullmatch(words) or _NOTHING.search(words) or (_STATES.match(words) and not _WANTS.search(words)):
            continue  # "it always crashes"
        lasts = bool(_FROM_NOW_ON.search(words))
        if not lasts and (of_a_task or _is_of_a_thing(words)):
            continue  # "it must always return a list"
        asks = bool(_ASKS.search(words)) and not _TAKES_BACK.match(words)
        if ((lasts or _EACH_TIME.search(words)) and not asks) or (given and words in given):
            found.append(wish_of(words))
    return found[:MOST_WISHES]


def tells_nothing(words: str) -> bool:
    """Whether a sentence is a mere rejection, which names nothing to do instead."""
    return set(stems(words)) <= NOTHING_SAID


def _is_of_a_thing(words: str) -> bool:
    """Whether a sentence says what something else than the answers has to do."""
    found = _OF_A_THING.match(words)
    if found is None:
        return False
    subject = found.group(1).lower().rpartition(", ")[2].split()
    verb, then = found.group(2).lower().split()[0], stems(found.group(3))
    if not subject or _OURS.intersection(subject):
        return False
    if (
        subject[0] in _IT
        and len(subject) == 1
        and found.group(3).lower().startswith("be ")
        and MANNER.intersection(then)
    ):
        return False  # "it should be shorter"
    return subject[0] in _THINGS or (verb in _MODALS and len(subject) <= 3)


def wish_of(words: str) -> PersonsWish:
    """What a sentence asks for."""
    back = _TAKES_BACK.match(words)
    ended = frozenset(stems(back.group(1))) - FILLER if back else frozenset()
    return PersonsWish(words, bool(ended) or _is_general(words), ended)


def _is_general(words: str) -> bool:
    if _CONDITION.search(words):
        return False
    lasts = _FROM_NOW_ON.search(words) or _EACH_TIME.search(words)
    return bool(lasts) or bool(MANNER.intersection(stems(words)))


def ends(wish: PersonsWish, earlier: str) -> bool:
    """Whether it takes back an earlier wish, of which the words are given."""
    if not wish.takes_back:
        return False
    return len(wish.takes_back & set(stems(earlier))) / len(wish.takes_back) >= TAKEN_BACK


def ended_in(question: str, standing: Mapping[str, str], vectors: Callable[[], WordVectors]) -> set[str]:
    """Of the wishes that stand (words by name) those that a person's words of now take back, or put another in place
    of. `vectors` is asked only where the words have a wish. Raises SkillError where there are none."""
    found: set[str] = set()
    for wish in wishes_among(_sentences(question), None):
        ended = {name for name, words in standing.items() if ends(wish, words)}
        if not ended and not any(says_nothing_new(wish.words, words, vectors()) for words in standing.values()):
            about = same_thing(wish.words, list(standing.values()), vectors())
            ended = {name for name, same in zip(standing, about, strict=True) if same}
        found |= ended
    return found


def _sentences(question: str) -> list[str]:
    starts = [0, *(end.end() for end in _SENTENCE_END.finditer(question))]
    return [question[at:to].strip() for at, to in zip(starts, [*starts[1:], len(question)], strict=True)]


def same_thing(wish: str, others: Sequence[str], vectors: WordVectors) -> list[bool]:
    """Whether each of the other wishes is about what this one is about, whichever way it goes.

    Of two of which one forbids something, the words must be the same: "never sort by price" leaves "sort by date".
    """
    if not others:
        return []
    mine, *theirs = (set(stems(text)) for text in (wish, *others))
    embedded = vectors.embed([_core(text) for text in (wish, *others)])
    near = embedded[1:] @ embedded[0]
    aspects = [
        any(mine & aspect and their & aspect for aspect in ASPECTS) or opposed(wish, other)
        for their, other in zip(theirs, others, strict=True)
    ]
    denies = [bool(_FORBIDS.search(wish) or _FORBIDS.search(other)) for other in others]
    told = [mine - FILLER, *(their - FILLER for their in theirs)]
    within = [told[0] <= other or other <= told[0] for other in told[1:]]
    return [
        aspect or (within[n] or float(near[n]) >= ALIKE if denies[n] else float(near[n]) >= SAME)
        for n, aspect in enumerate(aspects)
    ]


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
