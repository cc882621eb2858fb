"""Words that a model of OpenAI's API refuses although its clients never chose them.

A length and an effort that a client said in another format's words must be told in OpenAI's. Some models there want
`max_completion_tokens` for `max_tokens`, and some take no `reasoning_effort`, or not every one. Such a refusal is not
the client's to mend: the model is asked again without that word. What a client itself wrote in these words is told as
it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx

from turnwise.engines.upstream.conversation import ChatParams
from turnwise.patterns import IGNORECASE, has_word, pattern

REMEMBERED = 1024
"""Refused words that are kept in mind, of all models together."""
_NOT_TAKEN = pattern(r"unsupported|not supported|does not support|unrecognized|unknown|extra inputs", IGNORECASE)


class RefusedWords:
    """Which words which models refused."""

    def __init__(self) -> None:
        self._refused: dict[tuple[str, str], None] = {}

    def fitting(self, params: ChatParams, model: str) -> ChatParams:
        """The params in words that the model did not refuse, as far as the client did not choose them."""
        if self._limit(params) and (model, "max_tokens") in self._refused:
            params = replace(params, max_tokens_key="max_completion_tokens")
        if self._effort(params) and (model, f"reasoning_effort {params.reasoning_effort}") in self._refused:
            params = replace(params, reasoning_effort=None)
        return params

    def learn(self, params: ChatParams, model: str, refusal: httpx.Response) -> bool:
        """Whether a model that was asked with `params` refused a word that the client did not choose."""
        if refusal.status_code not in (400, 422):
            return False
        if self._limit(params) and _names("max_tokens", refusal) and _NOT_TAKEN.search(refusal.text):
            word = "max_tokens"
        elif self._effort(params) and _names("reasoning_effort", refusal):
            word = f"reasoning_effort {params.reasoning_effort}"
        else:
            return False
        self._refused[model, word] = None
        if len(self._refused) > REMEMBERED:
            del self._refused[next(iter(self._refused))]
        return True

    @staticmethod
    def _limit(params: ChatParams) -> bool:
        return "max_tokens" in params.translated and params.max_tokens_key == "max_tokens"

    @staticmethod
    def _effort(params: ChatParams) -> bool:
        return "reasoning_effort" in params.translated and params.reasoning_effort is not None


def _names(word: str, refusal: httpx.Response) -> bool:
    """Whether a refusal is about a setting: by its `param`, or without one in what it says."""
    param = _param(refusal)
    return param == word if isinstance(param, str) else has_word(refusal.text, word)


def _param(refusal: httpx.Response) -> Any:
    try:
        body = refusal.json()
    except (ValueError, RecursionError):
        return None
    error = body.get("error") if isinstance(body, dict) else None
    return error.get("param") if isinstance(error, dict) else None
