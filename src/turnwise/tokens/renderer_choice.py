"""Which renderer a local model folder takes: that of its model family, where it writes what the folder's template does.

`renderers` knows model families by their names on the hub. A folder has no such name, and a fine-tune may have a
template of its own; so the family comes from `config.json`, and is believed only after both have written the same
conversations.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from renderers.base import Renderer, create_renderer
from renderers.configs import BaseRendererConfig, DefaultRendererConfig, Qwen3RendererConfig, RendererConfig

from turnwise.errors import ModelError
from turnwise.pictures.layout import PictureLayout
from turnwise.pictures.patches import PatchLayout
from turnwise.tokens.chatml import words_in
from turnwise.tokens.qwen25 import Qwen25Renderer
from turnwise.tokens.qwen_seeing import QwenSeeingRenderer, QwenThinkingRenderer
from turnwise.tokens.smolvlm import SmolVLMRenderer

CONFIG_OF_TYPE: dict[str, type[Qwen3RendererConfig]] = {"qwen3": Qwen3RendererConfig, "qwen3_moe": Qwen3RendererConfig}
"""Renderer configurations by the `model_type` of a model's `config.json`."""

QWEN25_TYPES = frozenset({"qwen2", "qwen2_moe"})
"""The same, of the models whose renderer is our own (`qwen25`)."""

SWITCH = "enable_thinking"
"""What templates call the argument that says whether to think."""

KEEP = {
    "preserve_thinking": True,
    "clear_thinking": False,
    "auto_drop_analysis": False,
    "truncate_history_thinking": False,
    "drop_thinking": False,
}
"""What templates call the argument that keeps past thoughts, and the value that does."""

_CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": {"at": "it"}}}
_TOOL = {"type": "function", "function": {"name": "look", "description": "looks", "parameters": {"type": "object"}}}
Probe = tuple[list[dict[str, Any]], list[dict[str, Any]] | None]
"""A conversation, and the tools that are offered in it."""
PROBES: list[Probe] = [
    ([{"role": "user", "content": "one"}], None),
    (
        [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two"},
            {"role": "user", "content": "three"},
        ],
        None,
    ),
    (
        [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two", "tool_calls": [_CALL]},
            {"role": "tool", "content": "three", "tool_call_id": "call_1"},
        ],
        [_TOOL],
    ),
]
THOUGHTS: list[Probe] = [
    (
        [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two", "reasoning_content": "old"},
            {"role": "user", "content": "three"},
            {"role": "assistant", "content": "four", "reasoning_content": "new", "tool_calls": [_CALL]},
            {"role": "tool", "content": "five", "tool_call_id": "call_1"},
        ],
        [_TOOL],
    ),
]
"""The same, of models whose answers may begin with thoughts."""


def renderer_config(folder: Path, tokenizer: Any) -> RendererConfig | None:
    """The configuration of the family's renderer, or None when the folder's template is not the family's."""
    model_type = _model_type(folder)
    if model_type not in CONFIG_OF_TYPE:
        return None
    found = CONFIG_OF_TYPE[model_type]()
    return found if _writes_the_template(create_renderer(tokenizer, found), tokenizer) else None


def qwen25_renderer(folder: Path, tokenizer: Any) -> Qwen25Renderer | None:
    """Our own renderer for Qwen2.5, or None when the folder is another model's or has a template of its own."""
    file = folder / "tokenizer.json"
    if _model_type(folder) not in QWEN25_TYPES or not file.exists() or not tokenizer.chat_template:
        return None
    text = tokenizer.apply_chat_template(PROBES[0][0], tokenize=False)
    before, _, rest = text.partition("<|im_start|>system\n")
    system, closed, _ = rest.partition("<|im_end|>")
    if before or not closed:
        return None
    renderer = Qwen25Renderer(file, system)
    return renderer if _writes_the_template(renderer, tokenizer) else None


