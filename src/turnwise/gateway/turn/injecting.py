"""The skills in a request: one block at the end of its system message, for the engine alone.

The record keeps the client's messages as they came, and finds its history by these; the prompt's ids have the block,
as they are what was sampled from.
"""

from __future__ import annotations

from dataclasses import replace

from turnwise.gateway.wire.request import ModelRequest
from turnwise.messages import saying
from turnwise.types import Message, Text


def with_block(request: ModelRequest, block: str, default_system: str | None) -> ModelRequest:
    """The request with a block behind what its system message says, or the model's own where it has none; as it is
    where there is no block."""
    if not block:
        return request
    first, *rest = request.messages
    if first.role != "system":
        said = f"{default_system}\n\n{block}" if default_system else block
        return replace(request, messages=[saying("system", said), *request.messages])
    return replace(request, messages=[_told(first, block), *rest])


def _told(system: Message, block: str) -> Message:
    parts = system.parts
    last = parts[-1] if parts else None
    if isinstance(last, Text):
        return Message(system.role, (*parts[:-1], Text(f"{last.text}\n\n{block}")), system.name)
    return Message(system.role, (*parts, Text(block)), system.name)
