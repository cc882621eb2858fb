"""What a model's reply says, read strictly, and whether it may be a skill.

A reply is one JSON object `{"skills": [...]}` and nothing around it: a fenced one is refused, not repaired. Each skill
has a name that is a slug, a description of one line and a body of 6 to 15 lines. What tries to steer more than its
topic, or names addresses and commands that the person never did, is refused. Pure functions.
"""
# ruff: noqa: SIM905  (word lists read better as text)

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from typing import Any

from turnwise.errors import SkillError
from turnwise.messages import clean
from turnwise.patterns import IGNORECASE, Match, any_of, pattern
from turnwise.skills.retrieval import ALWAYS
from turnwise.skills.skill_file import check_name, write
from turnwise.types import Skill

LEAST_LINES, MOST_LINES = 6, 15
MOST_OF_LINE, MOST_OF_DESCRIPTION = 400, 300
MOST_SKILLS_WRITTEN = 2
"""In one reply."""
MOST_OF_REPLY = 20_000
"""Characters."""
FIELDS = {"name", "description", "content"}
OPTIONAL = {"category"}

_STEERS = any_of(
    r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,40}\b(?:instructions?|rules?|prompts?|polic(?:y|ies)|guidelines?|above|previous|prior)\b",
    r"\bsystem (?:prompt|message)\b",
    r"\b(?:passwords?|credentials?|api[ _-]?keys?|secret(?:s| key| token)|private key|access token|ssh key|cookies?)\b",
    r"\b(?:exfiltrate|upload|send|post|forward|e-?mail|leak|transmit)\b.{0,60}\b(?:to|at)\b.{0,60}\b(?:server|address|host|attacker|webhook|endpoint|url|inbox)\b",
    r"\bdo not (?:tell|inform|mention (?:this )?to|reveal (?:this )?to) the (?:user|person)\b",
    r"\bwithout (?:asking|telling|informing) the (?:user|person)\b",
    r"\byou are now\b|\bnew (?:persona|identity)\b|\bdeveloper mode\b|\bjailbreak\b",
    r"\b(?:always|automatically) (?:approve|accept|grant|allow|trust)\b",
    r"\bbase(?:32|58|64|85)\b|\brot-?13\b|\beval ?\(|\bexec ?\(",
    r"\b(?:decode|decipher|decrypt)\b.{0,60}\b(?:obey|follow|execute)\b",
)
_MARKUP = any_of(
    r"<\|.{0,40}\|>", r"</?(?:system|user|assistant|tool|script|iframe|img|data)\b", r"\[/?INST\]",
    r"^#{0,4} ?(?:system|user|assistant|human) ?:", r"!\[[^\]]{0,200}\]\(",
)  # fmt: skip
_ADDRESS = pattern(
    r"(?:https?|ftp|file|data|javascript|ssh)\s?:\s?/{0,2}[^\s\"')>\]]{1,200}|\bwww\.[^\s\"')>\]]{1,200}"
    r"|\b[\w.+-]{1,64}@[\w-]{1,64}\.[\w.]{1,64}|\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b|\blocalhost\b"
    r"|\b(?:[0-9a-f]{1,4}:){3,7}[0-9a-f]{1,4}\b",
    IGNORECASE,
)
_HOST = pattern(
    r"\b(?:[a-z0-9-]{1,63}(?:\.|\[\.\]| ?\(dot\) ?| dot )){1,6}([a-z]{2,24})\b(?:(/|:\d)[^\s\"')>\]]{0,200})?",
    IGNORECASE,
)
"""What may be an address without a scheme: names with dots, the last of them, and a path or a port."""
_PHONE = pattern(r"\+\d(?:[ ()./-]{0,2}\d){6,14}\b|\b(?!\d{4}-\d\d-\d\d)\d(?:[ ()./-]{0,2}\d){9,14}\b")
_TOP_LEVELS = frozenset(
    "com org net io dev ai app co info biz xyz top site online store shop cloud link live club tech me ly gg to tk ml"
    " tv us uk de fr es it nl pt ru ua cn jp kr in br au ca ch at be se no eu edu gov mil example test invalid onion"
    " internal local".split()
)
_FILES = frozenset(
    "py js ts jsx tsx sh md rs pl go c h cpp java kt rb php html css json yaml yml toml txt csv log xml sql ini cfg"
    " pdf png jpg svg zip gz tar db".split()
)
"""Endings of files: such a name is an address only with a path behind it."""
_COMMAND = any_of(
    r"(?:^|[`$|;&]) ?(?:sudo|curl|wget|rm|dd|mkfs|chmod|chown|bash|sh|zsh|python3?|perl|ruby|node|npm|npx|pip3?|ssh"
    r"|scp|nc|ncat"
    r"|telnet|powershell|cmd|crontab|systemctl|kill|git push|docker|kubectl|export|eval)\b[^`\n]{0,200}",
    r"\b(?:sudo|curl|wget|mkfs|chmod|chown|ncat|scp|crontab|systemctl|powershell|invoke-webrequest|iex|npx)\b"
    r" ?[^`\n]{0,200}",
    r"\b(?:rm|nc|kill|bash|sh|zsh|python3?|perl|ruby|node|cmd|ssh|docker|kubectl)"
    r" (?:-|/|~|\.{1,2}/|\$|\S{1,60}\.(?:sh|py|js|rb|pl)\b)"
    r"[^`\n]{0,200}",
    r"\b(?:pip3?|npm|apt|apt-get|brew|cargo|gem|uv pip) (?:install|add|i)\b[^`\n]{0,200}"
    r"|\bgit (?:push|clone)\b[^`\n]{0,200}",
    r"\b(?:run|execute|type|launch|invoke|call|start|enter)(?: the)?(?: command)? ?[:\"']? ?(?:rm|dd|nc|kill|bash|sh"
    r"|zsh|python3?|perl|ruby|node|cmd|ssh|telnet|docker|kubectl|export|eval) [^`\n]{1,200}",
    r"\| ?(?:sudo |/\w{1,20}/)?(?:bash|sh|zsh|python3?|perl|ruby|node)\b",
)
_FENCE_LINE = "---"