def seeing_renderer(
    folder: Path, tokenizer: Any, layout: PictureLayout | PatchLayout
) -> SmolVLMRenderer | QwenSeeingRenderer:
    """Our own renderer for a model whose pictures are understood here. Raises ModelError for another template."""
    if isinstance(layout, PictureLayout):
        return _smolvlm_renderer(folder, tokenizer, layout)
    tokenizer.chat_template = _template(folder, tokenizer)
    for family in (QwenSeeingRenderer, QwenThinkingRenderer):
        renderer = family(folder / "tokenizer.json", layout)
        if tokenizer.chat_template and _writes_the_template(renderer, tokenizer, THOUGHTS):
            return renderer
    raise ModelError(f"the chat template of {folder} is not Qwen3-VL's, so that its pictures have no place in it")


def _smolvlm_renderer(folder: Path, tokenizer: Any, layout: PictureLayout) -> SmolVLMRenderer:
    renderer = SmolVLMRenderer(folder / "tokenizer.json", layout)
    template = _template(folder, tokenizer)
    for messages, tools in PROBES:
        if tools is not None:
            continue  # its template knows none
        given: Any = messages
        parted = [message | {"content": [{"type": "text", "text": words_in(message)}]} for message in given]
        text = template and tokenizer.apply_chat_template(
            parted, chat_template=template, add_generation_prompt=True, tokenize=False
        )
        if tokenizer.decode(renderer.render_ids(given, add_generation_prompt=True)) != text:
            raise ModelError(
                f"the chat template of {folder} is not SmolVLM's, so that its pictures have no place in it"
            )
    return renderer


def _template(folder: Path, tokenizer: Any) -> Any:
    """The folder's template, which older ones have in a file of its own."""
    older = folder / "chat_template.json"
    if tokenizer.chat_template or not older.exists():
        return tokenizer.chat_template
    return json.loads(older.read_text(encoding="utf-8")).get("chat_template")


def _model_type(folder: Path) -> str | None:
    config = folder / "config.json"
    return json.loads(config.read_text(encoding="utf-8")).get("model_type") if config.exists() else None


def _writes_the_template(renderer: Any, tokenizer: Any, more: Sequence[Probe] = ()) -> bool:
    for messages, tools in (*PROBES, *more):
        ids = renderer.render_ids(messages, tools=tools, add_generation_prompt=True)
        text = tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True, tokenize=False)
        if tokenizer.decode(ids) != text:
            return False
    return True


def keeping_thinking(tokenizer: Any, renderer: Renderer) -> Renderer:
    """The same with all thoughts that were sampled in its prompts (OpenWebRL §4.2): what was seen before may be told by
    them alone. A family whose template has no argument for it keeps them where a prompt goes on from the turn before,
    and not in one that is written anew. The renderer itself where it cannot be asked so."""
    if isinstance(renderer, QwenThinkingRenderer):
        return renderer.keeping_all()
    config: Any = getattr(renderer, "config", None)
    if not isinstance(config, BaseRendererConfig) or isinstance(config, DefaultRendererConfig):
        return renderer
    kept = {name: value for name, value in KEEP.items() if name in config.template_field_names()}
    try:
        asked: Any = type(config).model_validate(config.model_dump() | (kept or {"thinking_retention": "all"}))
    except ValueError:  # an argument of its template says the opposite, and we know no other for it
        return renderer
    return create_renderer(tokenizer, asked)


def thinking_switch(tokenizer: Any, renderer: Renderer) -> dict[bool, Renderer]:
    """The renderers that ask for thinking and for none; empty where the family's template has no such switch.

    The one that the model takes by itself is `renderer`.
    """
    config: Any = getattr(renderer, "config", None)
    known = isinstance(config, BaseRendererConfig) and SWITCH in config.template_field_names()
    if not known and not (isinstance(config, DefaultRendererConfig) and SWITCH in str(tokenizer.chat_template)):
        return {}
    asking: dict[bool, Renderer] = {}
    for wish in (True, False):
        switched: Any = type(config).model_validate(config.model_dump() | {SWITCH: wish})
        asking[wish] = create_renderer(tokenizer, switched)
    conversation: Any = PROBES[0][0]
    ids = renderer.render_ids(conversation, add_generation_prompt=True)
    for wish, other in asking.items():
        if other.render_ids(conversation, add_generation_prompt=True) == ids:
            asking[wish] = renderer
    return asking
