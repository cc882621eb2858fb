"""Four signs of reasoning in the words of an agent before its first call (OpenWebRL, appendix D): by patterns alone.

They describe, they prove nothing: a paraphrase is missed and a plain phrase may be counted. A step may have several.
"""

from __future__ import annotations

from typing import Literal

from turnwise.patterns import IGNORECASE, any_of, pattern

Sign = Literal["history", "blocker", "retry", "proof"]
SIGNS: dict[Sign, str] = {
    "history": "sums up what was tried before",
    "blocker": "names what bars the way (a CAPTCHA, a refusal)",
    "retry": "plans another attempt",
    "proof": "checks the conditions of the task",
}
"""Each with what it says."""
MOST_READ = 20_000
"""Characters of one answer that are looked at."""

_TRIED = r"(?:tried|attempted|checked|searched|looked at|visited|used)"
_PLACES = r"(?:attempts|approaches|searches|sites|websites|sources)"
_OTHER = r"(?:different|another|alternative|new)"
_WAY = r"(?:approach|search|query|site|source|path|method)"
_NEAR = r"[^.!?\n]{0,80}\b"
_HISTORY = any_of(
    rf"\b(?:i|we)(?:'ve|\s+have)\s+(?:already\s+)?{_TRIED}\b",
    rf"\b(?:i|we)\s+already\s+{_TRIED}\b",
    rf"\b(?:i|we)\s+had\s+(?:already\s+)?{_TRIED}\b",
    r"\b(?:previous|earlier|last)\s+(?:attempt|search|approach|step|site|page)\b",
    r"\b(?:so far|up to this point),?\s+(?:i|we)(?:'ve|\s+(?:have|had))\b",
    rf"\b{_TRIED}\b{_NEAR}(?:multiple|several)\s+{_PLACES}\b",
    rf"\b(?:multiple|several)\s+{_PLACES}\b{_NEAR}"
    r"(?:failed|blocked|led to|resulted in|did not|didn't|couldn't|cannot)\b",
    r"\b(?:all|every)\s+(?:attempt|approach|site|source|path|option)s?\s+(?:has|have)\s+"
    r"(?:failed|led to|resulted in)\b",
    r"\b(?:exhausted|tried)\s+(?:all|every|multiple|several)\s+(?:options|approaches|paths|sources|sites)\b",
)
_BLOCKER = any_of(
    r"\b(?:captcha|recaptcha|cloudflare|access denied|403\s+forbidden|robot check)\b",
    r"\baccess\s+(?:is\s+)?forbidden\b",
    r"\b(?:blocked|blocking|unable to access|cannot access|can't access|not accessible)\b",
    r"\b(?:security|bot|human)\s+verification\b",
    r"\bverification\s+(?:challenge|required|page|screen|check)\b",
    r"\b(?:security check|security measure|anti-?bot|anti-?automation)\b",
    r"\b(?:automated access|automated behavior|bot detection|detected automated)\b",
    r"\b(?:requires?|needs?)\s+human\s+(?:interaction|verification|input)\b",
    r"\b(?:cannot|can't|unable to)\s+(?:interact with|solve|complete)\s+(?:the\s+)?(?:re)?(?:captcha|verification)\b",
)
_RETRY = any_of(
    r"\b(?:one|a)\s+(?:final|last)\s+(?:approach|attempt|try|option)\b",
    rf"\b(?:try|attempt|use|take)\s+(?:a\s+)?{_OTHER}\s+{_WAY}\b",
    r"\b(?:needs?|needed|should|could|might|may|will|would|try|use|take|switch to|look for|search for)\b"
    rf"[^.!?\n]{{0,50}}\b{_OTHER}\s+{_WAY}\b",
    rf"\b{_OTHER}\s+{_WAY}\b[^.!?\n]{{0,50}}\b"
    r"(?:is needed|(?:may|might|could|should) work|would help|to (?:try|search|use))\b",
    r"\b(?:go back|return)\s+(?:and|to)\s+(?:try|search|look|navigate)\b",
    r"\b(?:navigate directly|search directly|try searching directly|search more broadly)\b",
    r"\b(?:let me|i should)\s+(?:reconsider|try again|try another|switch to|use a different)\b",
    rf"\b(?:rather than|instead of)\s+{_NEAR}(?:i should|i'll|i will|let me)\s+(?:try|search|navigate|use)\b",
)
_VERB = (
    r"\b(?:meets?|match(?:es)?|satisf(?:y|ies|ied)|fulfills?|qualif(?:y|ies|ied)|confirms?|verif(?:y|ies|ied)|fits?|"
    r"complies with|addresses)\b"
)
_REQUIREMENTS = r"(?:criteria|requirements|conditions|constraints)"
_REQUIREMENT = r"(?:criteria|requirements|conditions|constraints|criterion|requirement|condition|constraint)"
_NTH = r"(?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|final|last|\d{1,4}(?:st|nd|rd|th)?)"
_PROOF = any_of(
    rf"{_VERB}{_NEAR}{_REQUIREMENT}\b",
    rf"\b(?:all|each|every)\s+(?:the\s+)?{_REQUIREMENTS}\b{_NEAR}(?:met|satisfied|fulfilled|addressed|checked)\b",
    rf"\b{_NTH}\s+{_REQUIREMENT}\b",
)
_PROVES = pattern(_VERB, IGNORECASE)
_VALUES = (
    pattern(r"\b(?:under|less than|below)\s+\$?\d[\d,]*(?:\.\d+)?\b", IGNORECASE),
    pattern(r"\b(?:at least|at most|no more than|fewer than|greater than)\s+\d[\d,]*(?:\.\d+)?\b", IGNORECASE),
    pattern(r"\bwithin\s+\d[\d,]*(?:\.\d+)?\s*(?:miles?|mi|km|kilometers?)\b", IGNORECASE),
    pattern(r"\b(?:before|after)\s+\d{1,2}:\d{2}\b", IGNORECASE),
    pattern(r"\b(?:model years?|years?)\s+\d{4}\s*(?:-|to)\s*\d{4}\b", IGNORECASE),
)
_OF_A_FIELD = (
    pattern(r"\bgood with kids\b", IGNORECASE),
    pattern(r"\bgood with cats\b", IGNORECASE),
    pattern(r"\bgluten[- ]free\b", IGNORECASE),
    pattern(r"\bnut[- ]free\b", IGNORECASE),
    pattern(r"\bshort[- ]haired\b", IGNORECASE),
    pattern(r"\bdepart(?:ing|s)?\s+from\s+[A-Z][A-Za-z.-]+", IGNORECASE),
    pattern(r"\blocated near\s+[A-Z0-9][A-Za-z0-9.-]+", IGNORECASE),
)
_SENTENCE = pattern(r"[.!?\n]+")


def signs_in(reasoning: str) -> set[Sign]:
    """The signs in the words of one answer; none of them is no sign of the contrary."""
    text = reasoning[:MOST_READ].replace("’", "'")
    found: set[Sign] = set()
    for sign, sought in (("history", _HISTORY), ("blocker", _BLOCKER), ("retry", _RETRY)):
        if sought.search(text):
            found.add(sign)  # type: ignore[arg-type]
    if _PROOF.search(text) or any(map(_proves, _SENTENCE.split(text))):
        found.add("proof")
    return found


def _proves(sentence: str) -> bool:
    """Whether a sentence says that something of the task holds: with a value, or with two conditions of any kind."""
    if not _PROVES.search(sentence):
        return False
    values = sum(1 for each in _VALUES if each.search(sentence))
    return values > 0 or sum(1 for each in _OF_A_FIELD if each.search(sentence)) >= 2


def before_the_call(content: str, thought: str) -> str:
    """The words of an answer before its first call: what was thought, and what stands before a block or a tag."""
    ends = [at for mark in ("```", "<tool_call>") if (at := content.find(mark)) >= 0]
    return f"{thought}\n{content[: min(ends)] if ends else content}".strip()
