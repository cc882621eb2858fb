"""Reading messages: text of a message, sentences, and the removal of orders to the judge.

Pure functions. Nothing here decides whether an answer was good.
"""

from __future__ import annotations

import json

from turnwise.patterns import IGNORECASE, pattern
from turnwise.types import Message

CLIP_CHARS = 4000
"""Characters kept at each end of a long text."""

WIDEST = 16
"""Spaces in a row that are kept; layout says nothing to a pattern."""

_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "−": "-", "–": "-", "\u00a0": " "})

# A sentence or line that tries to tell a judge what to vote. Such text says nothing about the answer.
_JUDGE_ORDER = pattern(
    r"\\?\bboxed\s*\{"
    r"|\[\s*HINT_(?:START|END)\s*\]"
    r"|</?\s*next[_ ]state\s*>"
    r"|\b(?:whoever grades|grader|judge|evaluat(?:or|ion)|(?:grading|reward|judging) model|rater|annotator)\b"
    r"[^.!?\n]{0,80}(?:[+-]\s?1\b|\bmaximum\b|\b(?:prior|previous|these) rules?\b|\bscore\s*[:=]|\breward\s*[:=])"
    r"|\b(?:give|award|assign|output|vote)\b[^.!?\n]{0,30}(?:[+-]\s?1\b|\b(?:maximum|highest|top) (?:score|reward)\b)"
    r"|\b(?:ignore|disregard|forget)\b[^.!?\n]{0,20}\b(?:previous|prior|above|earlier|all)\b[^.!?\n]{0,20}"
    r"\b(?:instruct|rule|prompt)\w*",
    IGNORECASE,
)

# What a chat template or a tokenizer could take for one of its own tokens.
_MARK = pattern(
    r"<[|｜][^<>|｜\s]{1,60}[|｜]>|</?(?:s|bos|eos|pad|unk|think|im_start|im_end|(?:start|end)_of_turn|tool_calls?"
    r"|tool_response|tool_result|function_call)>|\[/?(?:INST|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS|SYSTEM_PROMPT)\]"
    r"|<</?SYS>>",
    IGNORECASE,
)
_WIDE_SPACE = pattern(rf"[^\S\n]{{{WIDEST + 1},}}+", unbounded=True)
_BLANK_LINES = pattern(rf"\n(?:[^\S\n]{{0,{WIDEST}}}+\n){{3,}}+", unbounded=True)
_PLANTED_END = pattern(r"\}|</?\s*next[_ ]state\s*>|\]")
_LONG_WORD = pattern(r"[\w'-]{4,}")
MARK_ROUNDS = 8
_NO_BRACKETS = str.maketrans("", "", "<>[]")
_LONE_SURROGATE = pattern("[\ud800-\udfff]")

# Ends of sentences in the scripts we know; a dot inside a number, path, version or abbreviation is none.
_SENTENCE_END = pattern(r"(?<=[.!?…])[\"')\]]*\s+|(?<=[。！？])|\n+")


def content_text(message: Message) -> str:
    """The text of a message's content, whether it is a string, a list of parts or absent."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [p if isinstance(p, str) else str(p.get("text") or "") for p in content if isinstance(p, str | dict)]
        return "\n".join(p for p in parts if p)
    return ""


def answer_text(answer: Message) -> str:
    """An assistant message as text: what it says, then each tool call as ``name(arguments)``."""
    lines = [content_text(answer)]
    for call in answer.get("tool_calls") or []:
        function = call.get("function") or {}
        arguments = function.get("arguments", "")
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        lines.append(f"{function.get('name', 'unknown')}({arguments})")
    return "\n".join(line for line in lines if line)


def storable(text: str) -> str:
    """The text without halves of surrogate pairs, which no UTF-8 file or database takes."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def clean(text: str) -> str:
    """Text that may go into another prompt: storable, and without marks that a chat template has a meaning for."""
    text = storable(text)
    for _ in range(MARK_ROUNDS):  # taking one mark out may join the halves of another
        if (less := _MARK.sub("", text)) == text:
            return text
        text = less
    return text.translate(_NO_BRACKETS)  # marks in marks in marks: somebody's work


def plain(text: str) -> str:
    """Straight quotes, plain minus and spaces, so that patterns need one form only."""
    return text.translate(_QUOTES)


def sentences(text: str) -> list[str]:
    """The text's sentences and lines, stripped, without empty ones."""
    return [s.strip() for s in _SENTENCE_END.split(plain(text)) if s and s.strip()]


def without_judge_orders(text: str) -> tuple[str, bool]:
    """The text without sentences that order a verdict, and whether there were any."""
    kept, found = [], False
    for sentence in sentences(text):
        if not _JUDGE_ORDER.search(sentence):
            kept.append(sentence)
            continue
        found = True
        # What follows a planted tag or box on the same line may still be the person's own words.
        rest = _PLANTED_END.split(sentence)[-1].strip(" .,;:-")
        if rest and rest != sentence.strip(" .,;:-") and not _JUDGE_ORDER.search(rest):
            kept.append(rest)
    return "\n".join(kept), found


def clip(text: str) -> str:
    """The beginning and the end of a long text, without long runs of white space.

    That is where verdicts stand, and what bounds the time of matching: no pattern of the judge sees more.
    """
    text = collapse(text)
    return text if len(text) <= 2 * CLIP_CHARS else f"{text[:CLIP_CHARS]}\n{text[-CLIP_CHARS:]}"


def collapse(text: str) -> str:
    """The text with at most `WIDEST` spaces, and at most two blank lines, in a row."""
    return _BLANK_LINES.sub("\n\n\n", _WIDE_SPACE.sub(" " * WIDEST, text))


def words(text: str) -> set[str]:
    """Lower-case words of at least four letters or digits: a crude measure of what a text is about."""
    return set(_LONG_WORD.findall(text.lower()))
