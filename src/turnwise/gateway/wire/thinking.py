"""Whether a client wants the model to think first, in the words of any wire format, and to see its earlier thoughts.

A model whose template has such a switch is asked so; any other does as it always does, and the wish is in the record.
"""

from __future__ import annotations

from typing import Any

from turnwise.gateway.wire.request import ModelRequest, invalid, unsupported

_SWITCHES = ("enable_thinking", "thinking")
"""What templates call their switch."""

_PRESERVE = "preserve_thinking"
"""What templates call the argument that keeps the thoughts from before the last question."""

_TYPES = {"enabled": True, "adaptive": None, "auto": None, "disabled": False}


def asked_thinking(fields: dict[str, Any]) -> bool | None:
    """What a request's `fields` say; None leaves it to the model. Raises ApiError (400) for a value that is no answer.

    An effort says how long to think, not whether, except for `none`.
    """
    wishes = [
        _flag(fields, "enable_thinking"),
        _template_flag(fields.get("chat_template_kwargs")),
        _thinking(fields.get("thinking")),
        False if fields.get("reasoning_effort") == "none" else None,
        _reasoning(fields.get("reasoning")),
    ]
    given = {wish for wish in wishes if wish is not None}
    if len(given) > 1:
        raise invalid("thinking", "the request says both that the model should think and that it should not")
    return given.pop() if given else None


def is_bound(request: ModelRequest) -> bool:
    """Whether the answer is held to a grammar, by an engine that samples."""
    return any(bond is not None for bond in (request.structured, request.grammar, request.tool_choice))


def thinking_of(request: ModelRequest) -> bool | None:
    """Whether the model is asked to think. A grammar binds from the first token on: there, thinking lies behind it, and
    so it does where the client wrote the beginning of the answer."""
    return False if is_bound(request) or request.prefill else request.thinking


def keeps_thinking(request: ModelRequest) -> bool:
    """Whether thoughts from before the last question are to stay in a prompt that is written anew."""
    return bool((request.record.get("chat_template_kwargs") or {}).get(_PRESERVE))


def upstreams_arguments(given: Any) -> Any:
    """Of `chat_template_kwargs` those for an upstream, None for none: it is told no earlier thoughts that it could
    keep, and some refuse the field."""
    if not isinstance(given, dict):
        return given
    return {name: value for name, value in given.items() if name != _PRESERVE} or None


def refuse_template_arguments(request: ModelRequest) -> None:
    """For prompts that are rendered here, where a template's other arguments change nothing. Raises ApiError (400)."""
    given = request.record.get("chat_template_kwargs") or {}
    if other := given.keys() - {*_SWITCHES, _PRESERVE}:
        only = f"only 'enable_thinking' and '{_PRESERVE}' are; leave it out"
        raise unsupported(f"chat_template_kwargs.{min(other)}", only)


def _flag(fields: dict[str, Any], name: str, within: str = "") -> bool | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise invalid(f"{within}{name}", "must be true or false")
    return value


def _template_flag(given: Any) -> bool | None:
    if given is None:
        return None
    name = "chat_template_kwargs"
    if not isinstance(given, dict):
        raise invalid(name, "must be an object")
    _flag(given, _PRESERVE, f"{name}.")
    wishes = {_flag(given, key, f"{name}.") for key in _SWITCHES} - {None}
    if len(wishes) > 1:
        raise invalid(name, "'enable_thinking' and 'thinking' differ")
    return wishes.pop() if wishes else None


def _thinking(given: Any) -> bool | None:
    """Anthropic's object, which several chat APIs have taken over; some take a bare truth value."""
    if given is None or isinstance(given, bool):
        return given
    kind = given.get("type") if isinstance(given, dict) else None
    if not isinstance(kind, str) or kind not in _TYPES:
        raise invalid("thinking.type", f"must be one of {', '.join(map(repr, _TYPES))}, not {kind!r}")
    return _TYPES[kind]


def _reasoning(given: Any) -> bool | None:
    """OpenAI's object has an effort; some chat APIs let it be switched off by `enabled`."""
    if not isinstance(given, dict):
        return None
    return False if given.get("effort") == "none" else _flag(given, "enabled", "reasoning.")
