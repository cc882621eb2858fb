"""Whether a client's first request fits into the served model: its instructions and tools, before a word of yours."""

from __future__ import annotations

from turnwise.agents.known import AGENTS
from turnwise.config import Config
from turnwise.models import longest_context

ROOM = 512
"""Tokens that a first message and its answer need at least."""


def fits_whole(client: str, context: int | None) -> bool:
    """Whether every profile of the client fits, as far as is known."""
    return context is None or max(_sizes(client).values(), default=-ROOM) + ROOM <= context


def advice(client: str, context: int | None, config: Config | None = None) -> tuple[bool, str]:
    """Whether any profile of the client fits into `context` tokens (None: not known), and a sentence on it.

    `config` is that of the server, where it is this home's.
    """
    sizes = _sizes(client)
    if not sizes:
        return True, f"{client} is connected"
    if context is None:
        return True, f"{client} is connected; whether its prompt fits is not known, the engine does not say its context"
    fitting = [name for name, tokens in sizes.items() if tokens + ROOM <= context]
    if len(fitting) == len(sizes):
        return True, f"{client} is connected; its prompt fits ({max(sizes.values()):,} of {context:,} tokens)"
    if fitting:
        left_out = next(name for name in sizes if name not in fitting)
        return True, (
            f"{client} is connected; its {fitting[-1]} profile fits into {context:,} tokens, its {left_out} one needs "
            f"{sizes[left_out] + ROOM:,} (docs/clients.md)"
        )
    smallest, tokens = next(iter(sizes.items()))
    return False, (
        f"{client} needs {tokens + ROOM:,} tokens even with its {smallest} profile (docs/clients.md), the context "
        f"is {context:,}: {remedy(tokens + ROOM, config)}"
    )


def _sizes(client: str) -> dict[str, int]:
    return AGENTS[client].first_prompt if client in AGENTS else {}


def remedy(need: int, config: Config | None) -> str:
    """Which setting, and which value of it, makes room for so many tokens. `config`: None for a server elsewhere."""
    value = 1 << (need - 1).bit_length()
    if config is None:
        return f"whoever runs that server has to raise it, engine.max_model_len = {value} for example"
    if config.engine.kind == "upstream":
        return f"if the upstream takes more, say so: engine.max_model_len = {value} for example"
    if config.engine.kind != "local":
        option = {"vllm": "--max-model-len", "sglang": "--context-length"}[config.engine.kind]
        return f"start {config.engine.kind} with {option} {value}, where the model takes that"
    longest = longest_context(config.model.path)
    if longest is None or longest >= need:
        return f"set engine.max_model_len = {min(value, longest or value)} and start `turnwise serve` again"
    return (
        f"{config.model.path} takes {longest:,} at most, so set model.path to a model with a longer context and "
        f"engine.max_model_len = {value}, or use an engine of your own (docs/engines.md)"
    )
