"""Which sampled tokens are those of the answer's text, and not of its reasoning, its tool calls or their tags."""

from __future__ import annotations

from turnwise.messages import calls_of, text_of, thinking_in
from turnwise.tokens.answer_parser import CLOSE_THINK, OPEN_CALL
from turnwise.types import Message

Tokens = list[tuple[str, float]]
"""Each token's text and log-prob."""


def tokens_of_message(message: Message, tokens: Tokens) -> Tokens:
    """Those of a whole answer; none where they cannot be told apart."""
    text, calls = text_of(message), calls_of(message)
    if thinking_in(message) and CLOSE_THINK not in joined(tokens):
        return []
    tokens = without_reasoning(text, tokens)
    if not calls:
        return tokens
    before, found, _ = joined(tokens).partition(OPEN_CALL)
    tokens = _within(tokens, 0, len(before))
    while tokens and not tokens[-1][0].strip():
        tokens = tokens[:-1]
    same = "\ufffd" in before or before.strip() == text.strip()  # a token with a part of a character has no text
    return tokens if found and same else []


def without_reasoning(text: str, tokens: Tokens) -> Tokens:
    """The tokens after the tag that ends reasoning, if it is no part of the `text` they brought."""
    before, found, _ = joined(tokens).partition(CLOSE_THINK)
    if not found or CLOSE_THINK in text:
        return tokens
    tokens = _within(tokens, len(before) + len(CLOSE_THINK), None)
    while tokens and not tokens[0][0].strip():
        tokens = tokens[1:]
    return tokens


def tokens_of_part(text: str, tokens: Tokens) -> Tokens:
    """The tokens of `text` among those that brought other parts as well; none where it stands there twice, or not."""
    whole = joined(tokens)
    if whole.count(text) != 1:
        return []
    return _within(tokens, whole.index(text), whole.index(text) + len(text))


def split_behind(text: str, tokens: Tokens) -> tuple[Tokens, Tokens]:
    """The tokens of `text` and those behind it, which may begin a call that cannot be told yet.

    All are those of `text` where they do not spell it: a token with a part of a character has no text of its own.
    """
    if not joined(tokens).startswith(text):
        return tokens, []
    mine = _within(tokens, 0, len(text))
    return mine, tokens[len(mine) :]


def joined(tokens: Tokens) -> str:
    return "".join(text for text, _ in tokens)


def _within(tokens: Tokens, start: int, end: int | None) -> Tokens:
    kept, at = [], 0
    for text, logprob in tokens:
        if at >= start and (end is None or at + len(text) <= end):
            kept.append((text, logprob))
        at += len(text)
    return kept