class BadReply(SkillError):
    """A reply that is no skill. The words say what was wrong with it, for the model as well."""


def read_reply(text: str, said: str) -> list[Skill]:
    """The skills in a reply. `said`: all of the failures' trusted text, which addresses and commands must come from.
    Raises BadReply."""
    if len(text) > MOST_OF_REPLY:
        raise BadReply(f"the reply is longer than {MOST_OF_REPLY} characters")
    try:
        whole = json.loads(text.strip(), object_pairs_hook=_once, parse_constant=_no_constant)
    except BadReply:
        raise
    except (ValueError, RecursionError):
        raise BadReply('the reply must be one JSON object {"skills": [...]} with nothing around it, no fence') from None
    if not isinstance(whole, dict) or set(whole) != {"skills"} or not isinstance(whole["skills"], list):
        raise BadReply('the reply must be one JSON object with the one key "skills", a list')
    if not 1 <= len(whole["skills"]) <= MOST_SKILLS_WRITTEN:
        raise BadReply(f"give 1 to {MOST_SKILLS_WRITTEN} skills")
    return [_skill(given, said) for given in whole["skills"]]


def _skill(given: object, said: str) -> Skill:
    if not isinstance(given, dict) or not set(given) >= FIELDS or not set(given) <= FIELDS | OPTIONAL:
        raise BadReply("each skill has name, description, content and perhaps category, and nothing else")
    if not all(isinstance(value, str) for value in given.values()):
        raise BadReply("each value of a skill is text")
    name, description, content = (given[key] for key in ("name", "description", "content"))
    try:
        check_name(name)
    except SkillError as e:
        raise BadReply(str(e)) from None
    if "\n" in description or not 10 <= len(description) <= MOST_OF_DESCRIPTION:
        raise BadReply(f"the description is one line of 10 to {MOST_OF_DESCRIPTION} characters")
    lines = [line for line in content.splitlines() if line.strip()]
    if not LEAST_LINES <= len(lines) <= MOST_LINES or max(map(len, lines)) > MOST_OF_LINE:
        raise BadReply(f"the content has {LEAST_LINES} to {MOST_LINES} lines of at most {MOST_OF_LINE} characters")
    if not lines[0].startswith("# "):
        raise BadReply("the content begins with a heading, '# …'")
    category = given.get("category", "")
    if category == ALWAYS:
        raise BadReply(f"the category {ALWAYS!r} is for the person's own wishes; take another")
    if why := unsafe(f"{category}\n{description}\n{content}", said):
        raise BadReply(why)
    try:
        return write(name, description, content, category or None)
    except SkillError as e:
        raise BadReply(str(e)) from None


def unsafe(text: str, said: str) -> str | None:
    """Why a text may be no skill's, or None. `said`: what the person said, and reports in our own words."""
    if clean(text) != text:
        return "the text has marks of a chat template"
    if not all(c.isprintable() or c == "\n" for c in text):
        return "the text has characters that cannot be seen"
    if any(line.strip() == _FENCE_LINE for line in text.splitlines()):
        return "a line '---' would end a front-matter"
    plain = _without_accents(text)
    if _STEERS.search(plain) or _MARKUP.search(plain):
        return "the text asks for more than its topic: instructions about instructions, secrets, or markup"
    lower = said.lower()
    hosts = (found for found in _HOST.finditer(plain) if _is_address(found))
    for found in (*_ADDRESS.finditer(plain), *_PHONE.finditer(plain), *hosts, *_COMMAND.finditer(plain)):
        if found.group().strip("`$|;& ").lower() not in lower:
            return "the text names an address, a number to call or a command that the person never did"
    return None


def _is_address(found: Match[str]) -> bool:
    last = found.group(1).lower()
    behind = found.group(2)
    return last in _TOP_LEVELS or (behind is not None and (last not in _FILES or behind == "/"))


def _without_accents(text: str) -> str:
    """Letters of other forms as the plain ones that they look like, so that no word is hidden by its spelling."""
    folded = unicodedata.normalize("NFKD", text)
    return "".join(_LOOKS_LIKE.get(c, c) for c in folded if not unicodedata.combining(c))


_LOOKS_LIKE = dict(
    zip("аеорсухіјѕԁɡһոυνАВЕКМНОРСТХΑΒΕΖΗΙΚΜΝΟΡΤΥΧοα", "aeopcyxijsdghnuvABEKMHOPCTXABEZHIKMNOPTYXoa", strict=True)
)


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise BadReply("a key stands there twice")
    return dict(pairs)


def _no_constant(_: str) -> Any:
    raise BadReply("there is no NaN and no Infinity in JSON")
