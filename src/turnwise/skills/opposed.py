"""Wishes of which no answer meets both, as their words say: a shorter answer and a longer one, or two languages.

Word vectors and a model's states tell much of what two wishes are about, and miss plain pairs ("be brief", "more
detail, please"), most of all across languages. Only words that are said of whole answers count: "short sentences" and
"more detail" go together, and so do "German when I write German" and "English when I write English". Pure functions.
"""
# ruff: noqa: SIM905  (word lists read better as text)

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from turnwise.patterns import pattern

_TOKEN = pattern(r"[^\W\d_]+|[.!?,;:()\n-]")
_QUOTED = pattern(r"[\"“„«][^\"“”„«»\n]{0,200}[\"”“»]")
_SHORT = frozenset(
    "short shorter shortest brief briefer briefly concise concisely terse kurz kurze kürzer kürzere knapp knapper"
    " court courte courtes courts bref brève corto corta cortas cortos breve breves brevi kort korte korter beknopt"
    " curto curta curtas curtos".split()
)
_LONG = frozenset(
    "long longer lengthy lengthier detail details detailed lang lange länger längere ausführlich ausführlicher"
    " ausführliche longue longues longs détails détaillé détaillée largo larga largas largos detalle detalles lungo"
    " lunga lunghe dettagli dettagliato langer lange uitgebreid uitgebreider longo longa longas detalhe"
    " detalhes".split()
)
_LANGUAGES = tuple(
    frozenset(names.split())
    for names in (
        "english englisch anglais inglés inglese engels inglês",
        "german deutsch allemand alemán tedesco duits alemão",
        "french französisch français francés francese frans francês",
        "spanish spanisch espagnol español spagnolo spaans espanhol",
        "italian italienisch italien italiano italiaans",
        "portuguese portugiesisch portugais portugués portoghese portugees português",
        "dutch niederländisch holländisch néerlandais holandés neerlandés olandese nederlands holandês",
        "russian russisch russe ruso russo",
        "chinese chinesisch chinois chino cinese chinees chinês",
        "japanese japanisch japonais japonés giapponese japans japonês",
        "polish polnisch polonais polaco polacco pools polonês",
    )
)
_DENIES = frozenset(
    "no not never nothing less fewer without stop avoid too nicht kein keine keinen zu weniger ohne"
    " pas moins sans trop si demasiado menos sin tan non meno senza troppo niet geen minder te zonder não menos sem"
    " muito".split()
)
"""Words that turn one of the others around when they stand one or two words before it: "too long" wants it short."""
_ENOUGH = frozenset("enough genug assez suficiente suficientemente abbastanza genoeg".split())
_BESIDE = frozenset(
    "a an the your my it them this that these all every each be is was are make keep write give say want need prefer"
    " get me us i you please pls plz and or but just still even much more bit little far way very really rather too so"
    " less no not never without too in with for of at again now then next time always from only instead than thanks"
    " thank ok answer answers answering reply replies response responses explanation explanations text texts version"
    " versions something one ones bitte danke und oder aber nur noch viel mehr etwas ein eine wenig zu sehr so nicht"
    " weniger sei antworte antworten antwort schreib schreibe fass mach fasse es dich dir mir deine die der das beim"
    " nächsten mal plus moins trop très un une peu et ou mais s svp merci réponse réponses la le les des sois fais más"
    " menos muy demasiado por favor y o pero respuesta respuestas la el las los sé hazlo più meno troppo per favore e"
    " ma risposta risposte sii meer minder te heel een en of maar graag alsjeblieft antwoord antwoorden het mais menos"
    " resposta respostas s il te vous plaît that was on".split()
)
"""Words beside which one of the others is said of whole answers: "short" of "short lines" is not."""
_INTO = frozenset("in into to auf ins en em op speak use speaking sprich parle habla fala and und et y e".split())
_KNOWN = frozenset().union(_SHORT, _LONG, *_LANGUAGES, _DENIES, _ENOUGH, _BESIDE, _INTO)
"""A clause counts that has no other word: "leave the names in English" and "the list is too long" are of a part."""
_IF = frozenset("when whenever if unless while wenn falls sobald quand lorsque cuando si quando se als wanneer".split())


def opposed(wish: str, other: str) -> bool:
    """Whether one of two wishes asks for what the other one rules out."""
    mine, theirs = _asked_for(wish), _asked_for(other)
    return any(own and of_other and own.isdisjoint(of_other) for own, of_other in zip(mine, theirs, strict=True))


def _asked_for(text: str) -> tuple[set[int], set[int]]:
    """Which lengths (0: short, 1: long) and which languages a wish asks for; none, where it holds in some cases."""
    tokens = [token.lower() for token in _TOKEN.findall(_QUOTED.sub(" ", text[:2000]))]
    if _IF.intersection(tokens):
        return set(), set()
    clauses = [clause for clause in _clauses(tokens) if _KNOWN.issuperset(clause)]
    lengths = {length for clause in clauses for length in _lengths(clause)}
    return lengths, {language for clause in clauses for language in _languages(clause)}


def _clauses(tokens: list[str]) -> Iterator[list[str]]:
    """The words between two marks each."""
    for words, some in groupby(tokens, str.isalpha):
        if words:
            yield list(some)


def _lengths(tokens: list[str]) -> Iterator[int]:
    for at, token in enumerate(tokens):
        before, after = tokens[max(0, at - 2) : at], tokens[at + 1 : at + 2]
        if (token in _SHORT or token in _LONG) and _of_answers(before[-1:]) and _of_answers(after):
            if token == "longer" and before[-1:] in (["no"], ["any"]):
                continue  # of time
            turned = not _DENIES.isdisjoint(_after_marks(before)) and _ENOUGH.isdisjoint(after)
            yield int(token in _LONG) ^ turned


def _languages(tokens: list[str]) -> Iterator[int]:
    for at, token in enumerate(tokens):
        before, after = _after_marks(tokens[max(0, at - 4) : at]), tokens[at + 1 : at + 2]
        if (
            (before and before[-1] not in _INTO)
            or (token == "polish" and not before)
            or not _of_answers(after)
            or not _DENIES.isdisjoint(before)
        ):
            continue
        yield from (n for n, names in enumerate(_LANGUAGES) if token in names)


def _of_answers(beside: list[str]) -> bool:
    return not beside or not beside[0].isalpha() or beside[0] in _BESIDE or beside[0] in _ENOUGH


def _after_marks(before: list[str]) -> list[str]:
    """The words behind the last mark among them: "no, shorter" denies nothing of what is short."""
    last = max((at for at, token in enumerate(before) if not token.isalpha()), default=-1)
    return before[last + 1 :]
