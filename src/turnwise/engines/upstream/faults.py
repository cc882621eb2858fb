"""An upstream's refusal as an EngineError: its status, its own code, and one code for a prompt that is too long.

Clients shorten a conversation when they read `context_length_exceeded`. OpenAI says that code itself, Anthropic and
most servers that speak OpenAI's API only say it in words.
"""

from __future__ import annotations

from typing import Any

from turnwise.errors import EngineError
from turnwise.patterns import IGNORECASE, pattern

OVERFLOW = "context_length_exceeded"
LONGEST_CODE = 64
_TOO_LONG = pattern(
    r"prompt (is )?too long|maximum context length|context.length.exceeded"
    r"|exceeds? .{0,60}context (length|size|window)",
    IGNORECASE,
)


def fault(message: str, status: int, code: Any = None, retry_after: float | None = None) -> EngineError:
    """The error for what an upstream said in `message`, with `code` where that is a word that a program can use."""
    if code == OVERFLOW or (status in (400, 422) and _TOO_LONG.search(message)):
        return EngineError(message, 400, retry_after, OVERFLOW)
    word = code if isinstance(code, str) and 0 < len(code) <= LONGEST_CODE else None
    return EngineError(message, status, retry_after, word)


def code_in(body: Any) -> Any:
    """The code that the body of a refusal names, in either of OpenAI's shapes; None where there is none."""
    inner = body.get("error") if isinstance(body, dict) else None
    return inner.get("code") if isinstance(inner, dict) else body.get("code") if isinstance(body, dict) else None
