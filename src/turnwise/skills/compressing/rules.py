"""Whether a shorter system prompt keeps every rule of the whole one, and says nothing that is not in it.

No model decides this. Each rule of the original (a numbered or bulleted line, or a sentence that orders or forbids)
must stand in one line of the shorter text, with its words in their order and its denial; each name of a tool, path,
address, number and quoted string must be there letter for letter; and no line may have words that the original has
not, or be a rule that none of its lines is. Pure functions. What cannot be shown to be kept is lost.
"""
# ruff: noqa: SIM905  (word lists read better as text)

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from turnwise.patterns import IGNORECASE, anchored, pattern
from turnwise.skills.retrieval import stems

MOST_KEPT = 0.9
"""Share of the original's length from which nothing is gained."""
_ITEM = anchored(r"\s*(?:[-*•+]|\(?\d{1,3}[.)]|\(?[a-z][.)])\s")
_ORDERS = pattern(
    r"\b(?:must|never|always|only|should|shall|don't|do not|cannot|can't|may not|mustn't|avoid|ensure|require[sd]?"
    r"|forbidden|prohibited|not allowed|make sure|without|unless|before|after|instead)\b",
    IGNORECASE,
)
_VERBS = frozenset(
    """use call read write run ask answer reply say tell keep stop start begin end give send show check confirm follow
    include prefer treat put take make return respond refuse ignore wait create add remove delete update set open close
    list name cite quote speak explain search load save store log report verify validate never always do be""".split()
)
"""What a sentence of orders begins with."""
_DENIES = pattern(
    r"\b(?:no|not|never|none|nothing|cannot|without|avoid|forbidden|prohibited|refuse|unless)\b|n't\b", IGNORECASE
)
_QUOTED = pattern(r"`[^`\n]{1,200}`|\"[^\"\n]{1,200}\"|“[^”\n]{1,200}”")
_EXACT = pattern(
    r"[a-z][a-z0-9+.-]{1,20}://[^\s\"'`<>)\]]{1,300}"  # addresses
    r"|(?:~|\.{1,2})?/[\w.@+*/-]{1,200}|\b\w[\w.@+-]{0,80}[/\\][\w.@+*/\\-]{1,200}"  # paths
    r"|\b[\w-]{1,80}\.(?:[a-z]{1,4}|[A-Z]{2,4})\b"  # files
    r"|\b\w{1,80}_\w{1,80}\b|\b[a-z]{1,40}[A-Z]\w{1,80}\b|\b[A-Z]{2,40}\b|<[\w/-]{1,60}>"  # names, constants, tags
    r"|\d[\d.,:%-]{0,30}",  # numbers
)
_SENTENCE = pattern(r"(?<=[.!?;])\s+(?=[A-Z\"'`(])")
FREE = frozenset(
    """a an the and or but then of to in on at by for from with as is are be been was were it its this that these those
    you your i me my we our us must should shall always please will would can could may do does very just really so
    rule rules note section tools""".split()
)
"""Words that a rule can lose, and that a shorter text may have of its own. "only", "all", "before", "unless" and their
like are none."""
_WORD = pattern(r"\w[\w'’-]*")


@dataclass(frozen=True, slots=True)
class KeptRule:
    """One rule or line: its ``words`` in their order (stems, without those that are FREE), what of it is ``exact``, and
    whether it denies something."""

    text: str
    words: tuple[str, ...]
    exact: frozenset[str]
    denies: bool


def why_not(original: str, shorter: str, tools: Collection[str] = ()) -> str | None:
    """Why a shorter text must not stand in for the original, as a sentence; None where it may."""
    if len(shorter.encode()) > MOST_KEPT * len(original.encode()):
        return "it is hardly shorter"
    if "<|" in shorter or any(ord(c) < 32 and c not in "\n\t" for c in shorter):
        return "it has marks or characters of control"
    missing = sorted(each for each in exact_in(original, tools) if each not in shorter)
    if missing:
        return f"it lacks {missing[0]!r}" + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
    lines = [_rule(line) for line in _lines(shorter)]
    lost = [rule for rule in rules_of(original) if not any(_keeps(line, rule) for line in lines)]
    if lost:
        return f"it lost a rule: {lost[0].text[:120]!r}" + (f", and {len(lost) - 1} more" if len(lost) > 1 else "")
    known = frozenset(_words(original))
    new = sorted({word for line in lines for word in line.words} - known)
    new += sorted(exact for exact in exact_in(shorter) if exact not in original)
    if new:
        return f"it says something that the original does not: {new[0]!r}"
    said = [_rule(line) for line in _lines(original)]
    wrong = next((line for line in lines if _is_rule(line.text) and not any(_says(line, rule) for rule in said)), None)
    return None if wrong is None else f"it has a rule that the original has not: {wrong.text[:120]!r}"


def rules_of(text: str) -> list[KeptRule]:
    """The rules of a system prompt, in their order."""
    return [_rule(line) for line in _lines(text) if _is_rule(line)]


def exact_in(text: str, tools: Collection[str] = ()) -> set[str]:
    """What must stand in the shorter text letter for letter: addresses, paths, names, numbers, and what is quoted."""
    found = {match.group(0).rstrip(".,:;") for match in _EXACT.finditer(_without_marks(text))}
    found |= {match.group(0)[1:-1].strip() for match in _QUOTED.finditer(text)}
    return {each for each in found if each} | {name for name in tools if name in text}


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        mark = found.end() if (found := _ITEM.match(line)) else 0
        parts = [part.strip() for part in _SENTENCE.split(line[mark:].strip()) if part.strip()]
        yield from (line[:mark] + part if at == 0 else part for at, part in enumerate(parts))


def _is_rule(line: str) -> bool:
    if _ITEM.match(line) or _ORDERS.search(line) or _DENIES.search(line):
        return True
    first = "".join(c if c.isalpha() or c == "'" else " " for c in line.lower()).split()[:1]
    return bool(first) and first[0] in _VERBS


def _rule(line: str) -> KeptRule:
    return KeptRule(line, _words(_without_marks(line)), frozenset(exact_in(line)), bool(_DENIES.search(line)))


def _keeps(line: KeptRule, rule: KeptRule) -> bool:
    """Whether a line says a rule."""
    return rule.denies == line.denies and rule.exact <= line.exact and _within(rule.words, line.words)


def _says(line: KeptRule, rule: KeptRule) -> bool:
    """Whether a line of the shorter text has nothing but words of one line of the original, and denies as that does."""
    return rule.denies == line.denies and _within(line.words, rule.words)


def _within(some: Sequence[str], all_of_them: Sequence[str]) -> bool:
    """Whether words come among others, in the same order: "A before B" is not in "B before A"."""
    left = iter(all_of_them)
    return all(word in left for word in some)


def _words(text: str) -> tuple[str, ...]:
    words = (word.lower() for word in _WORD.findall(text))
    return tuple(stem for word in words if word not in FREE for stem in stems(word) or [word])


def _without_marks(text: str) -> str:
    """The text without the numbers that items begin with: they may change."""
    return "\n".join(line[found.end() :] if (found := _ITEM.match(line)) else line for line in text.splitlines())
