"""Python's parser, by one thread at a time: that of 3.11 counts its depth for all of them together, and may fail."""

from __future__ import annotations

import ast
import threading

_ONE = threading.Lock()


def parsed(source: str | bytes) -> ast.Module:
    """The tree of a source. Raises SyntaxError and ValueError, as `ast.parse` does."""
    with _ONE:
        return ast.parse(source)
