"""Whether a client's first request fits into the served model: its instructions and tools, before a word of yours."""

from __future__ import annotations

ROOM = 512
"""Tokens that a first message and its answer need at least."""

FIRST_PROMPT: dict[str, dict[str, int]] = {
    "openclaw": {"small": 4638, "minimal": 9967, "default": 15162},
    "mini-swe-agent": {"default": 960},
    "opencode": {"default": 7587},
    "codex": {"default": 8796},
    "claude-code": {"default": 12307},
    "qwen-code": {"default": 18277},
}
"""Measured tokens of a client's first request by profile, smallest first (docs/clients.md has the profiles)."""


def advice(client: str, context: int | None) -> tuple[bool, str]:
    """Whether any profile of the client fits into `context` tokens (None: not known), and a sentence on it."""
    sizes = FIRST_PROMPT.get(client)
    if sizes is None:
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
        f"is {context:,}; raise it (engine.max_model_len, or an external engine's own setting), or serve another model"
    )
